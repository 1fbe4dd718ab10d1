"""The ranking of a tree: everything is found, every change is followed, and no broken index stops a question."""

import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from Agent.finding.index import Index
from Agent.finding.tree import TreeRanker
from Agent.keyword_tree import KeywordTree

PEANUTS = "Who is allergic to peanuts?"


def opened(folder: Path) -> KeywordTree:
    return KeywordTree(str(folder), ranker=TreeRanker)


@pytest.fixture(autouse=True)
def _small_trees_have_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("Agent.finding.tree._KEPT_FROM", 0)


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[KeywordTree]:
    with opened(tmp_path) as tree:
        people = tree.CreateKeyword("People", parent_id="root").id
        for name, info in {
            "Anna": "She is allergic to peanuts.",
            "Bob": "He likes tea.",
            "王芳": "她对花生过敏。",
        }.items():
            tree.CreateInfo(info, keyword_ids=[tree.CreateKeyword(name, parent_id=people).id])
        yield tree


def first(tree: KeywordTree, query: str) -> tuple[str, float]:
    """Return the name and the score of what fits best."""
    found = tree.RankCandidates(query, 3)
    return (found[0][0].name, found[0][1]) if found else ("", 0.0)


def index_of(tree: KeywordTree) -> Index:
    index: Index = tree._ranker.index
    return index


def test_finds_by_names_infos_and_in_chinese(tree: KeywordTree) -> None:
    for query, name in {PEANUTS: "Anna", "Who likes tea?": "Bob", "谁对花生过敏？": "王芳"}.items():
        found, score = first(tree, query)
        assert (found, score >= 0.5) == (name, True)


def test_a_name_alone_answers_nothing(tree: KeywordTree) -> None:
    assert first(tree, "Who is Anna's boss?")[1] < 0.3
    assert first(tree, "When does the museum open?")[1] < 0.3


def test_every_info_is_found_and_all_of_its_text(tree: KeywordTree) -> None:
    id = tree.CreateKeyword("Notes", parent_id="root").id
    infos = [f"On day {at} nothing much happened, but for word{at}." for at in range(300)]
    tree.BatchCreateInfos([{"content": text, "keyword_ids": [id]} for text in infos])
    tree.CreateInfo(f"{'and so on, ' * 2_000} the kingfisher", keyword_ids=[id])
    for query in ("word0", "word150", "the kingfisher"):
        assert first(tree, query)[0] == "Notes"


def test_follows_what_is_written(tree: KeywordTree) -> None:
    assert first(tree, PEANUTS)[0] == "Anna"
    anna = tree.FindByName("Anna")[0]
    tree.UpdateKeyword(anna.id, {"name": "Annabel"}, anna.version)
    assert first(tree, PEANUTS)[0] == "Annabel"
    info = tree.GetInfosOfKeyword(anna.id)[0]
    tree.UpdateInfo(info.id, {"content": "She collects stamps."})
    assert first(tree, "Who collects stamps?")[0] == "Annabel"
    assert first(tree, PEANUTS)[1] < 0.5
    tree.Undo(tree.History(limit=1)[0].operation_id)
    assert first(tree, PEANUTS)[0] == "Annabel"
    tree.DeleteKeyword(anna.id, info_policy="delete")
    assert first(tree, PEANUTS)[1] < 0.5
    tree.Confirm("Wer trinkt Kamillentee?", tree.FindByName("Bob")[0].id)
    assert first(tree, "Kamillentee")[0] == "Bob"


