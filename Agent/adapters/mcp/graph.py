"""The nine tools of the reference memory server, over a tree.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder, KeywordTree(folder) as tree:
...     graph = MemoryGraph(tree)
...     _ = graph.create_entities([{"name": "Ada", "entityType": "person", "observations": ["plays chess"]}])
...     done = graph.add_observations([{"entityName": "Ada", "contents": ["speaks 中文"]}])
...     print(graph.open_nodes(["person/ada"])["entities"])
...     _ = tree.Undo(done.operation_id)
...     print(graph.open_nodes(["Ada"])["entities"])
[{'name': 'Ada', 'entityType': 'person', 'observations': ['plays chess', 'speaks 中文']}]
[{'name': 'Ada', 'entityType': 'person', 'observations': ['plays chess']}]

An entity is a keyword under one for its type, an observation an info of it, a relation an info of both its ends; the
ids follow from the names, so that two servers which make the same thing make it once. `formats.mcp_memory` says how
each is in the tree, and so reads and writes the same graph as a file.
"""

import json
import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from ...base.checks import shorten
from ...formats import import_file
from ...formats.mcp_memory import KEYWORD, entity_id, entity_keyword, is_type, relation_fact, said_of, type_keyword
from ...formats.records import NAME_LIMIT, ROOT_ID, Fact, Keyword, Outline, is_blank, load
from ...keyword_tree import InvalidInputError, KeywordTree
from ..operations import Done, try_again
from ..walking import cut
from .graph_index import GraphIndex

__all__ = ["AUTHOR", "MemoryGraph"]

_log = logging.getLogger(__name__)

AUTHOR = "mcp"
"""The author of a host's records."""

KEY = "mcp"
"""Names the source of all ids, as for an import: another value would double every entity."""

ENTITIES = 1_000
"""At most this many entities are returned at once, the newest."""

RELATIONS = 10_000
"""At most this many relations."""

RESULT_BYTES = 400_000
"""At most this many bytes of both, as JSON; a text is cut above a tenth of them."""

_RANKED = 10  # entities that ranking adds to a search
_LEAST_CONFIDENCE = 0.3  # nine in ten questions that nothing fits have less

_Row: TypeAlias = dict[str, Any]
_T = TypeVar("_T")
_Write: TypeAlias = Callable[[], object]


