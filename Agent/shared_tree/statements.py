"""Every statement on the tables of shared trees, and the tables themselves.

Not used, since not all that speaks PostgreSQL has them, or has them as PostgreSQL does: LISTEN and NOTIFY, sequences,
triggers, statements within WITH that change data; advisory locks but for setup and vectors, partial indexes but for
vectors. `tree_id` is in every key, so a cluster can be divided by it.
"""

from __future__ import annotations

FORMAT = 1
"""Of the tables; those of a newer one are refused."""

# Names in collation C: another collation may change with the operating system, and the order of an index with it.
# kt_batch.lines as bytea: jsonb refuses \u0000 and changes the order, text depends on encodings.
SCHEMA = (
    """CREATE TABLE IF NOT EXISTS kt_format (format int PRIMARY KEY)""",
    """CREATE TABLE IF NOT EXISTS kt_tree (
        tree_id text COLLATE "C" PRIMARY KEY, log_id text NOT NULL, made_at timestamptz NOT NULL DEFAULT now())""",
    """CREATE TABLE IF NOT EXISTS kt_batch (
        tree_id text COLLATE "C", after bigint, upto bigint NOT NULL, crc text NOT NULL, lines bytea NOT NULL,
        pieces text NOT NULL, size bigint NOT NULL, PRIMARY KEY (tree_id, after))""",
    """CREATE TABLE IF NOT EXISTS kt_piece (
        tree_id text COLLATE "C", id text COLLATE "C", part int, bytes bytea NOT NULL,
        PRIMARY KEY (tree_id, id, part))""",
    """CREATE TABLE IF NOT EXISTS kt_mark (
        tree_id text COLLATE "C", seq bigint, after bigint NOT NULL, crc text NOT NULL, next_ordinal bigint NOT NULL,
        parts int NOT NULL, size bigint NOT NULL, is_full boolean NOT NULL, digest text NOT NULL,
        PRIMARY KEY (tree_id, seq))""",
    """CREATE TABLE IF NOT EXISTS kt_state (
        tree_id text COLLATE "C", seq bigint, part int, kind int NOT NULL, rows bytea NOT NULL, places text NOT NULL,
        PRIMARY KEY (tree_id, seq, part))""",
    """CREATE TABLE IF NOT EXISTS kt_snapshot (
        tree_id text COLLATE "C", name text COLLATE "C", seq bigint NOT NULL, PRIMARY KEY (tree_id, name))""",
    """CREATE TABLE IF NOT EXISTS kt_vector (
        tree_id text COLLATE "C", model text COLLATE "C", digest bytea, vector bytea NOT NULL,
        PRIMARY KEY (tree_id, model, digest))""",
)
TABLES = ("kt_batch", "kt_piece", "kt_mark", "kt_state", "kt_snapshot", "kt_tree")
READ_FORMAT = "SELECT format FROM kt_format ORDER BY format DESC LIMIT 1"

# True, and this transaction's commit waits for the disk: a session's own setting may be another's, after a pooler.
_DURABLE = """set_config('synchronous_commit', CASE current_setting('synchronous_commit')
    WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true) <> ''"""
DURABLE = f"SELECT {_DURABLE}"

# The whole promise is in this statement: at most one batch can follow a point (the key), it follows what its writer
# has read (the checksum), that cannot be taken away meanwhile (the lock on its row), the tables have the format that
# its writer knows, and the commit is durable.
APPEND = f"""
    INSERT INTO kt_batch (tree_id, after, upto, crc, lines, pieces, size)
    SELECT tree_id, %s, %s, %s, %s, %s, %s FROM kt_batch b WHERE tree_id = %s AND after = %s AND crc = %s
        AND NOT EXISTS (SELECT FROM kt_format WHERE format <> {FORMAT}) AND {_DURABLE} FOR KEY SHARE
    ON CONFLICT DO NOTHING"""
# The same, but only while no other writer has its turn, or waits for it. It waits for none: one may be stopped.
_NO_ONE_WAITS = "EXISTS (SELECT FROM kt_tree t WHERE t.tree_id = b.tree_id FOR KEY SHARE SKIP LOCKED)"
YIELDING = APPEND.replace(" FOR KEY SHARE", f" AND {_NO_ONE_WAITS} FOR KEY SHARE")
INSERT = """
    INSERT INTO kt_batch (tree_id, after, upto, crc, lines, pieces, size) VALUES (%s, %s, %s, %s, %s, %s, %s)"""
