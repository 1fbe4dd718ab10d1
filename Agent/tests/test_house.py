"""Tests of the house itself: packaging, documents, and which module may know which."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from Agent.keyword_tree import __version__
from Agent.tests.support import ROOT, reference

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


class TestPackaging:
    def test_each_requirement_stands_once(self) -> None:
        extras = PROJECT["optional-dependencies"].values()
        listed = [*PROJECT["dependencies"], *(item for extra in extras for item in extra)]
        names = [re.split(r"[<>=!~;\[ ]", item)[0].lower() for item in listed if not item.startswith(PROJECT["name"])]

        assert sorted(names) == sorted(set(names))

    def test_each_hint_names_an_extra_as_the_readme_does(self) -> None:
        sources = [path for path in (ROOT / "Agent").rglob("*.py") if "tests" not in path.parts]
        hints = [hint for path in sources for hint in re.findall(r"pip install '([^']+)'", path.read_text())]

        assert len(hints) > 10
        assert {*hints} <= {f".[{extra}]" for extra in (*PROJECT["optional-dependencies"], "{extra}", "{}")}

    def test_the_changelog_knows_the_version(self) -> None:
        assert f"## [{__version__}]" in read("CHANGELOG.md")

    @pytest.mark.parametrize(("named", "code"), [("Chromium", 0), ("Chromium,PostgreSQL", 1)])
    def test_a_skip_for_want_of_what_ci_has_installed_fails(self, tmp_path: Path, named: str, code: int) -> None:
        test = tmp_path / "test_skips.py"
        test.write_text("import pytest\n\ndef test_of_a_server():\n    pytest.skip('PostgreSQL is not installed')\n")
        command = [sys.executable, "-m", "pytest", "-p", "conftest", f"--rootdir={tmp_path}", str(test)]
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "KEYWORD_TREE_MUST_TEST": named, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            capture_output=True,
            text=True,
        )

        assert done.returncode == code, done.stdout
        assert ("1 failed" in done.stdout) == bool(code)


FLOORS = {
    "keyword_tree": 0,
    "base": 1,
    "store": 2,
    "finding": 3,
    "models": 4,
    "memory": 5,
    "context_engine": 6,
    "formats": 6,
    "knowhub": 6,
    "shared_tree": 6,
    "adapters": 7,
    "cli": 8,
}
"""A module imports what stands on its own floor or below, never what stands above."""


def product_imports() -> dict[str, set[str]]:
    """Return for each module of the product the modules of ours that it imports, anywhere in its text."""
    paths = [path for path in (ROOT / "Agent").rglob("*.py") if "tests" not in path.relative_to(ROOT).parts]
    modules = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in paths}
    found: dict[str, set[str]] = {}
    for module, path in modules.items():
        if path.name.startswith("test_") or module == "Agent.__init__":
            continue
        package = module.split(".")[:-1]
        names = set[str]()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level:
                start = [*package[: len(package) - node.level + 1], *filter(None, [node.module])]
                names |= {".".join([*start, alias.name]) for alias in node.names} | {".".join(start)}
        names |= {f"{name}.__init__" for name in names}
        found[module.removeprefix("Agent.")] = {name.removeprefix("Agent.") for name in names & modules.keys()}
    return found


class TestFloors:
    def test_every_package_has_its_floor(self) -> None:
        assert {module.partition(".")[0] for module in product_imports()} == FLOORS.keys()

    def test_nothing_is_imported_from_above(self) -> None:
        floor = {module: FLOORS[module.partition(".")[0]] for module in product_imports()}

        assert [
            f"{module} -> {other}"
            for module, others in product_imports().items()
            for other in others
            if other != "__init__" and floor[other] > floor[module]
        ] == []

    def test_no_modules_import_each_other_in_a_circle(self) -> None:
        reached = {
            module: {other for other in others if not other.endswith("__init__")}
            for module, others in product_imports().items()
        }
        for _ in range(8):  # each round doubles the length of the ways that were followed
            reached = {module: others.union(*(reached[each] for each in others)) for module, others in reached.items()}

        assert [module for module, others in reached.items() if module in others] == []


class TestArrow:

    def test_at_most_ten_private_names_of_the_core_are_imported(self) -> None:
        """All else that a sibling needs of the core is public there: `__all__` and `__port__`."""
        found: set[str] = set()
        for path in (ROOT / "Agent").rglob("*.py"):
            if path.name.startswith("test_") or "tests" in path.relative_to(ROOT).parts:
                continue
            module, modules = ast.parse(path.read_text(encoding="utf-8")), set[str]()
            for node in ast.walk(module):
                if isinstance(node, ast.ImportFrom):
                    names = {alias.name for alias in node.names}
                    modules |= {alias.asname or alias.name for alias in node.names if alias.name == "keyword_tree"}
                    found |= names if (node.module or "").endswith("keyword_tree") else set()
            for node in ast.walk(module):
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
                    found.add(node.attr)

        assert len([name for name in found if name.startswith("_") and not name.startswith("__")]) <= 10


class TestOwnWords:
    """Nothing stands here that was copied from the documents that the project began with."""

    DOCUMENTS = ROOT.parent / "shared" / "seeds"
    RUN = 60  # characters, blanks as one: what two authors hardly write alike by chance
    MAY_NOT_BE_QUOTED = "004_"  # of the others, names and signatures are what was agreed on

    # A line of a listing: a decorator, a definition, a field, a constant, an argument, a call that forwards.
    _is_signature = re.compile(r"\s*(@|def |class |async |return |self\.|\w+(: | = )|\w+,?$|[\])}]|\S+\()").match

    def passages(self, document: Path) -> Iterator[str]:
        """Yield what stands between signatures, blanks as one."""
        held: list[str] = []
        for line in [*document.read_text(encoding="utf-8").splitlines(), ""]:
            if self._is_signature(line) and not document.name.startswith(self.MAY_NOT_BE_QUOTED):
                yield " ".join(" ".join(held).split())
                held = []
            else:
                held.append(line)
        yield " ".join(" ".join(held).split())

    # A list of columns or arguments is names, too, wherever it stands: prose has words with only blanks between them.
    _is_prose = re.compile(r"\w+(?: \w+){5}|[\u3400-\u9fff]{8}|(?:[\u3400-\u9fff]+[，。、；：]){3}").search

    def runs_of(self, text: str) -> set[str]:
        return {text[start : start + self.RUN] for start in range(len(text) - self.RUN + 1)}

    def runs_of_document(self, document: Path) -> set[str]:
        runs = set().union(*map(self.runs_of, self.passages(document)))
        return runs if document.name.startswith(self.MAY_NOT_BE_QUOTED) else set(filter(self._is_prose, runs))

    def test_finds_what_was_copied(self, tmp_path: Path) -> None:
        document = tmp_path / "000_document.txt"
        prose = "A keyword hangs beneath the one that a reader would look for it under, and nowhere else."
        document.write_text(f"def Search(self, query: str, llm_expand_query: bool = True) -> SearchResult:\n{prose}\n")

        runs = self.runs_of_document(document)

        assert runs & self.runs_of(f"# As agreed: {prose}")
        assert not runs & self.runs_of("def Search(self, query: str, llm_expand_query: bool = True) -> SearchResult:")

    @pytest.mark.skipif(not DOCUMENTS.is_dir(), reason="the documents to compare with are not beside the project")
    def test_nothing_is_copied(self) -> None:
        own = [path for path in ROOT.rglob("*") if path.suffix in (".py", ".md", ".html", ".toml", ".txt")]
        own = [path for path in own if not any(part.startswith(".") for part in path.relative_to(ROOT).parts)]
        texts = {path: " ".join(path.read_text(encoding="utf-8").split()) for path in own}
        documents = sorted(self.DOCUMENTS.glob("*.txt"))
        runs = set().union(*map(self.runs_of_document, documents))

        copied = {
            path.relative_to(ROOT).as_posix(): text[start : start + self.RUN]
            for path, text in texts.items()
            for start in range(len(text) - self.RUN + 1)
            if text[start : start + self.RUN] in runs
        }

        assert len(documents) >= 5
        assert len(own) > 50
        assert copied == {}


class TestReference:
    @pytest.mark.parametrize("chosen", sorted(reference.PAGES))
    def test_is_current(self, chosen: str) -> None:
        assert reference.PAGES[chosen].read_text(encoding="utf-8") == reference.page(chosen), "run `make reference`"
