"""Read the outline of this machine's Python standard library, for the demo, without importing any of it.

Importing has side effects (`antigravity` opens a browser, `this` prints a poem), so the source files are parsed
instead. What is read is what a person would call the library: packages, modules, classes, functions and documented
methods, each with its docstring. Modules written in C have no source here and are left out, unless a Python twin of
them exists (PEP 399), which then speaks for them.

>>> entries = {entry.dotted: entry for entry in read_outline({"textwrap"})}
>>> entries["textwrap.dedent"].kind, entries["textwrap.dedent"].parent
('function', 'textwrap')
>>> entries["textwrap.dedent"].summary
'Remove any common leading whitespace from every line in `text`.'
"""

import ast
import os
import sys
import sysconfig
import warnings
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Entry", "read_outline"]

SKIPPED_FOLDERS = frozenset(
    {
        "test",  # the interpreter's own tests, with broken files among them on purpose
        "tests",
        "idle_test",
        "idlelib",  # an editor that happens to be shipped, not a library
        "turtledemo",  # programs to look at
        "lib2to3",  # a grammar and a hundred rewriting rules of one tool
        "pydoc_data",  # one module, holding the manual as data
        "ensurepip",  # another project's wheels
        "site-packages",
    }
)

PYTHON_TWINS = {
    "_pydatetime": "datetime",
    "_pydecimal": "decimal",
    "_pyio": "io",
    "_collections_abc": "collections.abc",
}
"""Private modules in Python that hold what a public module shows."""

SUMMARY_LENGTH = 200
"""Characters of a summary at most."""


@dataclass(frozen=True)
class Entry:
    """One thing the library offers.

    >>> Entry("json.dumps", "function", "Serialize.", ("json.dumps",), "json/__init__.py:183").parent
    'json'
    """

    dotted: str
    """Its full name from the top, `json.decoder.JSONDecoder`: unique in one outline."""
    kind: str
    """`package`, `module`, `class` or `function` (a method is a function beneath a class)."""
    docstring: str
    """The docstring, indentation removed; empty where there is none."""
    aliases: tuple[str, ...]
    """Dotted names it is reached by, its own first; empty for a top-level module, whose name says it all."""
    source: str
    """File below the library's folder and line, `json/__init__.py:183`."""

    @property
    def name(self) -> str:
        """The last part of the dotted name."""
        return self.dotted.rpartition(".")[2]

    @property
    def parent(self) -> str:
        """The dotted name of what holds it; empty at the top."""
        return self.dotted.rpartition(".")[0]

    @property
    def summary(self) -> str:
        """The first paragraph of the docstring, in one line: many a first sentence goes on in the second line."""
        return " ".join(self.docstring.strip().partition("\n\n")[0].split())[:SUMMARY_LENGTH].rstrip()


def read_outline(modules: Collection[str] | None = None, library: Path | None = None) -> Iterator[Entry]:
    """Yield what the library offers, parents before children, every dotted name once.

    A class or function is taken if the module's `__all__` names it or, where there is no such list, if it has a
    docstring; a method if it has one.

    Args:
        modules: Top-level modules and packages to read; None reads all of `sys.stdlib_module_names`.
        library: The folder of the source files; None takes this interpreter's.

    Yields:
        Entries in the order of their modules' names, then of their source lines.

    Cost: parses each source file once, 1 to 2 s for the whole library.
    """
    folder = library or Path(sysconfig.get_path("stdlib"))
    wanted = sys.stdlib_module_names if modules is None else modules
    seen: set[str] = set()
    passed_on: _PassedOn = {}
    # Sorted by dotted name, a package comes before its modules: what it passes on is known when they are read. Of two
    # files under one name the public one comes first: its own words are better than its twin's.
    for dotted, path in sorted(_source_files(folder, wanted), key=lambda pair: (pair[0], pair[1].name[0] == "_", pair)):
        for entry in _read_module(dotted, path, path.relative_to(folder).as_posix(), passed_on):
            # A name defined twice (a property and its setter, a branch per platform) is one thing: the first stands.
            # A module whose package was skipped or could not be parsed goes with it.
            if entry.dotted not in seen and (not entry.parent or entry.parent in seen):
                seen.add(entry.dotted)
                yield entry


