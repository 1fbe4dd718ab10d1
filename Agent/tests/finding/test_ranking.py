"""What holds of ranking and views on any tree: a function of what is there, and every node in reach.

Needs Hypothesis, and is skipped without it. No sync is waited for here: nothing that is checked hangs on it.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("hypothesis", reason="pip install '.[test]' brings Hypothesis")

from hypothesis import example, given
from hypothesis import strategies as st

from Agent.keyword_tree import KeywordTree, KeywordTreeError
from Agent.tests.support import ROOT, inside
from Agent.tests.support.examples import share
from Agent.tests.support.looking import keyword_ids

pytestmark = pytest.mark.usefixtures("no_sync")


@pytest.fixture(autouse=True)
def _of_texts_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a score not depend on which of equals are left out."""
    inside.set_limits(monkeypatch, scored_in_full=1_000, opened=1_000)


def scores(tree: KeywordTree, name: str, description: str = "") -> list[list[tuple[float, str]]]:
    """Rank for a search, for a search with a context, and for a place; scores to the last bit."""
    return [
        sorted(inside.scores(tree, name, more, is_placing=is_placing), key=lambda fit: (-fit[0], fit[1]))
        for is_placing in (False, True)
        for more in ("", description)
    ]


# == As one built afresh ==================================================================================

WORDS = ["oat", "milk", "the", "of", "tea", "teas", "Tea", "GreenTea", "http2", "C++", "naïve", "绿茶", "茶", "豆浆机"]
WORDS += ["ชาเย็น", "お茶", "🍵"]
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join)
NUMBERS = st.integers(0, 60)
WRITES = st.one_of(
    st.tuples(st.just("create"), NUMBERS, TEXTS, st.lists(TEXTS, max_size=2), st.one_of(st.just(""), TEXTS)),
    st.tuples(st.just("rename"), NUMBERS, TEXTS),
    st.tuples(st.just("describe"), NUMBERS, st.one_of(st.just(""), TEXTS)),
    st.tuples(st.just("alias"), NUMBERS, TEXTS),
    st.tuples(st.just("drop_aliases"), NUMBERS),
    st.tuples(st.just("confirm"), NUMBERS, TEXTS),
    st.tuples(st.just("unconfirm"), NUMBERS, NUMBERS),
    st.tuples(st.just("move"), NUMBERS, NUMBERS),
    st.tuples(st.just("merge"), NUMBERS, NUMBERS),
    st.tuples(st.just("delete"), NUMBERS, st.booleans()),
    st.tuples(st.just("inform"), NUMBERS, NUMBERS, TEXTS),
    st.tuples(st.just("correct"), NUMBERS, TEXTS),
    st.tuples(st.just("forget"), NUMBERS),
    st.tuples(st.just("unlink"), NUMBERS, NUMBERS),
    st.tuples(st.just("undo"), NUMBERS),
    st.tuples(st.just("snapshot")),
    st.tuples(st.just("restore"), NUMBERS),
    st.tuples(st.just("compact")),
    st.tuples(st.just("take_back"), NUMBERS, TEXTS),
    st.tuples(st.just("elsewhere"), NUMBERS, TEXTS),
)


