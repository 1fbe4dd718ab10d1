"""The pages for users are true: every line of Python on them runs at a prompt, in the order of the page.

A block with `>>>` is a session, and must answer as it shows; a block without is pasted, line by line, and answers what
`# →` shows. Blocks of a console are run by Agent/tests/cli/test_command_line.py.
"""

import code
import codeop
import contextlib
import doctest
import importlib
import io
import re
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from Agent.tests.shared.own_server import OwnServer, find_programs
from Agent.tests.support import ROOT

READMES = ("README.md", "README.zh-CN.md")
PAGES = (*READMES, *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")))
CHINESE = tuple(page for page in PAGES if page.startswith("docs/zh/"))

_FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


class Block(NamedTuple):
    """A block of Python, and the line of the page that it begins at."""

    text: str
    line: int


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str) -> list[Block]:
    text = read(page)
    found = re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [Block(block[1], text.count("\n", 0, block.start(1))) for block in found]


class Prompt(code.InteractiveConsole):
    """A prompt of Python 3.11, which takes a line at a time; it fails where it would print a traceback."""

    def showtraceback(self) -> None:
        problem = sys.exc_info()[1]
        assert problem is not None
        raise problem

    def showsyntaxerror(self, filename: str | None = None, **_: Any) -> None:
        self.showtraceback()


def run(block: Block, page: str, known: dict[str, Any]) -> None:
    """Run a block with the names of those before it."""
    if ">>> " not in block.text:
        prompt = Prompt(known, page)
        waits = False
        for number, line in enumerate(block.text.splitlines(), block.line + 1):
            _, shows, expected = line.partition("  # → ")
            with contextlib.redirect_stdout(io.StringIO()) as shown:
                waits = prompt.push(line)
            assert not shows or shown.getvalue() == f"{expected}\n", f"{page}, line {number}: {shown.getvalue()}"
        assert not waits, f"{page}, line {block.line}: the prompt waits for the end of a block"
        return
    session = doctest.DocTestParser().get_doctest(block.text, known, page, str(ROOT / page), block.line)
    for typed in re.findall(r"^>>> .*(?:\n\.\.\..*)*", block.text, re.MULTILINE):
        typed = re.sub(r"^(?:>>>|\.\.\.) ?", "", typed, flags=re.MULTILINE)
        assert codeop.compile_command(typed), f"{page}: a prompt waits for an empty line, `...`, after\n{typed}"
    runner = doctest.DebugRunner(optionflags=_FLAGS)
    try:
        runner.run(session, clear_globs=False)
    except doctest.DocTestFailure as failure:
        example = failure.example
        pytest.fail(
            f"{page}, line {block.line + example.lineno + 1}: {example.source}"
            f"expected:\n{example.want}got:\n{failure.got}",
            pytrace=False,
        )
    except doctest.UnexpectedException as failure:
        problem = failure.exc_info[1]
        if isinstance(problem, ImportError) or "PostgreSQL is not installed" in str(problem):
            pytest.skip(f"{page}: {problem}")
        raise failure.exc_info[1] from None
    known.update(session.globs)


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    folder = tempfile.TemporaryDirectory(prefix="page-")  # a short name: a tree that is drawn shows it
    monkeypatch.chdir(folder.name)
    names: dict[str, Any] = {"__name__": "page"}
    if request.node.name.endswith("many-machines.md]"):
        pytest.importorskip("psycopg")
        if find_programs() is None:
            pytest.skip("PostgreSQL is not installed (no initdb): apt-get install postgresql")
        names["server"] = server = OwnServer()
        names["dsn"] = server.dsn
    yield names
    for left_open in names.values():
        close = getattr(left_open, "Close", None) or getattr(left_open, "close", None)
        if callable(close) and not isinstance(left_open, type):
            close()
    monkeypatch.undo()
    folder.cleanup()


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)])
def test_every_line_of_python_on_a_page_runs(page: str, known: dict[str, Any]) -> None:
    for block in blocks(page):  # the adapters' sections have readers of their own, who begin there
        run(block, page, {"__name__": "page"} if page.endswith("adapters.md") else known)


def without_code(page: str) -> str:
    return re.sub(r"^```.*?^```", "", read(page), flags=re.DOTALL | re.MULTILINE)


