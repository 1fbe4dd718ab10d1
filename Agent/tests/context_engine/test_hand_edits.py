"""Tests of edits by hand while commits run: whatever an editor does, no line of it is lost."""

import contextlib
import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from Agent.context_engine.core.errors import VersionConflictError
from Agent.context_engine.core.objects import ContextNode, RequestContext
from Agent.context_engine.fs.context_fs import ContextFS
from Agent.context_engine.fs.redo import merge
from Agent.context_engine.fs.uri import parse_uri

ADA = RequestContext("acme", "ada", "helper", "s1")
TEA = "ctx://acme/users/ada/memories/preferences/tea"
EDITS = 1_000 if os.environ.get("KEYWORD_TREE_STORM") == "1" else 150

EDITOR = """
import os, random, sys, time
path, count, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
chance = random.Random(seed)

def read():
    while True:
        try:
            with open(path, encoding="utf-8") as file:
                return file.read()
        except FileNotFoundError:
            time.sleep(0.0001)

for number in range(count):
    line = f"- by hand {number:05} .\\n"
    way = number % 3
    if way == 0:  # truncates and writes, as nano does
        text = read()
        with open(path, "w", encoding="utf-8") as file:
            if chance.random() < 0.5:
                time.sleep(chance.random() / 500)
            file.write(text[-3_000:] + line)
    elif way == 1:  # writes another file and renames it, as vim does
        text = read()
        with open(path + "~", "w", encoding="utf-8") as file:
            file.write(text[-3_000:] + line)
        os.replace(path + "~", path)
    else:  # appends, as a shell does
        with open(path, "a", encoding="utf-8") as file:
            if chance.random() < 0.5:
                time.sleep(chance.random() / 500)
            file.write(line)
    time.sleep(chance.random() / 200)
"""


def node(content: str = "- no sugar\n") -> ContextNode:
    return ContextNode(TEA, "", "memory", "preferences", "user:ada", "tea", "about tea", content, {})


def content_of(fs: ContextFS) -> Path:
    return Path(fs.resolve_path(ADA, TEA)) / "content.md"


def add(fs: ContextFS, line: str, tx: object) -> None:
    fs.write_level(ADA, TEA, "L2", line + fs.read_level(ADA, TEA, "L2")[-3_000:])


def kept(fs: ContextFS) -> str:
    """Return all that the store keeps of the node's content: the file, its history, and what was put aside."""
    images = [image.decode("utf-8", "replace") for image in fs.journal.images_of(TEA, "content.md")]
    aside = [path.read_text("utf-8") for path in fs.aside.rglob("content.md*")]
    return "\n".join([content_of(fs).read_text("utf-8"), *images, *aside])


@pytest.mark.parametrize("where", ["disk", "memory"])
def test_of_an_editor_beside_constant_commits_no_line_is_lost(tmp_path: Path, where: str) -> None:
    shared = Path("/dev/shm")  # a file system in memory, where there is one
    root = tmp_path if where == "disk" or not os.access(shared, os.W_OK) else shared / f"engine-{os.urandom(6).hex()}"
    fs = ContextFS(root / "store")
    fs.write_node(ADA, node())
    command = [sys.executable, "-c", EDITOR, str(content_of(fs)), str(EDITS), "7"]
    editor = subprocess.Popen(command)
    try:
        number = 0
        while editor.poll() is None:
            number += 1
            with contextlib.suppress(VersionConflictError):  # the editor was quicker fifty times
                fs.run(ADA, "add", functools.partial(add, fs, f"- by the engine {number}\n"))
    finally:
        editor.wait()

    assert editor.returncode == 0
    fs.adopt(ADA, TEA)
    found = kept(fs)
    lost = [number for number in range(EDITS) if f"- by hand {number:05} ." not in found]
    assert lost == []
    assert number > 2  # commits beside the editor; how many depends on the disk
    fs.close()
    if root != tmp_path:
        subprocess.run(["rm", "-r", str(root)], check=True)


def test_what_a_dead_process_had_taken_from_its_place_is_kept(fs: ContextFS) -> None:
    fs.write_node(ADA, node())
    content_of(fs).with_name("content.md.new").write_text("- by hand\n", "utf-8")
    with fs.journal.writing() as connection:  # as a process leaves it that dies between two steps
        connection.execute("UPDATE commits SET state = 'logged'")
    fs.write_level(ADA, TEA, "L0", "tea, again")

    assert "- by hand\n" in kept(fs)
    assert not list(content_of(fs).parent.glob("*.new"))
    assert "content.md of" in fs.journal.reports()[0][2]


def test_a_file_that_another_program_still_writes_is_kept_itself(fs: ContextFS) -> None:
    fs.write_node(ADA, node())
    with content_of(fs).open("a", encoding="utf-8") as file:
        fs.write_level(ADA, TEA, "L2", "- by the engine\n")
        file.write("- by hand\n")

    assert fs.read_level(ADA, TEA, "L2") == "- by the engine\n"
    assert "- no sugar\n- by hand\n" in kept(fs)
    assert "open in another program" in fs.journal.reports()[0][2]


def test_what_both_have_added_stands_in_the_file(fs: ContextFS, monkeypatch: pytest.MonkeyPatch) -> None:
    fs.write_node(ADA, node())
    log = fs.journal.log

    def log_and_edit(*arguments: Any) -> None:
        log(*arguments)
        with content_of(fs).open("a", encoding="utf-8") as file:
            file.write("- by hand\n")

    monkeypatch.setattr(fs.journal, "log", log_and_edit)
    fs.write_level(ADA, TEA, "L2", "- by the engine\n- no sugar\n")

    assert fs.read_level(ADA, TEA, "L2") == "- by the engine\n- no sugar\n- by hand\n"
    assert fs.is_edited(parse_uri(TEA))
    assert not list(fs.aside.glob("*"))


def test_what_both_have_written_alike_stands_once() -> None:
    assert merge(b"- a\n", b"- b\n", b"- b\n") == b"- b\n"


def test_a_node_that_is_deleted_while_a_hand_writes_it_is_kept_aside(
    fs: ContextFS, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs.write_node(ADA, node())
    log = fs.journal.log
    monkeypatch.setattr(fs.journal, "log", lambda *a: (log(*a), content_of(fs).write_text("- by hand\n", "utf-8")))
    fs.delete_node(ADA, TEA)

    assert not fs.exists(ADA, TEA)
    assert [path.read_text("utf-8") for path in fs.aside.rglob("content.md")] == ["- by hand\n"]
