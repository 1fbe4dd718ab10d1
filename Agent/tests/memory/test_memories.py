"""Tests of `memories`: it follows the log, outlives a damaged file, and hides what was superseded."""

import logging
import random
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from Agent.finding.index import Index
from Agent.keyword_tree import Info, InvalidInputError, KeywordTree
from Agent.memory.memories import Memories, _pages
from Agent.memory.memory_rows import Filters, InfoFacts
from Agent.store.log_follower import LogChanges
from Agent.tests.support.examples import share


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "indexes" / "memories.db"


def ranked(index: Memories, query: str = "tea") -> list[str]:
    index.catch_up()
    return [found.id for found in index.search(query, 50)]


def create(tree: KeywordTree, *contents: str, **own: Any) -> list[str]:
    return [tree.CreateInfo(text, "notes", metadata={"memory": own} if own else None).id for text in contents]


def chosen(index: Memories, **filters: Any) -> int:
    found = index.choose(Filters(**filters))
    assert isinstance(found, frozenset)
    return len(found)


def forbid_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("all infos were read")

    monkeypatch.setattr(KeywordTree, "ListInfos", refuse)


class TestPassages:
    @pytest.mark.usefixtures("own_words")
    def test_says_what_the_passages_say_and_leaves_out_what_has_none(self, tree: KeywordTree) -> None:
        def passages_of(info: Info) -> list[str]:
            return [str(info.metadata["title"])] if "title" in info.metadata else []

        index = Memories(tree, passages_of=passages_of)
        titled, _ = tree.CreateInfo("water", metadata={"title": "tea"}), tree.CreateInfo("tea")
        assert ranked(index) == [titled.id]

        tree.UpdateInfo(titled.id, {"metadata": {"title": "coffee"}})
        assert (ranked(index), ranked(index, "coffee")) == ([], [titled.id])


