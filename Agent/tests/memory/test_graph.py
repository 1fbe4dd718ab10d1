"""Tests of `graph`: one suite for whatever stands behind `KnowledgeGraph`, then what is said of each alone."""

import tempfile
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from Agent.keyword_tree import InvalidInputError, KeywordTree, NotFoundError
from Agent.memory.graph import (
    GraphEntity,
    GraphRelation,
    InMemoryGraph,
    KnowledgeGraph,
    RelationDirection,
    TagConstraints,
    units_of,
)
from Agent.memory.tree_graph import TreeGraph
from Agent.tests.support.examples import share
from Agent.tests.support.threads import in_threads

OpenGraph: TypeAlias = Callable[[], AbstractContextManager[KnowledgeGraph]]

DISK = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""A disk in memory, where there is one: what waits for no sync can be tried more often."""

OUTGOING, INCOMING, BOTH = RelationDirection.OUTGOING, RelationDirection.INCOMING, RelationDirection.BOTH


@contextmanager
def in_memory() -> Iterator[KnowledgeGraph]:
    yield InMemoryGraph()


@contextmanager
def in_a_tree() -> Iterator[KnowledgeGraph]:
    with tempfile.TemporaryDirectory(dir=DISK) as folder, KeywordTree(folder) as tree:
        yield TreeGraph(tree)


IMPLEMENTATIONS: dict[str, OpenGraph] = {"InMemoryGraph": in_memory, "TreeGraph": in_a_tree}
"""Every implementation by its name, with what opens an empty one."""

every_implementation = pytest.mark.parametrize("open_graph", IMPLEMENTATIONS.values(), ids=list(IMPLEMENTATIONS))


@pytest.fixture(params=IMPLEMENTATIONS.values(), ids=list(IMPLEMENTATIONS))
def graph(request: pytest.FixtureRequest) -> Iterator[KnowledgeGraph]:
    open_graph: OpenGraph = request.param
    with open_graph() as opened:
        yield opened


def accepted_as_name(name: str) -> bool:
    """Tell whether every implementation takes a name: a tree wants more than blanks and marks of control."""
    return any(unicodedata.category(char)[0] not in "ZC" for char in name)


def add(graph: KnowledgeGraph, *ids: str, **tags: list[str]) -> None:
    """Add entities named by their ids."""
    for id in ids:
        graph.add_entity(GraphEntity(id, f"name of {id}", tags=tags.get(id, [])))


def relate(graph: KnowledgeGraph, *relations: str | tuple[str, float]) -> None:
    """Add relations written `a-b` or `a-b:type`, and the entities that they need."""
    for item in relations:
        text, weight = item if isinstance(item, tuple) else (item, 1.0)
        ends, _, relation_type = text.partition(":")
        source, _, target = ends.partition("-")
        for id in (source, target):
            if graph.get_entity(id) is None:
                add(graph, id)
        graph.add_relation(GraphRelation(source, target, relation_type or "related_to", weight))


def related(
    graph: KnowledgeGraph,
    id: str,
    depth: int = 1,
    direction: RelationDirection = OUTGOING,
    types: list[str] | None = None,
) -> dict[str, float]:
    """Return the scores of what is related, in the order given; rounded, since products differ in their last digit."""
    found = graph.get_related(id, depth, direction, types)
    return {scored.entity.id: round(scored.score, 12) for scored in found}


def found_ids(graph: KnowledgeGraph, *keywords: str) -> list[str]:
    return [entity.id for entity in graph.find_by_keywords(keywords)]


DIRECTED: list[str | tuple[str, float]] = ["a-b", "c-a", "d-c", "d-b"]
TYPED: list[str | tuple[str, float]] = ["a-b:knows", "b-c:likes", "a-d:likes", "a-e:owns"]
LONGER_IS_BETTER: list[str | tuple[str, float]] = [("a-d", 0.1), "a-b", "b-d", "d-e"]
CIRCLES: list[str | tuple[str, float]] = ["a-a", "a-b", "b-a", "b-c", "c-a", "c-c"]
NO_WEIGHT: list[str | tuple[str, float]] = [("a-b", 0.0), ("b-c", 0.0), ("c-b", 0.0), ("c-a", 0.0)]

WALKS: dict[str, tuple[list[str | tuple[str, float]], dict[str, Any], dict[str, float]]] = {
    "one step out unless given": (["a-b", "b-c", "d-a"], {}, {"b": 0.5}),
    "half for each step": (["a-b", "b-c", "c-d"], {"depth": 3}, {"b": 0.5, "c": 0.25, "d": 0.125}),
    "no step with depth 0": (["a-b"], {"depth": 0}, {}),
    "outgoing": (DIRECTED, {"depth": 2, "direction": OUTGOING}, {"b": 0.5}),
    "incoming": (DIRECTED, {"depth": 2, "direction": INCOMING}, {"c": 0.5, "d": 0.25}),
    "both directions": (DIRECTED, {"depth": 2, "direction": BOTH}, {"b": 0.5, "c": 0.5, "d": 0.25}),
    "one type": (TYPED, {"depth": 2, "types": ["likes"]}, {"d": 0.5}),
    "two types": (TYPED, {"depth": 2, "types": ["knows", "likes"]}, {"b": 0.5, "d": 0.5, "c": 0.25}),
    "no type": (TYPED, {"depth": 2, "types": []}, {}),
    "weights multiply": ([("a-b", 0.8), ("b-c", 0.5)], {"depth": 2}, {"b": 0.4, "c": 0.1}),
    "the best way, though it is longer": (LONGER_IS_BETTER, {"depth": 3}, {"b": 0.5, "d": 0.25, "e": 0.125}),
    "a better way that leaves no step": (LONGER_IS_BETTER, {"depth": 2}, {"b": 0.5, "d": 0.25, "e": 0.025}),
    "no weight": ([("a-b", 0.0)], {"depth": 5, "direction": BOTH}, {"b": 0.0}),
    "equals by id": ([("a-z", 0.9), ("a-c", 0.2), ("a-b", 0.2)], {}, {"z": 0.45, "b": 0.1, "c": 0.1}),
    "circles, outgoing": (CIRCLES, {"depth": 10**9}, {"b": 0.5, "c": 0.25}),
    "circles, incoming": (CIRCLES, {"depth": 10**9, "direction": INCOMING}, {"b": 0.5, "c": 0.5}),
    "circles, both": (CIRCLES, {"depth": 10**9, "direction": BOTH}, {"b": 0.5, "c": 0.5}),
    "circles of no weight": (NO_WEIGHT, {"depth": 10**9}, {"b": 0.0, "c": 0.0}),
}
"""Relations, what is asked of `a`, and the scores in the order given."""

Asked: TypeAlias = list[tuple[list[str], list[str]]]

KEYWORDS: dict[str, tuple[list[GraphEntity], Asked]] = {
    "tags before names before descriptions": (
        [
            GraphEntity("by name", "Green tea"),
            GraphEntity("by tag", "Longjing", tags=["tea"]),
            GraphEntity("by description", "Gaiwan", description="A lidded cup for TEA."),
            GraphEntity("not", "coffee"),
        ],
        [(["tea"], ["by tag", "by name", "by description"])],
    ),
    "more of them come first, each counted once": (
        [GraphEntity("1", "tea", description="from Hangzhou"), GraphEntity("2", "tea cup"), GraphEntity("3", "cup")],
        [
            (["tea", "hangzhou"], ["1", "2"]),
            (["tea", "Tea", "cup"], ["2", "3", "1"]),
            (["tea", "cup"], ["2", "3", "1"]),
        ],
    ),
    "equals by name, then by id": (
        [GraphEntity("3", "b tea"), GraphEntity("2", "a tea"), GraphEntity("1", "b tea")],
        [(["tea"], ["2", "1", "3"])],
    ),
    "English words whole": ([GraphEntity("1", "Django")], [(["go"], []), (["DJANGO"], ["1"])]),
    "Chinese in any run": ([GraphEntity("1", "西湖龙井茶")], [(["龙井"], ["1"]), (["茶"], ["1"]), (["西井"], [])]),
    "whatever width, separators and order": (
        [GraphEntity("1", "Ｇreen-Tea")],
        [(["green tea"], ["1"]), (["GREEN_TEA"], ["1"]), (["teas, green"], ["1"]), (["green cup"], [])],
    ),
    "names that differ in symbols": (
        [GraphEntity(name, name) for name in ("C", "C++", "C#", "🐍")],
        [(["c++"], ["C++"]), (["C#"], ["C#"]), (["c"], ["C"]), (["🐍"], ["🐍"])],
    ),
    "nothing by nothing": ([GraphEntity("1", "name")], [([], []), (["", " "], []), (["..."], []), (["unknown"], [])]),
}
"""Entities, keywords, and the ids found in their order."""

Call: TypeAlias = Callable[[KnowledgeGraph], object]

NOT_THERE: list[Call] = [
    lambda graph: graph.add_relation(GraphRelation("missing", "a", "knows")),
    lambda graph: graph.add_relation(GraphRelation("a", "missing", "knows")),
    lambda graph: graph.remove_relation("missing", "a", "knows"),
    lambda graph: graph.remove_relation("a", "missing", "knows"),
    lambda graph: graph.remove_entity("missing"),
    lambda graph: graph.get_relations("missing"),
    lambda graph: graph.get_related("missing"),
    lambda graph: graph.set_entity_tags("missing", ["tea"]),
]

INVALID: list[tuple[str, Callable[[KnowledgeGraph, Any], object], list[Any]]] = [
    (
        r"must be between 0\.0 and 1\.0",
        lambda graph, value: graph.add_relation(GraphRelation("a", "b", "knows", value)),
        [-0.1, 1.1, float("nan"), True, "1"],
    ),
    ("relation_type is required", lambda graph, value: graph.add_relation(GraphRelation("a", "b", value)), [" "]),
    ("direction", lambda graph, value: graph.get_relations("a", value), ["sideways", None]),
    ("direction", lambda graph, value: graph.get_related("a", 1, value), ["sideways", None]),
    ("depth", lambda graph, value: graph.get_related("a", value), [-1, 1.0, True, None]),
    ("relation_types", lambda graph, value: graph.get_related("a", 1, OUTGOING, value), ["knows"]),
    ("keywords must be a list", lambda graph, value: graph.find_by_keywords(value), ["tea"]),
    (r"keywords\[0\] must be a string", lambda graph, value: graph.find_by_keywords(value), [[5]]),
    ("limit", lambda graph, value: graph.find_by_keywords(["tea"], value), [0, -1, True, 1.5]),
    ("tag", lambda graph, value: graph.set_entity_tags("a", value), ["tea", [5]]),
    ("prefix", lambda graph, value: graph.find_tags(value), [5]),
]
"""What the error names, a call, and values that it refuses."""


class TestRefusals:
    @pytest.fixture(autouse=True)
    def unchanged(self, graph: KnowledgeGraph) -> Iterator[None]:
        add(graph, "a", "b", a=["old"])
        yield
        assert graph.get_relations("a") == []
        assert graph.find_tags("") == ["old"]

    @pytest.mark.parametrize("call", NOT_THERE)
    def test_of_what_is_not_there_name_it(self, graph: KnowledgeGraph, call: Call) -> None:
        with pytest.raises(NotFoundError, match="'missing'"):
            call(graph)

    @pytest.mark.parametrize(("message", "call", "values"), INVALID, ids=[message for message, *_ in INVALID])
    def test_of_arguments_name_what_is_wrong(
        self, graph: KnowledgeGraph, message: str, call: Callable[[KnowledgeGraph, Any], object], values: list[Any]
    ) -> None:
        for value in values:
            with pytest.raises(InvalidInputError, match=message):
                call(graph, value)

    @pytest.mark.parametrize("value", [[[]], {5: 5}, 5], ids=["list", "dict", "number"])
    def test_of_what_is_no_id(self, graph: KnowledgeGraph, value: Any) -> None:
        for call in (graph.get_entity, graph.remove_entity, graph.get_related, graph.entity_count_by_tag):
            with pytest.raises(InvalidInputError):
                call(value)
        with pytest.raises(InvalidInputError):
            graph.add_relation(GraphRelation(value, "a", "knows"))


class TestEntities:
    @pytest.mark.parametrize(
        ("given", "kept"),
        [
            (
                GraphEntity("1", "绿茶 Green tea", "drink", "不发酵的茶", ["tea", "杭州"]),
                GraphEntity("1", "绿茶 Green tea", "drink", "不发酵的茶", ["tea", "杭州"]),
            ),
            (GraphEntity("1", "tea"), GraphEntity("1", "tea", "concept", "", [])),
        ],
        ids=["whole", "with the defaults"],
    )
    def test_come_back_as_they_were_added(self, graph: KnowledgeGraph, given: GraphEntity, kept: GraphEntity) -> None:
        assert graph.get_entity("1") is None
        graph.add_entity(given)

        assert graph.get_entity("1") == kept

    def test_take_the_place_of_the_one_with_their_id(self, graph: KnowledgeGraph) -> None:
        relate(graph, "a-b", "b-a")
        graph.add_entity(GraphEntity("a", "new name", "city", "new description", ["new"]))

        assert graph.get_entity("a") == GraphEntity("a", "new name", "city", "new description", ["new"])
        assert len(graph.get_relations("a")) == 2
        assert (found_ids(graph, "new"), found_ids(graph, "name of a")) == (["a"], [])

    def test_are_the_callers_own(self, graph: KnowledgeGraph) -> None:
        mine = GraphEntity("1", "tea", tags=["green"])
        graph.add_entity(mine)
        graph.add_entity(GraphEntity("2", "cup"))
        graph.add_relation(GraphRelation("2", "1", "holds"))
        for entity in (mine, graph.get_entity("1"), *graph.find_by_keywords(["tea"]), graph.get_related("2")[0].entity):
            assert entity is not None
            entity.name = "changed"
            entity.tags.append("changed")

        assert graph.get_entity("1") == graph.get_related("2")[0].entity == GraphEntity("1", "tea", tags=["green"])
        assert graph.find_tags("") == ["green"]

    def test_are_removed_with_relations_and_tags(self, graph: KnowledgeGraph) -> None:
        add(graph, "a", a=["tag"])
        relate(graph, "a-b", "b-a", "a-a", "b-c")
        graph.remove_entity("a")

        assert graph.get_entity("a") is None
        assert graph.get_relations("b") == [GraphRelation("b", "c", "related_to")]
        assert (graph.find_tags(""), graph.entity_count_by_tag("tag"), found_ids(graph, "name of a")) == ([], 0, [])
        add(graph, "a")
        assert graph.get_relations("a") == []

    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            ({"id": ""}, "is required"),
            ({"name": " "}, "is required"),
            ({"entity_type": ""}, "is required"),
            ({"description": None}, "must be a string"),
            ({"tags": None}, "must be a list"),
            ({"tags": [None]}, "must be a string"),
            ({"name": 5}, "must be a string"),
        ],
    )
    def test_without_what_they_need_are_refused_and_leave_nothing(
        self, graph: KnowledgeGraph, wrong: dict[str, Any], message: str
    ) -> None:
        entity = GraphEntity(**{"id": "a", "name": "n", **wrong})
        for _ in range(2):
            with pytest.raises(InvalidInputError, match=message):
                graph.add_entity(entity)
            add(graph, "a")
        assert graph.get_entity("a") == GraphEntity("a", "name of a")

    @every_implementation
    @given(name=st.text(st.characters(codec="utf-8"), min_size=1).filter(accepted_as_name))
    def test_are_found_by_their_whole_name_where_it_has_a_word_or_symbol(
        self, open_graph: OpenGraph, name: str
    ) -> None:
        entity = GraphEntity("1", name)
        with open_graph() as graph:
            graph.add_entity(entity)
            graph.add_entity(GraphEntity("2", "unlike"))

            assert (GraphEntity("1", name) in graph.find_by_keywords([name])) == bool(units_of(name))


class TestRelations:
    def test_stand_with_both_ends(self, graph: KnowledgeGraph) -> None:
        relate(graph, "a-b", "c-a")
        out, into = GraphRelation("a", "b", "related_to"), GraphRelation("c", "a", "related_to")

        assert graph.get_relations("a") == [out, into]
        assert graph.get_relations("a", OUTGOING) == [out]
        assert graph.get_relations("a", INCOMING) == [into]
        assert graph.get_relations("b") == [out]

    @pytest.mark.parametrize("id", ["person:ada", "a:", "%3A", ":", "人 物"])
    def test_may_have_any_id_and_type(self, graph: KnowledgeGraph, id: str) -> None:
        add(graph, id, "b")
        relations = [
            GraphRelation(*ends, kind) for ends in ((id, "b"), ("b", id), (id, id)) for kind in ("is:a", "100%", id)
        ]
        for relation in relations:
            graph.add_relation(relation)

        assert set(graph.get_relations(id)) == set(relations)
        for relation in relations:
            graph.remove_relation(relation.source_id, relation.target_id, relation.relation_type)
        assert graph.get_relations(id) == []

    def test_are_followed_in_a_direction_that_is_written_out(self, graph: KnowledgeGraph) -> None:
        relate(graph, "a-b", "c-a")

        assert graph.get_relations("a", "incoming") == [GraphRelation("c", "a", "related_to")]  # type: ignore[arg-type]
        assert [found.entity.id for found in graph.get_related("a", 1, "incoming")] == ["c"]  # type: ignore[arg-type]

    def test_are_removed_by_ends_and_type(self, graph: KnowledgeGraph) -> None:
        relate(graph, "a-b:knows", "a-b:likes", "b-a:knows", "a-a:knows")
        graph.remove_relation("a", "b", "knows")
        graph.remove_relation("a", "b", "hates")  # nothing of this type is there

        left = {GraphRelation("a", "b", "likes"), GraphRelation("b", "a", "knows")}
        assert (len(graph.get_relations("b")), set(graph.get_relations("b"))) == (2, left)
        assert (len(graph.get_relations("a")), set(graph.get_relations("a"))) == (
            3,
            left | {GraphRelation("a", "a", "knows")},
        )

    def test_added_again_take_the_new_weight(self, graph: KnowledgeGraph) -> None:
        relate(graph, ("a-b", 0.5), ("a-b", 0.25))

        assert graph.get_relations("a") == graph.get_relations("b") == [GraphRelation("a", "b", "related_to", 0.25)]


class TestGetRelated:
    @pytest.mark.parametrize(("relations", "asked", "scores"), WALKS.values(), ids=WALKS)
    def test_gives_each_its_score_the_nearest_first(
        self,
        graph: KnowledgeGraph,
        relations: list[str | tuple[str, float]],
        asked: dict[str, Any],
        scores: dict[str, float],
    ) -> None:
        relate(graph, *relations)

        assert list(related(graph, "a", **asked).items()) == list(scores.items())

    @every_implementation
    @share(0.5)
    @given(
        edges=st.lists(
            st.tuples(st.sampled_from("abcde"), st.sampled_from("abcde"), st.sampled_from([0.0, 0.1, 0.5, 1.0])),
            max_size=10,
        ),
        depth=st.integers(0, 5),
        direction=st.sampled_from(RelationDirection),
    )
    def test_agrees_with_trying_every_way(
        self, open_graph: OpenGraph, edges: list[tuple[str, str, float]], depth: int, direction: RelationDirection
    ) -> None:
        weights = {(source, target): weight for source, target, weight in edges}
        steps = dict(weights) if direction is not INCOMING else {}
        if direction is not OUTGOING:
            for (source, target), weight in weights.items():
                steps[target, source] = max(weight, steps.get((target, source), 0.0))

        def ways(id: str, left: int, score: float) -> Iterator[tuple[str, float]]:
            yield id, score
            for (source, target), weight in steps.items():
                if left and source == id:
                    yield from ways(target, left - 1, score * weight / 2)

        best: dict[str, float] = {}
        for id, score in ways("a", min(depth, 4), 1.0):
            best[id] = max(score, best.get(id, 0.0))
        with open_graph() as graph:
            add(graph, *"abcde")
            for (source, target), weight in weights.items():
                graph.add_relation(GraphRelation(source, target, "related_to", weight))

            assert related(graph, "a", depth, direction) == {id: round(best[id], 12) for id in best if id != "a"}


class TestFindByKeywords:
    @pytest.mark.parametrize(("entities", "asked"), KEYWORDS.values(), ids=KEYWORDS)
    def test_finds_by_names_tags_and_descriptions(
        self, graph: KnowledgeGraph, entities: list[GraphEntity], asked: Asked
    ) -> None:
        for entity in entities:
            graph.add_entity(entity)

        assert [(keywords, found_ids(graph, *keywords)) for keywords, _ in asked] == asked

    def test_returns_the_first_of_many(self, graph: KnowledgeGraph) -> None:
        for id, name in enumerate(("green tea", "black tea", "tea", "white tea cup", "red cup")):
            graph.add_entity(GraphEntity(str(id), name))

        assert len(graph.find_by_keywords(["tea"])) == 4
        assert graph.find_by_keywords(["tea", "cup"], 2)[0].name == "white tea cup"
        assert [entity.name for entity in graph.find_by_keywords(["cup", "red"], 1)] == ["red cup"]


class TestTags:
    @pytest.mark.parametrize(
        ("given", "kept"),
        [
            ([" Tea", "ＴＥＡ", "", "Green  Tea"], ["tea", "green tea"]),
            ([f"Tag {number}" for number in range(12, 0, -1)], [f"tag {number}" for number in range(12, 4, -1)]),
        ],
        ids=["in lower case, each once, without blanks", "the eight most relevant"],
    )
    def test_are_normalized_however_they_are_given(
        self, graph: KnowledgeGraph, given: list[str], kept: list[str]
    ) -> None:
        add(graph, "a", "b", b=given)

        assert graph.set_entity_tags("a", given) == len(kept)
        assert graph.get_entity("a") == GraphEntity("a", "name of a", tags=kept)
        assert graph.get_entity("b") == GraphEntity("b", "name of b", tags=kept)
        assert graph.tag_constraints() == TagConstraints(max_tags_per_entity=8)

    def test_take_the_place_of_the_older_ones(self, graph: KnowledgeGraph) -> None:
        add(graph, "a", a=["old", "both"])
        graph.set_entity_tags("a", ["both", "new"])

        assert graph.find_tags("") == ["both", "new"]
        assert (found_ids(graph, "old"), found_ids(graph, "new")) == ([], ["a"])

    def test_are_found_by_their_beginning_the_most_used_first(self, graph: KnowledgeGraph) -> None:
        add(graph, "a", "b", "c", a=["tea", "team", "cup"], b=["team", "tap"], c=["team", "tea"])

        assert graph.find_tags("TE") == ["team", "tea"]
        assert graph.find_tags("t") == ["team", "tea", "tap"]
        assert graph.find_tags("x") == []

    @every_implementation
    @share(0.5)
    @given(steps=st.lists(st.tuples(st.sampled_from("ab"), st.lists(st.sampled_from(["t", "T ", "茶", "x", ""])))))
    def test_agree_with_a_plain_dict(self, open_graph: OpenGraph, steps: list[tuple[str, list[str]]]) -> None:
        tags: dict[str, list[str]] = {"a": [], "b": []}
        with open_graph() as graph:
            add(graph, "a", "b")
            for id, given_tags in steps:
                tags[id] = list(dict.fromkeys(tag.strip().lower() for tag in given_tags if tag))

                assert graph.set_entity_tags(id, given_tags) == len(tags[id])
                for tag in ("t", "茶", "x"):
                    assert graph.entity_count_by_tag(tag) == (tag in tags["a"]) + (tag in tags["b"])
                assert set(graph.find_tags("")) == {*tags["a"], *tags["b"]}


class TestReuseTags:
    @pytest.mark.parametrize(
        ("known", "candidates", "reused"),
        [
            (["database", "茶"], ["Database", "茶", "new"], ["database", "茶", "new"]),
            (["database"], ["databases"], ["database"]),
            (["databases"], ["database"], ["databases"]),
            (["library"], ["libraries"], ["library"]),
            (["libraries"], ["library"], ["libraries"]),
            (["javascript"], ["java"], ["java"]),  # what only begins alike is another one
            (["status"], ["statu"], ["statu"]),
            (["css"], ["cs"], ["cs"]),
            (["tags", "tag"], ["tag"], ["tag"]),  # the very same comes first
            (["tool"], ["zebra", "tools", "tool", "Tool"], ["zebra", "tool"]),  # each once, in the order given
        ],
    )
    def test_takes_what_is_there_in_singular_or_plural_and_writes_nothing(
        self, graph: KnowledgeGraph, known: list[str], candidates: list[str], reused: list[str]
    ) -> None:
        add(graph, "a", "b", a=known, b=known[:1])

        assert graph.reuse_tags(candidates) == reused
        assert graph.find_tags("") == known


class TestThreads:
    def test_may_write_and_walk_at_once(self, graph: KnowledgeGraph) -> None:
        add(graph, "hub")

        def work(name: str) -> None:
            for number in range(12):
                id = f"{name}{number}"
                add(graph, id, **{id: [name]})
                graph.add_relation(GraphRelation("hub", id, "knows"))
                graph.get_related("hub", 2, BOTH)
                graph.find_by_keywords([name])
                if number % 2:
                    graph.remove_entity(id)

        in_threads(work, "abcd")

        assert len(graph.get_related("hub")) == 4 * 6
        assert [graph.entity_count_by_tag(name) for name in "abcd"] == [6] * 4


class TestInMemoryGraph:
    def test_takes_another_limit_of_tags(self) -> None:
        graph = InMemoryGraph(TagConstraints(max_tags_per_entity=2))
        graph.add_entity(GraphEntity("1", "tea", tags=["a", "b", "c"]))

        assert graph.set_entity_tags("1", ["x", "y", "z"]) == 2
        assert graph.find_tags("") == ["x", "y"]


class TestTreeGraph:
    @pytest.fixture
    def tree(self, tmp_path: Path) -> Iterator[KeywordTree]:
        with KeywordTree(str(tmp_path)) as tree:
            yield tree

    def test_takes_the_keywords_that_are_there(self, tree: KeywordTree) -> None:
        tea = tree.CreateKeyword("绿茶", description="green tea")
        graph = TreeGraph(tree)

        assert graph.get_entity(tea.id) == GraphEntity(tea.id, "绿茶", "concept", "green tea", [])
        assert found_ids(graph, "绿茶") == [tea.id]
        assert graph.get_entity("root") is None

    def test_is_there_again_after_opening(self, tmp_path: Path) -> None:
        with KeywordTree(str(tmp_path)) as tree:
            relate(TreeGraph(tree), ("a-b", 0.5))
            TreeGraph(tree).set_entity_tags("a", ["x", "茶"])
        with KeywordTree(str(tmp_path)) as tree:
            graph = TreeGraph(tree)

            assert graph.get_relations("b") == [GraphRelation("a", "b", "related_to", 0.5)]
            assert graph.get_entity("a") == GraphEntity("a", "name of a", tags=["x", "茶"])

    def test_keeps_what_else_is_in_the_metadata(self, tree: KeywordTree) -> None:
        tea = tree.CreateKeyword("tea", metadata={"mine": [1]})
        graph = TreeGraph(tree)
        graph.add_entity(GraphEntity(tea.id, "Tea", "drink", tags=["hot"]))
        graph.set_entity_tags(tea.id, [])

        node = tree.GetKeyword(tea.id)
        assert node is not None
        assert node.metadata == {"mine": [1], "entity_type": "drink", "tag:": -1}

    def test_minds_no_metadata_of_another_form(self, tree: KeywordTree) -> None:
        values = [5, None, "x", {}, {"weight": 2}, {"weight": "x"}, {"number": 1}]
        metadata = {f"relation:r{place}:b": value for place, value in enumerate(values)}
        metadata |= {"tag:x": "first", "tag:": 1, "tag:y": 0, "entity_type": 5, "relation:": {}, "relation:b": 1}
        tree.BatchCreateKeywords([{"id": "a", "name": "a", "metadata": metadata}, {"id": "b", "name": "b"}])
        graph = TreeGraph(tree)

        assert graph.get_relations("a") == []
        assert graph.find_tags("") == ["x", "y"]
        graph.add_relation(GraphRelation("a", "b", "r0"))
        assert graph.get_relations("a") == [GraphRelation("a", "b", "r0")]

    def test_is_undone_by_the_tree(self, tree: KeywordTree) -> None:
        graph = TreeGraph(tree)
        relate(graph, "a-b")
        graph.remove_entity("b")
        tree.Undo(tree.History(limit=1)[0].operation_id)

        assert graph.get_relations("a") == [GraphRelation("a", "b", "related_to")]
        graph.add_relation(GraphRelation("a", "b", "knows"))
        tree.Undo(tree.History(limit=1)[0].operation_id)
        assert [relation.relation_type for relation in graph.get_relations("a")] == ["related_to"]

    def test_follows_a_merge(self, tree: KeywordTree) -> None:
        graph = TreeGraph(tree)
        relate(graph, "x-a", "x-b", "a-y", "b-z", "a-b")
        graph.set_entity_tags("a", ["one"])
        graph.set_entity_tags("b", ["two"])
        tree.MergeKeywords("a", "b")

        assert graph.get_relations("b", OUTGOING) == [
            GraphRelation("b", "y", "related_to"),
            GraphRelation("b", "z", "related_to"),
        ]
        assert graph.get_relations("a", INCOMING) == [GraphRelation("x", "b", "related_to")]
        merged = graph.get_entity("a")
        assert merged is not None
        assert (merged.id, sorted(merged.tags)) == ("b", ["one", "two"])
        assert set(related(graph, "x", 2)) == {"b", "y", "z"}

        graph.remove_relation("x", "a", "related_to")
        assert graph.get_relations("b", INCOMING) == []

    def test_gives_what_leads_to_a_merged_one_another_weight_and_no_double(self, tree: KeywordTree) -> None:
        graph = TreeGraph(tree)
        relate(graph, "x-a", "y-b")
        tree.MergeKeywords("a", "b")
        graph.add_relation(GraphRelation("x", "b", "related_to", 0.2))

        assert graph.get_relations("x") == [GraphRelation("x", "b", "related_to", 0.2)]

    def test_follows_a_delete_and_its_undoing(self, tree: KeywordTree) -> None:
        graph = TreeGraph(tree)
        relate(graph, "a-b", "b-c")
        tree.DeleteKeyword("b")

        assert graph.get_relations("a") == graph.get_relations("c") == []
        tree.Undo(tree.History(limit=1)[0].operation_id)
        assert related(graph, "a", 2) == {"b": 0.5, "c": 0.25}

    def test_is_the_same_for_one_who_begins_later(self, tree: KeywordTree) -> None:
        graph = TreeGraph(tree)
        relate(graph, "x-a", "x-b", "x-a:knows", "b-c", "c-x:likes", "d-x")
        tree.MoveKeyword("c", "b")
        for step in (lambda: tree.MergeKeywords("a", "b"), lambda: tree.DeleteKeyword("d"), tree.CompactStorage):
            step()
            later = TreeGraph(tree)
            for id in "xbc":
                assert later.get_relations(id) == graph.get_relations(id)
        tree.Undo(next(change.operation_id for change in tree.History() if change.op == "merge_keywords"))
        assert later.get_relations("x") == graph.get_relations("x")
        assert GraphRelation("x", "a", "related_to") in later.get_relations("x")

    def test_does_not_keep_what_was_taken_back_when_a_target_changes_meanwhile(
        self, tree: KeywordTree, tmp_path: Path
    ) -> None:
        graph = TreeGraph(tree)
        relate(graph, "a-b:knows")
        operation = tree.Operation("learn")
        operation.__enter__()
        graph.add_relation(GraphRelation("a", "b", "likes"))
        with KeywordTree(str(tmp_path)) as other:
            other.AddAlias("b", "another name")
        graph.find_by_keywords(["name"])
        operation.__exit__(ValueError, ValueError(), None)

        assert graph.get_relations("a") == [GraphRelation("a", "b", "knows")]

    def test_adds_what_another_was_quicker_to_add(self, tree: KeywordTree, tmp_path: Path) -> None:
        with KeywordTree(str(tmp_path)) as other:
            add(TreeGraph(other), "a")
        TreeGraph(tree).add_entity(GraphEntity("a", "mine", tags=["new"]))

        assert TreeGraph(tree).get_entity("a") == GraphEntity("a", "mine", tags=["new"])

    def test_removes_what_another_writes_to_meanwhile(
        self, tree: KeywordTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        graph = TreeGraph(tree)
        relate(graph, "a-b")
        remove_relation = TreeGraph.remove_relation

        def remove_late(self: TreeGraph, source_id: str, target_id: str, relation_type: str) -> None:
            remove_relation(self, source_id, target_id, relation_type)
            monkeypatch.undo()
            with KeywordTree(str(tmp_path)) as other:
                other.AddAlias("a", "written before the operation ends")

        monkeypatch.setattr(TreeGraph, "remove_relation", remove_late)
        graph.remove_entity("b")

        assert graph.get_relations("a") == []
        assert tree.FindByName("written before the operation ends")[0].id == "a"