def test_takes_nothing_in_twice_and_follows_other_processes(
    tree: KeywordTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert first(tree, PEANUTS)[0] == "Anna"
    put: list[str] = []
    real = Index.put

    def note(index: Index, units: object) -> None:
        listed = list(units)  # type: ignore[call-overload]
        put.extend(unit.id for unit in listed)
        real(index, listed)

    monkeypatch.setattr(Index, "put", note)
    with opened(tmp_path) as other:
        assert first(other, PEANUTS)[0] == "Anna"
        assert put == []
        carla = other.CreateKeyword("Carla", parent_id="root").id
        other.CreateInfo("She repairs clocks.", keyword_ids=[carla])
        assert first(other, "Who repairs clocks?")[0] == "Carla"
        assert put == [carla]
    tree.Refresh()
    assert first(tree, "Who repairs clocks?")[0] == "Carla"
    assert put == [carla]
    tree.CreateInfo("She sings.", keyword_ids=[carla])
    assert first(tree, "Who sings?")[0] == "Carla"


def test_what_was_deleted_stands_in_no_file_of_the_index(tree: KeywordTree, tmp_path: Path) -> None:
    tree.CreateInfo("The word is Qwertzuiop.", keyword_ids=[tree.FindByName("Bob")[0].id])
    assert first(tree, "qwertzuiop")[0] == "Bob"
    tree.DeleteInfo(tree.GetInfosOfKeyword(tree.FindByName("Bob")[0].id)[-1].id)
    assert first(tree, "qwertzuiop")[1] == 0
    for path in (tmp_path / "indexes").iterdir():
        assert b"qwertzu" not in path.read_bytes().lower()


def test_a_question_to_the_past_leaves_the_index_of_the_present_as_it_is(tree: KeywordTree, tmp_path: Path) -> None:
    before = tree.History(limit=1)[0].seq
    carla = tree.CreateKeyword("Carla", parent_id="root").id
    tree.CreateInfo("She repairs clocks.", keyword_ids=[carla])
    assert first(tree, "Who repairs clocks?")[0] == "Carla"
    with tree.At(before) as past:
        assert first(past, "Who repairs clocks?")[1] == 0
        assert first(past, PEANUTS)[0] == "Anna"
    assert first(tree, "Who repairs clocks?")[0] == "Carla"
    tree.Close()
    with opened(tmp_path) as again:
        assert first(again, "Who repairs clocks?")[0] == "Carla"


def test_a_lost_or_damaged_file_is_made_again(tree: KeywordTree, tmp_path: Path) -> None:
    path = tmp_path / "indexes" / "keywords.db"
    assert first(tree, PEANUTS)[0] == "Anna"
    path.unlink()
    assert first(tree, PEANUTS)[0] == "Anna"
    tree.Close()
    for damage in (b"", b"no database", path.read_bytes()[:5_000], bytes(path.stat().st_size)):
        path.write_bytes(damage)
        with opened(tmp_path) as again:
            assert first(again, PEANUTS)[0] == "Anna"
        with opened(tmp_path) as again:
            assert first(again, PEANUTS)[0] == "Anna"


def test_where_no_file_can_be_written_memory_serves_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "indexes").write_text("not a folder")
    with opened(tmp_path) as tree:
        tree.CreateInfo("She is allergic to peanuts.", keyword_ids=[tree.CreateKeyword("Anna").id])
        assert "in memory" in tree._ranker.Fit(PEANUTS).note
        tree.CreateInfo("She sings.", keyword_ids=[tree.FindByName("Anna")[0].id])
        assert first(tree, "Who sings?")[0] == "Anna"


