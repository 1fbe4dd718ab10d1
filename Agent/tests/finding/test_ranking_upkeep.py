"""How the ranking keeps up: beside threads, handlers and failing ports; and what odd and short queries come to.

Nothing here hangs on the clock: threads meet at events, and a wait that lasts is a failure.
"""

from __future__ import annotations

import threading
import unicodedata
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest

from Agent import keyword_tree as kt
from Agent.finding.tree import TreeRanker
from Agent.keyword_tree import (
    Evidence,
    Fits,
    InvalidInputError,
    KeywordTree,
    NotFoundError,
    PlainRanker,
    SearchStatus,
    StoreError,
)
from Agent.tests.support import inside
from Agent.tests.support.models import Model, idx, names
from Agent.tests.support.threads import PATIENCE_S

pytestmark = pytest.mark.usefixtures("no_sync")


class Failing(TreeRanker):
    """A ranker that raises while `broken` has something."""

    broken: ClassVar[list[str]] = []

    def Fit(self, query: str, more: str = "", **options: Any) -> Fits:  # noqa: N802  the interface's name
        if self.broken:
            raise RuntimeError("no service")
        return super().Fit(query, more, **options)


@pytest.fixture
def broken() -> Iterator[list[str]]:
    yield Failing.broken
    Failing.broken.clear()


def chooser() -> Model:
    """Return a model that chooses drinks where it is shown, else what comes first."""
    return Model(lambda view: {"action": "match", "node_id": idx(view, "drinks") if "drinks" in names(view) else 0})


def ranked(tree: KeywordTree, query: str) -> list[str]:
    return [node.name for node, _ in tree.RankCandidates(query, 50)]


def specs(*names: str, parent_id: str = "root") -> list[dict[str, Any]]:
    return [{"id": name, "name": name, "parent_id": parent_id} for name in names]


# == Threads, and handlers ================================================================================


