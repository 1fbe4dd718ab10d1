"""One memory on two machines, through a kill and a failover: `make shared`.

    $ python examples/two_machines.py

Starts a PostgreSQL of its own on loopback, with a synchronous standby, in a temporary folder, and two processes that
are two machines: one writes notes, the other searches for each as soon as it can. The writer is killed and started
again; then the server crashes and the standby takes over. In the end each note that was acknowledged is looked for.
Everything that was started is stopped. Needs PostgreSQL (`initdb`) and the extra `[postgres]`.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from Agent.keyword_tree import KeywordTree, StoreError  # noqa: E402  the repository must be found first
from Agent.shared_tree import SharedLog  # noqa: E402
from Agent.tests.shared.own_server import OwnServer  # noqa: E402

VARIABLE = "TWO_MACHINES_DSN"
PAUSE_S = 0.02  # between two notes


# -- the two machines --------------------------------------------------------------


def write(dsn: str, folder: str) -> None:
    """Write notes, each beneath a topic, and say which are acknowledged."""
    with SharedLog(dsn) as log, KeywordTree(folder, store=log.tree("team")) as tree:
        topic = tree.Search("笔记 notes", llm_expand_query=False).node or tree.CreateKeyword("笔记 notes", "root")
        number = len(tree.GetChildren(topic.id))
        while True:
            number += 1
            tree.CreateKeyword(f"note {number}", topic.id, description=f"what machine A learned, {number}")
            print(number, flush=True)
            time.sleep(PAUSE_S)


def search(dsn: str, folder: str) -> None:
    """Search for each note until it is there, and say so."""
    with SharedLog(dsn) as log, KeywordTree(folder, store=log.tree("team")) as tree:
        number = 1
        while True:
            if tree.Search(f"note {number}", llm_expand_query=False).node is not None:
                print(number, flush=True)
                number += 1
                continue
            try:
                log.follow([tree])
            except StoreError:  # while the standby takes over
                time.sleep(0.05)
            time.sleep(0.005)


class Machine:
    """A process that prints numbers; when each was read is kept."""

    def __init__(self, job: str, dsn: str, folder: str) -> None:
        self.times: dict[int, float] = {}
        # Not among the command's words, which others see: it holds a password.
        environment = {**os.environ, VARIABLE: dsn}
        command = [sys.executable, __file__, job, folder]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            self.times[int(line)] = time.monotonic()

    def wait_for(self, count: int, seconds: float = 60) -> None:
        """Wait until it has printed so many more numbers."""
        end, goal = time.monotonic() + seconds, len(self.times) + count
        while len(self.times) < goal:
            if time.monotonic() > end or self.process.poll() is not None:
                raise RuntimeError(f"a machine stopped at {len(self.times)}")
            time.sleep(0.01)

    def kill(self) -> None:
        """End it as a power cut would."""
        self.process.kill()
        self.process.wait()
        self._thread.join()


# -- what happens to them ----------------------------------------------------------


def main(notes: int = 60) -> None:
    """Let it all happen, and print what each saw."""
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - started:6.2f} s  {text}", flush=True)

    with tempfile.TemporaryDirectory() as folder, OwnServer() as server, server.standby() as standby:
        server.configure({"synchronous_standby_names": "'standby'"})
        server.reload()
        both = f"host=127.0.0.1,127.0.0.1 port={server.port},{standby.port} target_session_attrs=read-write"
        dsn = f"{both} user=kt password={server.password} dbname=postgres"
        with SharedLog(dsn) as log:
            log.setup()
        say("a PostgreSQL and its synchronous standby run, the tables are made")
        writer = Machine("write", dsn, f"{folder}/a")
        searcher = Machine("search", dsn, f"{folder}/b")
        machines = [writer, searcher]
        try:
            searcher.wait_for(notes)
            say(f"machine A wrote {len(writer.times)} notes, machine B found {len(searcher.times)}")
            say(f"B found a note {delay_ms(writer, searcher):.0f} ms after A was told that it is durable (median)")
            writer.kill()
            say(f"machine A was killed behind note {max(writer.times)}, and starts again")
            told = writer.times
            writer = Machine("write", dsn, f"{folder}/a")
            machines.append(writer)
            writer.wait_for(notes)
            say(f"it went on at once; B has found {len(searcher.times)}")
            before = max(writer.times)
            server.stop("immediate")
            standby.promote()
            say("the server crashed, and the standby was promoted")
            writer.wait_for(notes)
            searcher.wait_for(notes)
            say(f"both go on; A's longest wait for an answer was {longest_wait_s(writer, before):.2f} s")
        finally:
            for machine in machines:
                machine.kill()
        with SharedLog(dsn) as log, KeywordTree(f"{folder}/c", store=log.tree("team")) as tree:
            numbers = {**told, **writer.times}
            lost = [number for number in numbers if not tree.FindByName(f"note {number}", 0, 1)]
            twice = [number for number in numbers if len(tree.FindByName(f"note {number}", 0, 2)) > 1]
            say(f"acknowledged {len(numbers)}: {len(lost)} lost, {len(twice)} doubled; {problems(tree)}")
            if lost or twice:
                raise SystemExit(1)


def delay_ms(writer: Machine, searcher: Machine) -> float:
    """Return how long a note took from one machine to the other, at the median."""
    delays = sorted(searcher.times[number] - when for number, when in writer.times.items() if number in searcher.times)
    return 1000 * delays[len(delays) // 2]


def longest_wait_s(writer: Machine, since: int) -> float:
    """Return the longest time between two acknowledged notes from that number on."""
    times = [when for number, when in writer.times.items() if number >= since]
    return max(later - when for when, later in itertools.pairwise(times)) - PAUSE_S


def problems(tree: KeywordTree) -> str:
    """Say what is wrong with a tree."""
    return "; ".join(tree.Verify()) or "Verify finds nothing wrong"


if __name__ == "__main__":
    if len(sys.argv) == 3:
        {"write": write, "search": search}[sys.argv[1]](os.environ[VARIABLE], sys.argv[2])
    else:
        try:
            main(*map(int, sys.argv[1:2]))
        except FileNotFoundError as error:
            raise SystemExit(str(error)) from None