class TestCatchUp:
    def test_takes_in_no_more_text_at_once_than_memory_has_room_for(
        self, tree: KeywordTree, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        infos = [tree.CreateInfo(f"tea tea {number}") for number in range(7)]
        create(tree, "jasmine tea")
        monkeypatch.setattr("Agent.memory.memories._PAGE", 3)
        monkeypatch.setattr("Agent.memory.memories._PAGE_TEXT", 14)
        assert [len(page) for page in _pages(infos)] == [2, 2, 2, 1]
        assert len(ranked(Memories(tree))) == 8

    def test_begins_without_what_an_open_operation_wrote(self, tree: KeywordTree) -> None:
        index = Memories(tree)
        create(tree, "tea before")
        operation = tree.Operation("learn")
        operation.__enter__()
        create(tree, "tea within")
        assert len(ranked(index)) == 1
        operation.__exit__(ValueError, ValueError(), None)

        assert len(ranked(index)) == 1

    def test_leaves_a_changed_info_in_its_place(self, tree: KeywordTree) -> None:
        index = Memories(tree)
        ids = create(tree, "What is your dog called?", "Oliver!", "I see.")
        index.catch_up()
        tree.UpdateInfo(ids[1], {"content": "Oliver Twist!"})
        tree.UpdateInfo(ids[0], {"metadata": {"seen": True}})
        tree.UpdateInfo(ids[0], {"content": "What is your puppy called?"})

        assert ranked(index, "how is the puppy called") == ids[:2]

    @pytest.mark.parametrize("is_begun", [True, False])
    def test_does_not_put_back_what_another_process_removed(
        self, tree: KeywordTree, path: Path, is_begun: bool
    ) -> None:
        one, other = Memories(tree, path=path), Memories(tree, path=path)
        if is_begun:
            one.catch_up()
        kept, gone = create(tree, "tea one", "tea two")
        read = one._changes_since

        def read_before_the_other(position: str) -> LogChanges | None:
            changes = read(position)
            if tree.GetInfo(gone) is not None:
                tree.DeleteInfo(gone)
                other.catch_up()
            return changes

        one._changes_since = read_before_the_other  # type: ignore[method-assign]
        one.catch_up()
        assert one.count() == 1
        assert ranked(other) == ranked(one) == [kept]

    @pytest.mark.parametrize("has_file", [True, False])
    def test_begins_again_where_it_failed_halfway(
        self, tree: KeywordTree, path: Path, monkeypatch: pytest.MonkeyPatch, has_file: bool
    ) -> None:
        ids = create(tree, "tea one", "tea two")
        index = Memories(tree, path=path if has_file else None)
        index.catch_up()
        index.close()
        tree.DeleteInfo(ids[0])
        ids += create(tree, "tea three", "tea four")
        with monkeypatch.context() as patched:
            patched.setattr(Index, "put", None)
            with pytest.raises(TypeError):
                index.catch_up()

        assert set(ranked(index)) == set(ids[1:])
        assert set(index.facts()) == set(ids[1:])


class TestSuperseded:
    def test_are_hidden_by_their_own_word_or_by_what_supersedes_them(self, tree: KeywordTree) -> None:
        [old, older] = create(tree, "old tea", "older tea")
        create(tree, "tea of yesterday", superseded_by="whatever")
        index = Memories(tree)
        index.catch_up()
        [new] = create(tree, "new tea", supersedes=[old, older, None])

        assert ranked(index) == [new] == ranked(Memories(tree))
        assert list(index.facts()) == [new]
        tree.DeleteInfo(new)
        assert set(ranked(index)) == {old, older} == set(ranked(Memories(tree)))

    def test_stay_hidden_where_what_superseded_them_was_superseded(self, tree: KeywordTree) -> None:
        [first] = create(tree, "first tea")
        [second] = create(tree, "second tea", supersedes=first)
        [third] = create(tree, "third tea", supersedes=second)

        assert ranked(Memories(tree)) == [third]
        index = Memories(tree)
        index.catch_up()
        assert index.walk_back([third]) == [third, second, first]

    def test_are_no_one_in_a_circle_which_may_come_and_go(self, tree: KeywordTree) -> None:
        specs: list[tuple[str, str | None]] = [("a", None), ("b", "a"), ("c", "b"), ("d", "d")]
        tree.BatchCreateInfos(
            [{"id": id, "content": "tea", "metadata": {"memory": {"supersedes": old}}} for id, old in specs]
        )
        index = Memories(tree)
        assert set(ranked(index)) == set("cd")
        tree.UpdateInfo("a", {"metadata": {"memory": {"supersedes": "c"}}})
        assert set(ranked(index)) == set("abcd")
        tree.UpdateInfo("a", {"metadata": {}})
        assert set(ranked(index)) == set("cd")

    @share(0.4)
    @given(
        st.lists(
            st.tuples(st.sampled_from("abcd"), st.lists(st.sampled_from("abcde"), max_size=2), st.booleans()),
            max_size=12,
        )
    )
    def test_are_after_any_history_what_reading_again_gives(self, steps: list[tuple[str, list[str], bool]]) -> None:
        with tempfile.TemporaryDirectory() as folder, KeywordTree(folder) as tree:
            index = Memories(tree)
            for id, olds, deletes in steps:
                own = {"memory": {"supersedes": olds}}
                if tree.GetInfo(id) is None:
                    tree.BatchCreateInfos([{"id": id, "content": "tea", "metadata": own}])
                elif deletes:
                    tree.DeleteInfo(id)
                else:
                    tree.UpdateInfo(id, {"metadata": own})
                again = Memories(tree)
                assert set(ranked(index)) == set(ranked(again))
                assert index.facts().keys() == again.facts().keys()

    def test_what_failed_halfway_is_hidden_the_next_time(
        self, tree: KeywordTree, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        index = Memories(tree)
        (old,) = create(tree, "tea")
        index.catch_up()
        (new,) = create(tree, "tea again", supersedes=old)
        with monkeypatch.context() as failing:
            failing.setattr(KeywordTree, "GetInfo", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                index.catch_up()

        assert ranked(index) == [new]


class TestQuestionsBefore:
    """The question before an answer counts for it; what is kept is what an index made of the same infos has."""

    ASKED, ANSWER = "Which instrument does your neighbour play?", "Cello!"

    @pytest.mark.parametrize("is_taken_at_once", [True, False])
    @pytest.mark.parametrize("case", range(6))
    def test_follows_what_comes_and_goes(self, tree: KeywordTree, case: int, is_taken_at_once: bool) -> None:
        asked, second, answer = (tree.CreateInfo(text, "talk").id for text in (self.ASKED, "Well.", self.ANSWER))
        index = Memories(tree)
        index.catch_up()
        hidden, shown = ({"metadata": {"memory": own}} for own in ({"superseded_by": answer}, {}))
        away, back = {"source": "another"}, {"source": "talk"}
        silent, asking = {"content": "Nothing."}, {"content": self.ASKED}
        cases: list[list[tuple[str, Any]]] = [
            [(second, hidden)],
            [(second, away), (asked, away), (asked, back)],
            [(second, hidden), (asked, silent), (asked, asking)],
            [(second, hidden), (second, shown)],
            [(second, hidden), (asked, silent)],
            [(second, hidden), (asked, hidden)],
        ]
        changes = cases[case]
        for id, change in changes:
            tree.UpdateInfo(id, change)
            if not is_taken_at_once:
                index.catch_up()
        fresh = Memories(tree)
        for each in (index, fresh):
            each.catch_up()

        assert index.search("neighbour, instrument?", 5) == fresh.search("neighbour, instrument?", 5)
        assert (answer in ranked(index, "neighbour, instrument?")) == (case < 3)

    def test_an_answer_taken_in_before_a_change_of_its_question_follows_it(self, tree: KeywordTree) -> None:
        asked, answer = (tree.CreateInfo(text, "talk").id for text in ("Nothing.", self.ANSWER))
        index = Memories(tree)
        index.catch_up()
        tree.UpdateInfo(answer, {"content": "A cello."})
        tree.UpdateInfo(asked, {"content": self.ASKED})

        assert answer in ranked(index, "neighbour, instrument?")

    def test_a_question_that_went_while_nothing_followed_counts_for_no_answer(
        self, tree: KeywordTree, path: Path
    ) -> None:
        first, asked, answer = (tree.CreateInfo(text, "talk").id for text in (self.ASKED, "Well.", self.ANSWER))
        index = Memories(tree, path)
        index.catch_up()
        index.close()
        tree.DeleteInfo(asked)
        tree.CompactStorage(keep_history=False)
        again = Memories(tree, path)

        assert {first, answer} <= {*ranked(again, "neighbour, instrument?")}


class TestFile:
    def test_spares_reading_all(self, tree: KeywordTree, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        [old] = create(tree, "old tea")
        create(tree, "绿茶 green tea?", "龙井 tea!", "…", "no ？", kind="skill", links=[old], time=5)
        create(tree, "newest tea", supersedes=old)
        index = Memories(tree, path)
        index.catch_up()
        index.close()
        forbid_reading(monkeypatch)
        again = Memories(tree, path)

        assert ranked(again) == ranked(index)
        assert len(ranked(again)) == 3
        assert again.facts() == index.facts()
        assert again.choose(Filters(kinds=["skill"])) == index.choose(Filters(kinds=["skill"]))
        create(tree, "tea of tomorrow")
        assert len(ranked(again)) == 4
        assert path.stat().st_mode & 0o777 == 0o600

    def test_is_shared(self, tree: KeywordTree, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        ids = create(tree, *(f"tea {number}?" for number in range(70)))
        index, other = Memories(tree, path), Memories(tree, path)
        index.catch_up()
        forbid_reading(monkeypatch)
        for number, id in enumerate(ids):
            tree.UpdateInfo(id, {"content": f"tea {number} again?"}) if number % 2 else tree.DeleteInfo(id)

        assert set(ranked(other, "again")) == set(ids[1::2]) == set(ranked(index, "again"))
        ids += create(tree, "again")
        assert ranked(index, "again")[0] == ids[-1] == ranked(other, "again")[0]

    @pytest.mark.parametrize("damage", range(6))
    def test_that_is_damaged_is_made_again(self, tree: KeywordTree, path: Path, damage: int) -> None:
        create(tree, *(f"tea {number}" for number in range(30)))
        index = Memories(tree, path)
        index.catch_up()
        index.close()
        whole = bytearray(path.read_bytes())
        start = random.Random(damage).randrange(len(whole) - 4096) if damage > 1 else damage
        whole[start : start + 4096] = b"\x5a" * 4096
        path.write_bytes(whole)

        assert len(ranked(Memories(tree, path))) == 30

    def test_that_is_damaged_or_deleted_while_it_is_open_is_made_again(self, tree: KeywordTree, path: Path) -> None:
        create(tree, *(f"tea {number}" for number in range(30)))
        index = Memories(tree, path)
        assert len(ranked(index)) == 30
        for ending in ("", "-journal"):
            Path(f"{path}{ending}").unlink(missing_ok=True)
        assert len(ranked(index)) == 30

        assert len(index.facts()) == 30

    @pytest.mark.usefixtures("own_words")
    def test_of_another_log_is_made_again(self, tree: KeywordTree, path: Path, tmp_path: Path) -> None:
        with KeywordTree(str(tmp_path / "other")) as other:
            create(other, "their tea", "their cup")
            index = Memories(other, path)
            index.catch_up()
            index.close()
        ids = create(tree, "our tea", "our cup")
        index = Memories(tree, path)

        assert ranked(index) == ids[:1]
        assert b"their" not in path.read_bytes()

    @pytest.mark.parametrize("is_used", [True, False])
    def test_does_not_keep_what_was_deleted_for_good(self, tree: KeywordTree, path: Path, is_used: bool) -> None:
        [gone] = create(tree, "a secret")
        create(tree, "tea")
        index = Memories(tree, path)
        index.catch_up()
        index.close()
        assert b"secret" in path.read_bytes()
        tree.DeleteInfo(gone)
        tree.CompactStorage(keep_history=False)
        again = index if is_used else Memories(tree, path)
        again.close()

        assert b"secret" not in path.read_bytes()
        assert len(ranked(again)) == 1

    def test_keeps_no_byte_of_what_is_gone(self, tree: KeywordTree, path: Path) -> None:
        [gone, changed] = create(tree, "a secret", "another secret")
        noted = tree.CreateInfo("tea", "secret source", metadata={"key": "secret"})
        create(tree, "tea")
        index = Memories(tree, path)
        index.catch_up()
        tree.DeleteInfo(gone)
        tree.UpdateInfo(changed, {"content": "harmless"})
        tree.UpdateInfo(noted.id, {"metadata": {}, "source": ""})
        index.catch_up()

        assert all(b"secret" not in file.read_bytes() for file in path.parent.iterdir())

    def test_that_cannot_be_written_is_no_error(
        self, tree: KeywordTree, path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        path.parent.write_text("in the way")
        create(tree, "tea")
        index = Memories(tree, path)
        with caplog.at_level(logging.WARNING):
            assert len(ranked(index)) == 1
        index.close()

        assert path.parent.is_file()
        assert len([line for line in caplog.messages if "memories are indexed in memory" in line]) == 1

    def test_that_is_locked_is_used_again_later(
        self, tree: KeywordTree, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("Agent.finding.index_file._WAIT_S", 0.05)
        monkeypatch.setattr("Agent.memory.memories._RETRY_S", -1.0)
        create(tree, "tea")
        index = Memories(tree, path)
        assert len(ranked(index)) == 1
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("begin immediate")
        create(tree, "green tea")

        assert len(ranked(index)) == 2
        assert len(ranked(index)) == 2  # it is locked still
        holder.rollback()
        create(tree, "black tea")
        assert len(ranked(index)) == 3
        assert holder.execute("select count(*) from memory").fetchone() == (3,)
        holder.close()


class TestFilters:
    @pytest.mark.parametrize(
        "make",
        [
            lambda: Filters(kinds="fact"),
            lambda: Filters(sources=5),  # type: ignore[arg-type]
            lambda: Filters(sources=[["chat"]]),  # type: ignore[list-item]
            lambda: Filters(since=float("nan")),
            lambda: Filters(until="now"),  # type: ignore[arg-type]
            lambda: Filters(since=True),
            lambda: Filters(metadata=["key"]),  # type: ignore[arg-type]
        ],
    )
    def test_refuse_what_they_cannot_compare(self, make: Callable[[], Filters]) -> None:
        with pytest.raises(InvalidInputError):
            make()

    def test_leave_the_index_as_it_is(self, tree: KeywordTree) -> None:
        create(tree, "tea")
        tree.CreateInfo("cup", "elsewhere")
        index = Memories(tree)
        index.catch_up()
        for _ in range(2):
            assert chosen(index, kinds=["fact"], sources=["notes"]) == 1
            assert chosen(index, kinds=["fact"]) == chosen(index, sources=["elsewhere", "notes"], since=1.0) == 2
            assert index.choose(Filters()) is index.choose(None) is None

    @pytest.mark.parametrize(
        "own",
        [
            *({"time": 10**400}, {"time": True}, {"kind": []}, {"links": {}}, {"supersedes": 5}, 5, []),
            *({"links": 5, "time": "x", "kind": []}, {"links": [None], "time": None}),
        ],
    )
    def test_mind_no_metadata_of_another_form(self, tree: KeywordTree, own: Any) -> None:
        id = tree.CreateInfo("tea", metadata={"memory": own}).id
        index = Memories(tree)
        index.catch_up()

        assert isinstance(index.facts()[id], InfoFacts)
        assert 0.0 < index.facts()[id].time < 1e10
        assert chosen(index, since=0.0) == 1
