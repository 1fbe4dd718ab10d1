r"""A Markdown outline: headings and nested lists are keywords, links and paragraphs are infos.

    # 编程
    _What machines can execute._

    - Python
      - [requests](https://requests.readthedocs.io) - HTTP for humans.

Read: a heading is a keyword under the last higher one; a list item is a keyword, what is nested in it lies under
it. Its first line is the name; what it goes on with, on lines of its own, is an info. An item that begins with a link
and holds no list is an info instead: its text the content, the address the source.
A paragraph that is wholly emphasised, directly under its keyword, is the description; any other paragraph, code,
quotation or table is an info, as it is in the source. Passed over: HTML, rules, a YAML block at the top, and tables
of contents (items that link to `#…`).

Written: two levels of headings, then lists; an info without a source is a paragraph. Ids and aliases are in comments,
by which an import recognises what is there; without them an id is made from the path. Kept: ids,
names, aliases, descriptions, contents, sources and the order of each. Lost: metadata, creators, relations,
versions, times. Control characters become U+FFFD, a carriage return stays.

>>> escape("*a* <b> [c](d)"), escape("- 1")
('\\*a\\* \\<b\\> \\[c\\](d)', '\\- 1')
"""

import json
import re
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from textwrap import dedent
from typing import TextIO

try:
    from markdown_it import MarkdownIt
    from markdown_it.tree import SyntaxTreeNode
except ImportError as error:
    raise ImportError("Markdown needs markdown-it-py: pip install '.[formats]' in its repository") from error

from .records import Keyword, Outline, Record, Source, inert_json, is_blank, printable, refuse, split_front_matter
from .view import View

_HEADINGS = 2
"""Levels written as headings: as many as keep a page's own outline readable; the rest are lists, of any depth."""

_OURS = "<!-- keyword-tree outline -->"
"""Stands at the top of what was written here: then an item that links to `#…` is an info as any other."""


# -- writing ------------------------------------------------------------------

_MARKS = re.compile(r"[\\`*_\[\]<>&#~|$]|^[-+=:]", re.MULTILINE)
_NUMBER = re.compile(r"^([0-9]{1,9})(?=[.)])", re.MULTILINE)


def escape(text: str, newline: str = "\n") -> str:
    """Return one paragraph of Markdown that reads as exactly this text.

    Args:
        text: any text; only its control characters are lost.
        newline: the replacement of a line end; `"&#10;"` where the Markdown must stay on one line.
    """
    lines = _NUMBER.sub(r"\1\\", _MARKS.sub(r"\\\g<0>", printable(text))).replace("\r", "&#13;").split("\n")
    # Blanks at the edges of a line would be trimmed, and a blank line would end the paragraph.
    lines = [re.sub(r"^\s|\s$", lambda blank: f"&#{ord(blank[0])};", line) for line in lines]
    written = lines[0]
    for line in lines[1:]:
        written += (newline if line and written and not written.endswith("\n") else "&#10;") + line
    return written


def write(view: View, out: TextIO) -> None:
    """Write the outline."""
    out.write(f"{_OURS}\n")
    for depth, node in view.walk():
        indent = "  " * max(0, depth - _HEADINGS)
        if depth:
            head = f"\n{'#' * depth}" if depth <= _HEADINGS else f"{indent[2:]}-"
            out.write(f"{head} {escape(node.name, '&#10;')}\n{_comment('id', node.id, indent)}")
            if node.aliases:
                out.write(_comment("aliases", node.aliases, indent))
            if node.description:
                out.write(_paragraph(f"_{escape(node.description)}_", indent))
        for info in view.infos(node.id):
            if info.source or is_blank(info.content):
                out.write(f"{indent}- [{escape(info.content, '&#10;')}](<{escape(info.source, '&#10;')}>)\n")
                out.write(_comment("id", info.id, f"{indent}  "))
            else:
                out.write(_paragraph(escape(info.content), indent) + _comment("id", info.id, indent))


