"""Many processes over one hub: no feedback is lost, and a kill loses nothing that was acknowledged."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from Agent.knowhub.hub import LOCAL, KnowHub

STORM = bool(os.environ.get("KEYWORD_TREE_STORM"))
ROOT = Path(__file__).resolve().parents[3]

JUDGE = """
import sys
from Agent.knowhub.hub import LOCAL, KnowHub
from Agent.knowhub.tokens import Token
with KnowHub(sys.argv[1]) as hub:
    for number in range(int(sys.argv[3])):
        voter = Token(f"{sys.argv[4]}-{number}", LOCAL.rights, LOCAL.scopes)
        hub.update(voter, sys.argv[2], {"add_helpful_case": {"task": f"{number}"}})
"""

SAVE = """
import os, sys
from Agent.knowhub.hub import LOCAL, KnowHub
with KnowHub(sys.argv[1]) as hub:
    number = 0
    while True:
        made = hub.save(LOCAL, {"task": f"task {number}", "content": "c" * 200, "types": ["tool"]})
        hub.put_resource(LOCAL, f"r/{os.getpid()}/{number}", {"title": "t", "secure_body": "hush"})
        os.write(1, f"{made['entry']['id']} {os.getpid()}/{number}\\n".encode())
        number += 1
"""


def start(code: str, *arguments: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", code, *arguments], cwd=ROOT, stdout=subprocess.PIPE)


def test_of_the_feedback_of_eight_processes_none_is_lost(tmp_path: Path) -> None:
    each, count = (250, 8) if STORM else (20, 3)
    with KnowHub(tmp_path / "hub") as hub:
        id = hub.save(LOCAL, {"task": "t", "content": "c", "types": ["tool"]})["entry"]["id"]
        workers = [start(JUDGE, str(tmp_path / "hub"), id, str(each), str(n)) for n in range(count)]
        for worker in workers:
            assert worker.wait(600) == 0
            assert worker.stdout is not None
            worker.stdout.close()
        hub.catalog.catch_up()
        assert hub.get(LOCAL, id)["eval"]["helpful"] == count * each
        assert hub.ledger.tree.Verify() == []


@pytest.mark.parametrize("piece", range(10 if STORM else 1))
def test_a_kill_loses_nothing_that_was_acknowledged(tmp_path: Path, piece: int) -> None:
    acknowledged: list[tuple[str, str]] = []
    for round_number in range(20 if STORM else 3):
        worker = start(SAVE, str(tmp_path / "hub"))
        assert worker.stdout is not None
        first = worker.stdout.readline()  # it has begun
        time.sleep(0.05 + 0.01 * round_number + 0.001 * piece)
        worker.send_signal(signal.SIGKILL)
        lines = [first, *worker.stdout.read().splitlines(keepends=True)]
        worker.stdout.close()
        worker.wait()
        acknowledged += [tuple(line.decode().split()) for line in lines if line.endswith(b"\n")]  # type: ignore[misc]
    began = time.perf_counter()
    with KnowHub(tmp_path / "hub") as hub:
        assert time.perf_counter() - began < 60
        assert len(acknowledged) >= 3
        for id, path in acknowledged:
            assert hub.get(LOCAL, id)["content"] == "c" * 200
            assert hub.reveal(LOCAL, f"r/{path}")["secure_body"] == "hush"
        assert hub.ledger.tree.Verify() == []
    print(f"{len(acknowledged)} acknowledged, none lost")
