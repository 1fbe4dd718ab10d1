r"""One HTML page with the whole tree in it: to be opened from a disk, kept, or sent to others.

It asks nothing of a network (its own policy forbids it), follows the reader's light or dark, speaks English or Chinese,
opens on the newest infos and says whose memory it is, opens branches when they are clicked, and searches names,
aliases, descriptions and infos. Where keywords have
relations, a picture shows the chosen one among those it has to do with, with the sentences that say so, and a click
goes on. Each keyword and each info shows who made it and when, and what the log knows of its changes: of each record
the newest few, shortened. The data is in it as JSON in which no character can end the script, and the page shows
it as text only.

Of the log the newest operations are read, up to some 50,000 records. It says what was replaced and taken away, too:
who sends the page to others may leave the history out (`with_history=False`).

>>> import io, tempfile
>>> from keyword_tree import KeywordTree
>>> from keyword_tree.formats.view import View
>>> with tempfile.TemporaryDirectory() as folder, KeywordTree(folder) as tree:
...     _ = tree.CreateKeyword("</script><b>食物", "root")
...     out = io.StringIO()
...     write(View(tree), out)
>>> [line for line in out.getvalue().splitlines() if "食物" in line]
['[0,"\\u003c/script\\u003e\\u003cb\\u003e食物",1]],']
"""

import base64
import hashlib
import re
import time
from html import escape
from pathlib import Path
from typing import Any, TextIO, TypeAlias
from urllib.parse import unquote

from ..keyword_tree import Change, Info, InfoKeywordLink, KeywordNode, RelationType
from ..memory.memory_fields import is_relation, memory_fields, read_sayings, split_relation_key
from .loading import undone_by
from .records import ROOT_ID
from .text import inert_json
from .view import View

_TEMPLATE = Path(__file__).with_name("page.html")

_CHANGES = 8  # shown of one record, the newest
_DETAILS = 5  # shown of one change of one record
_EXCERPT = 120  # characters shown of a text that was replaced

_Detail: TypeAlias = list[str | None]
"""A code, and what it is about: `["name", old, new]`; see `_Changes`."""


def write(view: View, out: TextIO) -> None:
    """Write the page.

    Cost: reads the log back; holds the ids of all infos, and of each changed record the newest changes. The page has
        each keyword and each info once.
    """
    title = "KeywordTree" if view.root.id == ROOT_ID else view.root.name
    owner = _owner_of(view.folder) if view.root.id == ROOT_ID else ""
    template = _TEMPLATE.read_text(encoding="utf-8")
    head, _, foot = template.partition("@DATA@")
    head = head.replace("@LANGUAGE@", f' lang="{escape(view.language)}"' if view.language else "")
    out.write(head.replace("@POLICY@", _policy(template)).replace("@TITLE@", escape(title)))
    _Data(view, out).write(title, owner)
    out.write(foot)


def _owner_of(folder: Path) -> str:
    """Return the user whose memory a folder is, as `MemoryStore` lays it out; "" where it says none."""
    user = next((part for part in reversed(folder.parts) if part.startswith("user=")), "")
    return unquote(user.removeprefix("user="))