def test_reading_and_writing_go_on_while_an_index_is_made_and_while_it_follows(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_go_on = threading.Event(), threading.Event()

    def hook(id: str) -> None:
        if id in ("tea", "first note"):
            begun.set()
            assert may_go_on.wait(PATIENCE_S)

    inside.note_keywords_indexed(monkeypatch, hook)
    with KeywordTree(str(folder)) as tree, ThreadPoolExecutor(1) as threads:
        tree.BatchCreateKeywords(specs("tea", "milk"))
        for number in range(2):
            begun.clear()
            may_go_on.clear()
            asking = threads.submit(ranked, tree, "tea milk")
            try:
                assert begun.wait(PATIENCE_S)
                assert tree.GetKeyword("milk") is not None
                assert tree.Search("tea").node is not None
                tree.CreateKeyword(f"tea {number}", "root")
            finally:
                may_go_on.set()
            assert set(asking.result(PATIENCE_S)) >= {"tea", "milk"}
            tree.BatchCreateKeywords(specs("first note") if number == 0 else [])

        assert {"tea 0", "tea 1"} <= set(ranked(tree, "tea"))
        inside.check_ranking(tree)


def test_threads_that_rank_while_others_write_lose_no_row(folder: Path) -> None:
    with KeywordTree(str(folder)) as tree, ThreadPoolExecutor(4) as threads:
        tree.BatchCreateKeywords(specs("tea", "milk"))

        def write(number: int) -> None:
            node = tree.CreateKeyword(f"zebra {number}", "root")
            tree.UpdateKeyword(node.id, {"name": f"quagga {number}"}, node.version)

        asked: list[Future[Any]] = [threads.submit(ranked, tree, "quagga zebra tea") for _ in range(20)]
        written = [threads.submit(write, number) for number in range(40)]
        asked += [threads.submit(ranked, tree, "quagga zebra tea") for _ in range(20)]
        for future in (*asked, *written):
            future.result(PATIENCE_S)

        assert len(ranked(tree, "quagga")) == 40
        assert ranked(tree, "zebra") == []
        inside.check_ranking(tree)


@pytest.mark.usefixtures("own_words")
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_what_could_not_be_taken_in_is_taken_in_by_the_next_question(
    folder: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    failures = ["milk", "cocoa"]

    def hook(id: str) -> None:
        if id in failures:
            failures.remove(id)
            raise error("away for a moment")

    inside.note_keywords_indexed(monkeypatch, hook)
    with KeywordTree(str(folder)) as tree:
        tree.BatchCreateKeywords(specs("tea", "milk"))
        with pytest.raises(error, match="away for a moment"):
            ranked(tree, "tea")
        assert ranked(tree, "tea") == ["tea"]
        tree.BatchCreateKeywords(specs("rice", "cocoa"))
        tree.UpdateKeyword("tea", {"name": "coffee"}, 1)
        tree.DeleteKeyword("milk")
        with pytest.raises(error, match="away for a moment"):
            ranked(tree, "coffee")
        assert set(ranked(tree, "coffee milk tea cocoa rice")) == {"coffee", "cocoa", "rice"}
        inside.check_ranking(tree)


@pytest.mark.parametrize(
    ("step", "is_first", "is_forked"),
    [
        *((step, is_first, False) for step in ("tea", "milk", "note 50") for is_first in (False, True)),
        ("milk", False, True),
        ("note 50", True, True),
    ],
)
def test_a_handler_that_ranks_meanwhile_is_refused_and_one_that_reads_and_writes_loses_no_row(
    folder: Path, monkeypatch: pytest.MonkeyPatch, step: str, is_first: bool, is_forked: bool
) -> None:
    refused: list[str] = []

    def hook(id: str) -> None:
        if id != step or refused:
            return
        refused.append("")
        with pytest.raises(StoreError, match="a signal handler cannot rank while its own thread does") as caught:
            ranked(tree, "tea cocoa")
        refused.append(str(caught.value))
        assert tree.GetKeyword("tea") is not None
        tree.UpdateKeyword("tea", {"name": "matcha"}, 2)

    def write() -> None:
        tree.UpdateKeyword("milk", {"name": "cocoa"}, 1)
        tree.UpdateKeyword("tea", {"description": "hot"}, 1)
        tree.BatchCreateKeywords(specs(*(f"note {number}" for number in range(150))))

    with KeywordTree(str(folder)) as tree:
        if is_forked:  # as in the child of a fork
            inside.renew_as_in_a_child(tree)
            tree.Refresh()
        tree.BatchCreateKeywords(specs("tea", "milk"))
        if not is_first:
            tree.RankCandidates("tea")
        write()
        inside.note_keywords_indexed(monkeypatch, hook)
        tree.RankCandidates("tea")

        assert len(refused) == 2
        assert ranked(tree, "matcha") == ["matcha"]
        inside.check_ranking(tree)


@pytest.mark.usefixtures("own_words")
@pytest.mark.parametrize("write", ["few", "many", "compact", "restore"])
def test_what_is_written_while_the_index_is_made_is_in_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, write: str
) -> None:
    indexed: list[str] = []

    def hook(id: str) -> None:
        indexed.append(id)
        if id != "tea" or indexed.count(id) > 1:
            return
        tree.BatchCreateKeywords(specs(*(f"note {number}" for number in range(1100 if write == "many" else 10))))
        tree.UpdateKeyword("tea", {"name": "cocoa"}, 1)
        if write == "compact":
            tree.CompactStorage()
        if write == "restore":
            tree.Restore(stamp)

    inside.note_keywords_indexed(monkeypatch, hook)
    with KeywordTree(str(folder)) as tree:
        tree.BatchCreateKeywords(specs("tea", "milk"))
        stamp = tree.Snapshot()
        ranked(tree, "cocoa tea")  # of the moment at which it began
        assert ranked(tree, "cocoa tea") == ["tea" if write == "restore" else "cocoa"]
        inside.check_ranking(tree)


# == Rankings that fail ===================================================================================


def test_searching_and_creating_go_on_without_a_ranking_that_fails(
    folder: Path, broken: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    broken.append("down")
    with KeywordTree(str(folder), chooser(), max_candidates=4, ranker=Failing) as tree:
        tree.BatchCreateKeywords([*specs("plants", "drinks"), *({"id": f"{n}", "name": "Mercury"} for n in range(5))])
        found = tree.Search("what is there to drink")
        assert (found.status, found.node and found.node.id) == (SearchStatus.MATCHED, "drinks")
        among = tree.Search("Mercury", context="a planet")
        assert (among.status, among.node and among.node.id) == (SearchStatus.MATCHED, "0")
        assert tree.CreateKeyword("oat milk", description="a drink of oats").parent_id == "drinks"
        info = tree.CreateInfo("oat milk is drunk cold", auto_link=True)
        assert [node.id for node, _ in tree.GetKeywordsOfInfo(info.id)] == ["drinks"]
        assert {(record.name, record.levelname) for record in caplog.records} == {("Agent.keyword_tree", "WARNING")}
        assert set(caplog.messages) == {"nothing is ranked: RuntimeError: no service"}
        for _ in range(2):
            with pytest.raises(RuntimeError, match="no service"):
                tree.RankCandidates("oat milk")

        broken.clear()
        assert ranked(tree, "oat milk")[0] == "oat milk"
        inside.check_ranking(tree)
        assert tree.Verify() == []


def test_the_log_is_read_once_after_an_operation_that_changes_no_keyword(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with KeywordTree(str(folder), ranker=partial(TreeRanker, meaning=False)) as tree:
        tea = tree.CreateKeyword("tea")
        assert tree.RankCandidates("tea", 1)
        tree.CreateInfo("It hangs on no keyword.")
        assert tree.RankCandidates("tea", 1)[0][0].id == tea.id

        def read_again(position: str) -> set[str] | None:
            raise AssertionError(f"the log is read again from {position}")

        with monkeypatch.context() as patch:
            patch.setattr(tree._ranker._view, "ChangedSince", read_again)
            assert tree.RankCandidates("tea", 1)[0][0].id == tea.id
        jar = tree.CreateKeyword("jar")
        assert tree.RankCandidates("jar", 1)[0][0].id == jar.id


def test_a_ranker_must_be_something_that_makes_one(tmp_path: Path) -> None:
    for ranker in ("words", object()):
        with pytest.raises(InvalidInputError, match="ranker must be a function"):
            KeywordTree(str(tmp_path / "store"), ranker=ranker)  # type: ignore[arg-type]

    assert not (tmp_path / "store").exists()


# == Many changes =========================================================================================


# == Odd queries ==========================================================================================


@pytest.mark.parametrize("query", ["!?", "—", "_", "…", "\u200b§"])
def test_a_query_without_any_word_ranks_nothing(folder: Path, query: str) -> None:
    with KeywordTree(str(folder), kt.StubLLMClient([{"action": "missing"}] * 4)) as tree:
        for keywords in ([*specs("animals"), *specs("snake", parent_id="animals")], []):
            assert tree.RankCandidates(query) == []
            assert tree.Search(query).status is SearchStatus.NOT_FOUND
            assert tree.CreateKeyword(query * 2).parent_id == "root"
            tree.BatchCreateKeywords(keywords)


def test_a_ranking_that_knows_no_words_of_the_query_is_taken_as_it_is(folder: Path) -> None:
    class BySimilarity(PlainRanker):
        def Fit(self, query: str, more: str = "", **_: Any) -> Fits:  # noqa: N802
            return Fits(["animals", "gone", "snake"], {"animals": Evidence(0.7)})

    with KeywordTree(str(folder), ranker=BySimilarity) as tree:
        tree.BatchCreateKeywords([*specs("animals"), *specs("snake", parent_id="animals")])

        assert [(node.id, score) for node, score in tree.RankCandidates("🐍")] == [("animals", 0.7), ("snake", 0.0)]


def test_no_long_text_is_normalised_in_one_piece(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    normalize, longest = unicodedata.normalize, [0]

    def measure(form: Any, text: str) -> str:
        longest[0] = max(longest[0], len(text))
        return normalize(form, text) if len(text) <= 2000 else text  # what takes seconds is only counted

    monkeypatch.setattr(kt.unicodedata, "normalize", measure)  # type: ignore[attr-defined]
    with KeywordTree(str(folder), chooser()) as tree:
        tree.BatchCreateKeywords([*specs("tea"), {"name": "odd", "description": "a" + "\u0300\u0323" * 8_000}])
        asked = "a" + "\u0300\u0323" * 10_000
        assert ranked(tree, "tea") == ["tea"]
        assert ranked(tree, "a\u0300\u0323 tea")[0] == "tea"
        tree.RankCandidates(asked)
        assert tree.Search(asked).status is SearchStatus.MATCHED
        assert tree.Search(f"tea {asked}", llm_expand_query=False).status is SearchStatus.NOT_FOUND

    assert 1000 < longest[0] <= 2000


# == Short queries ========================================================================================


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("堆栈是什么，为什么", "堆栈"),
        ("堆栈是什么，怎么用", "堆栈"),
        ("红茶是什么？为什么", "红茶"),
        ("这是什么红茶", "红茶"),
        ("图是什么", "图"),
    ],
)
def test_chinese_question_words_do_not_decide(folder: Path, query: str, wanted: str) -> None:
    with KeywordTree(str(folder)) as tree:
        others = (f"数据{chr(0x4E00 + number)}" for number in range(300))
        tree.BatchCreateKeywords(specs("堆", "堆栈", "图", "茶", "红茶", *others))
        tree.CreateKeyword("常问", "root", description="人们问：这是什么，为什么，怎么样")

        assert ranked(tree, query)[0] == wanted


# == Confidence, and confirmed queries ====================================================================


def test_what_names_a_keyword_in_any_of_its_texts_is_trusted(folder: Path) -> None:
    about = "a black box that keeps food cold"
    with KeywordTree(str(folder)) as tree:
        tree.BatchCreateKeywords(specs(*(f"thing {number} with a very long name" for number in range(40))))
        node = tree.CreateKeyword("Fridge", "root", aliases=["icebox", "冰箱"], description=about)
        tree.Confirm("how do I cancel my flight to Rome", node.id)
        tree.Confirm("发票在哪里开", node.id)

        for query in ("how can I cancel a flight to Rome", about, "icebox", "冰箱", "发票在哪里", "Fridge"):
            best, confidence = tree.RankCandidates(query, 1)[0]
            assert (best.id, confidence >= 0.3) == (node.id, True), query
        for query in ("Fridge " * 50, "icebox fridge 冰箱", "a", "the box", "thing 3", "冷", "zebra fridge", about * 9):
            assert all(0.0 <= confidence <= 1.0 for _, confidence in tree.RankCandidates(query, 50)), query


def test_a_confirmed_query_can_be_forgotten_and_remembered(folder: Path) -> None:
    query = "How do I get there"
    with KeywordTree(str(folder)) as tree:
        tree.BatchCreateKeywords(specs("route", "map"))
        tree.Confirm(query, "route")
        tree.Confirm("another way", "route")
        for same in ("no such query", "how do I get", ""):
            assert tree.Unconfirm(same, "route").confirmed == [query, "another way"]
        assert tree.Unconfirm(query, "map").confirmed == []
        assert [change.op for change in tree.History(limit=1)] == ["confirm"]
        assert tree.Search(query).reason == "confirmed"
        assert ranked(tree, "get there") == ["route"]

        forgotten = tree.Unconfirm("ＨＯＷ do i  get THERE ？", "route")
        assert (forgotten.confirmed, forgotten.version) == (["another way"], 4)
        assert tree.Search(query).status is SearchStatus.NOT_FOUND
        assert ranked(tree, "get there") == []
        inside.check_ranking(tree)
    with KeywordTree(str(folder)) as tree:
        assert tree.Search(query).status is SearchStatus.NOT_FOUND
        change = tree.History(limit=1)[0]
        assert change.op == "unconfirm"
        tree.Undo(change.operation_id)
        found = tree.Search(f"{query}?")
        assert (found.reason, found.node and found.node.id) == ("confirmed", "route")
        for id, error in (("root", InvalidInputError), ("nowhere", NotFoundError)):
            with pytest.raises(error):
                tree.Unconfirm(query, id)
        with pytest.raises(InvalidInputError):
            tree.Unconfirm(None, "route")  # type: ignore[arg-type]
        assert tree.Verify() == []


def test_blanks_tell_words_apart_but_not_characters(folder: Path) -> None:
    with KeywordTree(str(folder)) as tree:
        tree.BatchCreateKeywords(specs("psychology", "receipts"))
        tree.Confirm("therapist", "psychology")
        tree.Confirm("发票 在哪里", "receipts")

        assert tree.Search("the rapist").status is SearchStatus.NOT_FOUND
        assert tree.Search("Therapist?").reason == "confirmed"
        for query in ("发票在哪里", "发票 在哪里", "发票　在 哪里？"):
            found = tree.Search(query)
            assert (found.reason, found.node and found.node.id) == ("confirmed", "receipts")
        assert tree.Unconfirm("the rapist", "psychology").confirmed == ["therapist"]
        assert tree.Unconfirm("发票在哪里", "receipts").confirmed == []