def test_while_another_process_writes_the_index_is_read_as_it_is(
    tree: KeywordTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("Agent.finding.rows._WAIT_S", 0.05)
    assert first(tree, PEANUTS)[0] == "Anna"
    index_of(tree).close()
    holder = sqlite3.connect(tmp_path / "indexes" / "keywords.db", isolation_level=None)
    holder.execute("begin immediate")
    tree.CreateInfo("She sings.", keyword_ids=[tree.FindByName("Anna")[0].id])
    fits = tree._ranker.Fit(PEANUTS)
    assert "newest changes" in fits.note
    assert fits.ids[0] == tree.FindByName("Anna")[0].id
    holder.close()
    assert first(tree, "Who sings?")[0] == "Anna"
    assert tree._ranker.Fit(PEANUTS).note == ""


def test_writing_and_asking_at_once(tree: KeywordTree) -> None:
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for at in range(15):
                id = tree.CreateKeyword(f"name{number}x{at}", parent_id="root").id
                tree.CreateInfo(f"about thing{number}x{at}", keyword_ids=[id])
                assert first(tree, f"thing{number}x{at}")[0] == f"name{number}x{at}"
        except BaseException as error:  # handed to the test
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_a_forked_child_asks_for_itself(tree: KeywordTree) -> None:
    assert first(tree, PEANUTS)[0] == "Anna"
    child = os.fork()
    if not child:
        try:
            os._exit(0 if first(tree, PEANUTS)[0] == "Anna" else 1)
        except BaseException:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert first(tree, PEANUTS)[0] == "Anna"


@pytest.mark.parametrize("query", ["the of", "🐍", '"', "NEAR(a b) OR *", "peanuts " * 12_500, "花" * 20_000])
def test_any_text_can_be_asked_and_placed(tree: KeywordTree, query: str) -> None:
    for is_placing in (False, True):
        fits = tree._ranker.Fit(query, query, is_placing=is_placing, count=5)
        assert all(0 <= each.score <= 1 for each in fits.evidence.values())


def test_a_new_keyword_belongs_beside_those_that_are_like_it(tree: KeywordTree) -> None:
    drinks = tree.CreateKeyword("Drinks", parent_id="root").id
    for name in ("green tea", "black tea", "milk"):
        tree.CreateKeyword(name, parent_id=drinks)
    people = tree.FindByName("People")[0].id
    assert tree._ranker.Fit("white tea", is_placing=True).ids[0] == drinks
    assert tree._ranker.Fit("buttermilk", is_placing=True).ids[0] == drinks  # by the letters of "milk" alone
    fits = tree._ranker.Fit("oat milk", is_placing=True, count=2, among=[people])
    assert set(fits.ids[:2]) == {drinks, tree.FindByName("milk")[0].id}
    assert fits.evidence[people].score < fits.evidence[drinks].score


def test_a_small_tree_leaves_no_file_and_a_growing_one_gets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("Agent.finding.tree._KEPT_FROM", 20)
    with opened(tmp_path) as tree:
        tree.CreateInfo("She is allergic to peanuts.", keyword_ids=[tree.CreateKeyword("Anna").id])
        assert first(tree, PEANUTS)[0] == "Anna"
        assert not (tmp_path / "indexes").exists()
        tree.BatchCreateKeywords([{"name": f"name {at}", "parent_id": "root"} for at in range(50)])
        assert first(tree, PEANUTS)[0] == first(tree, PEANUTS)[0] == "Anna"
        assert (tmp_path / "indexes" / "keywords.db").exists()


@pytest.mark.parametrize(
    ("name", "parent"),
    [("oolong tea", "Drinks"), ("龙井绿茶", "饮料"), ("table tennis", "tennis"), ("Sport shoes", "Sport")],
)
def test_a_place_is_suggested_by_siblings_and_names(tmp_path: Path, name: str, parent: str) -> None:
    with KeywordTree(str(tmp_path)) as tree:
        for path in ("Food/Drinks/green tea", "Food/Drinks/black tea", "Food/Drinks/coffee", "Food/Fruit/apple"):
            tree.Ensure(path)
        for path in ("Sport/tennis", "Sport/rowing", "家/饮料/碧螺春绿茶", "家/饮料/崂山绿茶", "家/厨房/冰箱"):
            tree.Ensure(path)
        found = tree.SuggestParents(name)

        assert found[0][0].name == parent
        assert found[0][1] > 0.3
        assert len(found) <= 3
        assert [confidence for _, confidence in found] == sorted((each for _, each in found), reverse=True)
        assert tree.SuggestParents("xylophone") == []
        assert tree.FindByName(name) == []


def test_a_description_helps_to_suggest_a_place(tmp_path: Path) -> None:
    with KeywordTree(str(tmp_path)) as tree:
        said = {"Garden/Rose": "a plant with thorns", "Kitchen/Oven": "bakes bread", "Kitchen/Pan": "fries"}
        for path, text in said.items():
            tree.UpdateKeyword((node := tree.Ensure(path)).id, {"description": text}, node.version)

        assert tree.SuggestParents("Zebrac", "a plant with white leaves", 1)[0][0].name in ("Garden", "Rose")
        assert tree.SuggestParents("Zebrac", limit=0) == []
        with pytest.raises(ValueError, match="name"):
            tree.SuggestParents("")