PAGE_BYTES = 4 * 1024 * 1024
# The server ends a page by bytes, so that a machine far away asks seldom, and no page is large.
READ = f"""
    SELECT after, upto, crc, lines, pieces, size FROM (
        SELECT after, upto, crc, CASE WHEN after = %s THEN ''::bytea ELSE lines END AS lines, pieces, size,
            sum(CASE WHEN after = %s THEN 0 ELSE size END) OVER (ORDER BY after) - size AS before
        FROM kt_batch WHERE tree_id = %s AND after >= %s ORDER BY after LIMIT %s) b
    WHERE before < {PAGE_BYTES} ORDER BY after"""
FIND = """
    (SELECT after, upto, crc, lines, pieces, size FROM kt_batch WHERE tree_id = %s ORDER BY after LIMIT 1)
    UNION ALL SELECT after, upto, crc, ''::bytea, pieces, size FROM kt_batch
    WHERE tree_id = %s AND after = ANY(%s::bigint[])"""
READ_BACK = """
    SELECT after, upto, crc, lines, pieces, size FROM kt_batch
    WHERE tree_id = %s AND after < %s AND (%s::bytea IS NULL OR pieces <> '' OR position(%s::bytea IN lines) > 0)
    ORDER BY after DESC LIMIT %s"""
# Who waits for a turn in vain goes on without.
LIMIT_WAIT, NO_LIMIT = "SET LOCAL statement_timeout = '2s'", "SET LOCAL statement_timeout TO DEFAULT"
TAKE_TURN = f"SELECT 1 FROM kt_tree WHERE tree_id = %s AND {_DURABLE} FOR UPDATE"
PARTS = """
    SELECT kind, rows, places FROM kt_state WHERE tree_id = %s AND seq = %s AND part >= %s ORDER BY part LIMIT %s"""
MARK = """
    INSERT INTO kt_mark (tree_id, seq, after, crc, next_ordinal, parts, size, is_full, digest)
    SELECT tree_id, %s, after, crc, %s, -1, 0, %s, '' FROM kt_batch WHERE tree_id = %s AND after = %s AND crc = %s
    FOR KEY SHARE ON CONFLICT DO NOTHING"""
MARKS = """
    SELECT seq, after, crc, next_ordinal, parts, size, is_full FROM kt_mark WHERE tree_id = %s ORDER BY seq DESC"""
FINISH_MARK = "UPDATE kt_mark SET parts = %s, size = %s, digest = %s WHERE tree_id = %s AND seq = %s"
DIGEST = """
    SELECT m.parts = count(s.part) AND m.digest = encode(sha256(coalesce(string_agg(
            sha256(s.rows) || sha256(convert_to(s.kind || s.places, 'UTF8')), ''::bytea ORDER BY s.part
        ), ''::bytea)), 'hex')
    FROM kt_mark m LEFT JOIN kt_state s ON s.tree_id = m.tree_id AND s.seq = m.seq
    WHERE m.tree_id = %s AND m.seq = %s GROUP BY m.parts, m.digest"""
SNAPSHOT = f"""
    INSERT INTO kt_snapshot (tree_id, name, seq) SELECT tree_id, %s, %s FROM kt_batch
    WHERE tree_id = %s AND after = %s AND crc = %s AND {_DURABLE} FOR KEY SHARE ON CONFLICT DO NOTHING"""
LOG_SPANS = """
    SELECT k.number - 1, CASE WHEN b.pieces = '' THEN substring(b.lines FROM k.start + 1 FOR k.length) END, b.pieces
    FROM unnest(%s::bigint[], %s::int[], %s::int[]) WITH ORDINALITY AS k(after, start, length, number)
    JOIN kt_batch b ON b.tree_id = %s AND b.after = k.after"""
STATE_SPANS = """
    SELECT k.number - 1, substring(s.rows FROM k.start + 1 FOR k.length)
    FROM unnest(%s::bigint[], %s::int[], %s::int[], %s::int[]) WITH ORDINALITY AS k(seq, part, start, length, number)
    JOIN kt_state s ON s.tree_id = %s AND s.seq = k.seq AND s.part = k.part"""
UNKEPT = """
    SELECT count(*) FROM kt_snapshot n WHERE tree_id = %s AND NOT EXISTS (
        SELECT FROM kt_mark m WHERE m.tree_id = n.tree_id AND m.seq = n.seq AND m.is_full)"""
