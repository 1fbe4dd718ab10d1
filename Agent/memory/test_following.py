"""Tests of `following`: nothing is missed, nothing comes twice."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from Agent.keyword_tree import KeywordTree
from Agent.memory.following import Follower


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[KeywordTree]:
    with KeywordTree(str(tmp_path)) as tree:
        yield tree


class TestCatchUp:
    def test_begins_with_all_there_is(self, tree: KeywordTree) -> None:
        tea = tree.CreateKeyword("tea")
        info = tree.CreateInfo("hot", keyword_ids=[tea.id])

        news = Follower(tree).catch_up()
        assert news.from_nothing
        assert [node.id for node in news.nodes] == ["root", tea.id]
        assert [record.id for record in news.infos] == [info.id]
        assert [(link.info_id, link.keyword_id) for link in news.links] == [(info.id, tea.id)]

    def test_goes_on_where_it_stopped(self, tree: KeywordTree) -> None:
        follower = Follower(tree)
        follower.catch_up()
        info = tree.CreateInfo("one")
        tree.DeleteInfo(info.id)

        news = follower.catch_up()
        assert not news.from_nothing
        assert [(record.id, record.deleted) for record in news.infos] == [(info.id, False), (info.id, True)]
        assert follower.catch_up().infos == []

    def test_sees_what_others_wrote(self, tree: KeywordTree, tmp_path: Path) -> None:
        follower = Follower(tree)
        follower.catch_up()
        with KeywordTree(str(tmp_path)) as other:
            other.CreateInfo("theirs")

        assert [record.content for record in follower.catch_up().infos] == ["theirs"]

    @pytest.mark.parametrize("keep_history", [True, False])
    def test_begins_anew_behind_a_compaction(self, tree: KeywordTree, keep_history: bool) -> None:
        follower = Follower(tree)
        gone = tree.CreateInfo("gone")
        follower.catch_up()
        tree.DeleteInfo(gone.id)
        tree.CreateInfo("left")
        tree.CompactStorage(keep_history=keep_history)
        tree.CreateInfo("new")

        news = follower.catch_up()
        assert news.from_nothing
        assert [record.content for record in news.infos if not record.deleted] == ["left", "new"]
