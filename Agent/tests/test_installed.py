"""Tests of the package as it is installed: its name, and that it leaves a project's own `Agent` alone."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from Agent.tests.support import ROOT

KEEP_A_FACT = """
from keyword_tree import KeywordTree
with KeywordTree("memory") as tree:
    tea = tree.CreateKeyword("龙井茶")
    tree.CreateInfo("No sugar.", "chat", [tea.id])
with KeywordTree("memory") as tree:
    print(tree.Search("龙井茶").infos[0].content)
"""


def run(folder: Path, *arguments: str, path: Path | None = None) -> str:
    environment = {**os.environ, "PYTHONPATH": str(path) if path else "", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, encoding="utf-8", check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling", reason="a wheel needs hatchling: pip install '.[test]'")
    made = tmp_path_factory.mktemp("wheel")
    run(ROOT, "-m", "hatchling", "build", "-t", "wheel", "-d", str(made))
    return next(made.glob("*.whl"))


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    installed = tmp_path_factory.mktemp("site")
    run(ROOT, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(installed), str(wheel))
    return installed


@pytest.fixture
def project(tmp_path: Path) -> Path:
    own = tmp_path / "Agent"
    own.mkdir()
    (own / "__init__.py").write_text("", encoding="utf-8")
    (own / "planner.py").write_text("def plan():\n    return 'our own plan'\n", encoding="utf-8")
    return tmp_path


class TestInstalled:
    def test_the_wheel_holds_one_package_and_no_tests(self, wheel: Path) -> None:
        with zipfile.ZipFile(wheel) as packed:
            names = packed.namelist()

        assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"keyword_tree"}
        assert not [name for name in names if "test_" in name or name.endswith("conftest.py")]
        assert {"keyword_tree/py.typed", "keyword_tree/formats/page.html"} <= set(names)

    def test_a_project_keeps_its_own_agent(self, site: Path, project: Path) -> None:
        ours_and_theirs = KEEP_A_FACT + "from Agent.planner import plan\nprint(plan())"

        assert run(project, "-c", ours_and_theirs, path=site).splitlines() == ["No sugar.", "our own plan"]

    def test_the_siblings_are_its_modules(self, site: Path, project: Path) -> None:
        recall = """
from keyword_tree.memory import MemoryStore
from keyword_tree.models.lexical_client import LexicalLLMClient
from keyword_tree.formats import export_file
import keyword_tree.store.repair, keyword_tree.models.model_clients
with MemoryStore("memories", user="ada") as store:
    store.remember("Ada is allergic to peanuts.", keywords=["Ada"])
    print(store.recall("who is allergic to peanuts?")[0].info.content)
"""

        assert run(project, "-c", recall, path=site) == "Ada is allergic to peanuts."

    def test_its_command_runs_beside_an_agent_of_ones_own(self, site: Path, project: Path) -> None:
        pytest.importorskip("click")
        pytest.importorskip("rich")
        run(project, str(site / "bin/keyword-tree"), "add", "茶", "--parent", "/", path=site)

        assert "茶" in run(project, str(site / "bin/keyword-tree"), "show", path=site)


ONE_MODULE = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
import Agent.keyword_tree, keyword_tree, keyword_tree.memory.store
print(Agent.keyword_tree is keyword_tree.keyword_tree, Agent.keyword_tree.KeywordTree is keyword_tree.KeywordTree,
      issubclass(keyword_tree.memory.store.KeywordTree, Agent.keyword_tree.KeywordTree))
"""


class TestOneName:
    """A tree of `Agent.keyword_tree` is no stranger to the adapters of `keyword_tree`, whichever is imported first."""

    ORDERS = (["Agent.keyword_tree"], ["keyword_tree"], ["keyword_tree.memory.store"], ["keyword_tree", "Agent"])

    @pytest.mark.parametrize("first", ORDERS, ids=" ".join)
    def test_in_a_checkout(self, first: list[str], tmp_path: Path) -> None:
        assert run(tmp_path, "-c", ONE_MODULE, *first, path=ROOT) == "True True True"

    def test_with_the_folder_copied_into_a_project(self, tmp_path: Path) -> None:
        ignored = shutil.ignore_patterns("tests", "__pycache__")
        shutil.copytree(ROOT / "Agent", tmp_path / "Agent", ignore=ignored)

        assert run(tmp_path, "-c", ONE_MODULE, "Agent") == "True True True"

    @pytest.mark.parametrize("first", ORDERS, ids=" ".join)
    @pytest.mark.parametrize("copied", ["file", "folder"])
    def test_with_a_copy_in_the_project_beside_the_installed_package(
        self, first: list[str], copied: str, site: Path, project: Path
    ) -> None:
        if copied == "folder":
            shutil.rmtree(project / "Agent")
            shutil.copytree(site / "keyword_tree", project / "Agent")
        else:
            shutil.copy(ROOT / "Agent/keyword_tree.py", project / "Agent")

        assert run(project, "-c", ONE_MODULE, *first, path=site) == "True True True"

    def test_another_version_in_the_project_stays_apart(self, site: Path, project: Path) -> None:
        shutil.copy(ROOT / "Agent/keyword_tree.py", project / "Agent")
        with (project / "Agent/keyword_tree.py").open("a") as file:
            file.write("IS_OTHER = True\n")
        code = "import keyword_tree, Agent.keyword_tree\nprint(hasattr(keyword_tree.keyword_tree, 'IS_OTHER'))"

        assert run(project, "-c", code, path=site) == "False"


class TestOneFile:
    def test_beside_a_program_of_its_own_it_lies_in_agent(self, tmp_path: Path) -> None:
        (tmp_path / "Agent").mkdir()
        shutil.copy(ROOT / "Agent/keyword_tree.py", tmp_path / "Agent")

        assert run(tmp_path, "-c", KEEP_A_FACT.replace("from keyword_tree", "from Agent.keyword_tree")) == "No sugar."


class TestRepository:
    @pytest.mark.parametrize("name", ["Agent.keyword_tree", "keyword_tree"])
    def test_both_names_lead_to_it(self, name: str, tmp_path: Path) -> None:
        assert run(tmp_path, "-c", KEEP_A_FACT.replace("from keyword_tree", f"from {name}"), path=ROOT) == "No sugar."

    def test_a_module_names_its_siblings_relatively(self) -> None:
        installed = [
            path
            for path in (ROOT / "Agent").rglob("*.py")
            if not path.name.startswith(("test_", "conftest")) and "tests" not in path.relative_to(ROOT).parts
        ]
        lines = [(path.name, line.strip()) for path in installed for line in path.read_text("utf-8").splitlines()]

        assert [each for each in lines if each[1].startswith(("from Agent", "import Agent"))] == []