class _Data:
    """What the page shows, as JSON.

        {"title": …, "owner": the user whose memory it is, or "", "exported": …,
         "nodes": [[parent's place, name, made, aliases, description, infos, changes, confirmed], …],
         "infos": [[content, source, made, changes], …], "loose": [info's place, …],
         "made": [[time, by], …], "operations": [[time, name, whether a model was asked], …],
         "relations": [[source's place, type, target's place, weight, info's place or -1, sentence], …]}

    The end of a row is left out where it is empty. Infos are named by their place; by [place, relation] where they are
    not PRIMARY. `changes` are [operation's place, detail, …], newest first, and a number: how many are left out.
    """

    def __init__(self, view: View, out: TextIO) -> None:
        self._view = view
        self._out = out
        self._changes = _Changes(view)
        self._places: dict[str, int] = {}  # of each info, in the order of its first keyword
        self._relations: dict[tuple[str, str], str] = {}  # all but PRIMARY
        self._made: dict[tuple[int, str], int] = {}
        self._said = _Relations(view)

    def write(self, title: str, owner: str) -> None:
        path: list[int] = []
        top = 0 if self._view.root.id == ROOT_ID else 1
        self._out.write(
            f'{{"title":{inert_json(title)},"owner":{inert_json(owner)},"exported":{int(time.time())},"nodes":[\n'
        )
        for number, (depth, node) in enumerate(self._view.walk()):
            del path[depth - top :]
            self._write_row(number, self._node_row(path[-1] if path else 0, node))
            self._said.take_node(node)
            path.append(number)
        # What a memory was before it was corrected has no keyword, and does not hold.
        unlinked = (info for info in self._view.unlinked() if not memory_fields(info).get("superseded_by"))
        loose = [self._place(info.id) for info in unlinked]
        self._out.write('],\n"infos":[\n')
        for number, id in enumerate(self._places):
            info = self._view.info(id)
            self._write_row(number, self._info_row(info))
            if info is not None:
                self._said.take_info(number, info)
        rest: dict[str, Any] = {"loose": loose, "made": list(self._made), "operations": self._changes.operations}
        rest["relations"] = self._said.rows()
        self._out.write("],\n" + inert_json(rest)[1:])

    def _write_row(self, number: int, row: list[Any]) -> None:
        while not row[-1] and len(row) > 3:
            row.pop()  # most of a large tree are names alone
        self._out.write((",\n" if number else "") + inert_json(row))

    def _node_row(self, parent: int, node: KeywordNode) -> list[Any]:
        infos: list[Any] = []
        for info in self._view.infos(node.id):
            place = self._place(info.id)
            relation = self._relations.get((info.id, node.id))
            infos.append([place, relation] if relation else place)
        changes = self._changes.of_keywords.get(node.id, [])
        made = self._stamp(node)
        return [parent, node.name, made, node.aliases, node.description, infos, changes, node.confirmed]

    def _place(self, id: str) -> int:
        if id not in self._places:
            self._places[id] = len(self._places)
            for link in self._view.links(id):
                if link.relation is not RelationType.PRIMARY:
                    self._relations[id, link.keyword_id] = link.relation.value
        return self._places[id]

    def _info_row(self, info: Info | None) -> list[Any]:
        """Return what is shown of an info; one that was deleted meanwhile is empty."""
        if info is None:
            return ["", "", 0]
        return [info.content, info.source, self._stamp(info), self._changes.of_infos.get(info.id, [])]

    def _stamp(self, record: KeywordNode | Info) -> int:
        """Return the place of who made a record and when: a batch has it once."""
        return self._made.setdefault((int(record.created_at), record.created_by), len(self._made))


