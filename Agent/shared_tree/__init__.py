"""One tree on many machines: its log lies in PostgreSQL, and each machine follows it.

Optional, with the extra `[postgres]`; the library in `Agent.keyword_tree` knows nothing of it. Read in this order:

    port         what this package knows of the core's inside
    rows         the rows of the tables as they are handed on, and what may go wrong with them
    connections  a few connections for many trees, what their errors mean, and how statements are tried again
    statements   the tables in PostgreSQL, and every statement on them
    tables       what a tree needs of the tables
    reading      a log is read, and checked, as one chain of batches; states: all rows at one operation
    store        the store behind a tree: commit, conflict, lost answer
    vectors      each text is embedded once for all machines
    copying      from a folder into the tables, and back
    shared_log   `SharedLog`, the door
    address      a string that names a server and a tree
"""

try:
    import psycopg
except ModuleNotFoundError as _error:
    if _error.name != "psycopg":
        raise
    raise ImportError("shared trees need psycopg: pip install '.[postgres]' in its repository") from _error
except ImportError as _error:
    raise ImportError(f"psycopg finds no libpq ({_error}): pip install '.[postgres]' in its repository") from _error

if not hasattr(psycopg.errors, "_WaitTimeout"):
    raise ImportError("shared trees need psycopg 3.3 or newer: pip install --upgrade '.[postgres]' in its repository")

from .shared_log import SharedLog

__all__ = ["SharedLog"]
