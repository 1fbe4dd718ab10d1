"""Tests of `keyword-tree`: each command runs as the installed program, in a process of its own, on a real store."""

import csv
import json
import os
import pty
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from Agent import command_line
from Agent.demo_screen import display_width
from Agent.keyword_tree import _OUTCOMES, KeywordNode, KeywordTree

pytest.importorskip("click", reason="the extra [cli] is not installed")
pytest.importorskip("rich", reason="the extra [cli] is not installed")

import Agent.cli.care  # noqa: F401  importing it gives the program its commands
from Agent.cli.commands import REASONS
from Agent.cli.program import SECTIONS
from Agent.cli.program import program as group
from Agent.cli.screen import Screen, table

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = Path(sys.executable).with_name("keyword-tree")
PROGRAM = [str(SCRIPT)] if SCRIPT.exists() else [sys.executable, "-m", "Agent.command_line"]
"""Where the project is not installed, the module that the program is made of."""

NAMED = ("KEYWORD_TREE_DATA", "KEYWORD_TREE_MODEL", "OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "COLUMNS")
PLAIN = {key: value for key, value in os.environ.items() if key not in NAMED}
ENVIRONMENT = {**PLAIN, "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1", "TZ": "UTC"}

HOSTILE = "esc\x1b[2Jape\u202etxt\nnext [red]x[/red] :smile: \x9b31m"


class Program:
    """The program, run on one folder."""

    def __init__(self, data: Path) -> None:
        self.data = data

    def run(self, *arguments: str, code: int = 0, said: str | None = None, **environment: str) -> str:
        """Run a command, look at its exit code, and return what it wrote: output, or errors where it failed."""
        done = subprocess.run(
            [*PROGRAM, *arguments],
            env={**ENVIRONMENT, "KEYWORD_TREE_DATA": str(self.data), **environment},
            input=said,
            capture_output=True,
            encoding="utf-8",
            cwd=self.data.parent,
            timeout=60,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout if code == 0 else done.stdout + done.stderr

    def ask(self, *arguments: str, code: int = 0) -> Any:
        """Run a command with --json, and return what it answered."""
        return json.loads(self.run(*arguments, "--json", code=code))

    def look(self, *arguments: str, columns: int = 80, lines: int = 30) -> str:
        """Run a command in a terminal, and return what it sent there."""
        ours, theirs = pty.openpty()
        environment = {**ENVIRONMENT, "KEYWORD_TREE_DATA": str(self.data), "TERM": "xterm"}
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


class TestProgram:
    def test_is_declared_as_a_console_command(self) -> None:
        assert 'keyword-tree = "Agent.command_line:main"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")

    def test_says_what_its_documentation_shows(self, tmp_path: Path) -> None:
        session = textwrap.dedent((command_line.__doc__ or "").partition("\n\n")[2].partition("\n\n")[0])
        fresh = Program(tmp_path / "fresh")

        commands = session.split("$ keyword-tree ")[1:]
        assert len(commands) == 4
        for one in commands:
            words, _, said = one.partition("\n")
            assert fresh.run(*shlex.split(words)).strip() == said.strip()

    def test_help_names_every_command_in_its_section(self, program: Program) -> None:
        said = program.run("--help")

        names = [name for section in SECTIONS.values() for name in section]
        assert sorted(names) == sorted(group.commands)
        assert all(f"\n  {name} " in said for name in names)

    def test_bad_use_ends_with_2_and_writes_nothing(self, program: Program) -> None:
        before = (program.data / "change_log.jsonl").read_bytes()

        assert "No such option" in program.run("move", "Python", "kitchen", "--nowhere", code=2)
        assert program.ask("delete", "/", code=2)["exit_code"] == 2
        assert (program.data / "change_log.jsonl").read_bytes() == before

    def test_a_folder_without_a_memory_is_a_store_problem_and_stays_as_it_is(self, tmp_path: Path) -> None:
        assert "there is no memory in" in Program(tmp_path / "none").run("show", code=3)
        assert not (tmp_path / "none").exists()

    def test_the_folder_is_an_option_before_and_behind_the_command(self, program: Program, tmp_path: Path) -> None:
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

    def test_without_its_extra_it_says_what_to_install(self, tmp_path: Path) -> None:
        code = "import sys; sys.modules['click'] = None; from Agent.command_line import main; main(['show'])"
        done = subprocess.run(
            [sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, cwd=tmp_path
        )

        assert done.returncode == 1
        assert done.stderr.splitlines()[-1].startswith("ImportError:")
        assert done.stderr.endswith("pip install 'keyword-tree[cli]'\n")

    def test_a_named_model_needs_a_service(self, program: Program) -> None:
        assert "OPENAI_API_KEY" in program.run("search", "what?", "--model", "some-model", code=2)

    def test_a_model_named_in_the_environment_without_a_service_is_passed_over(self, program: Program) -> None:
        assert "编程 / Python" in program.run("search", "Python", KEYWORD_TREE_MODEL="some-model")


class TestAdd:
    def test_makes_a_keyword_where_it_is_told(self, program: Program) -> None:
        said = program.run("add", "asyncio", "--parent", "编程/Python", "--alias", "aio", "--description", "loops")

        node = program.keyword("programming > python > aio")
        assert node is not None
        assert (node.name, node.description) == ("asyncio", "loops")
        assert said.startswith("added 编程 / Python / asyncio  (undo ")

    def test_begins_a_memory_and_lets_the_client_choose_the_place(self, tmp_path: Path) -> None:
        fresh = Program(tmp_path / "fresh")

        fresh.run("add", "python library", "--parent", "/")
        answer = fresh.ask("add", "python library asyncio")

        assert answer["keyword"]["path"] == ["python library", "python library asyncio"]

    def test_refuses_an_unknown_parent_and_offers_what_is_near(self, program: Program) -> None:
        answer = program.ask("add", "x", "--parent", "Pythn", code=1)

        assert [place["path"] for place in answer["candidates"]] == ["编程 / Python"]
        assert program.keyword("x") is None


class TestInfo:
    def test_stores_standard_input_on_keywords(self, program: Program) -> None:
        said = program.run("info", "-", "--to", "C#", "--to", "Python", "--source", "me", said="one\ntwo\n")

        assert program.infos("C#") == ["one\ntwo\n"]
        assert "编程 / C#, 编程 / Python" in said

    def test_lets_the_client_choose_keywords(self, program: Program) -> None:
        answer = program.ask("info", "A kitchen needs a window.")

        assert [place["name"] for place in answer["keywords"]] == ["kitchen"]

    def test_changes_one_that_is_there(self, program: Program) -> None:
        program.run("info", "Milk first.", "--change", "tea")

        assert program.infos("kitchen") == ["Milk first."]


class TestLink:
    def test_links_with_a_relation_and_unlinks(self, program: Program) -> None:
        answer = program.ask("link", "tea", "Python", "--relation", "example")
        after = program.ask("link", "tea", "kitchen", "--remove")

        assert [(place["name"], place["relation"]) for place in answer["keywords"]] == [
            ("kitchen", "PRIMARY"),
            ("Python", "EXAMPLE"),
        ]
        assert [place["name"] for place in after["keywords"]] == ["Python"]

    def test_an_unknown_info_is_not_found(self, program: Program) -> None:
        assert "no info has the id" in program.run("link", "nothing", "Python", code=1)


class TestSearch:
    def test_finds_by_path_and_shows_infos(self, program: Program) -> None:
        said = program.run("search", "programming/cpython")

        assert said.splitlines()[0] == "编程 / Python  = CPython  (it reads as a path)"
        assert "  gil  PEP 703 makes the GIL optional.  peps.python.org" in said

    def test_explains_rounds_views_and_reasons(self, program: Program) -> None:
        said = program.run("search", "what", "does", "CPython", "do?", "--explain")
        answer = program.ask("search", "what does CPython do?", "--explain")

        assert said.startswith("Round 1  beneath the top, 6 names shown\n")
        assert any(line.split()[:1] == ["→"] and line.endswith("  编程 / Python") for line in said.splitlines())
        assert "   match: " in said
        assert "(the model chose it)" in said
        assert (answer["reason"], answer["path"]) == ("agent_match", ["编程", "Python"])
        [seen] = [entry for entry in answer["views"][0]["candidates"] if entry["name"] == "Python"]
        assert seen["path"] == "编程 / Python"
        assert seen["idx"] in (answer["views"][0]["reply"]["node_id"], *answer["views"][0]["reply"]["node_ids"])
        assert answer["views"][0]["reply"]["action"] == answer["steps"][0]["action"] == "match"

    def test_lists_what_several_keywords_are_called(self, program: Program) -> None:
        lines = program.run("search", "open").splitlines()

        assert lines[0].startswith("2 keywords fit")
        assert [line.split(maxsplit=1)[1] for line in lines[1:]] == ["编程 / Python / open", "kitchen / open"]

    def test_ends_with_1_where_nothing_is_found(self, program: Program) -> None:
        assert program.ask("search", "Rust", "--names-only", code=1)["reason"] == "exact_miss_llm_disabled"

    def test_has_words_for_every_reason(self) -> None:
        codes = {reason for _, reason in _OUTCOMES.values() if reason}
        own = {"exact", "path", "normalized", "confirmed", "empty_query", "exact_miss_llm_disabled"}
        assert set(REASONS) == codes | own


class TestShow:
    def test_draws_the_tree_with_infos_and_counts(self, program: Program) -> None:
        said = program.run("show", "--depth", "2", "--infos", "--limit", "2")

        assert said == (
            "/\n"
            "├── 编程  = programming\n"
            "│   ├── Python  = CPython  (1 below)  A language.\n"
            "│   │   └── • PEP 703 makes the GIL optional.  peps.python.org\n"
            "│   └── C#\n"
            "└── kitchen\n"
            "    ├── • Tea first, milk second.\n"
            "    └── open\n"
        )

    def test_begins_where_it_is_told_and_tells_what_it_leaves_out(self, program: Program) -> None:
        assert program.run("show", "编程", "--depth", "1", "--limit", "1").splitlines()[1:] == [
            "├── Python  = CPython  (1 below)  A language.",
            "└── … 1 more",
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
            "from peps.python.org",
            "  on 编程 / Python  primary",
        ]


class TestNaming:
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

    def test_refuses_a_circle(self, program: Program) -> None:
        program.run("move", "编程", "Python", code=2)


class TestDelete:
    def test_lets_children_and_infos_move_up(self, program: Program) -> None:
        program.run("delete", "Python")

        assert program.keyword("编程/open") is not None
        assert program.infos("编程") == ["PEP 703 makes the GIL optional."]

    def test_takes_all_beneath_where_it_is_told(self, program: Program) -> None:
        program.run("delete", "kitchen", "--cascade", "--infos", "delete")

        node = program.keyword("open")
        assert node is not None
        assert node.level == 3
        assert program.ask("metrics")["infos"] == 1

    def test_deletes_an_info_by_its_id(self, program: Program) -> None:
        answer = program.ask("delete", "gil")

        assert answer["deleted"]["info"]["content"] == "PEP 703 makes the GIL optional."
        assert program.infos("Python") == []


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

        assert [change["op"] for change in program.ask("history", "gil")] == ["delete_info", "batch_create_infos"]


class TestUndo:
    def test_takes_back_the_newest_and_an_undo_too(self, program: Program) -> None:
        program.run("delete", "gil")

        program.run("undo")
        assert program.infos("Python") == ["PEP 703 makes the GIL optional."]
        program.run("undo")
        assert program.infos("Python") == []

    def test_is_refused_where_later_changes_stand_in_the_way(self, program: Program) -> None:
        number = program.ask("add", "Rust", "--parent", "编程")["seq"]
        program.run("add", "borrow checker", "--parent", "Rust")

        assert program.ask("undo", str(number), code=2)["error"] == "ConflictError"
        assert "no operation" in program.run("undo", "9999", code=1)


class TestSnapshots:
    def test_a_snapshot_is_listed_and_restored(self, program: Program) -> None:
        name = program.ask("snapshot")["snapshot"]
        program.run("delete", "编程", "--cascade")

        assert program.run("snapshot", "--list") == f"{name}\n"
        program.run("restore", name)
        assert program.keyword("编程/Python") is not None

    def test_an_unknown_one_is_not_found(self, program: Program) -> None:
        program.run("snapshot", "--copy")
        name = program.ask("snapshot", "--list")["snapshots"][0]
        shutil.rmtree(program.data / "snapshots" / name)

        assert "snapshot" in program.run("restore", name, code=1)


class TestCare:
    def test_compacts_and_forgets_only_when_told_so(self, program: Program) -> None:
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
        log.write_bytes(log.read_bytes().replace(b'"kitchen"', b'"kitchem"', 1))
        repaired = Program(program.data.with_name("repaired"))

        assert "change_log.jsonl, line " in program.run("verify", code=3)
        report = program.ask("repair", str(repaired.data), code=3)
        assert report["losses"]
        assert repaired.keyword("编程/Python") is not None
        assert "exists" in program.run("repair", str(repaired.data), code=2)

    def test_measures(self, program: Program) -> None:
        said = program.run("metrics")

        assert said.splitlines()[0].split() == ["keywords", "6"]
        assert "children of 编程" in said or "children of /" in said
        assert "bytes of change_log.jsonl" in said

    def test_reorganizes_by_a_plan_that_was_looked_at(self, program: Program, tmp_path: Path) -> None:
        with KeywordTree(str(program.data)) as tree:
            tree.CreateKeyword("Kitchen", "root")
        said = program.run("reorganize")
        plan = tmp_path / "plan.json"
        plan.write_text(program.run("reorganize", "--json"), encoding="utf-8")

        assert "Kitchen into kitchen" in said
        assert program.ask("metrics")["keywords"] == 7
        program.run("reorganize", "--plan", str(plan), "--apply")
        assert program.ask("metrics")["keywords"] < 7
        program.run("reorganize", "--plan", str(plan), "--apply", code=2)


class TestCarrying:
    def test_what_is_exported_can_be_imported_once(self, program: Program, tmp_path: Path) -> None:
        copy = Program(tmp_path / "copy")
        file = str(tmp_path / "all.json")

        program.run("export", file)
        first, second = (copy.ask("import", file) for _ in range(2))

        assert (first["keywords"], first["infos"], first["links"]) == (6, 2, 2)
        assert (second["keywords"], second["infos"], second["skipped"]) == (0, 0, 8)
        assert copy.run("show", "--depth", "0", "--infos") == program.run("show", "--depth", "0", "--infos")

    def test_a_part_goes_to_standard_output_and_beneath_a_keyword(self, program: Program, tmp_path: Path) -> None:
        table = program.run("export", "-", "--format", "csv", "--from", "kitchen")
        (tmp_path / "table.csv").write_text("path,info\n茶/绿茶,Green tea.\n", encoding="utf-8")
        program.run("import", str(tmp_path / "table.csv"), "--parent", "kitchen")

        assert {row["path"] for row in csv.DictReader(table.lstrip("\ufeff").splitlines())} == {
            "kitchen",
            "kitchen/open",
        }
        assert program.infos("kitchen/茶/绿茶") == ["Green tea."]

    def test_what_cannot_be_read_is_bad_use(self, program: Program, tmp_path: Path) -> None:
        (tmp_path / "bad.json").write_text("{", encoding="utf-8")

        assert "bad.json" in program.run("import", str(tmp_path / "bad.json"), code=2)
        assert "does not exist" in program.run("import", str(tmp_path / "none.csv"), code=2)

    def test_shows_progress_on_a_terminal(self, program: Program, tmp_path: Path) -> None:
        (tmp_path / "many.csv").write_text("path\n" + "".join(f"n{i}\n" for i in range(1500)), encoding="utf-8")
        seen = program.look("import", str(tmp_path / "many.csv"), columns=100)

        assert " records, " in seen
        assert "/s" in seen
        assert "left:" in seen
        assert "1,500 keywords" in seen


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


class TestScreen:
    @pytest.fixture
    def hostile(self, program: Program) -> Program:
        with KeywordTree(str(program.data)) as tree:
            node = tree.CreateKeyword(HOSTILE, "root", [HOSTILE + "2"], HOSTILE)
            tree.BatchCreateInfos([{"id": "bad", "content": HOSTILE, "source": HOSTILE, "keyword_ids": [node.id]}])
        return program

    def test_names_from_strangers_cannot_disturb_it(self, hostile: Program) -> None:
        for arguments in (
            ("show", "--infos", "--ids"),
            ("show", "bad"),
            ("search", HOSTILE),
            ("search", HOSTILE, "--json"),
            ("history", "--limit", "3"),
            ("move", HOSTILE + "3", "/"),
        ):
            seen = hostile.look(*arguments)

            assert "\x1b[2J" not in seen
            assert "\u202e" not in seen
            assert "\x9b" not in seen
            assert "esc�[2Jape�txt" in seen or "esc\\u001b[2Jape\\u202etxt" in seen
            assert len(seen.splitlines()) == seen.count("\n")  # no other character ends a line

    def test_names_in_other_scripts_align(self, capsys: pytest.CaptureFixture[str]) -> None:
        names = ["关键词", "한국어", "ไทย", "😀 smile", "e\u0301tude", "ＡＢＣ", "plain"]
        Screen().print(table([(name, "|") for name in names]))

        rows = capsys.readouterr().out.splitlines()
        assert [row.split("  ")[0].strip() for row in rows] == names
        assert {display_width(row) for row in rows} == {max(map(display_width, names)) + 3}

    def test_a_narrow_one_keeps_every_row_in_its_line(self, program: Program) -> None:
        with KeywordTree(str(program.data)) as tree:
            tree.CreateKeyword("很长" * 100, "root")
        plain = program.look("history", "--limit", "3", columns=60).replace("\x1b", "\0")
        rows = [part.split("m", 1)[-1] for part in plain.replace("\r", "").split("\n")]

        assert len([row for row in rows if row.strip()]) == 4
        assert any("…" in row for row in rows)
        assert max(display_width(row) for row in rows if "\0" not in row) <= 60


class TestBeginning:
    def test_the_demo_builds_a_memory_that_can_be_kept(self, tmp_path: Path) -> None:
        library = Program(tmp_path / "library")

        counts = library.ask("demo", "--data", str(library.data))
        said = library.run("search", "shutil/copytree")

        assert counts["keywords"] > 1000
        assert said.startswith("shutil / copytree")

    def test_a_shell_learns_to_complete(self, program: Program) -> None:
        assert "_keyword_tree_completion" in program.run("completion", "bash")
        assert program.ask("completion", "fish")["source"].startswith("function _keyword_tree_completion")

    def test_completes_keywords_level_by_level(self, program: Program) -> None:
        def complete(words: str) -> list[str]:
            count = str(len(words.split()) - 1)
            said = program.run(_KEYWORD_TREE_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=count)
            return [line.partition(",")[2] for line in said.split()]

        assert complete("keyword-tree reo") == ["reorganize"]
        assert complete("keyword-tree show 编") == ["编程"]
        assert complete("keyword-tree move 编程/py") == ["编程/Python"]
        assert complete("keyword-tree show nothing/") == []