NEWS = """
    SELECT k.number - 1
    FROM unnest(%s::text[], %s::bigint[], %s::text[]) WITH ORDINALITY AS k(tree_id, after, crc, number)
    WHERE NOT EXISTS (SELECT FROM kt_batch b WHERE b.tree_id = k.tree_id AND b.after = k.after AND b.crc = k.crc)
        OR EXISTS (SELECT FROM kt_batch b WHERE b.tree_id = k.tree_id AND b.after > k.after)
    ORDER BY 1"""
VECTORS = """
    SELECT k.number - 1, v.vector FROM unnest(%s::bytea[]) WITH ORDINALITY AS k(digest, number)
    JOIN kt_vector v ON v.tree_id = %s AND v.model = %s AND v.digest = k.digest"""
ADD_VECTORS = """
    INSERT INTO kt_vector (tree_id, model, digest, vector)
    SELECT %s, %s, k.digest, k.vector FROM unnest(%s::bytea[], %s::bytea[]) AS k(digest, vector)
    ON CONFLICT DO NOTHING"""
# Vectors that are searched, where pgvector is: those of a tree and a model come with their index, all in one commit. An
# empty digest stands for the bound that `keep` was last given; it goes with the tree's other vectors.
IS_SEARCHED = "SELECT to_regclass('kt_near') IS NOT NULL"
# As long as the transaction lasts, whatever schema it is in.
SEE_PGVECTOR = """SELECT set_config('search_path', concat_ws(', ', nullif(current_setting('search_path'), ''),
    extnamespace::regnamespace::text), true) FROM pg_extension WHERE extname = 'vector'"""
# Who has rights on the other vectors gets them on these.
NEAR_SCHEMA = """CREATE TABLE IF NOT EXISTS kt_near (tree_id text COLLATE "C", model text COLLATE "C", digest bytea,
    near halfvec NOT NULL, PRIMARY KEY (tree_id, model, digest)); DO $$ BEGIN EXECUTE (SELECT coalesce(string_agg(
    concat('GRANT ', privilege_type, ' ON kt_near TO ', coalesce(nullif(grantee, 0)::regrole::text, 'PUBLIC')), ';'),
    'SELECT 1') FROM pg_class, aclexplode(relacl) WHERE oid = 'kt_vector'::regclass AND (grantee, privilege_type) NOT IN
    (SELECT grantee, privilege_type FROM pg_class, aclexplode(relacl) WHERE oid = 'kt_near'::regclass)); END $$"""
# Two who add and then index would wait for each other.
BUILD_ALONE = """SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = '60s';
    SET LOCAL lock_timeout = 0; SELECT pg_advisory_xact_lock(hashtext('kt_near'))"""
BOUND = "UPDATE kt_vector SET vector = convert_to(%s, 'UTF8') WHERE tree_id = %s AND digest = ''"
MANY_VECTORS = """SELECT model, max(octet_length(vector)) FROM kt_vector WHERE tree_id = %s AND digest <> ''
    GROUP BY model HAVING count(*) > %s AND max(octet_length(vector)) <= 16000"""
# Without a join: before a table is analysed, one compares each row with each.
NOT_NEAR = """SELECT digest FROM kt_vector WHERE tree_id = %s AND model = %s AND octet_length(vector) = %s
    EXCEPT SELECT digest FROM kt_near WHERE tree_id = %s AND model = %s"""
SOME_VECTORS = "SELECT digest, vector FROM kt_vector WHERE tree_id = %s AND model = %s AND digest = ANY(%s::bytea[])"
ADD_NEAR = """INSERT INTO kt_near SELECT %s, %s, k.digest, k.near::halfvec
    FROM unnest(%s::bytea[], %s::text[]) AS k(digest, near) ON CONFLICT DO NOTHING"""
# Of a table that is not analysed the index is not used.
INDEX_NEAR = """CREATE INDEX IF NOT EXISTS {} ON kt_near USING hnsw ((near::halfvec({})) halfvec_cosine_ops)
    WHERE tree_id = %s AND model = %s; ANALYZE kt_near"""
# Only the role that made it may drop it; of another role's compaction it stays, empty.
DROP_NEAR = "DO $$ BEGIN DROP INDEX IF EXISTS {}; EXCEPTION WHEN insufficient_privilege THEN NULL; END $$"
NEAREST = """SELECT digest FROM kt_near WHERE tree_id = %s AND model = %s
    ORDER BY near::halfvec({0}) <=> %s::halfvec({0}) LIMIT %s"""
ASKED = (VECTORS, READ, FIND, READ_BACK, MARKS, DIGEST, NEWS, UNKEPT, LOG_SPANS, STATE_SPANS)
"""What `setup` lets the server look at, to see that it has all columns."""
