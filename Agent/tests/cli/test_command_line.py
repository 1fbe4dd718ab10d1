"""Tests of `keyword-tree`, on real stores.

Each command runs as the installed program, in a process of its own, and so does whatever is about processes: signals,
terminals, pipes, encodings. What else the commands answer is asked of `main` in this process, which costs a tenth.
"""

import ast
import contextlib
import csv
import ctypes
import doctest
import html
import importlib.metadata
import io
import json
import os
import pty
import re
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.request import urlopen

import pytest

from Agent.cli import command_line
from Agent.keyword_tree import KeywordNode, KeywordTree

pytest.importorskip("click", reason="the extra [cli] is not installed")
pytest.importorskip("rich", reason="the extra [cli] is not installed")

import click
from rich.cells import cell_len

from Agent.base import language
from Agent.cli.looking import LEXICAL_REASONS, REASONS
from Agent.cli.program import SECTIONS, Group
from Agent.cli.program import program as group
from Agent.cli.session import Session
from Agent.memory import MemoryStore
from Agent.tests.support import inside

ROOT = Path(__file__).resolve().parents[3]
READMES = ("README.md", "README.zh-CN.md")
SCRIPT = Path(sys.executable).with_name("keyword-tree")
PROGRAM = [str(SCRIPT)] if SCRIPT.exists() else [sys.executable, "-m", "Agent.cli.command_line"]
"""Where the project is not installed, the module that the program is made of."""

NAMED = (
    *("KEYWORD_TREE_DATA", "KEYWORD_TREE_MODEL", "OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY"),
    *("COLUMNS", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"),
    *("KEYWORD_TREE_LANG", "LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG"),
)
PLAIN = {key: value for key, value in os.environ.items() if key not in NAMED}
ENVIRONMENT = {**PLAIN, "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1", "TZ": "UTC"}

HOSTILE = "esc\x1b[2Jape\u202etxt\nnext [red]x[/red] :smile: \x9b31m"


class Program:
    """The program, run on one folder."""

    def __init__(self, data: Path) -> None:
        self.data = data

    def run(self, *arguments: str, code: int | None = 0, said: str = "", **environment: str) -> str:
        """Run a command, look at its exit code (None allows any), and return what it wrote, errors where it failed."""
        out, errors = (io.TextIOWrapper(io.BytesIO(), "utf-8", newline="", write_through=True) for _ in range(2))
        home = str(self.data.parent / "home")  # what the user of this machine keeps there is not looked at
        named = {**ENVIRONMENT, "KEYWORD_TREE_DATA": str(self.data), "XDG_DATA_HOME": home, **environment}
        with (
            mock.patch.dict(os.environ, named, clear=True),
            mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(said.encode()), "utf-8")),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(errors),
            contextlib.chdir(self.data.parent),
        ):
            ended = command_line.main(list(arguments))
        wrote, complained = (stream.buffer.getvalue().decode() for stream in (out, errors))
        assert ended == code or code is None, wrote + complained
        return str(wrote if code == 0 else wrote + complained)

    def start(self, *arguments: str, code: int = 0, said: bytes = b"", **environment: str) -> str:
        """Do the same with the installed program."""
        done = subprocess.run(
            [*PROGRAM, *arguments],
            env={**ENVIRONMENT, "KEYWORD_TREE_DATA": str(self.data), **environment},
            input=said,
            capture_output=True,
            cwd=self.data.parent,
            timeout=60,
        )
        wrote, complained = done.stdout.decode(), done.stderr.decode()
        assert done.returncode == code, wrote + complained
        assert "Traceback" not in complained
        return wrote if code == 0 else wrote + complained

    def ask(self, *arguments: str, code: int = 0) -> Any:
        """Run a command with --json, and return what it answered."""
        return json.loads(self.run(*arguments, "--json", code=code))

    def look(self, *arguments: str, columns: int = 80, lines: int = 30, **more: str) -> str:
        """Run a command in a terminal, and return what it sent there."""
        ours, theirs = pty.openpty()
        environment = {**ENVIRONMENT, "KEYWORD_TREE_DATA": str(self.data), "TERM": "xterm", **more}
        environment |= {"COLUMNS": str(columns), "LINES": str(lines)}
        with subprocess.Popen([*PROGRAM, *arguments], env=environment, stdout=theirs, stderr=theirs):
            os.close(theirs)
            seen = b""
            while True:
                try:
                    part = os.read(ours, 65_536)
                except OSError:  # how Linux says that the other end is closed
                    break
                if not part:
                    break
                seen += part
        os.close(ours)
        return seen.decode()

    def keyword(self, path: str) -> KeywordNode | None:
        """Return what the store holds under a path."""
        with KeywordTree(str(self.data)) as tree:
            return tree.Search(path, llm_expand_query=False).node

    def count(self, what: str) -> int:
        """Return how many `keywords` or `infos` the store holds."""
        with KeywordTree(str(self.data)) as tree:
            return int(tree.TreeMetrics()[what])

    def infos(self, path: str) -> list[str]:
        """Return the contents on a keyword."""
        with KeywordTree(str(self.data)) as tree:
            return [info.content for info in tree.Search(path, llm_expand_query=False).infos]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built") / "memory"
    with KeywordTree(str(folder)) as tree:
        programming = tree.CreateKeyword("编程", "root", ["programming"])
        python = tree.CreateKeyword("Python", programming.id, ["CPython"], "A language.")
        tree.CreateKeyword("C#", programming.id)
        kitchen = tree.CreateKeyword("kitchen", "root")
        tree.CreateKeyword("open", python.id)
        tree.CreateKeyword("open", kitchen.id)
        specs = [
            {"id": "gil", "content": "PEP 703 makes the GIL optional.", "source": "peps.python.org"},
            {"id": "tea", "content": "Tea first, milk second.", "source": ""},
        ]
        for spec, keyword in zip(specs, (python, kitchen), strict=True):
            tree.BatchCreateInfos([{**spec, "keyword_ids": [keyword.id]}])
    return folder


@pytest.fixture
def program(built: Path, tmp_path: Path) -> Program:
    shutil.copytree(built, tmp_path / "memory")
    return Program(tmp_path / "memory")


EVERYTHING = ("show", "--depth", "0", "--infos", "--ids")


@pytest.fixture(scope="module")
def shown(built: Path) -> str:
    """What `show` says of all that a memory holds."""
    return Program(built).run(*EVERYTHING)


def every_command(of: Group = group) -> dict[str, click.Command]:
    """Return a group's commands, and theirs, by the words that call them."""
    context, found = click.Context(of, help_option_names=["-h", "--help"]), dict[str, click.Command]()
    for name in of.list_commands(context):
        found[name] = command = of.get_command(context, name) or of
        if isinstance(command, Group):
            found |= {f"{name} {word}": one for word, one in every_command(command).items()}
    return found


def texts_of_the_source() -> set[str]:
    """Return what the modules of the program say to people, and the help of their options."""
    said: set[str] = set()
    others = ("knowhub/commands.py", "context_engine/retrieval/__init__.py")
    for path in [*(ROOT / "Agent/cli").glob("*.py"), *(ROOT / "Agent" / each for each in others)]:
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(call, ast.Call):
                continue
            name = getattr(call.func, "id", getattr(call.func, "attr", ""))
            report = 1 if isinstance(call.func, ast.Name) else 3  # that of `Session.changing`, or its own
            place = {"say": 0, "changing": 0, "parts": 0, "report": report, "count_of": 1}.get(name, len(call.args))
            if place >= len(call.args):
                continue
            said |= {
                "# " * (name == "count_of") + part.value
                for part in ast.walk(call.args[place])
                if isinstance(part, ast.Constant) and isinstance(part.value, str) and part.value not in ("_", " ")
            }
    said_whole = language.catalogue()["texts"]  # some, with what stands after them in brackets
    said |= {"stored {0} on no keyword: keyword-tree link {0} KEYWORD"}  # passed by a name
    options = [one for command in every_command().values() for one in command.params if isinstance(one, click.Option)]
    said |= {one.help.partition("  [")[0] for one in options if one.help and one.help not in said_whole}
    return said | set(REASONS.values()) | set(LEXICAL_REASONS.values()) | set(SECTIONS)