def _paragraph(text: str, indent: str) -> str:
    return "\n" + "".join(f"{indent}{line}\n" for line in text.split("\n"))


def _comment(name: str, value: object, indent: str) -> str:
    return f"{indent}<!-- {name}: {inert_json(value)} -->\n"


# -- reading ------------------------------------------------------------------

_COMMENT = re.compile(r"\s*<!-- (id|aliases): (.*) -->\s*")
_LISTS = ("bullet_list", "ordered_list")


def read(source: Source, outline: Outline) -> Iterator[Record]:
    """Yield the records of an outline.

    Raises:
        InvalidInputError: lists, quotations or emphases are nested deeper than the parser goes (some hundred levels).

    Cost: the parser reads a document as a whole.
    """
    with source.open_text() as file:
        text = file.read()
    is_ours = text.startswith(_OURS)
    if not is_ours:
        text = split_front_matter(text)[1]
    try:
        document = SyntaxTreeNode(_Parser("commonmark", {"maxNesting": 10_000}).enable("table").parse(text))
        lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        yield from _Reader(outline, lines, is_ours).blocks(document.children, outline.parent_id)
    except RecursionError as error:
        raise refuse(source, "lists, quotations or emphases are nested too deeply") from error


class _Parser(MarkdownIt):
    """Leaves addresses as they are: none is followed, and a source need not be an address at all."""

    def normalizeLink(self, url: str) -> str:  # noqa: N802  the parser's own name
        return url

    def validateLink(self, url: str) -> bool:  # noqa: N802  the parser's own name
        return True