def anchors(page: str) -> set[str]:
    """Return the anchors that GitHub makes of a page's headings."""
    titles = re.findall(r"^#+ (.+)", without_code(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


class TestRecipe:
    """The recipe for an agent finds what it stores, and says so where it knows nothing."""

    FACTS = (
        ("Anna is allergic to peanuts.", ["Anna"]),
        ("Our dog is called Biscuit, and he is afraid of fireworks.", ["Biscuit"]),
        ("Tom drinks his Longjing tea without sugar.", ["Tom"]),
        ("小雨对花生过敏。", ["小雨"]),
        ("外婆住在绵阳，爱吃回锅肉。", ["外婆"]),
    )
    QUESTIONS = (
        ("who is allergic to peanuts?", "Anna"),
        ("what is the dog called?", "Biscuit"),
        ("what is Biscuit afraid of?", "fireworks"),
        ("does Tom take sugar in his tea?", "without sugar"),
        ("谁对花生过敏？", "小雨"),
        ("外婆住在哪里？", "绵阳"),
        ("外婆爱吃什么？", "回锅肉"),
    )
    NOTHING = ("what time is it?", "现在几点了？", "whatever", "who won the world cup in 1998?", "明天会下雨吗？")

    @pytest.mark.parametrize("page", READMES)
    def test_seven_questions_about_five_facts_are_answered_and_others_are_not(
        self, page: str, known: dict[str, Any]
    ) -> None:
        recipe = next(block for block in blocks(page) if "def recall" in block.text)
        run(recipe, page, known)
        nothing = known["recall"]("nothing was stored yet")
        for fact, about in self.FACTS:
            known["remember"](fact, about)

        for question, answer in self.QUESTIONS:
            first = known["recall"](question).splitlines()[0]
            assert answer in first, question
        answers = {question: known["recall"](question) for question in self.NOTHING}
        assert answers == dict.fromkeys(self.NOTHING, nothing)


class TestPages:
    @pytest.mark.parametrize("page", [*PAGES, "Agent/KeywordTreeDesign.md"])
    def test_links_lead_somewhere(self, page: str) -> None:
        text = without_code(page)
        targets = re.findall(r"\]\(([^)\s]+)", text) + re.findall(r'(?:srcset|src)="([^"]+)"', text)
        for target in targets:
            name, _, section = target.partition("#")
            path = (ROOT / page).parent.joinpath(name).resolve() if name else ROOT / page
            assert target.startswith("https://") or path.exists(), target
            if section:
                assert section in anchors(path.relative_to(ROOT).as_posix()), target

    @pytest.mark.parametrize("page", READMES)
    def test_the_first_screen_has_a_session_a_picture_and_the_commands(self, page: str) -> None:
        head = "\n".join(read(page).splitlines()[:35])

        for wanted in ("from keyword_tree import", "docs/pictures/terminal", "pip install .", "make demo"):
            assert wanted in head, wanted

    def test_both_languages_have_the_same_sections_and_blocks(self) -> None:
        ours, theirs = map(read, READMES)

        assert re.findall(r"^#+ |^```\w*", ours, re.MULTILINE) == re.findall(r"^#+ |^```\w*", theirs, re.MULTILINE)

    @pytest.mark.parametrize("page", READMES)
    def test_the_table_of_installing_has_every_extra(self, page: str) -> None:
        project = tomllib.loads(read("pyproject.toml"))["project"]

        assert [name for name in project["optional-dependencies"] if f"`'.[{name}]'`" not in read(page)] == []

    @pytest.mark.parametrize("page", READMES)
    def test_the_doors_are_imported_from_the_package(self, page: str) -> None:
        rows = re.findall(r"^\| [^|]+ \| ([^|]+) \| \[", read(page), re.MULTILINE)
        names = {name for row in rows for name in re.findall(r"`(\w+)(?:`|\()", row) if name != "knowhub"}

        assert {"MemoryStore", "AsyncMemoryStore", "KeywordTree", "open_tree"} == names
        assert [name for name in names if not hasattr(importlib.import_module("keyword_tree"), name)] == []

    @pytest.mark.parametrize("folder", ["docs", "docs/zh"])
    def test_the_index_names_every_page(self, folder: str) -> None:
        index = read(f"{folder}/README.md")
        pages = [page for page in PAGES if Path(page).parent == Path(folder)]

        assert [page for page in pages if f"({Path(page).name})" not in index and not page.endswith("README.md")] == []
        assert "(zh/README.md)" in read("docs/README.md")

    @pytest.mark.parametrize("page", CHINESE)
    def test_a_chinese_page_says_what_the_english_one_lists(self, page: str) -> None:
        if page.endswith("README.md"):
            return  # an index of its own
        english, chinese = read(f"docs/{Path(page).name}"), read(page)
        rows = re.findall(r"^\| (`[^|]+) \|", english, re.MULTILINE)
        codes = {code for row in rows for code in re.findall(r"`([^`]+)`", row)}

        assert sorted(code for code in codes if f"`{code}" not in chinese) == []
        if not page.endswith("reference.md"):  # which lists the names in English, on the English page
            parts = [re.findall(r"^#+ |^```\w*", text, re.MULTILINE) for text in (english, chinese)]
            assert parts[0] == parts[1]

    @pytest.mark.parametrize("page", ["docs/search.md", "docs/zh/search.md"])
    def test_the_reasons_of_a_search_are_all_explained(self, page: str) -> None:
        from Agent.cli.looking import REASONS

        for reason in REASONS:
            assert f"`{reason}`" in read(page), reason


@pytest.mark.parametrize("page", ["docs/operating.md", "docs/zh/operating.md"])
def test_every_environment_variable_of_the_programs_stands_on_the_page(page: str) -> None:
    skipped = re.compile(r"/tests/|/test_keyword_tree\.py")
    sources = [path for path in (ROOT / "Agent").rglob("*.py") if not skipped.search(path.relative_to(ROOT).as_posix())]
    found = {
        name
        for path in sources
        for name in re.findall(r'"((?:KEYWORD_TREE|KNOWHUB)_[A-Z_]*[A-Z])"', path.read_text(encoding="utf-8"))
    }
    internal = {"KNOWHUB_SERVE", "KEYWORD_TREE_SCREENS"}

    assert len(found) > 8
    assert [name for name in sorted(found - internal) if f"`{name}`" not in read(page)] == []