IN_TURN = [
    ("add", ["Rust", "--parent", "编程"], "added 编程 / Rust  (undo "),
    ("info", ["No garbage collector.", "--to", "Rust"], "stored "),
    ("link", ["tea", "Rust", "--relation", "example"], "linked to 编程 / Rust  (undo "),
    ("import", ["table.csv"], "new: 2 keywords, 1 info, 1 link  "),
    ("search", ["programming/rust"], "编程 / Rust  (exact path)"),
    ("ask", ["does it collect garbage?"], "No garbage collector."),
    ("show", ["编程", "--infos"], "No garbage collector."),
    ("context", ["--data", "sessions", "--session", "monday", "commit", "monday.json"], "1 new message"),
    ("hub", ["--data", "hub", "import", "tea.jsonl"], "1 written"),
    ("export", ["rust.csv", "--from", "编程/Rust"], "1 keyword written to rust.csv as csv"),
    ("rename", ["Rust", "Rust 2024"], "renamed Rust to Rust 2024"),
    ("alias", ["Rust 2024", "Rust"], "has the aliases Rust"),
    ("confirm", ["the one with the crab", "Rust"], "the one with the crab means 编程 / Rust 2024"),
    ("move", ["Rust", "kitchen"], "moved Rust 2024 to kitchen"),
    ("merge", ["Rust", "C#"], "merged kitchen / Rust 2024 into 编程 / C#"),
    ("delete", ["茶", "--cascade"], "deleted 茶, with all under it  (undo "),
    ("history", ["--limit", "1"], "delete"),
    ("undo", [], "undone: "),
    ("redo", [], "redone: "),
    ("backup", ["copied"], "copied into copied"),
    ("verify", [], "all is well: 6 keywords"),
    ("compact", [], " bytes became "),
    ("repair", ["repaired"], ": 6 keywords"),
]


REFUSED = {
    2: [
        *("", "bogus", "--bogus", "add", "add x --bogus", "show --depth -1", "link tea", "info", "info ' '"),
        *("move 编程 Python", "merge C# C#", "delete /", "rename C#", "alias C# nope --remove", "confirm ' ' C#"),
        *("move / C#", "merge / C#", "rename / x", "confirm x /", "add ' ' --parent /", "alias C# ' '"),
        *(f"add {'x' * 600} --parent /", "show open", "link gil open"),
        *("search x --model some-model", "correct tea ' '"),
        *("import nope.csv", "import bad.json", "import other.json", "import bad.csv", "import bad.opml"),
        *("import bad.jsonl", "import a.csv --encoding klingon", "import a.csv --format html"),
        *("export a.xyz", "export no/such/folder.json", "export memory/change_log.jsonl"),
        *("undo 1", "compact --forget-history"),
        *("repair memory", "add kitchen", "add 编程/Python", "export a.csv"),
        *("context --data . prune --days -1", "context --data . prune --days 9"),
    ],
    1: [
        *("add x --parent nope", "info x --to nope", "link nope C#", "link tea nope"),
        *("forget nope", "correct nope x"),
        *("show nope", "rename nope x", "alias nope x", "confirm q nope", "move nope /", "merge nope C#"),
        *("delete nope", "history nope", "undo 999", "undo x", "import a.csv --parent nope"),
        "export a.json --from nope",
    ],
}
"""What is refused, by its exit code."""


def lay_out_files(program: Program) -> None:
    """Lay files beside a memory: what commands read, and some that are not what they are called."""
    for name, text in {
        "table.csv": "path,info\n茶/绿茶,Green tea.\n",
        "monday.json": '[{"role": "user", "content": "I like tea."}]',
        "tea.jsonl": json.dumps({"task": "make tea", "content": "Boil water.", "types": ["usecase"]}),
        "a.csv": "path\na\n",
        "bad.json": "{",
        "other.json": '{"a": 1}',
        "bad.csv": "x,y\n1,2\n",
        "bad.opml": "<opml",
        "bad.jsonl": "{}\n",
    }.items():
        (program.data.parent / name).write_text(text, encoding="utf-8")


OLDEST = Path(os.environ.get("KEYWORD_TREE_OLDEST_CLI", ROOT / ".venv" / "oldest-cli"))
"""Where `make test` puts the oldest click and rich that are allowed, beside those that are installed."""