_PassedOn = dict[str, tuple[str, set[str]]]
"""Module -> the package above it and the module's names that the package shows as its own, "*" for all listed."""


def _source_files(folder: Path, modules: Collection[str]) -> Iterator[tuple[str, Path]]:
    """Yield (public dotted name, file) of every source file that belongs to one of the modules."""
    for twin, public in PYTHON_TWINS.items():
        if public.partition(".")[0] in modules and (folder / f"{twin}.py").is_file():
            yield public, folder / f"{twin}.py"
    for module in modules:
        if module.startswith("_") or module in SKIPPED_FOLDERS:
            continue
        if (folder / f"{module}.py").is_file():
            yield module, folder / f"{module}.py"
        for path in (folder / module).rglob("*.py"):
            parts = path.relative_to(folder).with_suffix("").parts
            if path.name == "__init__.py":
                parts = parts[:-1]
            # A private module of a public package is read for what the package passes on (pathlib, since 3.13).
            if not any(part.startswith("_") for part in parts[:-1]) and SKIPPED_FOLDERS.isdisjoint(parts):
                yield ".".join(parts), path


def _read_module(dotted: str, path: Path, source: str, passed_on: _PassedOn) -> Iterator[Entry]:
    """Yield the module's own entry, then those of what it defines."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an old escape in somebody's string is not the reader's concern
        try:
            module = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError, OSError):
            return  # a distribution may ship files of another Python version: the rest is still worth reading
    listed = _listed_names(module)
    is_package = path.name == "__init__.py"
    if is_package:
        passed_on.update(_passed_on_by(dotted, module))
    package, shown = passed_on.get(dotted, ("", set()))
    if "*" in shown:
        shown = listed
    is_private = dotted.rpartition(".")[2].startswith("_")
    home = package if is_private else dotted

    def entry(inner: str, kind: str, docstring: str, line: int) -> Entry:
        names = [f"{home}.{inner}" if inner else home]
        if names[0].startswith(os.path.__name__):  # posixpath or ntpath, which nobody writes
            names.append("os.path" + names[0].removeprefix(os.path.__name__))
        if inner.partition(".")[0] in shown and home != package:
            names.append(f"{package}.{inner}")
        aliases = tuple(name for name in names if "." in name)
        return Entry(names[0], kind, docstring, aliases, f"{source}:{line}")

    if not is_private:
        yield entry("", "package" if is_package else "module", ast.get_docstring(module) or "", 1)
    taken = shown if is_private else listed
    for node in _definitions(module.body):
        docstring = ast.get_docstring(node) or ""
        if node.name.startswith("_") or not (node.name in taken if taken or is_private else docstring):
            continue
        yield entry(node.name, "class" if isinstance(node, ast.ClassDef) else "function", docstring, node.lineno)
        for method in _definitions(node.body) if isinstance(node, ast.ClassDef) else ():
            text = ast.get_docstring(method)
            if text and not method.name.startswith("_"):
                yield entry(f"{node.name}.{method.name}", "function", text, method.lineno)


def _listed_names(module: ast.Module) -> set[str]:
    """Return the strings of the module's `__all__`, as far as they are written out; empty if there is none."""
    names: set[str] = set()
    for node in module.body:
        if isinstance(node, ast.Assign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
                constants = (inner.value for inner in ast.walk(node.value) if isinstance(inner, ast.Constant))
                names.update(value for value in constants if isinstance(value, str))
    return names


def _passed_on_by(package: str, module: ast.Module) -> _PassedOn:
    """Return what a package imports from its own modules: `from .tasks import *` makes `asyncio.gather`."""
    found: _PassedOn = {}
    for node in module.body:
        if isinstance(node, ast.ImportFrom) and node.module:
            source = f"{package}.{node.module}" if node.level == 1 else node.module
            if not source.startswith(f"{package}."):
                continue
            _, names = found.setdefault(source, (package, set()))
            names.update(alias.name for alias in node.names if alias.asname in (None, alias.name))
    return found


def _definitions(body: list[ast.stmt]) -> Iterator[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the classes and functions of a body, those under `if` and `try` too (`os` asks what the platform has)."""
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        elif isinstance(node, ast.If | ast.Try):
            yield from _definitions([*node.body, *node.orelse])
