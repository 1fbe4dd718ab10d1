"""What a tree has to hold, as a plain dict, and what it does hold.

`Oracle` is the one model of a tree in these tests: each method of a tree has its counterpart there, in a few lines and
without a thought for speed. `Held` is what both come to: `Oracle.held()` says what must be there, `look(tree)` asks
the tree for it through its public methods.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from Agent.keyword_tree import InvalidInputError, KeywordTree, NotFoundError, RelationType
from Agent.tests.support.log_format import rows_of

Key = tuple[str, ...]
"""("node", id), ("info", id), ("link", info id, keyword id) or ("merged", id)."""


class Held(NamedTuple):
    """All that a tree holds, in a form that can be compared."""

    nodes: dict[str, tuple[Any, ...]]
    """id -> name, parent, level, aliases, description, metadata, confirmed, created_by, children, infos."""
    infos: dict[str, tuple[Any, ...]]
    """id -> content, source, metadata, and [(keyword id, relation)] in their order."""

    @property
    def links(self) -> dict[tuple[str, str], str]:
        """(info id, keyword id) -> relation."""
        return {(id, keyword_id): relation for id, info in self.infos.items() for keyword_id, relation in info[-1]}


def look(tree: KeywordTree, info_ids: Collection[str] = ()) -> Held:
    """Return all that a tree holds; infos that are linked to nothing are found by their ids alone."""
    held = Held({}, {})
    found_infos = dict.fromkeys(info_ids)
    root = tree.GetKeyword("root")
    assert root is not None
    waiting = [root]
    for node in waiting:
        assert node.id not in held.nodes, "a keyword hangs twice"
        children = tree.GetChildren(node.id)
        assert [child.id for child in children] == node.children
        waiting += children
        infos = [info.id for info in tree.GetInfosOfKeyword(node.id, size=100_000)]
        found_infos.update(dict.fromkeys(infos))
        texts = node.aliases, node.description, node.metadata, node.confirmed
        held.nodes[node.id] = (node.name, node.parent_id, node.level, *texts, node.created_by, node.children, infos)
    for id in found_infos:
        info = tree.GetInfo(id)
        if info is not None:
            links = [(node.id, relation.value) for node, relation in tree.GetKeywordsOfInfo(id)]
            assert len(dict(links)) == len(links), "a pair has two links"
            held.infos[id] = (info.content, info.source, info.metadata, links)
    return held


class Refusal(Exception):  # noqa: N818  the dict says no where the tree has to
    """What the tree must raise instead of changing anything."""

    def __init__(self, *errors: type[Exception]) -> None:
        self.errors = errors


class Keyword(NamedTuple):
    """A keyword, but for what follows from the others."""

    name: str
    parent_id: str | None
    aliases: tuple[str, ...] = ()
    description: str = ""
    metadata: tuple[tuple[str, int], ...] = ()
    confirmed: tuple[str, ...] = ()
    born: int = 0
    created_by: str = "user"


def folded(text: str) -> str:
    """Return what a name is found by."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()).strip()


def bare(text: str) -> str:
    """Return the letters and digits of a folded text."""
    return "".join(char for char in folded(text) if char.isalnum())


