"""Tests of the nine tools' work: the graph as the host sees it, and what else changes the tree."""

from pathlib import Path
from typing import Any

import pytest

from Agent.adapters.mcp import graph as graph_module
from Agent.adapters.mcp.graph import MemoryGraph
from Agent.keyword_tree import InvalidInputError, KeywordTree


@pytest.fixture
def graph(tree: KeywordTree) -> MemoryGraph:
    return MemoryGraph(tree)


def entity(name: str, kind: str = "person", *observations: str) -> dict[str, Any]:
    return {"name": name, "entityType": kind, "observations": list(observations)}


def relation(start: str, kind: str, end: str) -> dict[str, str]:
    return {"from": start, "to": end, "relationType": kind}


def id_of(tree: KeywordTree, name: str) -> str:
    (node,) = tree.FindByName(name)
    return node.id


class TestEntities:
    def test_stand_under_their_types(self, graph: MemoryGraph) -> None:
        graph.create_entities([entity("Ada", "person", "plays chess"), entity("Bern", "city")])

        found = graph.tree.Search("person/Ada")
        assert [info.content for info in found.infos] == ["plays chess"]
        assert found.node is not None
        assert found.node.created_by == "mcp"

    def test_one_that_is_there_is_not_made_again(self, graph: MemoryGraph) -> None:
        graph.create_entities([entity("Ada")])
        before = len(graph.tree.History())
        done = graph.create_entities([entity("Ada", "robot", "lost?")])

        assert done.result == []
        assert done.operation_id == ""
        assert len(graph.tree.History()) == before

    def test_one_that_comes_twice_is_made_once_and_says_all(self, graph: MemoryGraph) -> None:
        graph.create_entities([entity("Ada", "person", "a"), entity("Ada", "person", "b")])

        assert graph.read_graph()["entities"] == [entity("Ada", "person", "a", "b")]

    def test_a_call_is_one_operation_that_can_be_undone(self, graph: MemoryGraph) -> None:
        done = graph.create_entities([entity("Ada", "person", "plays chess"), entity("Bern", "city")])
        graph.tree.Undo(done.operation_id)

        assert graph.read_graph() == {"entities": [], "relations": []}
        assert graph.tree.TreeMetrics()["keywords"] == graph.tree.TreeMetrics()["infos"] == 0

    @pytest.mark.parametrize("name", ["", "  \u3000", "\u200b", "x" * 513])
    def test_a_name_that_no_keyword_can_have_is_refused(self, graph: MemoryGraph, name: str) -> None:
        with pytest.raises(InvalidInputError, match="512"):
            graph.create_entities([entity("Ada"), entity(name)])

        assert graph.read_graph()["entities"] == []

    def test_names_differ_by_case(self, graph: MemoryGraph) -> None:
        made = graph.create_entities([entity("polish", "verb"), entity("Polish", "language")]).result

        assert len(made) == 2
        assert [row["entityType"] for row in graph.open_nodes(["Polish"])["entities"]] == ["language"]

    def test_deleting_takes_relations_and_own_observations_and_leaves_shared_ones(self, graph: MemoryGraph) -> None:
        graph.create_entities([entity("Ada", "person", "plays chess"), entity("Eve")])
        graph.create_relations([relation("Ada", "knows", "Eve"), relation("Eve", "knows", "Zoe")])
        shared = graph.tree.GetInfosOfKeyword(id_of(graph.tree, "Ada"))[0]
        graph.tree.LinkInfo(shared.id, id_of(graph.tree, "Eve"))
        graph.delete_entities(["Ada", "missing"])

        reported = graph.read_graph()
        assert reported["entities"] == [entity("Eve", "person", "plays chess")]
        assert reported["relations"] == [relation("Eve", "knows", "Zoe")]

    def test_a_deleted_one_can_be_made_again(self, graph: MemoryGraph) -> None:
        graph.create_entities([entity("Ada", "person", "old")])
        graph.delete_entities(["Ada"])
        graph.create_entities([entity("Ada", "person", "old", "new")])

        assert graph.read_graph()["entities"] == [entity("Ada", "person", "old", "new")]