class Writer:
    """Does to a tree what a list of writes says; what the tree refuses is left out."""

    def __init__(self, tree: KeywordTree) -> None:
        self.tree = tree
        self.snapshots: list[str] = []

    def pick(self, number: int) -> str:
        ids = keyword_ids(self.tree)
        return ids[number % len(ids)]

    def create(self, parent: int, name: str, aliases: list[str], description: str) -> None:
        self.tree.CreateKeyword(name, self.pick(parent), aliases, description)

    def change(self, number: int, **patch: Any) -> None:
        node = self.tree.GetKeyword(self.pick(number))
        assert node is not None
        self.tree.UpdateKeyword(node.id, patch, node.version)

    def rename(self, number: int, name: str) -> None:
        self.change(number, name=name)

    def describe(self, number: int, description: str) -> None:
        self.change(number, description=description)

    def alias(self, number: int, alias: str) -> None:
        self.tree.AddAlias(self.pick(number), alias)

    def drop_aliases(self, number: int) -> None:
        self.change(number, aliases=[])

    def confirm(self, number: int, query: str) -> None:
        self.tree.Confirm(query, self.pick(number))

    def unconfirm(self, number: int, which: int) -> None:
        node = self.tree.GetKeyword(self.pick(number))
        if node is not None and node.confirmed:
            self.tree.Unconfirm(node.confirmed[which % len(node.confirmed)].upper(), node.id)

    def move(self, number: int, to: int) -> None:
        self.tree.MoveKeyword(self.pick(number), self.pick(to))

    def merge(self, number: int, to: int) -> None:
        self.tree.MergeKeywords(self.pick(number), self.pick(to))

    def delete(self, number: int, cascade: bool) -> None:
        self.tree.DeleteKeyword(self.pick(number), cascade)

    def inform(self, number: int, other: int, content: str) -> None:
        self.tree.CreateInfo(content, keyword_ids=list({self.pick(number), self.pick(other)}))

    def pick_info(self, number: int) -> str:
        infos = self.tree.ListInfos()
        return infos[number % len(infos)].id if infos else "none"

    def correct(self, number: int, content: str) -> None:
        self.tree.UpdateInfo(self.pick_info(number), {"content": content})

    def forget(self, number: int) -> None:
        self.tree.DeleteInfo(self.pick_info(number))

    def unlink(self, number: int, which: int) -> None:
        info_id = self.pick_info(number)
        links = self.tree.GetLinks(info_id)
        if links:
            self.tree.UnlinkInfo(info_id, links[which % len(links)].keyword_id)

    def undo(self, number: int) -> None:
        changes = self.tree.History()
        if changes:
            self.tree.Undo(changes[number % len(changes)].operation_id)

    def snapshot(self) -> None:
        self.snapshots.append(self.tree.Snapshot())

    def restore(self, number: int) -> None:
        if self.snapshots:
            self.tree.Restore(self.snapshots[number % len(self.snapshots)])

    def compact(self) -> None:
        self.tree.CompactStorage()

    def take_back(self, number: int, name: str) -> None:
        with contextlib.suppress(ZeroDivisionError), self.tree.Operation():
            self.rename(number, name)
            self.create(number, name, [name], name)
            raise ZeroDivisionError

    def elsewhere(self, number: int, name: str) -> None:
        with KeywordTree(self.tree.data_dir) as other:
            Writer(other).rename(number, name)
        self.tree.Refresh()


def built_anew(folder: Path, tree: KeywordTree) -> KeywordTree:
    """Build in an empty folder what a tree holds, parents first, each keyword by its own texts."""
    again = KeywordTree(str(folder))
    level = ["root"]
    while level:
        children = [node for id in level for node in tree.GetChildren(id)]
        fields = ("id", "name", "parent_id", "aliases", "description")
        again.BatchCreateKeywords([{field: getattr(node, field) for field in fields} for node in children])
        for node in children:
            for query in node.confirmed:
                again.Confirm(query, node.id)
            for info in tree.GetInfosOfKeyword(node.id):
                again.CreateInfo(info.content, keyword_ids=[node.id])
        level = [node.id for node in children]
    return again


INFORMED: list[Any] = [
    ("create", 0, "oat", [], ""),
    ("create", 0, "milk", [], ""),
    ("inform", 1, 2, "绿茶 tea"),
    ("inform", 1, 1, "tea teas"),
    ("correct", 0, "豆浆机"),
    ("merge", 1, 2),
    ("undo", 0),
    ("unlink", 0, 1),
    ("forget", 1),
    ("undo", 0),
]
MILK_MOVES: list[Any] = [
    ("create", 0, "oat", [], ""), ("create", 0, "milk", ["茶"], "tea"), ("move", 1, 2), ("undo", 0)
]
QUEUE_FULL: list[Any] = [
    ("create", 0, "tea", [], ""),
    *(("confirm", 1, f"{word} 茶") for word in "abcdefghijklmnopqrstuvwxyz"),
    ("unconfirm", 1, 3),
]
RESTORED: list[Any] = [
    *MILK_MOVES, ("snapshot",), ("merge", 1, 2), ("confirm", 1, "豆浆机"), ("compact",), ("restore", 0)
]