class TestEveryCommand:
    @pytest.mark.skipif(not OLDEST.exists(), reason=f"no click 8.2 in {OLDEST}: `make test` puts it there")
    def test_runs_with_the_oldest_libraries_that_are_allowed(self, program: Program) -> None:
        script = "import click; from Agent.cli.command_line import main; print(click.__file__); main(['show'])"
        command = [sys.executable, "-c", script]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(OLDEST), str(ROOT)))}

        done = subprocess.run(command, cwd=program.data.parent, env=environment, capture_output=True, text=True)

        where, *_ = done.stdout.splitlines()
        assert where.startswith(str(OLDEST)), done.stderr
        assert "TypeError" not in done.stderr

    def test_says_what_it_did(self, program: Program) -> None:
        lay_out_files(program)
        for name, arguments, said in IN_TURN:
            assert said in program.run(name, *arguments), name

    def test_answers_programs_in_json(self, program: Program) -> None:
        lay_out_files(program)
        for name, arguments, _ in IN_TURN:
            assert isinstance(program.ask(name, *arguments), dict | list), name

    @pytest.mark.parametrize(("code", "line"), [(code, line) for code, lines in REFUSED.items() for line in lines])
    def test_says_what_is_wrong_in_json_and_in_chinese_with_its_code_and_changes_nothing(
        self, program: Program, shown: str, code: int, line: str
    ) -> None:
        lay_out_files(program)
        answer = json.loads(program.run(*shlex.split(line), "--json", code=code))

        assert answer["exit_code"] == code
        assert answer["message"]
        if line not in ("", "compact --forget-history"):  # without --json they ask
            assert re.search("错误.*：", program.run(*shlex.split(line), "--lang", "zh", code=code))
        assert program.run(*EVERYTHING) == shown

    def test_finds_no_store_in_an_empty_folder_and_makes_none(self, tmp_path: Path) -> None:
        nothing = Program(tmp_path / "none")
        lines = "show|view|search x|ask x|info x --to y|link a b|export x.json|rename a b"
        lines += "|forget x|correct x y|alias a b|confirm a b|move a b|merge a b|delete a|history|undo"
        lines += "|backup b|verify|compact|repair new"
        for line in lines.split("|"):
            assert nothing.ask(*shlex.split(line), code=2)["error"] == "NoStoreError"
        assert list(tmp_path.iterdir()) == []

    def test_is_used_badly_where_a_file_is_named_that_is_none_or_in_place_of_a_folder(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("x", "utf-8")
        program = Program(tmp_path / "new")
        for line in ("import none.json", "context commit none.json", "hub import none.jsonl", "mcp file"):
            program.run(*line.split(), code=2)
        for line in ("show", "remember x", "mcp", "verify", "repair y"):
            assert "/dev/null is no folder" in program.run(*line.split(), "--data", "/dev/null/x", code=2)
        for line in ("show", "hub doctor", "hub token list", "context status", "mcp"):
            program.run(*line.split(), "--data", "file", code=2)


class TestLanguage:
    def test_everything_that_is_said_has_its_chinese_with_the_same_places(self) -> None:
        for text in texts_of_the_source():
            assert text in language.catalogue()["texts"] or text in ("", " "), text
        for english, chinese in language.catalogue()["texts"].items():
            there, here = (re.findall(r"\{\w*", text) for text in (english, chinese))
            assert set(here) <= set(there), english  # click names more than a Chinese sentence needs
            assert here.count("{") == there.count("{"), english

    def test_every_page_of_help_is_shown_in_both_languages(self, program: Program) -> None:
        examples = 0
        for name, command in {"": group, **every_command()}.items():
            lines = (command.help or "").splitlines()
            typed = sum(line.lstrip("\b ").startswith("keyword-tree ") for line in lines)
            examples += typed
            english, said = (program.run(*name.split(), "--help", "--lang", one) for one in language.LANGUAGES)
            shown = [one for one in said.splitlines()[1:] if one.split()[:1] not in ([], ["keyword-tree"])]

            assert english.startswith(f"Usage: keyword-tree {name}".rstrip()), name
            assert said.startswith("用法："), name
            assert [one.count("\n  keyword-tree ") for one in (english, said)] == [typed] * 2, name
            assert "\b" not in english + said
            places = [re.match(r"  -.{0,26}?  +(?=\S)", one) for one in shown]
            assert len({cell_len(place[0]) for place in places if place}) == 1, said
            assert [one for one in shown if re.search("  [A-Z][a-z]+:? [a-z]+|[a-z]{3,}( [a-z]{2,}){2}", one)] == []
        assert examples >= 8
        assert name in language.catalogue()["commands"]
        assert "（delete）" in program.run("delete", "--help", KEYWORD_TREE_LANG="zh")  # no word is broken

    @pytest.mark.parametrize(
        ("environment", "is_chinese"),
        [
            ({"LANG": "zh_CN.UTF-8"}, True),
            ({"LC_ALL": "zh_TW.UTF-8", "LANG": "en_US.UTF-8"}, True),
            ({"LC_ALL": "C.UTF-8", "LANG": "zh_CN.UTF-8"}, False),
            ({"LANG": "de_DE.UTF-8"}, False),
            ({"KEYWORD_TREE_LANG": "en", "LANG": "zh_CN.UTF-8"}, False),
            ({}, False),
        ],
    )
    def test_speaks_the_language_of_the_locale(
        self, program: Program, environment: dict[str, str], is_chinese: bool
    ) -> None:
        with mock.patch.dict(ENVIRONMENT, environment):
            said = program.run("move", "C#", "kitchen")

        assert said.startswith("已把 C# 移到 kitchen  （undo " if is_chinese else "moved C# to kitchen  (undo ")

    def test_the_option_comes_before_the_locale_at_either_place(self, program: Program) -> None:
        for line in ("--lang zh show nope", "show nope --lang zh"):
            assert "没有名字、路径或 id" in program.run(*line.split(), code=1, LANG="en_US.UTF-8")

    def test_what_is_typed_wrongly_is_said_in_chinese(self, program: Program) -> None:
        for line, said in {
            "bogus": "错误：没有这个命令：bogus\n",
            "move Python kitchen --nowhere": "错误：没有这个选项：--nowhere\n",
            "move Python": "错误：缺少参数“上级”\n",
            "move Python kitchen again": "错误：多余的参数：again",
            "show --limit": "错误：选项 --limit 需要一个值\n",
            "show --infos=2": "错误：选项 --infos 不带值\n",
            "show --limit x": "错误：“--limit”的值不对：“x”不是有效的数\n",
            "show --limit -1": "错误：“--limit”的值不对：-1 超出范围，应为 ≥ 0\n",
            "show --lang fr": "错误：“--lang”的值不对：“fr”不行，可用的是“en”、“zh”\n",
            "import none.json": "错误：“路径”的值不对：“none.json”不存在\n",
            "context --data . prune": "错误：缺少选项“--days”",
            "context --data . prune --days -1": "-1.0 超出范围，应为 ≥ 0\n",
            "hub key": "错误：缺少参数“{rotate|path}”，可用的是：rotate, path\n",
            "hub serve --tls-cert none.pem": "错误：“--tls-cert”的值不对：“none.pem”不存在\n",
            "compact --forget-history": "继续吗？ [y/N]: 错误：输入不对\n",
        }.items():
            lay_out_files(program)
            assert said in program.run(*shlex.split(line), code=2, said="乱\n", KEYWORD_TREE_LANG="zh")

    def test_an_error_of_the_library_is_english_within_chinese_and_json_keeps_its_keys(self, program: Program) -> None:
        said = program.run("link", "nope", "C#", "--lang", "zh", code=1)
        lay_out_files(program)
        assert program.run("import", "bad.json", "--lang", "zh", code=2).startswith("错误（不能执行）：bad.json: ")
        answer = json.loads(program.run("show", "nope", "--json", code=1, KEYWORD_TREE_LANG="zh"))

        assert said == "错误（没有找到）：no info has the id 'nope'\n"
        assert (answer["error"], answer["exit_code"]) == ("UnknownNameError", 1)


class TestProgram:
    def test_says_what_its_documentation_shows(self, tmp_path: Path) -> None:
        pages = [*READMES, "docs/command-line.md", "docs/zh/command-line.md"]
        texts = [command_line.__doc__ or "", *((ROOT / name).read_text(encoding="utf-8") for name in pages)]
        # A session is indented in a docstring, and fenced in a README; where it has "...", anything may be.
        sessions = {
            textwrap.dedent(block)
            for text in texts
            for block in re.findall(
                r"(?:^```console\n|\n\n)([ ]*\$ keyword-tree .*?)(?:^```|\n\n)", text, re.DOTALL | re.M
            )
        }

        assert sessions
        for number, session in enumerate(sorted(sessions)):
            (tmp_path / str(number)).mkdir()
            fresh = Program(tmp_path / str(number) / "fresh")
            for one in session.split("$ keyword-tree ")[1:]:
                words, _, said = one.partition("\n")
                seen = fresh.run(*shlex.split(words), KEYWORD_TREE_LANG="zh" if "已添加" in session else "en")
                assert doctest.OutputChecker().check_output(
                    f"{said.strip()}\n", f"{seen.strip()}\n", doctest.ELLIPSIS
                ), one

    @pytest.mark.parametrize("name", ["terminal", "terminal.zh-CN"])
    def test_says_what_the_picture_of_the_readme_shows(self, tmp_path: Path, name: str) -> None:
        drawn = (ROOT / "docs" / "pictures" / f"{name}.svg").read_text(encoding="utf-8")
        texts = (re.findall(">([^<>]+)</text>", row) for row in drawn.splitlines() if row.startswith("<g "))
        lines = [html.unescape("".join(parts)) for parts in texts]
        fresh, said = Program(tmp_path / "memory"), list[str]()
        for typed in (shown for shown in lines if shown.startswith("$ ")):
            words = shlex.split(typed)[2:]
            said += [typed, *fresh.run(*words, KEYWORD_TREE_LANG="zh" if name.endswith("CN") else "en").splitlines()]

        bare_said, bare_lines = ([re.sub(r"\s|[0-9a-f-]{36}", "", one) for one in many] for many in (said, lines))
        assert bare_said == bare_lines  # else: python -m benchmarks.pictures

    @pytest.mark.parametrize("page", ["docs/extending.md", "docs/zh/extending.md"])
    def test_what_the_page_on_extending_shows_works(self, tmp_path: Path, page: str) -> None:
        text = (ROOT / page).read_text(encoding="utf-8")
        of_command, of_format, of_adapter = re.findall(r"^```py\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        (tmp_path / "pairs.py").write_text(of_format, encoding="utf-8")
        script = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
import pairs
from Agent import formats
sys.modules["Agent.formats.pairs"] = pairs
formats._FORMATS["pairs"] = formats._Format("pairs", (".pairs",))
{of_command}
{of_adapter}
from Agent.cli.command_line import main
for words in (["remember", "Tea first.", "--keyword", "drinks/tea"], ["export", "a.pairs"], ["count"]):
    assert main(words) == 0
assert main(["--data", "copy", "import", "a.pairs"]) == main(["--data", "copy", "recall", "tea?"]) == 0
open("bad.pairs", "w").write("no JSON")
assert main(["import", "bad.pairs"]) == 2
notebook = Notebook("notes", "ada")
notebook.save("Milk second.", "drinks")
assert notebook.load("what comes second?") == ["Milk second."]
"""
        done = subprocess.run(
            [sys.executable, "-c", script],
            env={**ENVIRONMENT, "KEYWORD_TREE_DATA": "memory"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )

        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[2] == "2"
        assert "new: 2 keywords, 1 info, 1 link" in done.stdout

    def test_help_names_every_command_in_its_section(self, program: Program) -> None:
        said = program.start("--help")

        assert all(f"\n  {name} " in said for name in every_command() if " " not in name)
        assert "..." not in said.partition("Write:")[2]  # no sentence is cut

    def test_the_folder_is_an_option_before_and_after_the_command(self, program: Program, tmp_path: Path) -> None:
        elsewhere = str(tmp_path / "elsewhere")

        program.run("--data", elsewhere, "add", "茶", "--parent", "/")

        assert "茶" in program.run("show", "--data", elsewhere)
        assert program.keyword("茶") is None

    def test_who_stops_reading_gets_no_complaint(self, program: Program) -> None:
        reading, writing = os.pipe()
        with subprocess.Popen(
            [*PROGRAM, "show", "--data", str(program.data)], env=ENVIRONMENT, stdout=writing, stderr=subprocess.PIPE
        ) as process:
            os.close(writing)
            os.close(reading)
            assert process.stderr is not None
            assert process.stderr.read() == b""
        assert process.returncode == 141

    def test_needs_no_stream_but_those_it_uses(self, program: Program) -> None:
        for closed, command in (("<&-", "verify"), (">&-", "remember -"), ("2>&-", "remember -")):
            line = f"{shlex.join(PROGRAM)} {command} {closed}"
            done = subprocess.run(
                ["/bin/bash", "-c", line],
                env={**ENVIRONMENT, "KEYWORD_TREE_DATA": str(program.data)},
                input=b"said",
                capture_output=True,
            )

            assert (done.returncode, done.stderr) == (0, b""), closed

    @pytest.mark.parametrize(
        ("package", "call", "locale", "said"),
        [
            ("click", "main([])", "zh_CN", "keyword-tree 需要 click 和 rich：在项目目录里 pip install '.[cli]'\n"),
            ("rich", "main(['show'])", "C", "pip install '.[cli]' in its repository\n"),
            ("yaml", "main(['import', 'notes'])", "C", "pip install '.[formats]' in its repository\n"),
            ("cryptography", "hub(['doctor'])", "C", "pip install '.[knowhub]' in its repository\n"),
            ("psycopg", "main(['shared', 'list'])", "C", "pip install '.[postgres]' in its repository\n"),
            ("mcp", "mcp(['memory'])", "C", "pip install '.[mcp]' in its repository\n"),
            ("click", "mcp(['memory'])", "C", "click and rich: pip install '.[mcp]' in its repository\n"),
            ("click", "hub(['doctor'])", "C", "pip install '.[knowhub]' in its repository\n"),
        ],
    )
    def test_without_its_extra_it_says_what_to_install(
        self, tmp_path: Path, package: str, call: str, locale: str, said: str
    ) -> None:
        (tmp_path / "notes").mkdir()
        code = f"import sys; sys.modules['{package}'] = None; import Agent.cli.command_line as program; "
        code += f"sys.exit(program.{call})"
        environment = {**ENVIRONMENT, "LANG": f"{locale}.UTF-8"}
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, cwd=tmp_path
        )

        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert done.stderr.endswith(said)

    def test_imports_a_model_only_where_one_is_asked(self, program: Program) -> None:
        code = "import sys, Agent.cli.command_line as program; program.main(['show']); "
        code += "print('Agent.models.model_clients' in sys.modules)"
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**ENVIRONMENT, "KEYWORD_TREE_DATA": str(program.data)},
            capture_output=True,
            text=True,
        )

        assert done.stdout.splitlines()[-1] == "False"

    def test_a_model_named_in_the_environment_without_a_service_is_passed_over(self, program: Program) -> None:
        assert "编程 / Python" in program.run("search", "Python", KEYWORD_TREE_MODEL="some-model")


class TestNewcomer:
    def test_shows_its_version(self, program: Program) -> None:
        assert program.start("--version") == f"keyword-tree {importlib.metadata.version('keyword-tree-memory')}\n"

    @pytest.mark.parametrize(("typed", "meant"), [("serach", "search"), ("histroy", "history"), ("ad", "add")])
    def test_a_mistyped_command_is_answered_with_what_is_spelled_alike(
        self, program: Program, typed: str, meant: str
    ) -> None:
        english, chinese = (program.run(typed, code=2, KEYWORD_TREE_LANG=one) for one in ("en", "zh"))
        assert re.search(f"No such command '{typed}'.*[Dd]id you mean.*{meant}", english)
        assert re.search(f"没有这个命令：{typed}。是不是.*{meant}", chinese)

    def test_an_export_onto_what_is_in_use_names_it(self, program: Program, tmp_path: Path) -> None:
        (tmp_path / "a.json").mkdir()
        (tmp_path / "link.json").symlink_to("nowhere")
        os.mkfifo(tmp_path / "pipe.json")

        for special in ("a.json", "link.json", "pipe.json"):
            said = program.run("export", special, "--force", code=2)
            assert f"'{special}' is a folder, a link, a device or a pipe" in said
        assert "'a.json' is a folder" in program.run("import", "a.json", code=2)
        assert "there is no folder 'none'" in program.run("export", "none/a.html", code=2)
        assert {path.name for path in tmp_path.iterdir()} == {"memory", "a.json", "link.json", "pipe.json"}

    @pytest.mark.parametrize(
        ("refused", "code", "said"),
        [
            ("import bad.json", 2, "no JSON"),
            ("import notes", 2, "there is nothing to import in notes"),
            ("add ''", 2, "1 to 512"),
            ("add a --parent b", 1, "'b'"),
            ("remember ''", 2, "blank"),
        ],
    )
    def test_what_is_refused_makes_no_memory(
        self, program: Program, tmp_path: Path, refused: str, code: int, said: str
    ) -> None:
        (tmp_path / "bad.json").write_text("{")
        (tmp_path / "notes" / "drawings").mkdir(parents=True)

        assert said in program.run("--data", "new/one", "--user", "ada", *shlex.split(refused), code=code)
        assert not (tmp_path / "new").exists()


class TestGroups:
    def test_json_is_an_option_of_what_answers_in_json(self, program: Program) -> None:
        assert "--json" in program.run("hub", "audit", "--help")
        assert "--json" not in program.run("hub", "serve", "--help") + program.run("mcp", "--help")

    def test_a_group_without_a_command_shows_its_help_and_no_error(self, program: Program) -> None:
        said = program.run("context", code=2)

        assert said.startswith("Usage: keyword-tree context ")
        assert (said.count("Usage: "), "Error" in said) == (1, False)

    def test_is_a_program_of_its_own_with_the_same_short_option(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert command_line.hub(["-h"]) == 0
        assert "knowhub" in capsys.readouterr().out

    def test_a_mistyped_one_and_a_wrong_value_are_refused_as_ours_are(self, program: Program) -> None:
        assert "No such command 'sreve'. Did you mean 'serve'?" in program.run("hub", "sreve", code=2)
        said = json.loads(program.run("--json", "hub", "doctor", code=2))["message"]
        assert said == "keyword-tree hub doctor has no answer in JSON"

    def test_options_of_a_group_count_after_its_commands_too(self, program: Program) -> None:
        remember = ["context", "--user", "ada", "--data", "sessions", "remember", "tea"]
        for last, user in (([], "ada"), (["--user", "bob"], "bob")):
            assert f"/users/{user}/" in program.run(*remember, *last)
        context = ["context", "--user", "ada", "--data", "sessions"]
        assert program.run(*context, "brief") == "- tea: tea\n"
        assert program.run(*context, "history", "memories/preferences/tea").endswith("  created  ada/cli\n")

    def test_what_takes_long_is_said_where_no_terminal_is(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr("Agent.cli.session.LATE_S", 0.01)
        with Session().waiting("reading …"):
            time.sleep(0.3)
        assert capsys.readouterr().err == "reading …\n"

    def test_what_a_help_does_not_show_is_neither_accepted_nor_proposed(self, program: Program) -> None:
        for typed in ("--model", "--name", "--meaning"):
            for words in (["context", "remember", "tea"], ["show"]):
                said = program.run(*words, typed, "x", code=2)
                assert "No such option" in said
                assert not re.search("mean .*--(model|meaning)", said), said

    def test_trees_on_a_server_are_named_by_the_address_of_data(self, program: Program) -> None:
        address = "postgresql://127.0.0.1:1/none#tree"
        said = program.ask("shared", "--patience", "0.1", "list", "--data", address, code=3)

        assert said["exit_code"] == 3
        assert "Connection refused" in said["message"]


class TestAdd:
    def test_makes_a_keyword_where_asked(self, program: Program) -> None:
        said = program.run("add", "asyncio", "--parent", "编程/Python", "--alias", "aio", "--description", "loops")

        node = program.keyword("programming > python > aio")
        assert node is not None
        assert (node.name, node.description) == ("asyncio", "loops")
        assert said.startswith("added 编程 / Python / asyncio  (undo ")

    def test_begins_a_memory_and_lets_the_client_choose_the_place(self, tmp_path: Path) -> None:
        fresh = Program(tmp_path / "fresh")

        fresh.run("add", "python library", "--parent", "/")
        answer = fresh.ask("add", "asynchronous python library")

        assert answer["keyword"]["path"] == ["python library", "asynchronous python library"]

    def test_says_where_another_one_of_the_name_is(self, program: Program) -> None:
        said = program.run("add", "Python", "--parent", "/")

        assert said.splitlines()[1:] == ["another one of this name is at 编程 / Python"]
        assert "another one" not in program.run("rename", "kitchen", "galley") + program.run(
            "rename", "galley", "Galley"
        )
        assert program.run("rename", "Galley", "python").splitlines()[1:] == [
            "another one of this name is at 编程 / Python, Python"
        ]

    def test_a_path_makes_what_is_missing_and_begins_at_the_root_where_it_is_said_so(self, program: Program) -> None:
        program.run("add", "kitchen/coffee/latte")
        program.run("add", "/coffee")
        program.run("add", "AC/DC", "--parent", "/")

        for path, place in {"kitchen/coffee/latte": 3, "/coffee": 1, "/kitchen/coffee": 2, "AC/DC": 1}.items():
            [row] = program.ask("show", path, "--depth", "1")[:1]
            assert row["level"] == place, path
        assert "by id or path" in program.run("show", "coffee", code=2)
        assert "coffee is there already: --parent creates another one" in program.run("add", "coffee", code=2)
        assert "kitchen / coffee is there already" in program.run("add", "coffee", "--parent", "kitchen", code=2)

    def test_names_the_command_that_creates_what_is_missing(self, program: Program) -> None:
        said = program.run("info", "rises in an hour", "--to", "sour dough", code=1)

        assert said.splitlines()[-1] == "next: keyword-tree add 'sour dough'"
        assert "next: " not in program.run("show", "sour dough", code=1)

    @pytest.mark.parametrize(
        ("typed", "chosen", "name"),
        [
            (b"\n", 0, "Rust code"),
            (b"\n", 3, "zebra book dress"),
            (b"9\n2\n", 1, "Rust code"),
            (b"\x04", None, "Rust code"),
        ],
    )
    def test_offers_three_places_on_a_terminal(
        self, program: Program, typed: bytes, chosen: int | None, name: str
    ) -> None:
        for path in ("编程/Go code", "编程/Java code", "kitchen/code books", "编程/C#/dress code"):
            program.run("add", path)
        ours, theirs = pty.openpty()
        os.write(ours, typed)
        command = [*PROGRAM, "add", name, "--data", str(program.data)]
        done = subprocess.run(command, env=ENVIRONMENT, stdin=theirs, capture_output=True, text=True, timeout=60)
        os.close(ours)
        os.close(theirs)
        offered = re.findall(r"^(\d)  (.+?)(?:  0\.\d\d)?$", done.stderr, re.MULTILINE)

        assert [number for number, _ in offered] == ["1", "2", "3", "4"]
        assert offered[3][1] == "/"
        if chosen is None:
            assert (done.returncode, done.stdout, program.keyword("Rust code")) == (2, "", None)
        else:
            place = f"{offered[chosen][1]} / ".removeprefix("/ / ")
            assert done.stdout.startswith(f"added {place}{name}  (undo ")

    def test_takes_the_best_place_where_that_is_said(self, program: Program) -> None:
        for name in ("Go code", "Java code", "Ada code"):
            program.run("add", name, "--parent", "编程")

        assert program.ask("add", "Rust code", "--yes")["keyword"]["path"] == ["编程", "Rust code"]

    def test_says_that_no_keyword_fits(self, program: Program) -> None:
        said = program.run("add", "Longjing")

        assert said.startswith("added Longjing, at the top: no keyword fits it  (undo ")
        assert program.run("add", "milk", "--parent", "/").startswith("added milk  (undo ")

    def test_refuses_an_unknown_parent_and_offers_what_is_near(self, program: Program) -> None:
        answer = program.ask("add", "x", "--parent", "Pythn", code=1)

        assert "编程 / Python" in [place["path"] for place in answer["candidates"]]
        assert program.keyword("x") is None


class TestInfo:
    def test_stores_standard_input_on_keywords(self, program: Program) -> None:
        said = program.start("info", "-", "--to", "C#", "--to", "Python", "--source", "me", said="一\r\ntwo\n".encode())

        assert program.infos("C#") == ["一\r\ntwo\n"]
        assert "编程 / C#, 编程 / Python" in said

    def test_refuses_standard_input_in_another_encoding(self, program: Program) -> None:
        assert "is not UTF-8" in program.start("info", "-", "--to", "C#", said="食物".encode("gb18030"), code=2)

    def test_lets_the_client_choose_keywords(self, program: Program) -> None:
        answer = program.ask("info", "A kitchen needs a window.")

        assert [place["name"] for place in answer["keywords"]] == ["kitchen"]

    def test_says_how_to_hang_what_fits_nowhere(self, program: Program) -> None:
        said = program.run("info", "Bob drinks espresso.")
        linking = re.search(r"on no keyword: keyword-tree (link \S+) KEYWORD", said)

        assert linking
        assert program.run(*linking[1].split(), "kitchen").startswith("linked to kitchen")

    def test_changes_one_that_is_there(self, program: Program) -> None:
        program.run("correct", "tea", "Milk first.")

        assert program.infos("kitchen") == ["Milk first."]


class TestRemember:
    def test_keeps_a_fact_with_its_keywords_and_recalls_it(self, tmp_path: Path) -> None:
        program = Program(tmp_path / "memory")
        said = program.run("remember", "Ada lives in Rome.", "--keyword", "people/Ada", "--source", "chat")
        assert said.startswith("remembered Ada lives in Rome.  (undo ")
        assert program.infos("people/Ada") == ["Ada lives in Rome."]
        assert "people / Ada  Ada lives in Rome.  chat" in program.run("recall", "where does Ada live?")
        again = program.run("remember", "Ada lives in Rome.", "--keyword", "Ada", "--source", "letter", "--lang", "zh")
        assert again.endswith("\n已经记过，现在加上这个来源\n")
        program.run("remember", "Bob, too.", "--keyword", "6f0ce1f2-7d5b-4f0e-9c55-3d0a5f5e8b11", code=1)  # no name
        assert program.infos("people/Ada") == ["Ada lives in Rome."]  # once
        assert "one memory is in this" in program.run("remember", "Of another.", "--user", "bob", code=2)
        id = program.ask("recall", "where does Ada live?")["texts"][0]["id"]
        changed = program.run("correct", id, "Ada's new flat is in Oslo.")
        assert changed.startswith("corrected: Ada's new flat is")
        assert changed.split("its id is ")[1].strip() in program.run("recall", "Oslo", "--ids")
        assert program.ask("recall", "is Ada in Rome?")["texts"][0]["content"] == "Ada's new flat is in Oslo."
        assert program.infos("people/Ada") == ["Ada's new flat is in Oslo."]
        assert "unlinked" not in program.run("show")  # where the former text alone is on no keyword
        for command in ("delete", "forget"):  # of the former text: the fact goes, whatever it was corrected to
            program.run(command, id)
            program.run("recall", "is Ada in Rome?", code=1)
            program.run("undo")
        program.run("undo")
        program.run("undo")
        program.run("undo")
        assert program.keyword("people") is None  # with what was made for it

    def test_a_folder_of_users_names_them(self, tmp_path: Path) -> None:
        for user in ("maya", "林悦", "Ada/.."):
            with MemoryStore(tmp_path / "memory", user=user) as store:
                store.remember(f"The tea of {user}.")
        program = Program(tmp_path / "memory")

        for words in ("recall tea", "ask tea", "search tea", "show", "add tea", "remember tea", "mcp"):
            said = program.run(*words.split(), code=2)
            assert "memory holds the memories of Ada/.., maya, 林悦: choose one with --user" in said
        assert "The tea of 林悦." in program.run("recall", "tea", "--user", "林悦")
        assert "The tea of Ada/" in program.run("--user", "Ada/..", "recall", "tea")
        assert "memory holds no memory of bob, but those of Ada/.., maya, 林悦" in program.run(
            "recall", "tea", "--user", "bob", code=2
        )
        program.run("remember", "", "--user", "bob", code=2)
        assert "user must be a name, not ''" in program.run("remember", "tea", "--user", "", code=2)
        assert MemoryStore.users(tmp_path / "memory") == ["Ada/..", "maya", "林悦"]
        assert MemoryStore.users(tmp_path / "nothing") == []
        assert len([*(tmp_path / "memory").iterdir()]) == 3


class TestLink:
    def test_links_with_a_relation_and_unlinks(self, program: Program) -> None:
        answer = program.ask("link", "tea", "Python", "--relation", "example")
        after = program.ask("link", "tea", "kitchen", "--remove")

        assert [(place["name"], place["relation"]) for place in answer["keywords"]] == [
            ("kitchen", "PRIMARY"),
            ("Python", "EXAMPLE"),
        ]
        assert [place["name"] for place in after["keywords"]] == ["Python"]


class TestSearch:
    def test_finds_by_path_and_shows_infos(self, program: Program) -> None:
        said = program.run("search", "programming/cpython")

        assert said.splitlines()[0] == "编程 / Python  = CPython  (exact path)"
        assert "  gil  PEP 703 makes the GIL optional.  peps.python.org" in said

    def test_lists_what_several_keywords_are_called(self, program: Program) -> None:
        lines = program.run("search", "open").splitlines()

        assert lines[0].startswith("2 keywords fit")
        assert [line.split(maxsplit=1)[1] for line in lines[1:]] == ["编程 / Python / open", "kitchen / open"]

    def test_falls_through_to_texts_by_any_of_the_words_with_the_sentence(self, program: Program) -> None:
        program.run("remember", "Moved in May. The boiler was serviced by Frank Sanders.")  # on no keyword
        program.run("remember", "# Travel plans\n\nAda flies to Oslo.\n\nShe stays long.\n")
        for question, sentence in (("what travel plans?", "# Travel plans Ada flies to Oslo."), ("Oslo?", "Ada flies")):
            assert f"  {sentence}" in program.run("recall", question, "--min-score", "0")
        said = program.run("search", "when was the boiler serviced?")
        answer = program.ask("search", "when was the boiler serviced?")

        assert said.splitlines()[-1].endswith("  The boiler was serviced by Frank Sanders.")
        assert (answer["status"], answer["texts"][0]["sentence"]) == (
            "not_found",
            "The boiler was serviced by Frank Sanders.",
        )

    def test_has_words_for_every_reason(self) -> None:
        codes = {reason for _, reason in inside.OUTCOMES.values() if reason}
        own = {"exact", "path", "normalized", "confirmed", "empty_query"}
        assert set(REASONS) == codes | own
        assert LEXICAL_REASONS.keys() <= codes

    def test_names_what_is_nearest_where_nothing_is_found(self, program: Program) -> None:
        question = "who wrote Pythn?"
        said = program.run("search", question, code=1)
        answer = program.ask("search", question, code=1)
        nothing = program.ask("search", "zzz", code=1)
        names = [place["name"] for place in answer["nearest"]]
        places = [f"{place['path']} {place['confidence']:.2f}" for place in answer["nearest"]]

        assert said.splitlines()[:2] == [
            "nothing found  (no keyword fits well enough)",
            f"  nearest: {', '.join(places)}",
        ]
        assert {"name": "Python", "path": "编程 / Python"}.items() <= answer["nearest"][names.index("Python")].items()
        assert nothing["nearest"] == program.ask("search", "Python")["nearest"] == []
        assert "nearest" not in program.run("search", "zzz", code=1)


class TestShow:
    def test_draws_the_tree_with_infos_and_counts(self, program: Program) -> None:
        said = program.run("show", "--depth", "2", "--infos", "--limit", "2")

        assert said == (
            "/\n"
            "├── 编程  = programming\n"
            "│   ├── Python  = CPython  (1 more below)  A language.\n"
            "│   │   └── • PEP 703 makes the GIL optional.  peps.python.org\n"
            "│   └── C#\n"
            "└── kitchen\n"
            "    ├── • Tea first, milk second.\n"
            "    └── open\n"
        )

    def test_draws_a_small_tree_whole_and_a_large_one_two_levels_deep(self, program: Program) -> None:
        assert program.run("show") == program.run("show", "--depth", "0")

        (program.data.parent / "many.csv").write_text(
            "path\n" + "".join(f"编程/Python/n{i}\n" for i in range(60)), encoding="utf-8"
        )
        program.run("import", "many.csv")
        assert program.run("show") == program.run("show", "--depth", "2")
        assert program.run("show", "kitchen") == "kitchen\n└── open\n"

    def test_begins_where_asked_and_reports_what_it_leaves_out(self, program: Program) -> None:
        assert program.run("show", "编程", "--depth", "1", "--limit", "1").splitlines() == [
            "编程  = programming  (1 more below)",
            "└── Python  = CPython  (1 more below)  A language.",
        ]

    def test_gives_programs_parents_before_children(self, program: Program) -> None:
        rows = program.ask("show", "--depth", "0", "--infos")

        assert [row["name"] for row in rows] == ["root", "编程", "Python", "open", "C#", "kitchen", "open"]
        assert [info["id"] for info in rows[2]["infos"]] == ["gil"]
        assert (rows[1]["child_count"], rows[1]["children_left_out"]) == (2, 0)

    def test_shows_an_info_in_full(self, program: Program) -> None:
        said = program.run("show", "gil")

        assert said.splitlines() == [
            "PEP 703 makes the GIL optional.",
            "  peps.python.org",
            "  on 编程 / Python  primary",
        ]

    def test_marks_what_a_memory_was_before_it_was_corrected(self, program: Program) -> None:
        program.data = program.data.parent / "memory"  # where a `MemoryStore` keeps its tree
        old = program.ask("remember", "Ada lives in Paris.")["info"]
        with MemoryStore(program.data.parent) as store:
            new = store.correct(old["id"], "Ada lives in Rome.")

        for said in (program.run("show", "--unlinked"), program.run("show", old["id"])):
            assert " ".join(said.split()).count(f"superseded by {new}") == 1

    def test_lists_infos_on_no_keyword(self, program: Program) -> None:
        assert program.run("show", "--unlinked") == "every info has a keyword\n"
        for text in ("one", "other"):
            program.run("remember", text)
        said = program.run("show", "--unlinked", "--limit", "1").splitlines()

        assert len(said) == 2
        assert said[1] == "… 1 more"
        assert {info["content"] for info in program.ask("show", "--unlinked")["infos"]} == {"one", "other"}
        assert program.run("show").endswith("some infos are on no keyword: show --unlinked\n")

    def test_facts_alone_are_what_a_memory_shows_and_exports(self, program: Program, tmp_path: Path) -> None:
        program.data = tmp_path / "bare"
        for text in ("We drive a blue Volvo.", "The dentist is on Thursday."):
            program.run("remember", text)

        said = program.run("show").splitlines()
        assert ["Volvo" in said[0], "dentist" in said[1]] == [True, True]
        page = str(tmp_path / "page.html")
        assert program.run("export", page) == f"2 infos written to {page} as html\n"
        assert program.run("ask", "when is the dentist?").startswith("0.9")


class TestView:
    def test_serves_the_page_until_it_is_stopped_and_finds_as_ask_does(self, program: Program) -> None:
        program.run("info", "Types are optional.", "--to", "Python")
        command = [*PROGRAM, "view", "--port", "0", "--data", str(program.data)]
        with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            address = process.stdout.readline().split()[4]
            port = address.rpartition(":")[2].rstrip("/")
            with urlopen(f"{address}search?q=what+is+optional", timeout=30) as answer:
                found = [one for one in json.load(answer) if one["excerpt"]]
            with urlopen(address, timeout=30) as answer:
                page = answer.read().decode()
            taken = [program.run(*one, port, code=2) for one in (["view", "--port"], ["mcp", "new", "--http"])]
            process.send_signal(signal.SIGINT)
            process.wait(timeout=30)

        assert process.returncode == 0
        assert {one["excerpt"] for one in found} == {"PEP 703 makes the GIL optional.", "Types are optional."}
        assert all(f'"{one["id"]}"' in page for one in found)
        said = f"127.0.0.1:{port} cannot be had (Address already in use): choose another port"
        assert [said in one for one in taken] == [True, True]
        assert not (program.data.parent / "new").exists()


class TestNaming:
    def test_a_path_may_be_longer_than_any_id(self, program: Program) -> None:
        program.run("add", "长" * 512, "--parent", "kitchen")
        path = f"kitchen/{'长' * 512}"

        assert program.run("show", path) == f"kitchen / {'长' * 512}\n"
        assert program.run("history", path).count("create_keyword") == 1
        assert "…'" in program.run("show", path + "x", code=1)

    def test_what_names_an_info_and_a_keyword_is_not_deleted(self, program: Program) -> None:
        program.run("add", "gil", "--parent", "/")
        answer = program.ask("delete", "gil", code=2)
        program.run("delete", answer["candidates"][0]["id"])

        assert answer["message"].startswith("1 keyword and an info are called 'gil'")
        assert program.ask("show", "gil")["content"] == "PEP 703 makes the GIL optional."
        assert program.keyword("gil") is None

    def test_an_id_counts_and_a_name_of_several_is_refused_with_them(self, program: Program) -> None:
        answer = program.ask("move", "open", "/", code=2)
        [one] = [place for place in answer["candidates"] if place["path"] == "kitchen / open"]
        program.run("rename", one["id"], "openers")

        assert len(answer["candidates"]) == 2
        assert program.keyword("kitchen/openers") is not None

    def test_a_name_that_is_only_alike_is_not_taken_for_it(self, program: Program) -> None:
        assert "no keyword has the name" in program.run("delete", "C", code=1)
        assert program.keyword("C#") is not None


class TestCorrecting:
    def test_each_command_does_what_it_says_and_can_be_undone(self, program: Program) -> None:
        with KeywordTree(str(program.data)) as tree:
            [kitchen] = tree.FindByName("kitchen")

        program.run("rename", "kitchen", "厨房", "--description", "where tea is made")
        program.run("alias", "厨房", "cuisine", "Küche")
        program.run("alias", "厨房", "cuisine", "--remove")
        program.run("move", "厨房", "C#")
        node = program.keyword("编程/C#/Küche")
        assert node is not None
        assert (node.id, node.name, node.aliases) == (kitchen.id, "厨房", ["Küche"])

        answer = program.ask("merge", "厨房", "Python")
        assert answer["keyword"]["aliases"] == ["CPython", "厨房", "Küche"]
        assert program.infos("Python") == ["PEP 703 makes the GIL optional.", "Tea first, milk second."]

        program.run("undo", str(answer["seq"]))
        assert program.infos("厨房") == ["Tea first, milk second."]

    def test_says_where_nothing_had_to_change(self, program: Program) -> None:
        assert "nothing had to change" in program.run("move", "C#", "编程")


class TestAsk:
    def test_finds_the_sentence_by_any_of_the_words(self, program: Program) -> None:
        program.run("info", "She works nights. Anna is out; peanuts are banned! Easter is free.", "--to", "kitchen")
        said = program.run("ask", "are nuts or peanuts banned?")

        assert re.fullmatch(r"0\.\d\d  kitchen  Anna is out; peanuts are banned!\n", said)

    def test_finds_chinese_and_tells_programs_all(self, program: Program) -> None:
        program.run("info", "她在二小读三年级。小雨对花生过敏。", "--to", "kitchen", "--source", "聊天")
        [text] = program.ask("ask", "谁对花生过敏？")["texts"]

        assert (text["sentence"], text["path"], text["source"]) == ("小雨对花生过敏。", ["kitchen"], "聊天")
        assert 0 < text["score"] <= 1

    def test_shows_a_long_sentence_whole(self, program: Program) -> None:
        said = "外婆每天早上六点起床去公园打太极拳，然后去菜市场买菜，中午做饭，下午睡午觉，最喜欢的电视剧是红楼梦。"
        program.run("info", said, "--to", "kitchen", "--source", "聊天")

        assert re.fullmatch(rf"0\.\d\d  kitchen  {said}  聊天\n", program.run("ask", "外婆最喜欢的电视剧"))
        seen = program.look("ask", "外婆最喜欢的电视剧", columns=60, NO_COLOR="1")
        assert said in re.sub(r"\x1b\[[0-9;]*m|\s", "", seen)

    def test_shows_nothing_that_shares_hardly_a_character(self, program: Program) -> None:
        program.run("info", "外婆住在绵阳，每天早上去公园打太极拳，爱吃回锅肉。", "--to", "kitchen")

        assert program.run("ask", "今天天气怎么样？", code=1) == "nothing found\n"
        assert program.run("ask", "绵阳的外婆", "--min-score", "1", code=1).startswith("nothing sure; the nearest:\n0.")


class TestDelete:
    def test_lets_children_and_infos_move_up(self, program: Program) -> None:
        said = program.run("delete", "Python")

        assert "deleted 编程 / Python; 1 under it moved up  (undo " in said
        assert program.keyword("编程/open") is not None
        assert program.infos("编程") == ["PEP 703 makes the GIL optional."]

    def test_takes_all_under_it_where_asked(self, program: Program) -> None:
        program.run("delete", "kitchen", "--cascade", "--infos", "delete")

        node = program.keyword("open")
        assert node is not None
        assert node.level == 3
        assert program.count("infos") == 1


class TestHistory:
    def test_tells_what_happened_newest_first(self, program: Program) -> None:
        program.run("rename", "C#", "F#")
        said = program.run("history", "--limit", "2").splitlines()
        [change, *_] = program.ask("history", "F#")

        assert said[0].split() == ["undo", "when", "what", "of"]
        assert said[1].split()[3:] == ["update_keyword", "F#"]
        assert (change["before"][0]["name"], change["after"][0]["name"]) == ("C#", "F#")

    def test_follows_an_id_that_is_gone(self, program: Program) -> None:
        program.run("delete", "gil")

        assert [change["op"] for change in program.ask("history", "gil")] == ["delete", "batch_create_infos"]


class TestUndo:
    def test_again_goes_further_back_and_redo_forward(self, program: Program) -> None:
        program.run("delete", "gil")
        program.run("delete", "tea")

        program.run("undo")
        assert (program.infos("Python"), program.infos("kitchen")) == ([], ["Tea first, milk second."])
        program.run("undo")
        assert program.infos("Python") == ["PEP 703 makes the GIL optional."]
        program.run("redo")
        assert (program.infos("Python"), program.infos("kitchen")) == ([], ["Tea first, milk second."])
        program.run("redo")
        assert program.infos("kitchen") == []
        assert "nothing was undone" in program.run("redo", code=2)

    def test_goes_back_to_an_empty_memory_and_says_that_nothing_is_left(self, program: Program) -> None:
        while program.run("undo", code=None).startswith("undone"):
            pass

        assert program.count("keywords") == 0
        assert program.ask("undo", code=1)["error"] == "NotFoundError"
        assert "create_store" in program.run("undo", "1", code=2)

    @pytest.mark.parametrize("name", ["undo 2", "redo 2", "undo", "import", "import, part of x"])
    def test_what_a_program_calls_its_operation_says_nothing(self, program: Program, name: str) -> None:
        with KeywordTree(str(program.data)) as tree, tree.Operation(name):
            tree.CreateKeyword("garden", "root")

        assert program.ask("undo")["undone"]["parts"] == 1
        assert program.keyword("garden") is None
        program.run("redo")
        assert program.keyword("garden") is not None

    def test_what_a_program_undid_is_undone_and_can_be_redone(self, program: Program) -> None:
        with KeywordTree(str(program.data)) as tree:
            tree.CreateKeyword("garden", "root")
            last = tree.History(limit=1)[0]
            tree.Undo(last.operation_id)

        assert "nothing to redo" not in program.run("redo")
        assert program.keyword("garden") is not None
        assert program.ask("undo")["undone"]["seq"] == last.seq

    def test_an_undo_is_undone_as_any_other_operation(self, program: Program) -> None:
        taken = program.ask("delete", "gil")["seq"]
        number = program.ask("undo")["seq"]

        again = program.ask("undo", str(number))
        assert again["undone"]["seq"] == number
        assert program.infos("Python") == []
        program.run("undo", str(again["seq"]))
        assert program.infos("Python") == ["PEP 703 makes the GIL optional."]
        program.run("redo")
        assert program.infos("Python") == []
        assert program.ask("undo")["undone"]["seq"] == taken
        assert f"redo {taken}" in program.run("undo", str(taken), code=2)

    def test_what_was_written_since_ends_redoing_unless_it_is_named(self, program: Program) -> None:
        taken = program.ask("delete", "gil")["seq"]
        program.run("undo")
        program.run("rename", "C#", "F#")

        program.run("redo", code=2)
        assert program.infos("Python") == ["PEP 703 makes the GIL optional."]
        program.run("redo", str(taken))
        assert program.infos("Python") == []
        assert "nothing to redo" in program.run("redo", str(taken), code=2)

    def test_a_conflict_names_what_to_take_back_first_and_the_command(self, program: Program) -> None:
        number = program.ask("add", "Rust", "--parent", "编程")["seq"]
        later = program.ask("add", "borrow checker", "--parent", "Rust")["seq"]

        refused = program.ask("undo", str(number), code=2)
        assert refused["next_step"] == f"keyword-tree undo {later}"
        assert f"keyword-tree undo {later}\n" in program.run("undo", str(number), code=2)
        program.run(*refused["next_step"].split()[1:])
        program.run("undo", str(number))
        assert program.keyword("Rust") is None
        assert "no operation" in program.run("undo", "9999", code=1)


class TestCare:
    def test_compacts_and_forgets_only_when_asked(self, program: Program) -> None:
        program.run("delete", "gil")
        log = program.data / "change_log.jsonl"

        program.run("compact", "--forget-history", said="n\n", code=2)
        assert "PEP 703" in log.read_text(encoding="utf-8")
        program.run("compact", "--forget-history", "--yes")
        assert "PEP 703" not in log.read_text(encoding="utf-8")
        assert program.ask("compact")["snapshots"] == []

    def test_verifies_finds_damage_and_repairs_beside_it(self, program: Program) -> None:
        assert program.run("verify") == "all is well: 6 keywords, 2 infos, 2 links\n"
        log = program.data / "change_log.jsonl"
        log.write_bytes(log.read_bytes().replace(b'"kitchen"', b'"kitcheo"', 1))
        repaired = Program(program.data.with_name("repaired"))

        assert "change_log.jsonl, line " in program.run("verify", code=3)
        report = program.ask("repair", str(repaired.data), code=3)
        losses = [(loss["file"], loss["is_saved"]) for loss in report["losses"]]
        assert losses == [("change_log.jsonl", False), ("nodes.jsonl", True)]  # the line, and its keyword
        assert repaired.keyword("kitchen") is not None
        assert "no empty folder" in program.run("repair", str(repaired.data), code=2)

    @pytest.mark.parametrize("named", [(), ("--data", "users", "--user", "maya")])
    def test_damage_comes_with_the_command_that_saves_what_can_be_saved(
        self, program: Program, named: tuple[str, ...]
    ) -> None:
        data = program.data.parent / "users/user=maya/memory" if named else program.data
        if named:
            shutil.copytree(program.data, data)
        log = data / "change_log.jsonl"
        log.write_bytes(log.read_bytes().replace(b'"kitchen"', b'"kitchem"', 1))
        (data / "nodes.jsonl").unlink()
        said = program.run("show", *named, code=3).splitlines()
        answer = program.ask("show", *named, code=3)
        before, _, step = said[1].partition("keyword-tree ")

        assert said[0].startswith("Error: change_log.jsonl, line ")
        assert before == "next: "
        assert answer["next_step"] == f"keyword-tree {step}"
        assert "not saved: " in program.run(*shlex.split(step), code=3)
        assert (data.parent / "memory-repaired").is_dir()


class TestCarrying:
    def test_a_part_goes_out_and_under_a_keyword(self, program: Program, tmp_path: Path) -> None:
        program.run("export", str(tmp_path / "part.csv"), "--from", "kitchen")
        table = (tmp_path / "part.csv").read_text(encoding="utf-8")
        (tmp_path / "table.csv").write_text("path,info\n茶/绿茶,Green tea.\n", encoding="utf-8")
        program.run("import", str(tmp_path / "table.csv"), "--parent", "kitchen")

        assert {row["path"] for row in csv.DictReader(table.lstrip("\ufeff").splitlines())} == {
            "kitchen",
            "kitchen/open",
        }
        assert program.infos("kitchen/茶/绿茶") == ["Green tea."]

    def test_an_import_is_one_undo_however_large(self, program: Program, tmp_path: Path) -> None:
        (tmp_path / "many.csv").write_text("path\n" + "".join(f"n{i}\n" for i in range(1100)), encoding="utf-8")
        said = program.run("import", str(tmp_path / "many.csv"))
        again = program.ask("import", str(tmp_path / "many.csv"))
        assert (again["keywords"], again["skipped"], again["seq"]) == (0, 1100, None)
        program.run("add", "later", "--parent", "/")

        program.run("undo", re.findall(r"\(undo (\d+)\)", said)[0])
        assert program.count("keywords") == 7
        program.run("undo")
        assert program.count("keywords") == 6
        program.run("redo")
        program.run("redo", re.findall(r"\(undo (\d+)\)", said)[0])
        assert program.count("keywords") == 1107

    def test_an_export_tells_what_it_leaves_out(self, program: Program) -> None:
        program.run("remember", "on nothing")
        said = {name: program.ask("export", f"all.{name}") for name in ("json", "html", "csv")}

        assert {name: answer["infos_left_out"] for name, answer in said.items()} == {"json": 0, "html": 0, "csv": 1}
        assert program.run("export", "all.tsv") == (
            "6 keywords written to all.tsv as tsv\ninfos on no keyword are not in it: 1; json has them\n"
        )

    def test_a_page_holds_nothing_that_was_replaced_and_speaks_the_chosen_language(self, program: Program) -> None:
        program.run("rename", "kitchen", "厨房")
        program.run("export", "page.html", "--lang", "zh")
        text = (program.data.parent / "page.html").read_text(encoding="utf-8")

        assert '"厨房"' in text
        assert '"kitchen"' not in text
        assert '<html lang="zh">' in text


class TestInterrupt:
    def test_an_import_that_is_stopped_leaves_whole_batches_and_can_be_taken_up(self, tmp_path: Path) -> None:
        program = Program(tmp_path / "memory")
        file = tmp_path / "many.csv"
        file.write_text("path\n" + "".join(f"n{i}\n" for i in range(10_000)), encoding="utf-8")
        log = program.data / "change_log.jsonl"
        arguments = ["import", str(file), "--data", str(program.data)]
        with subprocess.Popen([*PROGRAM, *arguments], env=ENVIRONMENT, stderr=subprocess.PIPE, text=True) as process:
            until = time.monotonic() + 30
            while not (log.exists() and log.stat().st_size > 700_000) and time.monotonic() < until:
                time.sleep(0.005)
            process.send_signal(signal.SIGINT)
            _, complaint = process.communicate(timeout=30)

        assert process.returncode == 130
        assert complaint.strip() == "Error: stopped; what was written before is whole"
        with KeywordTree(str(program.data)) as tree:
            assert tree.Verify() == []
            count = tree.TreeMetrics()["keywords"]
        assert 0 < count < 10_000
        assert count % 1000 == 0
        assert program.ask(*arguments)["keywords"] == 10_000 - count


def obey_modes() -> None:
    """Take from root the power to ignore what a file's mode says."""
    libc = ctypes.CDLL(None)
    for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        libc.prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux can take this power from root")
class TestFolder:
    def run(self, program: Program, line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*PROGRAM, *shlex.split(line), "--data", str(program.data)],
            env=ENVIRONMENT,
            cwd=program.data.parent,
            capture_output=True,
            text=True,
            preexec_fn=obey_modes,
        )

    def test_one_that_can_only_be_read_is_shown_and_not_changed(self, program: Program) -> None:
        for path in (*program.data.iterdir(), program.data):
            path.chmod(0o500 if path.is_dir() else 0o400)
        try:
            shown, added = self.run(program, "show"), self.run(program, "add x --parent /")
        finally:
            program.data.chmod(0o700)

        assert (shown.returncode, shown.stderr) == (0, "")
        assert "编程" in shown.stdout
        assert added.returncode == 3
        assert added.stderr.startswith("Error: ")
        assert "can only be read" in added.stderr


class TestEncodings:
    def test_names_in_any_script_work_in_the_plainest_locale(self, program: Program) -> None:
        program.start("add", "食物", "--parent", "编程", LC_ALL="C", LANG="C", PYTHONUTF8="")

        assert "└── 食物" in program.start("show", LC_ALL="C", LANG="C", PYTHONUTF8="")

    def test_a_screen_that_cannot_show_them_is_given_what_it_can_show(self, program: Program) -> None:
        said = program.start("show", "--depth", "1", PYTHONIOENCODING="latin-1")
        answer = json.loads(program.start("show", "--depth", "1", "--json", PYTHONIOENCODING="latin-1"))

        assert "?? " in said
        assert answer[1]["name"] == "编程"


class TestScreen:
    @pytest.mark.parametrize(
        "name", [HOSTILE, "👨‍👩‍👧 e\u0301 ＡＢ\u3000表", "字" * 512, "--x", "* %s {}", "\x85\u2028 x\ufeff"]
    )
    def test_no_command_sends_what_a_terminal_would_obey(self, program: Program, name: str) -> None:
        with KeywordTree(str(program.data)) as tree:
            node = tree.CreateKeyword(name, "root", [f"{name[:500]} too"], name)
            tree.BatchCreateInfos([{"id": "bad", "content": name, "source": name, "keyword_ids": [node.id]}])
        with (program.data.parent / "a.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([["path"], [f"imported {name[:500]}".replace("/", "")]])
        lines: list[tuple[str, ...]] = [
            ("show", "--infos", "--ids"),
            ("show", "bad"),
            ("search", "--", name),
            ("search", "--", f"what is {name}?"),
            ("history", "--", name),
            ("rename", "--description", "d", "--", name),
            ("confirm", "--", name, name),
            ("alias", "--", name, name[:500] + " 2"),
            ("link", "--", "bad", "kitchen"),
            ("info", "--to", name, "--", name),
            ("export", "--from", name, "part.csv"),
            ("import", "a.csv", "--parent", name),
            ("merge", "--", name, "C#"),
            ("undo",),
            ("move", "--", name, "kitchen"),
            ("delete", "--", name),
        ]
        lines += [("show", f"{name} nothing"), ("move", "--", name, name), ("undo", "--", name)]
        for line in lines:
            for options in ((), ("--json",)):
                seen = program.run(line[0], *options, *line[1:], code=None)

                assert seen
                assert all(char.isprintable() or char in "\n\u200c\u200d" for char in seen), (line, seen)
        assert program.keyword(name) is None  # the last but four have deleted it

    def test_in_one_of_forty_columns_nothing_is_left_out(self, program: Program) -> None:
        program.run("info", "Guido began it at Christmas.", "--to", "Python", "--source", "a book")
        history = program.look("history", "--limit", "1", columns=40, NO_COLOR="1")
        found = program.look("search", "Python", columns=40, NO_COLOR="1")
        plain = [re.sub(r"\x1b\[[0-9;]*m", "", row) for row in (history + found).replace("\r", "").splitlines()]

        assert re.sub(r"\s", "", "".join(plain)).count("GuidobeganitatChristmas.") == 1  # and in columns of the history
        assert {"Guido", "Christmas."} <= set(" ".join(plain).split())
        assert "a book" in "".join(plain)
        assert max(map(cell_len, plain)) <= 40

    def test_no_color_means_no_color(self, program: Program) -> None:
        coloured, plain = program.look("search", "Python"), program.look("search", "Python", NO_COLOR="1")

        assert "\x1b[36m" in coloured
        assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", plain)


class TestMeaning:
    @pytest.mark.parametrize("words", ["ask", "recall", "search", "context search"])
    def test_what_is_meant_is_found_at_the_first_question(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
    ) -> None:
        pytest.importorskip("numpy", reason="the extra [embeddings] is not installed")
        from Agent.finding import embedder

        class Knowing(embedder.HashingEmbedder):  # to it, a word that no thesaurus has is a ship
            def embed(self, texts: Sequence[str]) -> list[list[float]]:
                return super().embed([text.replace("qwibble", "ship") for text in texts])

        monkeypatch.setattr(embedder, "LocalEmbedder", Knowing)
        program = Program(tmp_path / "memory")
        *group, word = words.split()
        for number in range(12):
            program.run(*group, "remember", f"Crate {number} stands in hall {number % 3}.")
        program.run(*group, "remember", "A ship!", "--topic" if group else "--keyword", "ship")

        assert "ship" not in program.run(*group, word, "qwibble?", "--no-meaning", code=1)
        assert "ship" in program.run(*group, word, "qwibble?", "--meaning", code=None)