class TestObservations:
    def test_are_added_once(self, graph: MemoryGraph) -> None:
        graph.create_entities([entity("Ada", "person", "a")])
        wanted = [{"entityName": "Ada", "contents": ["a", "b", "b"]}, {"entityName": "Ada", "contents": ["b", "c"]}]

        assert graph.add_observations(wanted).result == [
            {"entityName": "Ada", "addedObservations": ["b"]},
            {"entityName": "Ada", "addedObservations": ["c"]},
        ]
        assert graph.read_graph()["entities"] == [entity("Ada", "person", "a", "b", "c")]

    def test_long_ones_are_added_once_and_found(self, graph: MemoryGraph) -> None:
        long = "word " * 2000 + "needle"
        graph.create_entities([entity("Ada", "person", long)])

        assert graph.add_observations([{"entityName": "Ada", "contents": [long]}]).result[0]["addedObservations"] == []
        assert graph.search_nodes("NEEDLE")["entities"] == [entity("Ada", "person", long)]

    def test_of_no_one_are_refused_and_nothing_is_written(self, graph: MemoryGraph) -> None:
        graph.create_entities([entity("Ada")])
        wanted = [{"entityName": "Ada", "contents": ["a"]}, {"entityName": "Eve", "contents": ["b"]}]
        with pytest.raises(InvalidInputError, match="Entity with name Eve not found"):
            graph.add_observations(wanted)

        assert graph.read_graph()["entities"] == [entity("Ada")]

    def test_one_that_was_edited_can_be_added_again(self, graph: MemoryGraph) -> None:
        graph.create_entities([entity("Ada", "person", "a")])
        (info,) = graph.tree.GetInfosOfKeyword(id_of(graph.tree, "Ada"))
        graph.tree.UpdateInfo(info.id, {"content": "edited"})
        graph.add_observations([{"entityName": "Ada", "contents": ["a"]}])

        assert graph.read_graph()["entities"] == [entity("Ada", "person", "edited", "a")]
        assert [row["name"] for row in graph.search_nodes("edited")["entities"]] == ["Ada"]

    def test_deleting_one_that_is_shared_unlinks_it(self, graph: MemoryGraph) -> None:
        graph.create_entities([entity("Ada", "person", "a", "b"), entity("Eve")])
        info = graph.tree.GetInfosOfKeyword(id_of(graph.tree, "Ada"))[0]
        graph.tree.LinkInfo(info.id, id_of(graph.tree, "Eve"))
        graph.delete_observations(
            [{"entityName": "Ada", "observations": ["a", "b", "?"]}, {"entityName": "?", "observations": []}]
        )

        assert graph.read_graph()["entities"] == [entity("Ada"), entity("Eve", "person", "a")]


class TestRelations:
    def test_one_to_no_one_keeps_the_name_and_finds_it_later(self, graph: MemoryGraph) -> None:
        graph.create_entities([entity("Ada")])
        graph.create_relations(both := [relation("Ada", "knows", "Eve"), relation("Zoe", "likes", "Eve")])
        assert graph.read_graph()["relations"] == both
        graph.create_entities([entity("Eve")])

        assert graph.open_nodes(["Eve"])["relations"] == both
        assert graph.create_relations([relation("Ada", "knows", "Eve")]).result == []

    def test_runs_one_way(self, graph: MemoryGraph) -> None:
        graph.create_entities([entity("Ada"), entity("Eve")])
        graph.create_relations([relation("Ada", "knows", "Eve")])

        assert len(graph.create_relations([relation("Eve", "knows", "Ada")]).result) == 1
        graph.delete_relations([relation("Ada", "knows", "Eve")])
        assert graph.read_graph()["relations"] == [relation("Eve", "knows", "Ada")]