class _Reader:
    def __init__(self, outline: Outline, lines: list[str], is_ours: bool) -> None:
        self._outline = outline
        self._lines = lines
        self._is_ours = is_ours
        self._ids = dict[str, str]()  # with what infos say

    def blocks(self, nodes: Sequence[SyntaxTreeNode], parent_id: str) -> Iterator[Record]:
        path = [(0, parent_id)]
        waiting = deque(nodes)
        while waiting:
            node = waiting.popleft()
            if node.type == "heading":
                level = int(node.tag[1:])
                while path[-1][0] >= level:
                    path.pop()
                for record in self._keyword(node.children[0], path[-1][1], waiting):
                    if isinstance(record, Keyword):
                        path.append((level, record.id))
                    yield record
            elif node.type in _LISTS:
                for item in node.children:
                    yield from self._item(item, path[-1][1])
            elif text := self._text(node):
                yield self._outline.fact(path[-1][1], text, id=self._first(self._comments(waiting)[0], text))

    def _item(self, item: SyntaxTreeNode, parent_id: str) -> Iterator[Record]:
        waiting = deque(item.children)
        if not waiting or waiting[0].type != "paragraph":
            yield from self.blocks(item.children, parent_id)
            return
        inline = waiting.popleft().children[0]
        link = _leading_link(inline)
        if link is None or any(node.type in _LISTS for node in waiting):
            id = parent_id
            for record in self._keyword(inline, parent_id, waiting):
                id = record.id if isinstance(record, Keyword) else id
                yield record
            if link is None or not self._is_contents(link):
                yield from self.blocks(list(waiting), id)
        elif not self._is_contents(link):
            id = self._comments(waiting)[0]
            content = "\n\n".join([_plain(inline, "\n", link, True), *filter(None, map(self._text, waiting))])
            id = self._first(id, f"{_href(link)} {content}")
            yield self._outline.fact(parent_id, content or ("" if self._is_ours else _href(link)), _href(link), id)

    def _keyword(self, inline: SyntaxTreeNode, parent_id: str, waiting: deque[SyntaxTreeNode]) -> Iterator[Record]:
        """Yield a keyword, with the aliases and the description that follow, and the infos of its line."""
        link = _leading_link(inline)
        first, rest = _first_line(inline)
        name = first if link is None else _plain(link, " ")
        if is_blank(name) or (link is not None and self._is_contents(link)):
            return
        id, aliases = self._comments(waiting)
        description = ""
        if waiting and waiting[0].type == "paragraph":
            parts = waiting[0].children[0].children
            if len(parts) == 1 and parts[0].type == "em":
                description = _plain(parts[0], "\n")
                waiting.popleft()
        keyword = self._outline.keyword(parent_id, name, aliases, description, self._first(id))
        yield keyword
        if link is not None:
            yield self._outline.fact(keyword.id, _plain(inline, " ", link, True), _href(link))
        else:
            if not is_blank(rest):
                yield self._outline.fact(keyword.id, rest)
            for other in (node for node in inline.walk() if node.type == "link" and not self._is_contents(node)):
                yield self._outline.fact(keyword.id, _plain(other, " ") or _href(other), _href(other))

    def _comments(self, waiting: deque[SyntaxTreeNode]) -> tuple[str, list[str]]:
        """Return the id and the aliases that comments give what is before them; the id only in our own files."""
        found: dict[str, object] = {}
        while waiting and (match := _COMMENT.fullmatch(waiting[0].content if waiting[0].type == "html_block" else "")):
            if match[1] in found:
                break  # what it belonged to was deleted: it is of another item
            waiting.popleft()
            with suppress(ValueError):
                found[match[1]] = json.loads(match[2])
        id, aliases = found.get("id"), found.get("aliases")
        names = aliases if isinstance(aliases, list) else []
        return id if self._is_ours and isinstance(id, str) else "", [name for name in names if isinstance(name, str)]

    def _first(self, id: str, said: str = "") -> str:
        """Return an id, or "" for what was copied with its comment: another keyword, an info that says something else.

        The first one keeps the id: each import of such a file would change it to and fro.
        """
        if id in self._ids and (not said or self._ids[id] != said):
            return ""
        self._ids[id] = said
        return id

    def _is_contents(self, link: SyntaxTreeNode) -> bool:
        return not self._is_ours and _href(link).startswith("#")

    def _text(self, node: SyntaxTreeNode) -> str:
        """Return the text of a block: a paragraph's text, or the source of code, a quotation or a table."""
        if node.type in ("html_block", "hr") or node.map is None:
            return ""
        if node.type == "paragraph":
            text = _plain(node.children[0], "\n", addresses=True)
            return "" if is_blank(text) else text
        return dedent("\n".join(self._lines[slice(*node.map)])).strip("\n")


def _leading_link(inline: SyntaxTreeNode) -> SyntaxTreeNode | None:
    """Return the link with which a text begins, emphasised or not."""
    node = inline
    while node.children:
        node = node.children[0]
        if node.type == "link":
            return node
    return None


def _first_line(inline: SyntaxTreeNode) -> tuple[str, str]:
    """Return the first line of a text and the others."""
    kinds = [node.type for node in inline.children]
    end = min((kinds.index(kind) for kind in ("softbreak", "hardbreak") if kind in kinds), default=len(kinds))
    first = "".join(_plain(node, " ") for node in inline.children[:end])
    return first, "".join(_plain(node, "\n", addresses=True) for node in inline.children[end + 1 :])


def _href(link: SyntaxTreeNode) -> str:
    return str(link.attrs.get("href", ""))


def _plain(node: SyntaxTreeNode, newline: str, skipped: SyntaxTreeNode | None = None, addresses: bool = False) -> str:
    """Return the text without its marks.

    Args:
        node: whose text it is.
        newline: what replaces a line end.
        skipped: a link whose address is written elsewhere.
        addresses: whether the addresses of all other links follow them in brackets.
    """
    if node.type in ("softbreak", "hardbreak"):
        return newline
    if node.type in ("text", "code_inline"):
        return node.content
    text = "".join(_plain(child, newline, skipped, addresses) for child in node.children)
    if addresses and node.type == "link" and node is not skipped and _href(node) not in (text, ""):
        return f"{text} ({_href(node)})"
    return text