class MemoryGraph:
    """A tree as entities, observations and relations. Any number of threads may use it.

    Args:
        tree: The tree that holds them; others may write to it.

    For all methods that change something: each is one operation of the tree, all or nothing, and costs
    one sync. InvalidInputError names what cannot be used.
    """

    def __init__(self, tree: KeywordTree) -> None:
        self.tree = tree
        self.index = GraphIndex(tree)
        self._lock = threading.RLock()  # one change at a time: a second one would see its own reading outdated

    # -- changing --

    def create_entities(self, entities: Iterable[Mapping[str, Any]]) -> Done[list[_Row]]:
        """Make the entities that are not there, and return them; one that comes twice is made once, saying all."""
        wanted: dict[str, _Row] = {}
        for entity in entities:
            name = _check_name("an entity's name", entity["name"])
            row = wanted.setdefault(name, {"name": name, "entityType": entity["entityType"], "observations": []})
            row["observations"] += entity["observations"]

        def plan() -> tuple[list[_Row], list[_Write]]:
            outline = Outline(KEY, ROOT_ID)
            made = [row for name, row in wanted.items() if self._find(name) is None]
            keywords: dict[str, Keyword] = {}
            facts: list[Fact] = []
            for row in made:
                parent_id = self._type_id(outline, row["entityType"], keywords)
                keyword = entity_keyword(outline, row["name"], row["entityType"], parent_id)
                keywords[keyword.id] = keyword
                facts += [self._fact(outline, keyword.id, text) for text in row["observations"]]
            return made, self._load([*keywords.values(), *facts])

        return self._change("create_entities", plan)

    def create_relations(self, relations: Iterable[Mapping[str, Any]]) -> Done[list[_Row]]:
        """Make the relations that are not there, and return them."""
        wanted = _triples(relations)

        def plan() -> tuple[list[_Row], list[_Write]]:
            outline = Outline(KEY, ROOT_ID)
            facts: list[Fact] = []
            made = []
            for start, kind, end in wanted:
                ids = self._end_id(outline, start), self._end_id(outline, end)
                if self._find_relations(ids, kind):
                    continue
                made.append({"from": start, "to": end, "relationType": kind})
                linked = [id for id in dict.fromkeys(ids) if self.tree.GetKeyword(id) is not None]
                facts.append(relation_fact(outline, (start, end), ids, kind, linked))
            return made, self._load(facts)

        return self._change("create_relations", plan)

    def add_observations(self, observations: Iterable[Mapping[str, Any]]) -> Done[list[_Row]]:
        """Add observations that the entities lack, and return them.

        Raises:
            InvalidInputError: no entity has one of the names; nothing was written then.
        """
        wanted = [(row["entityName"], list(dict.fromkeys(row["contents"]))) for row in observations]

        def plan() -> tuple[list[_Row], list[_Write]]:
            outline = Outline(KEY, ROOT_ID)
            facts: list[Fact] = []
            added: dict[str, set[str]] = defaultdict(set)
            results = []
            for name, contents in wanted:
                id = self._need(name)
                new = [text for text in contents if text not in added[id] and not self.index.saying(id, text)]
                added[id].update(new)
                facts += [self._fact(outline, id, text) for text in new]
                results.append({"entityName": name, "addedObservations": new})
            return results, self._load(facts)

        return self._change("add_observations", plan)

    def delete_entities(self, names: Iterable[str]) -> Done[None]:
        """Delete entities, their relations, and the observations that are no other's; what is under them moves up."""
        wanted = list(names)

        def plan() -> tuple[None, list[_Write]]:
            ids = dict.fromkeys(id for name in wanted if (id := self._resolve(name)) is not None)
            deletes = [partial(self.tree.DeleteInfo, id) for id in self.index.touching(ids)]
            return None, [*deletes, *(partial(self.tree.DeleteKeyword, id, False, "delete") for id in ids)]

        return self._change("delete_entities", plan)

    def delete_observations(self, deletions: Iterable[Mapping[str, Any]]) -> Done[None]:
        """Take observations from entities; what is another's, too, stays with that one."""
        wanted = [(row["entityName"], row["observations"]) for row in deletions]

        def plan() -> tuple[None, list[_Write]]:
            named = [(id, texts) for name, texts in wanted if (id := self._resolve(name)) is not None]
            said = [(info_id, id) for id, texts in named for text in texts for info_id in self.index.saying(id, text)]
            doomed = dict.fromkeys(said)
            shared = {info_id for info_id, _ in doomed if len(self.tree.GetLinks(info_id)) > 1}
            return None, [
                partial(self.tree.UnlinkInfo, info_id, id)
                if info_id in shared
                else partial(self.tree.DeleteInfo, info_id)
                for info_id, id in doomed
            ]

        return self._change("delete_observations", plan)

    def delete_relations(self, relations: Iterable[Mapping[str, Any]]) -> Done[None]:
        """Delete relations."""
        wanted = _triples(relations)

        def plan() -> tuple[None, list[_Write]]:
            outline = Outline(KEY, ROOT_ID)
            doomed: dict[str, None] = {}
            for start, kind, end in wanted:
                ids = self._end_id(outline, start), self._end_id(outline, end)
                doomed |= dict.fromkeys(self._find_relations(ids, kind))
            return None, [partial(self.tree.DeleteInfo, id) for id in doomed]

        return self._change("delete_relations", plan)

    def import_once(self, path: Path) -> str:
        """Take in a file of the reference server, where that was not done before; return the operation's id, or "".

        A line that is not as the server writes it is passed over, and logged.
        """
        path = path.resolve()

        def take_in() -> str:
            self.tree.Refresh()
            root = self.tree.GetKeyword(ROOT_ID)
            assert root is not None
            said = said_of(root)
            files = [str(file) for file in said.get("imported", ())]
            if str(path) in files:
                return ""
            mark = {"mcp": {**said, "imported": [*files, str(path)]}}
            with self.tree.Operation("import memory file") as operation:
                report = import_file(self.tree, path, "mcp", key=KEY, skips_bad_lines=True)
                self.tree.UpdateKeyword(ROOT_ID, {"metadata": {**root.metadata, **mark}}, root.version)
            for problem in report.problems:  # a server that was killed leaves a torn last line
                _log.warning("passed over: %s", problem)
            return operation.id

        return try_again(take_in)

    def _change(self, name: str, plan: Callable[[], tuple[_T, list[_Write]]]) -> Done[_T]:
        """Carry out a plan as one operation; where another process has written first, plan again."""

        def change() -> Done[_T]:
            with self.index.lock:
                self.index.catch_up()
                result, writes = plan()
            if not writes:
                return Done(result, "")
            with self.tree.Operation(name) as operation:
                for write in writes:
                    write()
            return Done(result, operation.id)

        with self._lock:
            return try_again(change)

    def _load(self, records: Sequence[Keyword | Fact]) -> list[_Write]:
        for record in records:
            record.created_by = AUTHOR
        return [partial(load, self.tree, records)] if records else []

    def _fact(self, outline: Outline, id: str, text: str) -> Fact:
        """Return an observation to be stored; its id is the next one that is free, should the same text have it."""
        fact = outline.fact(id, text)
        while self.tree.GetInfo(fact.id) is not None:
            fact = outline.fact(id, text)
        return fact

    def _type_id(self, outline: Outline, kind: str, keywords: dict[str, Keyword]) -> str:
        """Return the keyword that entities of a type are under; one that is not there joins `keywords`."""
        if kind == KEYWORD or is_blank(kind):
            return ROOT_ID
        keyword = type_keyword(outline, kind)
        known = self.tree.GetKeyword(keyword.id)
        if known is None:
            keywords.setdefault(keyword.id, keyword)
        return keyword.id if known is None else known.id

    # -- finding --

    def _find(self, name: str) -> str | None:
        """Return the entity that was made by this name, else the one that goes by it."""
        node = self.tree.GetKeyword(entity_id(Outline(KEY, ROOT_ID), name))
        if node is not None and not is_type(said_of(node)) and node.id != ROOT_ID:
            return node.id
        return self.index.ids.get(name)

    def _resolve(self, name: str) -> str | None:
        """Return the entity of this name, alias or path; None where there is none.

        Raises:
            InvalidInputError: several have it.
        """
        found = self._find(name)
        others = self._find_all(name) if found is None else []
        if len(others) > 1:
            names = ", ".join(repr(self.index.names[id]) for id in others[:5])
            raise InvalidInputError(f"{shorten(name)} is several entities: {names}")
        return others[0] if others else found

    def _find_all(self, name: str) -> list[str]:
        """Return the entities that have an alias or a path, or a name but for case and width."""
        result = self.tree.Search(name, llm_expand_query=False)
        nodes = result.candidates if result.node is None else [result.node]
        return [node.id for node in nodes if node.id in self.index.names]

    def _need(self, name: str) -> str:
        id = self._resolve(name)
        if id is None:
            raise InvalidInputError(f"Entity with name {name[:60]} not found")
        return id

    def _end_id(self, outline: Outline, name: str) -> str:
        """Return the keyword of a relation's end; of one that is not there, the id that it would get."""
        return self._resolve(name) or entity_id(outline, name)

    def _find_relations(self, ids: tuple[str, str], kind: str) -> list[str]:
        """Return the infos that say this of two entities."""
        ours = set(self.index.touching(ids[:1])) & set(self.index.touching(ids[1:]))
        return [id for id in ours if self.index.relations[id].kind == kind and self.index.end_ids(id) == ids]

    # -- reading --

    def read_graph(self) -> _Row:
        """Return the newest 1,000 entities and their relations, and how many are left out."""
        with self.index.lock:
            self.index.catch_up()
            ids = list(self.index.names)
            shown = ids[-ENTITIES:]
            touched = None if len(shown) == len(ids) else set(shown)
            graph = self._describe(shown[::-1], touched, len(ids) - len(shown))
        return {**graph, "entities": graph["entities"][::-1]}

    def search_nodes(self, query: str) -> _Row:
        """Return the entities that contain a text, then those that fit it, and their relations.

        What contains it comes in the order of creation, then what contains each of its words, wherever. Where nothing
        does, or the query has several words, up to ten follow that the tree's ranking finds.
        """
        words, ranked = query.split(), list[str]()
        with self.index.lock:
            self.index.catch_up()
            found = self.index.find(query)
            if len(words) > 1:
                having, known = [dict.fromkeys(self.index.find(word)) for word in words], set(found)
                found += [id for id in having[0] if id not in known and all(id in each for each in having)]
        if query.strip() and (not found or len(words) > 1):
            hits = self.tree.RankCandidates(query, 2 * _RANKED)
            ranked = [node.id for node, confidence in hits if confidence >= _LEAST_CONFIDENCE]
        with self.index.lock:
            known = set(found)
            found += [id for id in ranked if id not in known and id in self.index.names][:_RANKED]
            return self._describe(found[:ENTITIES], set(found[:ENTITIES]), max(0, len(found) - ENTITIES))

    def open_nodes(self, names: Iterable[str]) -> _Row:
        """Return entities by name, alias or path, and their relations; of what several have, all."""
        found: dict[str, None] = {}
        with self.index.lock:
            self.index.catch_up()
            for name in names:
                id = self._find(name)
                found |= dict.fromkeys(self._find_all(name) if id is None else [id])
            return self._describe(list(found)[:ENTITIES], set(found), max(0, len(found) - ENTITIES))

    def _describe(self, ids: list[str], touched: set[str] | None, left_out: int) -> _Row:
        """Return entities, what matters most first, and their relations, as far as RESULT_BYTES reach."""
        room = _Room(RESULT_BYTES * 3 // 4)
        entities, observations = list[_Row](), 0
        for place, id in enumerate(ids):
            if id not in self.index.names:  # it was deleted meanwhile
                continue
            row: _Row = {"name": self.index.names[id], "entityType": self.index.entities[id].kind, "observations": []}
            if not room.take(row):
                left_out += len(ids) - place
                break
            texts = [cut(info.content, RESULT_BYTES // 10) for info in self.index.observations(id)]
            row["observations"] = [text for text in texts if room.take(text)]
            observations += len(texts) - len(row["observations"])
            entities.append(row)
        room.left += RESULT_BYTES // 4
        relations = list(self._relations(touched))
        shown = [row for row in relations[:RELATIONS] if room.take(row)]
        graph: _Row = {"entities": entities, "relations": shown}
        omitted = {"entities": left_out, "relations": len(relations) - len(shown), "observations": observations}
        return {**graph, "omitted": omitted} if any(omitted.values()) else graph

    def _relations(self, touched: set[str] | None) -> Iterator[_Row]:
        """Yield the relations that touch some entities, or all."""
        for info_id in self.index.relations if touched is None else self.index.touching(touched):
            start, end = self.index.ends(info_id)
            yield {"from": start, "to": end, "relationType": self.index.relations[info_id].kind}


class _Room:
    """The rest of a number of bytes."""

    def __init__(self, size: int) -> None:
        self.left = size

    def take(self, value: object) -> bool:
        """Take as much as a value needs in the reply; return False where that is not left, and will not be."""
        text = json.dumps(value, ensure_ascii=False, indent=2)
        size = len(text.encode("utf-8", "replace")) + 6 * (text.count("\n") + 2)
        self.left = self.left - size if size <= self.left else 0
        return self.left > 0


def _triples(relations: Iterable[Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    """Return the relations as (from, kind, to), each once."""
    rows = []
    for row in relations:
        start = _check_name("where a relation begins", row["from"])
        end = _check_name("where a relation ends", row["to"])
        rows.append((start, row["relationType"], end))
    return list(dict.fromkeys(rows))


def _check_name(what: str, name: str) -> str:
    if is_blank(name) or len(name) > NAME_LIMIT:
        raise InvalidInputError(f"{what} must have 1 to {NAME_LIMIT} characters, and not be blank: {shorten(name)}")
    return name