class TestWhoeverChangesTheTree:
    def test_renamed_is_found_by_both_names(self, graph: MemoryGraph) -> None:
        graph.create_entities([entity("Ada", "person", "plays chess"), entity("Eve")])
        graph.create_relations([relation("Ada", "knows", "Eve")])
        node = graph.tree.GetKeyword(id_of(graph.tree, "Ada"))
        assert node is not None
        graph.tree.UpdateKeyword(node.id, {"name": "Ada Lovelace"}, node.version)

        expected = [entity("Ada Lovelace", "person", "plays chess")]
        assert graph.open_nodes(["Ada"])["entities"] == graph.open_nodes(["Ada Lovelace"])["entities"] == expected
        assert graph.read_graph()["relations"] == [relation("Ada Lovelace", "knows", "Eve")]
        assert graph.create_entities([entity("Ada")]).result == []

    def test_moved_keeps_its_type(self, graph: MemoryGraph) -> None:
        graph.create_entities([entity("Ada")])
        friends = graph.tree.CreateKeyword("friends", "root")
        graph.tree.MoveKeyword(id_of(graph.tree, "Ada"), friends.id)

        assert entity("Ada") in graph.read_graph()["entities"]

    def test_merged_leads_on(self, graph: MemoryGraph) -> None:
        graph.create_entities([entity("Ada", "person", "a"), entity("Augusta", "person", "b"), entity("Eve")])
        graph.create_relations([relation("Ada", "knows", "Eve")])
        graph.read_graph()
        graph.tree.MergeKeywords(id_of(graph.tree, "Ada"), id_of(graph.tree, "Augusta"))
        graph.add_observations([{"entityName": "Ada", "contents": ["c"]}])

        reported = graph.open_nodes(["Ada"])
        assert [row["name"] for row in reported["entities"]] == ["Augusta"]
        assert sorted(reported["entities"][0]["observations"]) == ["a", "b", "c"]
        assert reported["relations"] == [relation("Augusta", "knows", "Eve")]

    def test_deleted_is_gone_and_can_come_back(self, graph: MemoryGraph) -> None:
        graph.create_entities([entity("Ada", "person", "a"), entity("Eve")])
        reported = graph.read_graph()
        with graph.tree.Operation() as operation:
            graph.tree.DeleteKeyword(id_of(graph.tree, "Ada"), info_policy="delete")
        assert graph.read_graph()["entities"] == [entity("Eve")]
        graph.tree.Undo(operation.id)

        assert graph.read_graph() == reported

    def test_another_graph_on_the_same_folder_sees_it(self, graph: MemoryGraph) -> None:
        graph.create_entities([entity("Ada")])
        with KeywordTree(graph.tree.data_dir) as other:
            theirs = MemoryGraph(other)
            assert theirs.read_graph()["entities"] == [entity("Ada")]
            graph.add_observations([{"entityName": "Ada", "contents": ["a"]}])
            theirs.add_observations([{"entityName": "Ada", "contents": ["a", "b"]}])

        assert graph.read_graph()["entities"] == [entity("Ada", "person", "a", "b")]

    def test_same_names_are_distinguished_by_their_paths(self, graph: MemoryGraph) -> None:
        one = graph.tree.CreateKeyword("A", "root")
        graph.tree.CreateKeyword("A", one.id)

        names = [row["name"] for row in graph.read_graph()["entities"]]
        assert names == ["A", "A / A"]
        assert [row["name"] for row in graph.open_nodes(names)["entities"]] == names

    def test_says_the_same_as_one_that_reads_it_again(self, graph: MemoryGraph) -> None:
        graph.create_entities([entity("Ada", "person", "a"), entity("Eve", "keyword"), entity("Zoe", "keyword")])
        graph.create_relations([relation("Ada", "knows", "Eve")])
        graph.tree.MoveKeyword(id_of(graph.tree, "Zoe"), id_of(graph.tree, "Eve"))
        graph.read_graph()
        graph.delete_entities(["Ada"])
        graph.create_entities([entity("Ada", "person", "x"), entity("Bob")])
        graph.delete_observations([{"entityName": "Ada", "observations": ["x"]}])
        graph.tree.CompactStorage(keep_history=False)
        graph.create_relations([relation("Bob", "knows", "Missing")])
        fresh = MemoryGraph(graph.tree)

        assert graph.read_graph() == fresh.read_graph()
        for query in ("a", "x", "know", "keyword", "bob"):
            assert graph.search_nodes(query) == fresh.search_nodes(query)


