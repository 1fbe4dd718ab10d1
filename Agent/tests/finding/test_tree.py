"""The ranking of a tree: questions to the past, beside another writer, of any text, and places for what is new."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from Agent.keyword_tree import KeywordTree

PEANUTS = "Who is allergic to peanuts?"


@pytest.fixture(autouse=True)
def _small_trees_have_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("Agent.finding.tree._KEPT_FROM", 0)


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[KeywordTree]:
    with KeywordTree(str(tmp_path)) as tree:
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
    with KeywordTree(str(tmp_path)) as again:
        assert first(again, "Who repairs clocks?")[0] == "Carla"


def test_while_another_process_writes_the_index_is_read_as_it_is(
    tree: KeywordTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("Agent.finding.index_file._WAIT_S", 0.05)
    assert first(tree, PEANUTS)[0] == "Anna"
    tree._ranker.index.close()
    holder = sqlite3.connect(tmp_path / "indexes" / "keywords.db", isolation_level=None)
    holder.execute("begin immediate")
    tree.CreateInfo("She sings.", keyword_ids=[tree.FindByName("Anna")[0].id])
    fits = tree._ranker.Fit(PEANUTS)
    assert "newest changes" in fits.note
    assert fits.ids[0] == tree.FindByName("Anna")[0].id
    holder.close()
    assert first(tree, "Who sings?")[0] == "Anna"
    assert tree._ranker.Fit(PEANUTS).note == ""


def test_what_another_process_removed_is_not_put_back(
    tree: KeywordTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    anna = tree.FindByName("Anna")[0]
    ranker = tree._ranker
    with KeywordTree(str(tmp_path)) as other:
        assert first(tree, PEANUTS)[0] == first(other, PEANUTS)[0] == "Anna"
        tree.UpdateKeyword(anna.id, {"description": "A singer."}, anna.version)
        read = ranker._view.ChangedSince

        def read_before_the_other(position: str) -> set[str] | None:
            changed: set[str] | None = read(position)
            if other.GetKeyword(anna.id) is not None:
                other.DeleteKeyword(anna.id)
                other._ranker.follow()
            return changed

        monkeypatch.setattr(ranker._view, "ChangedSince", read_before_the_other)
        ranker.follow()
        with ranker.index.reading():
            assert anna.id not in ranker.index.ids()


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
    assert tree._ranker.Fit("milkity", is_placing=True).ids[0] == drinks  # by the letters of "milk" alone
    for name in ("oat milk", "buttermilk"):  # a compound is as good as its words
        fits = tree._ranker.Fit(name, is_placing=True, count=2, among=[people])
        assert set(fits.ids[:2]) == {drinks, tree.FindByName("milk")[0].id}
        assert fits.evidence[people].score < fits.evidence[drinks].score


def test_a_small_tree_leaves_no_file_and_a_growing_one_gets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("Agent.finding.tree._KEPT_FROM", 20)
    with KeywordTree(str(tmp_path)) as tree:
        tree.CreateInfo("She is allergic to peanuts.", keyword_ids=[tree.CreateKeyword("Anna").id])
        assert first(tree, PEANUTS)[0] == "Anna"
        assert not (tmp_path / "indexes").exists()
        tree.BatchCreateKeywords([{"name": f"name {at}", "parent_id": "root"} for at in range(50)])
        assert first(tree, PEANUTS)[0] == first(tree, PEANUTS)[0] == "Anna"
        assert (tmp_path / "indexes" / "keywords.db").exists()


@pytest.mark.parametrize(
    ("name", "parent"),
    [("white tea", "Drinks"), ("龙井绿茶", "饮料"), ("桃树", "树"), ("table tennis", "tennis"), ("Sport bag", "Sport")],
)
def test_a_place_is_suggested_by_siblings_and_names(tmp_path: Path, name: str, parent: str) -> None:
    with KeywordTree(str(tmp_path)) as tree:
        for path in ("Food/Drinks/green tea", "Food/Drinks/black tea", "Food/Drinks/coffee", "Food/Fruit/apple"):
            tree.Ensure(path)
        for path in ("Sport/tennis", "Sport/row", "家/饮料/碧螺春绿茶", "家/饮料/崂山绿茶", "家/冰箱", "园/树/樱桃树"):
            tree.Ensure(path)
        found = tree.SuggestParents(name)

        assert found[0][0].name == parent
        assert found[0][1] > 0.3
        assert len(found) <= 3
        assert [confidence for _, confidence in found] == sorted((each for _, each in found), reverse=True)
        assert tree.SuggestParents("xylophone") == []
        assert tree.FindByName(name) == []


def test_a_place_is_suggested_by_near_words(tmp_path: Path) -> None:
    with KeywordTree(str(tmp_path)) as tree:
        for path in ("Devices/Computers", "Devices/Audio", "Bags/Briefcases", "Bags/Backpacks", "Food/Bread"):
            tree.Ensure(path)
        for path in ("Home/Chairs", "Home/Instruments"):  # a wheelchair is a chair; an instrument is near a violin
            tree.Ensure(path)
        names = ("laptop", "headphones", "suitcase", "wheelchair", "violin")
        offered = {name: tree.SuggestParents(name) for name in names}

    assert "Computers" in [node.name for node, _ in offered["laptop"]]
    assert "Audio" in [node.name for node, _ in offered["headphones"]]
    assert offered["suitcase"][0][0].name in ("Bags", "Briefcases")
    assert [offered[name][0][0].name for name in names[3:]] == ["Chairs", "Instruments"]


def test_a_description_helps_to_suggest_a_place(tmp_path: Path) -> None:
    with KeywordTree(str(tmp_path)) as tree:
        said = {"Garden/Rose": "a plant with thorns", "Kitchen/Oven": "bakes bread", "Kitchen/Pan": "fries"}
        for path, text in said.items():
            tree.UpdateKeyword((node := tree.Ensure(path)).id, {"description": text}, node.version)

        assert tree.SuggestParents("Zebrac", "a plant with white leaves", 1)[0][0].name in ("Garden", "Rose")
        assert tree.SuggestParents("Zebrac", limit=0) == []
        with pytest.raises(ValueError, match="name"):
            tree.SuggestParents("")
