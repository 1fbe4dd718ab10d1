"""Safeguards of the core: found by marks in its code, and taken away one at a time.

A mark is a comment that names what its line is good for, at the line's end or on a line of its own above it:

    self._SyncLog()  # guard: sync of a commit
    # guard: a foreign log stays refused
    if old.is_lost:

Two marks of one line are parted by a semicolon, and one mark may stand at several lines, which are taken away together.
What taking a safeguard away means follows from what the line holds:

    if, elif, while    the condition never holds
    with               is not entered
    except             catches nothing
    any other          is not done

Where that is not what is wanted, the table in `mutate_store` says it: `Always` (a condition always holds) or `Instead`
(a piece of the line is another one). So a safeguard is found again after any change of the lines around it, and one
that has lost its mark, or its piece, is told.
"""

from __future__ import annotations

import ast
import functools
import io
import re
import tokenize
from collections.abc import Iterator
from typing import NamedTuple

_MARK = re.compile(r"\bguard: ([^;]+)")


class GuardError(Exception):
    """A safeguard is not where it should be, or cannot be taken away like this."""


class Always(NamedTuple):
    """The condition of an `if` or a `while` always holds."""


class Instead(NamedTuple):
    """A piece of the statement is another one."""

    piece: str
    """What stands there once, in the statement's own lines."""
    other: str


Way = Always | Instead | None
"""None: as the module's docstring says."""


@functools.lru_cache(2)  # a table of safeguards asks for each of them in the same text
def marks(source: str) -> dict[str, list[int]]:
    """Return the numbers of the lines that each mark is for, in a module's text."""
    found: dict[str, list[int]] = {}
    lines = source.split("\n")
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        number = token.start[0]
        if lines[number - 1].lstrip().startswith("#"):  # of the next line that is no comment
            while lines[number - 1].lstrip().startswith("#"):
                number += 1
        for name in _MARK.findall(token.string):
            found.setdefault(name.strip(), []).append(number)
    return found


def take_away(source: str, mark: str, way: Way = None) -> str:
    """Return a module's text without the safeguard of a mark.

    Args:
        source: the module's text.
        mark: the name that its mark tells.
        way: how it is taken away; None is the usual way of what the marked line holds.

    Raises:
        GuardError: the mark is not there, or nothing on its line can be taken away like this.
    """
    numbers = marks(source).get(mark)
    if numbers is None:
        raise GuardError(f"no line has the mark {mark!r}")
    for number in reversed(numbers):
        source = _take_away_at(source, number, mark, way)
    return source


def _take_away_at(source: str, number: int, mark: str, way: Way) -> str:
    text = _read(source)
    found = text.statement_at(number)
    if isinstance(way, Instead):
        return text.with_piece(found, way)
    if isinstance(found, ast.If | ast.While):
        return text.with_node(found.test, "True" if isinstance(way, Always) else "False")
    if isinstance(way, Always):
        raise GuardError(f"the line of {mark!r} has no condition")
    if isinstance(found, ast.With):
        first, last = found.items[0].context_expr, found.items[-1]
        return text.with_span(first, last.optional_vars or last.context_expr, "__import__('contextlib').nullcontext()")
    if isinstance(found, ast.ExceptHandler):
        if found.type is None:
            raise GuardError(f"the line of {mark!r} catches everything")
        return text.with_node(found.type, "()")
    if isinstance(found, ast.FunctionDef | ast.ClassDef | ast.For | ast.Try | ast.Return):
        raise GuardError(f"say how the line of {mark!r} is taken away: it is a {type(found).__name__}")
    return text.with_node(found, "pass")


class _Text:
    """A module's text, and what stands where in it."""

    def __init__(self, source: str) -> None:
        self.lines = source.encode().split(b"\n")  # offsets of the syntax tree are those of bytes
        self._found: dict[int, ast.stmt | ast.ExceptHandler] = {}  # by the numbers of their own lines
        for node in self._statements(ast.parse(source)):
            for number in self._own_lines(node):
                self._found.setdefault(number, node)

    def statement_at(self, number: int) -> ast.stmt | ast.ExceptHandler:
        """Return the innermost statement, or handler, one of whose own lines this is."""
        if number not in self._found:
            raise GuardError(f"no statement stands at line {number}")
        return self._found[number]

    def with_node(self, node: ast.expr | ast.stmt, other: str) -> str:
        return self.with_span(node, node, other)

    def with_span(self, first: ast.expr | ast.stmt, last: ast.expr | ast.stmt, other: str) -> str:
        """Return the text with something else from the beginning of one node to the end of another."""
        assert last.end_lineno is not None
        assert last.end_col_offset is not None
        return self._replaced((first.lineno, first.col_offset), (last.end_lineno, last.end_col_offset), other.encode())

    def with_piece(self, node: ast.stmt | ast.ExceptHandler, way: Instead) -> str:
        own = self._own_lines(node)
        text = b"\n".join(self.lines[own.start - 1 : own.stop - 1])
        if (count := text.count(way.piece.encode())) != 1:
            raise GuardError(f"{way.piece!r} stands {count} times in {text.decode().strip()!r}")
        changed = text.replace(way.piece.encode(), way.other.encode())
        return self._replaced((own.start, 0), (own.stop - 1, len(self.lines[own.stop - 2])), changed)

    def _replaced(self, start: tuple[int, int], stop: tuple[int, int], other: bytes) -> str:
        before = [*self.lines[: start[0] - 1], self.lines[start[0] - 1][: start[1]]]
        behind = [self.lines[stop[0] - 1][stop[1] :], *self.lines[stop[0] :]]
        return (b"\n".join(before) + other + b"\n".join(behind)).decode()

    def _statements(self, node: ast.AST) -> Iterator[ast.stmt | ast.ExceptHandler]:
        """Yield all statements, each behind those within it."""
        for child in ast.iter_child_nodes(node):
            yield from self._statements(child)
            if isinstance(child, ast.stmt | ast.ExceptHandler):
                yield child

    def _own_lines(self, node: ast.stmt | ast.ExceptHandler) -> range:
        """Return the numbers of the lines that are a statement's alone: those of its head, if it has a body."""
        assert node.end_lineno is not None
        body: list[ast.stmt] = getattr(node, "body", [])
        stop = node.end_lineno + 1
        if body:
            first = min([body[0].lineno, *(each.lineno for each in getattr(body[0], "decorator_list", []))])
            stop = max(node.lineno + 1, self._behind_comments(first))
        return range(node.lineno, stop)

    def _behind_comments(self, number: int) -> int:
        """Return the first of the lines of comments right above a line, or the line."""
        while self.lines[number - 2].lstrip().startswith(b"#"):
            number -= 1
        return number


_read = functools.lru_cache(2)(_Text)