@share(0.5)
@given(st.lists(WRITES, max_size=25), TEXTS, TEXTS, st.randoms(use_true_random=False))
@example(INFORMED, "tea", "豆浆机", random.Random(4))
@example(MILK_MOVES, "oat milk", "绿茶", random.Random(1))
@example(QUEUE_FULL, "a 茶", "z", random.Random(2))
@example(RESTORED, "豆浆机 tea", "milk", random.Random(3))
def test_after_any_writes_the_index_ranks_as_one_built_afresh(
    writes: list[Any], name: str, description: str, draw: random.Random
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        with KeywordTree(folder + "/store") as tree:
            assert scores(tree, name) == [[]] * 4
            writer = Writer(tree)
            for write, *arguments in writes:
                with contextlib.suppress(KeywordTreeError):
                    getattr(writer, write)(*arguments)
                tree.RankCandidates(name)  # the index is there, and has to follow the next write
            ranked = scores(tree, name, description)
            ids = keyword_ids(tree)
            draw.shuffle(ids)
            with built_anew(Path(folder, "again"), tree) as again:
                assert scores(again, name, description) == ranked
        with KeywordTree(folder + "/store") as again:
            assert scores(again, name, description) == ranked
            inside.rank_again(again, ids)
            assert scores(again, name, description) == ranked


@pytest.mark.parametrize("read", [15_000, 60])  # the latter: as in a large tree
def test_after_many_random_rounds_of_writes_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: int) -> None:
    inside.set_limits(monkeypatch, postings_read=read)
    draw = random.Random(5)
    with KeywordTree(str(tmp_path / "store")) as tree:
        writer = Writer(tree)
        tree.RankCandidates("tea")
        for _ in range(60):
            name, description = " ".join(draw.choices(WORDS, k=3)), " ".join(draw.choices(WORDS, k=8))
            writer.create(draw.randrange(60), name, [name[::-1]], description)
            with contextlib.suppress(KeywordTreeError):
                change = writer.merge if draw.random() < 0.2 else writer.move
                change(draw.randrange(60), draw.randrange(60))
                writer.undo(draw.randrange(8))
        with built_anew(tmp_path / "again", tree) as again:
            assert len(keyword_ids(tree)) > 40
            for query in (*WORDS, " ".join(WORDS), "oat tea", "绿茶豆浆"):
                assert scores(tree, query, "milk of 茶")[:2] == scores(again, query, "milk of 茶")[:2]
            inside.check_ranking(tree)


# == Determinism ==========================================================================================

RANK_TWICE = """
import sys
from Agent.keyword_tree import KeywordTree
from Agent.tests.finding.test_ranking import WORDS, scores
with KeywordTree(sys.argv[1]) as tree:
    for query in WORDS:
        first = scores(tree, query, "oat milk 绿茶")
        assert scores(tree, query, "oat milk 绿茶") == first
        print(query, first)
"""


def test_ranking_does_not_depend_on_the_seed_of_hashes(tmp_path: Path) -> None:
    draw = random.Random(3)
    with KeywordTree(str(tmp_path)) as tree:
        writer = Writer(tree)
        for number in range(120):  # many alike: only the last tie-break distinguishes them
            writer.create(draw.randrange(40), draw.choice(WORDS), [], WORDS[number % 3])
    reported = set()
    for seed in ("0", "1"):
        command = [sys.executable, "-c", RANK_TWICE, str(tmp_path)]
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONIOENCODING": "utf-8"}
        reported.add(subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=True).stdout)

    assert len(reported) == 1
    assert len(reported.pop().splitlines()) == len(WORDS)


# == A crowded level ======================================================================================


# == Short queries ========================================================================================


SYLLABLES = ["bau", "dek", "fil", "gom", "hup", "jav", "kes", "lor"]
OTHERS = ["nim", "pon", "qua", "rus", "tyx", "vew", "zol"]
STRANGE = ["ibex", "ecko"]


@given(
    st.lists(st.sampled_from(SYLLABLES), min_size=1, max_size=3, unique=True),
    st.lists(st.lists(st.sampled_from(OTHERS), min_size=1, max_size=3), min_size=1, max_size=60),
    st.lists(st.sampled_from([*SYLLABLES, *OTHERS]), max_size=12),
    st.lists(st.lists(st.sampled_from([*SYLLABLES, *OTHERS, STRANGE[0]]), min_size=1, max_size=3), max_size=40),
    st.data(),
)
def test_children_without_a_word_of_a_short_query_stand_after_the_keyword_that_it_names(
    name: list[str], children: list[list[str]], description: list[str], elsewhere: list[list[str]], data: st.DataObject
) -> None:
    more = data.draw(st.lists(st.sampled_from(STRANGE), max_size=2, unique=True))
    asked = data.draw(st.lists(st.sampled_from(name), min_size=1, max_size=3 - len(more), unique=True)) + more
    specs: list[dict[str, Any]] = [{"id": "named", "name": " ".join(name), "description": " ".join(description)}]
    parents = ["named"]
    for number, words in enumerate(children):
        parent = data.draw(st.sampled_from(parents))
        specs.append({"id": f"child {number}", "name": " ".join(words), "parent_id": parent})
        parents.append(f"child {number}")
    specs += [{"id": f"other {number}", "name": " ".join(words)} for number, words in enumerate(elsewhere)]
    with tempfile.TemporaryDirectory() as folder, KeywordTree(folder) as tree:
        tree.BatchCreateKeywords(specs)
        ranked = {id: score for score, id in inside.scores(tree, " ".join(asked))}

    assert all(score < ranked["named"] for id, score in ranked.items() if id.startswith("child"))
