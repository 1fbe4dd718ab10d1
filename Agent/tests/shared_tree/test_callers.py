"""Those who open trees take shared ones without knowing: the command line, memories, the hub's ledger."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from Agent.adapters.langchain import KeywordTreeRetriever
from Agent.adapters.langgraph import KeywordTreeStore
from Agent.adapters.mem0 import Memory
from Agent.cli.command_line import main
from Agent.finding import embedder as embedder_module
from Agent.finding.embedder import HashingEmbedder, Meaning, digest_of
from Agent.keyword_tree import InvalidInputError, KeywordTree
from Agent.knowhub.hub import LOCAL, KnowHub
from Agent.memory.eviction import Capacity, HybridEviction, RecallBased, Ttl
from Agent.memory.store import MemoryStore
from Agent.shared_tree import SharedLog
from Agent.shared_tree.address import cache_folder, parse_address
from Agent.tests.shared.memory_log import MemoryLog
from Agent.tests.shared_tree.conftest import port_of, sql
from Agent.tests.support.threads import in_threads


@pytest.fixture
def data(log: SharedLog, database: str) -> str:
    password = database.partition("password=")[2].split()[0]
    name = database.partition("dbname=")[2]
    return f"postgresql://kt:{password}@127.0.0.1:{port_of(database)}/{name}#u42"


class TestCommandLine:
    @pytest.fixture(autouse=True)
    def _cache(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        monkeypatch.setenv("KEYWORD_TREE_LANG", "en")
        monkeypatch.chdir(tmp_path)

    def run(self, capsys: pytest.CaptureFixture[str], data: str, *words: str) -> tuple[int, str, str]:
        code = main(["--data", data, *words])
        said = capsys.readouterr()
        return code, said.out, said.err

    def test_does_with_a_shared_tree_what_it_does_with_a_folder(
        self, capsys: pytest.CaptureFixture[str], data: str, tmp_path: Path
    ) -> None:
        assert self.run(capsys, data, "add", "茶", "--parent", "/", "--alias", "tea")[0] == 0
        assert self.run(capsys, data, "info", "No sugar, and not too hot.", "--to", "tea")[0] == 0
        assert "茶" in self.run(capsys, data, "search", "tea")[1]
        assert "No sugar" in self.run(capsys, data, "ask", "how much sugar?")[1]
        assert self.run(capsys, data, "delete", "tea")[0] == 0
        assert self.run(capsys, data, "undo")[0] == 0
        assert "茶" in self.run(capsys, data, "show", "/")[1]
        assert self.run(capsys, data, "verify")[0] == 0
        assert self.run(capsys, data, "compact")[0] == 0
        assert not any(path.name == "change_log.jsonl" for path in tmp_path.rglob("*"))

    def test_never_shows_the_password(self, capsys: pytest.CaptureFixture[str], data: str) -> None:
        password = data.partition("kt:")[2].partition("@")[0]
        self.run(capsys, data, "add", "tea", "--parent", "/")
        wrong = data.replace(password, "Geheimnis")
        said = []
        for address in (data, wrong, data.replace("#u42", "#missing"), data.replace("#u42", "")):
            for words in (["show"], ["search", "nothing"], ["undo", "99"], ["repair", "new"]):
                code, out, err = self.run(capsys, address, *words)
                said.append(out + err)
                assert code in (0, 1, 2, 3)
                assert code or address == data

        assert not any(secret in text for text in said for secret in (password, "Geheimnis"))
        assert any("password authentication failed" in text for text in said)

    def test_makes_no_tree_by_looking(self, capsys: pytest.CaptureFixture[str], data: str, log: SharedLog) -> None:
        code, _, err = self.run(capsys, data, "show")

        assert code == 2
        assert "there is no memory in postgresql://…#u42" in err
        assert log.trees() == []


class TestAddresses:
    @pytest.mark.parametrize(
        "text", ["postgresql://db/agents", "postgresql://db/agents#", "data/u42", "mysql://x#y", "postgresql://[::/x#y"]
    )
    def test_that_name_no_tree_are_refused(self, text: str) -> None:
        with pytest.raises(InvalidInputError):
            parse_address(text)

    def test_each_has_a_cache_of_its_own(self) -> None:
        assert len({cache_folder(parse_address(f"postgresql://{text}")) for text in ("a/x#u", "b/x#u", "a/x#v")}) == 3


class TestMemories:
    def test_remember_recall_correct_and_forget_on_two_machines(self, tmp_path: Path) -> None:
        log = MemoryLog()
        one = MemoryStore(tmp_path / "one", user="ada", log=log.tree)
        other = MemoryStore(tmp_path / "other", user="ada", log=log.tree)
        home = one.remember("Ada lives in Paris.", keywords=["Ada"])
        other.tree.Refresh()
        moved = other.correct(home, "Ada lives in Rome.")
        one.tree.Refresh()

        assert [memory.info.content for memory in one.recall("Where does Ada live?", limit=1)] == ["Ada lives in Rome."]
        one.forget(moved)
        other.tree.Refresh()
        assert other.recall("Where does Ada live?") == []
        one.close()
        other.close()
        assert log.rows.trees() == ["user=ada/memory"]

    def test_each_namespace_is_a_tree(self, tmp_path: Path, log: SharedLog) -> None:
        for user, session in (("ada", None), ("艾达", "1")):
            with MemoryStore(tmp_path, user=user, session=session, log=log.tree) as store:
                store.remember("a secret")
        with MemoryStore(tmp_path / "elsewhere", user="bob", log=log.tree) as store:
            assert store.recall("a secret") == []

        assert log.trees() == ["user=ada/memory", "user=bob/memory", "user=艾达/session=1/memory"]
        assert not list(tmp_path.rglob("change_log.jsonl"))


def test_the_hubs_ledger_passes_the_store_on(tmp_path: Path) -> None:
    ledger = pytest.importorskip("Agent.knowhub.ledger", reason="the extra [knowhub] is not installed")
    log = MemoryLog()

    with ledger.TreeLedger(tmp_path / "hub", store=log.tree("hub")) as hub:
        hub.tree.CreateKeyword("skill", "root")

    assert log.rows.trees() == ["hub"]
    assert not list(tmp_path.rglob("change_log.jsonl"))


class TestCaches:
    """What is derived of a shared tree is written beside it, on each machine."""

    def test_that_cannot_be_written_are_reported(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        store = MemoryStore(tmp_path / "cache", "ada", log=MemoryLog().tree)
        folder = tmp_path / "cache" / "user=ada" / "memory"
        folder.mkdir(exist_ok=True)
        (folder / "indexes").write_text("in the way")
        store.remember("Tea is made of leaves.", ["tea"])
        store.recall("tea leaves")
        store.close()

        assert "recall statistics cannot be written" in caplog.text
        assert "memories.db cannot be used" in caplog.text

    def test_recalls_of_one_machine_decide_nothing(self, tmp_path: Path) -> None:
        machine = partial(MemoryStore, user="ada", log=MemoryLog().tree)
        with machine(tmp_path / "one") as one, machine(tmp_path / "other") as other:
            for number in range(4):
                one.remember(f"Tea number {number} is green.", ["tea"])
            for _ in range(5):
                assert one.recall("Tea number 0")
            for policy in (RecallBased(2), HybridEviction(max_items=2)):
                for store in (other, MemoryStore(other.tree)):
                    with pytest.raises(InvalidInputError, match="no policy can weigh them"):
                        store.plan_forgetting(policy)
            for fits in (Capacity(2), Ttl(1e9), RecallBased(2, recall_weight=0, score_weight=0)):
                plans = [store.plan_forgetting(fits).evictions for store in (one, other)]
                assert [each.id for each in plans[0]] == [each.id for each in plans[1]]


class Counting(HashingEmbedder):
    """Takes down what it is asked, and may be down."""

    def __init__(self) -> None:
        super().__init__([["operation", "surgery"]])
        self.texts: list[str] = []
        self.is_down = False

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        if self.is_down:
            raise ConnectionError("down")
        self.texts += texts
        return super().embed(texts)

    def embed_queries(self, texts: Sequence[str]) -> list[list[float]]:
        return super().embed(texts)


def _by_search(tree: KeywordTree, model: Counting, facts: Sequence[str]) -> str:
    for number, fact in enumerate(facts):
        tree.CreateKeyword(f"{number}", "root", description=fact, llm_auto_place=False)
    tree.Search("knee surgery")
    return "".join(node.description for node in tree.GetChildren("root"))


def _by_langchain(tree: KeywordTree, model: Counting, facts: Sequence[str]) -> str:
    for fact in facts:
        tree.CreateInfo(fact)
    return str(KeywordTreeRetriever(tree=tree, k=1).invoke("knee surgery"))


def _by_mem0(tree: KeywordTree, model: Counting, facts: Sequence[str]) -> str:
    with Memory(tree=tree, embedder=model) as memory:
        for fact in facts:
            memory.add(fact, user_id="ada", infer=False)
        return str(memory.search("knee surgery", filters={"user_id": "ada"}, top_k=1))


def _by_langgraph(tree: KeywordTree, model: Counting, facts: Sequence[str]) -> str:
    store = KeywordTreeStore(tree, index={"dims": 256, "embed": model.embed, "name": model.name})
    for number, fact in enumerate(facts):
        store.put(("ada",), f"{number}", {"text": fact}, index=["text"])
    return str(store.search(("ada",), query="knee surgery", limit=1))


def _by_memory(tree: KeywordTree, model: Counting, facts: Sequence[str]) -> str:
    with MemoryStore(tree) as store:
        for fact in facts:
            store.remember(fact)
        return str(store.recall("knee surgery", 1))


class OnDisk(HashingEmbedder):
    """Takes longer than a question's patience, until it is loaded."""

    wait_s = 1.5

    def load(self) -> None:
        self.wait_s = 0.0

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        time.sleep(self.wait_s)
        return super().embed(texts)


