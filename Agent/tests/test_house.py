"""Tests of the house itself: packaging, documents, and which module may know which."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

from Agent.tests.support import ROOT

READMES = ("README.md", "README.zh-CN.md")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def code_blocks(name: str) -> list[str]:
    return re.findall(r"^```\w*\n(.*?)^```", read(name), re.MULTILINE | re.DOTALL)


class TestPackaging:
    def test_each_requirement_stands_once(self) -> None:
        extras = PROJECT["optional-dependencies"].values()
        listed = [*PROJECT["dependencies"], *(item for extra in extras for item in extra)]
        names = [re.split(r"[<>=!~;\[ ]", item)[0].lower() for item in listed if not item.startswith(PROJECT["name"])]

        assert sorted(names) == sorted(set(names))

    def test_the_changelog_knows_the_version(self) -> None:
        assert f"## [{PROJECT['version']}]" in read("CHANGELOG.md")

    def test_ci_runs_the_tests_and_nothing_else(self) -> None:
        assert read(".ci/run").rstrip().endswith("\nmake test")


class TestArrow:
    def imports(self, path: Path) -> set[str]:
        found: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                found.add("." * node.level + (node.module or ""))
        return found

    def test_the_core_knows_no_sibling(self) -> None:
        assert not any(name.startswith((".", "Agent")) for name in self.imports(ROOT / "Agent/keyword_tree.py"))

    def test_the_lexical_client_knows_only_the_core(self) -> None:
        ours = {name for name in self.imports(ROOT / "Agent/lexical_client.py") if name.startswith((".", "Agent"))}

        assert ours == {"Agent.keyword_tree"}

    @pytest.mark.parametrize("path", sorted((ROOT / "Agent").glob("*.py")), ids=lambda path: path.name)
    def test_a_module_has_its_tests_beside_it(self, path: Path) -> None:
        if path.name.startswith(("test_", "demo_")) or path.name == "__init__.py":
            return  # the parts of the demo are tested with it
        assert path.with_name(f"test_{path.name}").exists()


class TestReadmes:
    def test_both_show_the_same_sessions_and_screens(self) -> None:
        ours, theirs = (code_blocks(name) for name in READMES)

        assert len(ours) == len(theirs) >= 4
        for one, other in zip(ours, theirs, strict=True):
            assert re.sub(r"\s+#.*", "", one) == re.sub(r"\s+#.*", "", other)  # comments are translated

    @pytest.mark.parametrize("name", READMES)
    def test_the_first_thirty_lines_hold_a_session_and_the_two_commands(self, name: str) -> None:
        head = "\n".join(read(name).splitlines()[:30])

        assert ">>> from Agent.keyword_tree import" in head
        assert "make demo" in head
        assert "make test" in head

    @pytest.mark.parametrize("name", READMES)
    def test_links_lead_somewhere(self, name: str) -> None:
        for target in re.findall(r"\]\(([^)#]+)", read(name)):
            assert target.startswith("https://") or (ROOT / target).exists(), target

    @pytest.mark.parametrize("name", READMES)
    def test_names_every_reason_of_a_search(self, name: str) -> None:
        from Agent.keyword_tree import _OUTCOMES

        for reason in {reason for _, reason in _OUTCOMES.values() if reason}:
            assert f"`{reason}`" in read(name), reason