class _Relations:
    """What keywords have to do with each other: in their metadata, or said by memories (`memory.memory_fields`)."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._found: list[tuple[str, str, str, float, int, str]] = []

    def take_node(self, node: KeywordNode) -> None:
        for key, value in node.metadata.items():
            kind, target = split_relation_key(key)
            if kind and target and is_relation(value):
                self._found.append((node.id, kind, target, value["weight"], -1, ""))

    def take_info(self, place: int, info: Info) -> None:
        for said in read_sayings(info).relations:
            row = (said.source_id, said.relation_type, said.target_id, said.weight, place, _excerpt(said.sentence))
            self._found.append(row)

    def rows(self) -> list[list[Any]]:
        """Return the relations between keywords that are in view, by their places."""
        wanted = {id for row in self._found for id in (row[0], row[2])}
        if not wanted:
            return []  # most trees have none, and need no second walk
        leads_to = {id: self._view.lead(id) for id in wanted}
        walked = enumerate(self._view.walk(is_counted=False))
        place_of = {node.id: place for place, (_, node) in walked if node.id in leads_to.values()}
        placed = ((place_of.get(leads_to[row[0]]), place_of.get(leads_to[row[2]]), row) for row in self._found)
        return [
            [source, row[1], target, row[3], row[4], row[5]]
            for source, target, row in placed
            if source is not None and target is not None and source != target
        ]


class _Changes:
    """What the log has of each record but that it was made, newest first.

    | detail                                 | says                                                               |
    |----------------------------------------|--------------------------------------------------------------------|
    | name, description, content, source     | old and new                                                        |
    | parent                                 | the names of the old and the new one; null where it is not in view |
    | alias+, alias-, confirmed+, confirmed- | the text                                                           |
    | info+, relation                        | an info came, or belongs otherwise: its text, who, how             |
    | info-, info×                           | an info went, or was deleted: its text                             |
    | keyword+, keyword-                     | of an info, it came or went: the keyword's name, who               |
    | merged                                 | the name of the one that was merged into it                        |
    | metadata, deleted, back                |                                                                    |
    """

    def __init__(self, view: View) -> None:
        self.operations: list[tuple[int, str, bool]] = []
        self.of_keywords: dict[str, list[Any]] = {}
        self.of_infos: dict[str, list[Any]] = {}
        self._view = view
        self._gone: dict[tuple[object, ...], str] = {}  # names and contents of what was deleted
        for change in view.history():
            self._take(change)

    def _take(self, change: Change) -> None:
        before = {_key(record): record for record in change.before}
        keywords: dict[str, list[_Detail]] = {}
        infos: dict[str, list[_Detail]] = {}
        new_infos: set[str] = set()
        for record in change.after:
            old = before.get(_key(record))
            if isinstance(record, KeywordNode) and isinstance(old, KeywordNode):
                if record.deleted:
                    self._gone.setdefault(_key(record), old.name)
                if record.merged_into is not None and old.merged_into is None:
                    keywords.setdefault(record.merged_into, []).append(["merged", _excerpt(old.name)])
                keywords.setdefault(record.id, []).extend(self._keyword_details(old, record))
            elif isinstance(record, Info) and isinstance(old, Info):
                if record.deleted:
                    self._gone.setdefault(_key(record), _excerpt(old.content))
                infos.setdefault(record.id, []).extend(_info_details(old, record))
            elif isinstance(record, Info):
                new_infos.add(record.id)
        for record in change.after:
            if isinstance(record, InfoKeywordLink) and record.info_id not in new_infos:
                self._take_link(before.get(_key(record)), record, keywords, infos)
        for of, all_details in ((self.of_keywords, keywords), (self.of_infos, infos)):
            for id, details in all_details.items():
                if details:
                    self._add(change, of.setdefault(id, []), details)

    def _add(self, change: Change, entries: list[Any], details: list[_Detail]) -> None:
        if len(entries) >= _CHANGES:
            entries[_CHANGES:] = [entries[_CHANGES] + 1 if len(entries) > _CHANGES else 1]
            return
        operation = (int(change.timestamp), change.op, change.agent_io is not None and not undone_by(change))
        if not self.operations or self.operations[-1] != operation:
            self.operations.append(operation)
        more: list[Any] = [len(details) - _DETAILS] if len(details) > _DETAILS else []
        entries.append([len(self.operations) - 1, *details[:_DETAILS], *more])

    def _keyword_details(self, old: KeywordNode, new: KeywordNode) -> list[_Detail]:
        if old.deleted != new.deleted:
            return [["deleted" if new.deleted else "back"]]
        details = _texts_changed(old, new, "name", "description")
        if old.parent_id != new.parent_id:
            details.append(["parent", self._name_of(old.parent_id), self._name_of(new.parent_id)])
        for code, was, has in (("alias", old.aliases, new.aliases), ("confirmed", old.confirmed, new.confirmed)):
            details += [[f"{code}-", _excerpt(text)] for text in was if text not in has]
            details += [[f"{code}+", _excerpt(text)] for text in has if text not in was]
        return details + ([["metadata"]] if old.metadata != new.metadata else [])

    def _take_link(
        self, old: object, link: InfoKeywordLink, keywords: dict[str, list[_Detail]], infos: dict[str, list[_Detail]]
    ) -> None:
        was = isinstance(old, InfoKeywordLink) and not old.deleted
        info = self._view.info(link.info_id)
        text = self._gone.get((Info, link.info_id)) if info is None else _excerpt(info.content)
        if was and link.deleted:
            keywords.setdefault(link.keyword_id, []).append(["info-" if info else "info×", text])
            infos.setdefault(link.info_id, []).append(["keyword-", self._name_of(link.keyword_id)])
        elif not link.deleted:
            code = "relation" if was else "info+"
            keywords.setdefault(link.keyword_id, []).append([code, text, link.created_by, link.relation.value])
            if not was:
                infos.setdefault(link.info_id, []).append(["keyword+", self._name_of(link.keyword_id), link.created_by])

    def _name_of(self, id: str | None) -> str | None:
        name = self._view.name_of(id)
        if name is None and id is not None and self._view.root.id == ROOT_ID:
            name = self._gone.get((KeywordNode, id))
        return None if name is None else _excerpt(name)


def _info_details(old: Info, new: Info) -> list[_Detail]:
    if old.deleted != new.deleted:
        return [["deleted" if new.deleted else "back"]]
    details = _texts_changed(old, new, "content", "source")
    return details + ([["metadata"]] if old.metadata != new.metadata else [])


def _texts_changed(old: KeywordNode | Info, new: KeywordNode | Info, *fields: str) -> list[_Detail]:
    details: list[_Detail] = []
    for field in fields:
        was, now = getattr(old, field), getattr(new, field)
        if was != now:
            pairs = enumerate(zip(was, now, strict=False))
            same = next((place for place, (one, other) in pairs if one != other), min(len(was), len(now)))
            details.append([field, _excerpt(was, same), _excerpt(now, same)])
    return details


def _key(record: KeywordNode | Info | InfoKeywordLink) -> tuple[object, ...]:
    if isinstance(record, InfoKeywordLink):
        return InfoKeywordLink, record.info_id, record.keyword_id
    return type(record), record.id


def _excerpt(text: str, place: int = 0) -> str:
    """Return the part of a text around a place, all of it where it is short."""
    start = max(0, place - _EXCERPT // 4) if len(text) > _EXCERPT else 0
    end = start + _EXCERPT
    return ("…" if start else "") + text[start:end] + ("…" if end < len(text) else "")


def _policy(template: str) -> str:
    """Return a policy under which the page's own style and script run, and nothing is loaded or sent."""
    style, script = (
        re.findall(pattern, template, re.DOTALL)[0] for pattern in (r"<style>(.*?)</style>", r"<script>(.*?)</script>")
    )
    return (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode()}"