class TestSearching:
    def test_takes_case_width_and_chinese(self, graph: MemoryGraph) -> None:
        graph.create_entities([entity("绿茶", "饮料", "龙井来自杭州"), entity("Python", "语言")])

        assert [row["name"] for row in graph.search_nodes("杭州")["entities"]] == ["绿茶"]
        assert [row["name"] for row in graph.search_nodes("ｐｙｔｈ")["entities"]] == ["Python"]

    def test_ranking_follows_where_nothing_contains_the_text(self, graph: MemoryGraph) -> None:
        graph.create_entities([entity("green tea", "drink"), entity("coffee", "drink")])

        assert [row["name"] for row in graph.search_nodes("tea, green")["entities"]] == ["green tea"]
        assert graph.search_nodes("NonExistent")["entities"] == []

    def test_aliases_and_paths_open_nodes(self, graph: MemoryGraph) -> None:
        graph.create_entities([entity("Python", "language")])
        graph.tree.AddAlias(id_of(graph.tree, "Python"), "蟒蛇")

        for name in ("蟒蛇", "language/Python", "python"):
            assert [row["name"] for row in graph.open_nodes([name])["entities"]] == ["Python"]
        assert graph.open_nodes(["Rust", "language"])["entities"] == []

    def test_an_alias_of_several_is_refused_where_one_is_meant(self, graph: MemoryGraph) -> None:
        graph.create_entities([entity("Ada"), entity("Eve")])
        for name in ("Ada", "Eve"):
            graph.tree.AddAlias(id_of(graph.tree, name), "she")
        with pytest.raises(InvalidInputError, match="'Ada', 'Eve'"):
            graph.add_observations([{"entityName": "she", "contents": ["a"]}])

        assert len(graph.open_nodes(["she"])["entities"]) == 2

    def test_only_the_newest_are_reported_and_the_rest_is_counted(
        self, graph: MemoryGraph, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(graph_module, "ENTITIES", 2)
        graph.create_entities([entity(name) for name in "abc"])
        graph.create_relations([relation("a", "before", "b"), relation("a", "before", "a")])

        reported = graph.read_graph()
        assert [row["name"] for row in reported["entities"]] == ["b", "c"]
        assert reported["relations"] == [relation("a", "before", "b")]
        assert reported["omitted"] == {"entities": 1, "relations": 0, "observations": 0}


class TestFile:
    GRAPH = (
        '{"type":"entity","name":"Ada","entityType":"person","observations":["plays chess"]}\n'
        '{"type":"relation","from":"Ada","to":"Bern","relationType":"lives in"}\n'
        '{"type":"relation","from":"x","to":"y","relationType":"before"}\n'
    )

    def write(self, folder: Path) -> Path:
        path = folder / "memory.jsonl"
        path.write_text(self.GRAPH, encoding="utf-8")
        return path

    def test_is_taken_in_once(self, graph: MemoryGraph, tmp_path: Path) -> None:
        path = self.write(tmp_path)

        assert graph.import_once(path)
        assert graph.read_graph() == {
            "entities": [entity("Ada", "person", "plays chess")],
            "relations": [relation("Ada", "lives in", "Bern"), relation("x", "before", "y")],
        }
        graph.delete_entities(["Ada"])
        assert graph.import_once(path) == ""
        assert graph.read_graph()["entities"] == []

    def test_meets_what_a_host_made_already(self, graph: MemoryGraph, tmp_path: Path) -> None:
        graph.create_entities([entity("Ada", "person", "plays chess")])
        graph.import_once(self.write(tmp_path))

        assert graph.read_graph()["entities"] == [entity("Ada", "person", "plays chess")]

    def test_can_be_undone_as_a_whole(self, graph: MemoryGraph, tmp_path: Path) -> None:
        path = self.write(tmp_path)
        graph.tree.Undo(graph.import_once(path))

        assert graph.read_graph() == {"entities": [], "relations": []}
        assert graph.import_once(path)

    @pytest.mark.parametrize("torn", [b"{", '{"type": "entity", "name": "茶'.encode()[:-1], b"null\n7"])
    def test_a_torn_line_is_named_and_passed_over(
        self, graph: MemoryGraph, tmp_path: Path, caplog: pytest.LogCaptureFixture, torn: bytes
    ) -> None:
        path = self.write(tmp_path)
        path.write_bytes(self.GRAPH.encode() + torn)

        assert graph.import_once(path)
        assert graph.read_graph()["entities"] == [entity("Ada", "person", "plays chess")]
        assert "memory.jsonl, line 4" in caplog.text