class TestVectors:
    """Each text is embedded once for all machines: a table of the log keeps its vector."""

    FACTS = ("I had an operation on my knee.", "The tram stops at the corner.", "龙井来自杭州。")

    def test_are_read_by_the_others_and_after_a_lost_cache(self, log: SharedLog, tmp_path: Path) -> None:
        first, open_store = Counting(), partial(MemoryStore, user="ada", log=log.tree)
        with open_store(tmp_path / "one", meaning=Meaning(first, 30.0)) as store:
            for fact in self.FACTS:
                store.remember(fact)
            assert store.recall("knee surgery")
            assert set(self.FACTS) <= set(first.texts)
        for place in ("other", "lost"):
            embedder = Counting()
            with open_store(tmp_path / place, meaning=Meaning(embedder, 30.0)) as store:
                assert [hit.text for hit in store.recall("knee surgery", 1)] == [self.FACTS[0]]
                assert set(embedder.texts).isdisjoint(self.FACTS)

    @pytest.mark.parametrize("ask", [_by_search, _by_langchain, _by_mem0, _by_langgraph, _by_memory])
    def test_are_shared_whatever_embeds(
        self, log: SharedLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: Callable[..., str]
    ) -> None:
        first, other = Counting(), Counting()
        for folder, model, facts in (("one", first, self.FACTS), ("other", other, ())):
            monkeypatch.setattr(embedder_module, "_installed", partial(Meaning, model, 30.0))
            with KeywordTree(str(tmp_path / folder), store=log.tree("u42")) as tree:
                assert "knee" in ask(tree, model, facts)

        assert set(self.FACTS) <= set(first.texts)
        assert set(other.texts).isdisjoint(self.FACTS)

    def test_are_searched_by_pgvector_where_memory_should_not_hold_them(
        self, log: SharedLog, database: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """PATH tells which PostgreSQL it is: one with the extension in its folders."""
        if not sql(database, "SELECT 1 FROM pg_available_extensions WHERE name = 'vector' AND default_version > '0.7'"):
            pytest.skip("pgvector 0.7 is not installed: apt-get install postgresql-15-pgvector, or the like")
        sql(database, 'CREATE SCHEMA "Far away"; CREATE EXTENSION vector SCHEMA "Far away"')  # in no search path
        facts = [*self.FACTS, *(f"Note {number} is on subject {number % 37}." for number in range(200))]
        model, ankle = HashingEmbedder([("ankle", "qwibble")]), "My ankle hurts."
        keep = partial(log.keep, "user=ada/memory", vectors_in_memory=100)
        near, asked = "SELECT count(*) FROM kt_near", ("knee operation", "subject 12", "龙井")
        with ExitStack() as stack:

            def store(name: str) -> MemoryStore:
                meaning = Meaning(model, 30.0)
                return stack.enter_context(MemoryStore(tmp_path / name, "ada", log=log.tree, meaning=meaning))

            def recall(store: MemoryStore, question: str) -> list[tuple[str, float]]:
                return [(hit.text, round(hit.score, 1)) for hit in store.recall(question, 5, min_score=0.2)]

            writer = store("writer")
            for fact in facts:
                writer.remember(fact)
            in_memory = [recall(writer, question) for question in asked]
            sql(database, "GRANT DELETE ON kt_vector TO pg_monitor")
            in_threads(lambda _: keep(), range(4))
            assert "pgvector" not in caplog.text
            assert sql(database, near) == sql(database, "SELECT count(*) FROM kt_vector WHERE digest <> ''")
            assert sql(database, "SELECT has_table_privilege('pg_monitor', 'kt_near', 'DELETE')") == [(True,)]
            other = store("other")
            assert [recall(other, question) for question in asked] == in_memory != [[], [], []]
            writer.remember(ankle)
            assert [recall(each, "qwibble")[0][0] for each in (writer, other)] == 2 * [ankle]

            sql(database, "DELETE FROM kt_near WHERE digest = %s", digest_of(ankle))
            assert [ankle in dict(recall(each, "qwibble")) for each in (store("third"), other)] == 2 * [False]
            keep()
            assert recall(other, "qwibble")[0][0] == ankle
            sql(database, "ALTER TABLE kt_near RENAME COLUMN near TO gone")
            assert ([*recall(other, "qwibble")], recall(other, "ankle")[0][0]) == ([], ankle)  # words rank alone
            sql(database, "ALTER TABLE kt_near RENAME COLUMN gone TO near")
            writer.tree.CompactStorage(keep_history=False)  # which empties the table: each searches its own again
            writer.remember("A qwibble, too.")
            assert sql(database, near) == [(0,)]
            assert [ankle in dict(recall(each, "qwibble")) for each in (writer, other, store("new"))] == 3 * [True]
            keep(vectors_in_memory=1)
            assert sql(database, near) != [(0,)]
            log.remove("user=ada/memory")
            assert sql(database, near) == [(0,)]

    def test_that_pgvector_cannot_search_are_named(
        self, log: SharedLog, open_tree: Callable[[], KeywordTree], caplog: pytest.LogCaptureFixture
    ) -> None:
        open_tree()
        log.tree("u42").embedder(Counting()).embed(["tea", "龙井"])
        assert log.keep("u42", always=True, vectors_in_memory=1)
        assert "pgvector 0.7 does not search all of u42's vectors, over 1: the server refused" in caplog.text

    def test_of_a_hub_are_shared_too(self, data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        models = [Counting(), Counting()]
        for model, folder, facts in zip(models, ("one", "other"), (self.FACTS, ()), strict=True):
            monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / folder))
            with KnowHub(data, meaning=Meaning(model, 30.0)) as hub:
                for fact in facts:
                    hub.save(LOCAL, {"task": fact, "content": fact, "types": ["tool"]})
                found = hub.search(LOCAL, {"q": "knee surgery"})["results"]
                assert found[0]["task"] == self.FACTS[0]
        assert any("knee" in text for text in models[0].texts)
        assert models[1].texts == []

    def test_a_question_waits_for_a_model_to_load_here_too(self, log: SharedLog, tmp_path: Path) -> None:
        with MemoryStore(tmp_path, "ada", log=log.tree, meaning=Meaning(OnDisk([["knee", "qwibble"]]), 0.5)) as store:
            store.remember("knee")
            store.remember("ship")

            assert [hit.text for hit in store.recall("qwibble", 1)] == ["knee"]

    def test_of_a_removed_or_compacted_tree_are_gone(self, log: SharedLog, database: str) -> None:
        for tree_id, end in (("one", KeywordTree.CompactStorage), ("other", None)):
            tree = KeywordTree("unused", store=log.tree(tree_id))
            tree.CreateKeyword("tea", "root")
            log.tree(tree_id).embedder(Counting()).embed(["tea"])
            assert sql(database, "SELECT count(*) FROM kt_vector") == [(1,)]
            log.remove(tree_id) if end is None else end(tree, keep_history=False)
            assert sql(database, "SELECT count(*) FROM kt_vector") == [(0,)]

    def test_that_cannot_be_kept_are_made_by_the_model(self, log: SharedLog, database: str) -> None:
        expected = Counting().embed(["tea", "龙井"])
        sql(database, "DROP TABLE kt_vector")
        embedder = log.tree("u42").embedder(Counting())

        assert [[*vector] for vector in embedder.embed(["tea", "龙井"])] == [[*vector] for vector in expected]
        log.setup()  # as after a newer version
        for _ in range(2):
            made = embedder.embed(["tea", "龙井"])
            assert [pytest.approx([*vector], abs=1e-6) for vector in expected] == [[*vector] for vector in made]

    def test_say_nothing_of_a_model_that_has_just_failed(self, log: SharedLog) -> None:
        model = Counting()
        embedder = log.tree("u42").embedder(model)
        embedder.embed(["plain"])
        model.is_down = True
        for texts in (["new"], ["plain"]):  # what was kept answers not for whether it is there
            with pytest.raises(ConnectionError):
                embedder.embed(texts)
        model.is_down = False
        embedder.embed(["new"])
        model.is_down = True
        assert len(embedder.embed(["plain", "new"])) == 2


@pytest.mark.parametrize("over", ["folder", "memory", "postgres"])
def test_snapshots_of_one_moment_have_names_of_their_own(
    over: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    log = None if over == "folder" else MemoryLog() if over == "memory" else request.getfixturevalue("log")
    with KeywordTree(
        str(tmp_path / "tree"), store=None if log is None else log.tree("u42"), clock=lambda: 1_000.0
    ) as tree:
        names = [tree.Snapshot() for _ in range(3)]

    assert len(set(names)) == 3