class Oracle:
    """What a tree has to hold, record by record, and what its methods have to make of it."""

    def __init__(self, state: dict[Key, Any] | None = None, born: int = 1) -> None:
        root: dict[Key, Any] = {("node", "root"): Keyword("root", None, created_by="agent")}
        self.state = root if state is None else state
        self.born = born

    def copy(self) -> Oracle:
        return Oracle(dict(self.state), self.born)

    # -- reading ------------------------------------------------------------------------------------------

    def of(self, kind: str) -> list[str]:
        return [key[1] for key in self.state if key[0] == kind]

    def links(self) -> list[tuple[int, str, str]]:
        return sorted((value[1], key[1], key[2]) for key, value in self.state.items() if key[0] == "link")

    def node(self, id: str) -> Keyword:
        found = self.state[("node", id)]
        assert isinstance(found, Keyword)
        return found

    def children(self, id: str) -> list[str]:
        below = [key for key, node in self.state.items() if key[0] == "node" and node.parent_id == id]
        return [key[1] for key in sorted(below, key=lambda key: self.state[key].born)]

    def path(self, id: str) -> list[str]:
        path = [id]
        while (parent := self.node(path[0]).parent_id) is not None:
            path.insert(0, parent)
        return path

    def lead(self, id: str) -> str | None:
        while ("node", id) not in self.state:
            if ("merged", id) not in self.state:
                return None
            id = self.state["merged", id]
        return id

    def need(self, id: str, *, root: bool = True) -> str:
        led = self.lead(id)
        if led is None:
            raise Refusal(NotFoundError)
        if led == "root" and not root:
            raise Refusal(InvalidInputError)
        return led

    def need_info(self, id: str) -> str:
        if ("info", id) not in self.state:
            raise Refusal(NotFoundError)
        return id

    def held(self) -> Held:
        """Return all that the tree has to hold."""
        links: dict[str, list[tuple[str, str]]] = {id: [] for id in self.of("info")}
        infos_of: dict[str, list[str]] = {id: [] for id in self.of("node")}
        for _, info_id, keyword_id in self.links():
            links[info_id].append((keyword_id, self.state["link", info_id, keyword_id][0].value))
            infos_of[keyword_id].append(info_id)
        children: dict[str, list[str]] = {id: [] for id in self.of("node")}
        for id in sorted(children, key=lambda id: self.node(id).born):
            if (parent_id := self.node(id).parent_id) is not None:
                children[parent_id].append(id)
        levels, waiting = {"root": 0}, ["root"]
        for id in waiting:
            levels.update(dict.fromkeys(children[id], levels[id] + 1))
            waiting += children[id]
        nodes = {}
        for id in waiting:
            node = self.node(id)
            texts = list(node.aliases), node.description, dict(node.metadata), list(node.confirmed)
            nodes[id] = (node.name, node.parent_id, levels[id], *texts, node.created_by, children[id], infos_of[id])
        infos = {}
        for id, holders in links.items():
            content, source, metadata = self.state["info", id]
            infos[id] = (content, source, dict(metadata), holders)
        return Held(nodes, infos)

    def is_sound(self) -> bool:
        """Tell whether every parent and every link leads somewhere."""
        for key, value in self.state.items():
            if key[0] == "link" and not (("info", key[1]) in self.state and ("node", key[2]) in self.state):
                return False
            if key[0] == "node":
                seen, step = {key[1]}, value.parent_id
                while step is not None:
                    if step in seen or ("node", step) not in self.state:
                        return False
                    seen.add(step)
                    step = self.state["node", step].parent_id
        return True

    # -- changing -----------------------------------------------------------------------------------------

    def number(self) -> int:
        self.born += 1
        return self.born

    def change(self, id: str, **values: Any) -> None:
        self.state["node", id] = self.node(id)._replace(**values)

    def drop(self, id: str) -> None:
        del self.state["node", id]

    def create(
        self,
        id: str,
        name: str,
        parent_id: str,
        aliases: Sequence[str] = (),
        description: str = "",
        metadata: Mapping[str, Any] | None = None,
        created_by: str = "user",
    ) -> None:
        self.state["node", id] = Keyword(
            name,
            self.need(parent_id),
            tuple(dict.fromkeys(aliases)),
            description,
            tuple((metadata or {}).items()),
            born=self.number(),
            created_by=created_by,
        )

    def create_info(
        self,
        id: str,
        content: str,
        keyword_ids: Sequence[str] = (),
        source: str = "",
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        leads = [self.need(keyword_id) for keyword_id in keyword_ids]
        self.state["info", id] = (content, source, tuple((metadata or {}).items()))
        for keyword_id in leads:
            self.link(id, keyword_id, RelationType.PRIMARY)

    def link(self, info_id: str, keyword_id: str, relation: RelationType) -> None:
        key = "link", self.need_info(info_id), self.need(keyword_id)
        number = self.state[key][1] if key in self.state else self.number()
        self.state[key] = (relation, number)

    def unlink(self, info_id: str, keyword_id: str) -> None:
        self.state.pop(("link", self.need_info(info_id), self.need(keyword_id)), None)

    def hand_links_on(self, id: str, to: str | None) -> None:
        for _, info_id, keyword_id in self.links():
            if keyword_id == id:
                value = self.state.pop(("link", info_id, id))
                if to is not None:
                    self.state.setdefault(("link", info_id, to), value)

    def move(self, id: str, to: str) -> None:
        id, to = self.need(id), self.need(to)
        if id == "root" or id in self.path(to):
            raise Refusal(InvalidInputError)
        self.change(id, parent_id=to)

    def merge(self, src_id: str, dst_id: str) -> None:
        src, dst = self.need(src_id), self.need(dst_id)
        if src == dst or "root" in (src, dst):
            raise Refusal(InvalidInputError)
        old, new = self.node(src), self.node(dst)
        known = {folded(name) for name in (new.name, *new.aliases)}
        more = {folded(name): name for name in (old.name, *old.aliases) if folded(name) not in known}
        confirmed = tuple({folded(text): text for text in (*old.confirmed, *new.confirmed)}.values())[-20:]
        metadata = tuple({**dict(old.metadata), **dict(new.metadata)}.items())
        if src in self.path(dst):
            self.change(dst, parent_id=old.parent_id)
        self.change(dst, aliases=(*new.aliases, *more.values()), confirmed=confirmed, metadata=metadata)
        self.change(dst, description=new.description or old.description)
        for child in self.children(src):
            self.change(child, parent_id=dst)
        self.hand_links_on(src, dst)
        self.drop(src)
        self.state["merged", src] = dst

    def delete(self, id: str, cascade: bool, policy: str) -> None:
        if id == "root":
            raise Refusal(InvalidInputError)
        if ("node", id) not in self.state:
            raise Refusal(NotFoundError)
        parent, doomed = self.node(id).parent_id, [id]
        if cascade:
            for step in doomed:
                doomed += self.children(step)
            doomed.sort(key=lambda step: len(self.path(step)))
        else:
            for child in self.children(id):
                self.change(child, parent_id=parent)
        if policy == "delete":
            for info_id in {info_id for _, info_id, keyword_id in self.links() if keyword_id in doomed}:
                if all(keyword_id in doomed for _, one, keyword_id in self.links() if one == info_id):
                    del self.state["info", info_id]
        for step in doomed:
            self.hand_links_on(step, parent if policy == "reattach" else None)
            self.drop(step)

    def confirm(self, query: str, id: str) -> None:
        id = self.need(id, root=False)
        others = [text for text in self.node(id).confirmed if folded(text) != folded(query)]
        self.change(id, confirmed=(*others, query)[-20:])

    def delete_info(self, id: str) -> None:
        del self.state["info", self.need_info(id)]
        for key in [key for key in self.state if key[0] == "link" and key[1] == id]:
            del self.state[key]


def compare(tree: KeywordTree, oracle: Oracle, gone: Collection[str] = ()) -> None:
    """See that a tree holds what it has to, asked in every way that it answers; `gone` are ids that once were there."""
    assert look(tree, oracle.of("info")) == oracle.held()
    named: dict[str, list[str]] = {}
    for id in sorted(oracle.of("node"), key=lambda id: oracle.node(id).born):
        assert [step.id for step in tree.GetPath(id)] == oracle.path(id)
        for name in {folded(name) for name in (oracle.node(id).name, *oracle.node(id).aliases)} if id != "root" else ():
            named.setdefault(name, []).append(id)
    for name, ids in named.items():
        assert [node.id for node in tree.FindByName(name)] == ids
    for id in gone:
        node = tree.GetKeyword(id)
        assert (None if node is None else node.id) == oracle.lead(id)
        assert ("info", id) in oracle.state or tree.GetInfo(id) is None
    metrics = tree.TreeMetrics()
    counts = [len(oracle.of("node")) - 1, len(oracle.of("info")), len(oracle.links())]
    assert [metrics["keywords"], metrics["infos"], metrics["links"]] == counts


def oracle_of(operations: Sequence[Mapping[str, Any]]) -> Oracle:
    """Work out from the operations of a log what the tree must hold, where only descriptions were changed."""
    oracle = Oracle()
    for operation in operations:
        rows = rows_of(operation)
        for row in rows["nodes"]:
            if ("node", row["id"]) in oracle.state:
                changed = oracle.node(row["id"])._replace(description=row["description"])
                oracle.state["node", row["id"]] = changed
            else:
                texts = row["aliases"], row["description"], row["metadata"]
                oracle.create(row["id"], row["name"], row["parent_id"], *texts, row["created_by"])
        for row in rows["infos"]:
            oracle.create_info(row["id"], row["content"], source=row["source"], metadata=row["metadata"])
        for row in rows["links"]:
            oracle.link(row["info_id"], row["keyword_id"], RelationType(row["relation"]))
    return oracle
