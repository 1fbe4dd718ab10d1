"""The interface of rankers, and both that there are: the package's, and the plain one of the file copied alone."""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from Agent import keyword_tree as kt
from Agent.finding.tree import TreeRanker
from Agent.keyword_tree import Evidence, Fits, KeywordTree, PlainRanker, StoreError, TreeView
from Agent.tests.support import inside

pytestmark = pytest.mark.usefixtures("no_sync")


class ByLength:
    """Ranks the longest names first; it is no class of the library's."""

    def __init__(self, view: TreeView) -> None:
        self.view = view
        self.is_closed = False

    def Fit(self, query: str, more: str = "", **_: object) -> Fits:  # noqa: N802  the interface's names
        texts = [each for each in self.view.Read(self.view.Ids()) if each.parent_id is not None]
        return Fits([each.id for each in sorted(texts, key=lambda each: -len(each.names[0]))], {})

    def Close(self) -> None:  # noqa: N802
        self.is_closed = True


def test_a_tree_of_the_package_has_its_own(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with KeywordTree(str(tmp_path)) as tree:
        assert isinstance(inside.ranker_of(tree), TreeRanker)
        tree.RankCandidates("tea")
    assert "plainly" not in caplog.text


def test_the_copied_file_ranks_plainly_and_logs_it_once_and_no_text_of_a_failed_model(tmp_path: Path) -> None:
    shutil.copy(str(kt.__file__), tmp_path / "keyword_tree.py")
    program = (
        "import logging; logging.basicConfig(level=logging.INFO, format='%(message)s')\n"
        "from keyword_tree import KeywordTree, PlainRanker, StubLLMClient\n"
        "client = StubLLMClient([RuntimeError('no key sk-1234')])\n"
        "with KeywordTree('memory', client, always_ask=True) as tree:\n"
        "    tea = tree.CreateKeyword('green tea', 'root')\n"
        "    tree.CreateInfo('Steep it for three minutes.', keyword_ids=[tea.id])\n"
        "    assert isinstance(tree._ranker, PlainRanker)\n"
        "    for _ in range(2):\n"
        "        print(tree.RankCandidates('how many minutes')[0][0].name)\n"
        "    print(tree.Search('how many minutes').steps[0].reason)\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, '.')\n{program}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.split("\n")[:3] == ["green tea", "green tea", "RuntimeError"]
    assert done.stderr.count("ranked plainly") == done.stderr.count("(agent_failure): RuntimeError\n") == 1


def test_another_one_is_asked_where_it_is_given(tmp_path: Path) -> None:
    with KeywordTree(str(tmp_path), ranker=ByLength) as tree:
        tea, long = tree.CreateKeyword("tea", "root"), tree.CreateKeyword("a longer name", "root")
        ranker = inside.ranker_of(tree)
        position = ranker.view.Position()
        info = tree.CreateInfo("hot", keyword_ids=[tea.id])
        tree.UpdateInfo(info.id, {"content": "cold"})

        assert [node.id for node, _ in tree.RankCandidates("x")] == [long.id, tea.id]
        assert ranker.view.ChangedSince(position) == {tea.id}
    assert ranker.is_closed


@pytest.mark.parametrize("ranker", [TreeRanker, PlainRanker])
class TestBoth:
    def test_find_by_names_infos_and_what_is_above(self, tmp_path: Path, ranker: type[PlainRanker]) -> None:
        with KeywordTree(str(tmp_path), ranker=ranker) as tree:
            tea = tree.Ensure("food/green tea")
            tree.Ensure("编程/绿茶 框架")
            tree.CreateInfo("Steep it for three minutes. It is bitter else.", keyword_ids=[tea.id])
            found = [tree.RankCandidates(query, 1)[0][0].name for query in ("teas", "三种绿茶", "how many minutes")]

            assert found == ["green tea", "绿茶 框架", "green tea"]
            fits = inside.fit(tree, "oolong tea", is_placing=True)
            assert tree.FindByName("food")[0].id in fits.ids
            assert 0 < max(each.score for each in fits.evidence.values()) <= 1
            quoted = "" if ranker is PlainRanker else "Steep it for three minutes."
            assert inside.fit(tree, "minutes").evidence[tea.id].excerpt == quoted

    def test_find_by_alias_description_and_confirmed_query_and_follow(
        self, tmp_path: Path, ranker: type[PlainRanker]
    ) -> None:
        with KeywordTree(str(tmp_path), ranker=ranker) as tree:
            fridge = tree.CreateKeyword("Fridge", "root", ["icebox"], "keeps food cold")
            tree.CreateKeyword("Kitchen", "root")
            tree.Confirm("where does the milk go", fridge.id)
            for query in ("the icebox", "what keeps cold?", "milk"):
                assert [node.name for node, _ in tree.RankCandidates(query, 1)] == ["Fridge"], query
            tree.DeleteKeyword(fridge.id)
            assert tree.RankCandidates("milk") == []
            tree.Undo(tree.History(limit=1)[0].operation_id)
            assert [node.name for node, _ in tree.RankCandidates("milk")] == ["Fridge"]
            with KeywordTree(str(tmp_path), ranker=ranker) as other:
                other.CreateKeyword("Milk jug", "root")
            tree.Refresh()
            assert {node.name for node, _ in tree.RankCandidates("milk")} == {"Fridge", "Milk jug"}

    def test_return_evidence_of_those_that_are_asked_for(self, tmp_path: Path, ranker: type[PlainRanker]) -> None:
        with KeywordTree(str(tmp_path), ranker=ranker) as tree:
            tree.BatchCreateKeywords([{"id": f"k{number}", "name": f"oat {number}"} for number in range(20)])
            other = tree.CreateKeyword("rye", "root").id
            fits = inside.fit(tree, "oat", count=3, among=[other, "k9"])

            assert {*fits.ids[:3], "k9"} <= fits.evidence.keys()
            assert fits.evidence.get(other, Evidence(0.0)).score == 0
            assert "root" not in fits.ids


@pytest.mark.parametrize("ranker", [TreeRanker, PlainRanker])
def test_what_a_call_that_fails_has_taken_in_is_ranked(tmp_path: Path, ranker: type[PlainRanker]) -> None:
    with KeywordTree(str(tmp_path), ranker=ranker) as tree, KeywordTree(str(tmp_path)) as other:
        tree.CreateKeyword("coffee", "root")
        tree.RankCandidates("peanut allergy")
        other.CreateKeyword("peanut allergy", "root")
        (tmp_path / "snapshots").write_text("where the folder would be")
        with pytest.raises(StoreError):
            tree.Snapshot()

        assert [node.name for node, _ in tree.RankCandidates("peanut allergy")][:1] == ["peanut allergy"]
