"""A LangGraph agent on two machines with one memory, through a kill and a failover: `make shared`.

    $ python examples/two_machines.py

Starts a PostgreSQL of its own on loopback, with a synchronous standby, in a temporary folder, and two processes that
are two machines. On each runs a LangGraph agent whose store is the same tree: A is given notes and puts them away, B is
asked for each. A is killed and started again; then the server crashes and the standby takes over. In the end each note
whose put returned is looked for. Everything that was started is stopped. The agents' model is a script: none is needed
to see what the memory does. Needs PostgreSQL (`initdb`) and the extras `[postgres]` and `[langgraph]`.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, TypedDict

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from langgraph.graph import END, START, StateGraph
from langgraph.store.base import BaseStore

from keyword_tree import Info, KeywordTree, StoreError
from keyword_tree.adapters.langgraph import KeywordTreeStore
from keyword_tree.shared_tree import SharedLog
from keyword_tree.tests.shared.own_server import OwnServer  # a PostgreSQL on loopback, which only the repository has

VARIABLE = "TWO_MACHINES_ADDRESS"
NOTES = ("team", "笔记 notes")
PAUSE_S = 0.02  # between two notes


# -- the agent -------------------------------------------------------------------------


class State(TypedDict):
    """What a turn begins and ends with."""

    number: int
    said: str
    answer: str


def answer(state: State, *, store: BaseStore) -> State:
    """Put away what was said; without it, answer from the memory."""
    key = f"note {state['number']}"
    if state["said"]:
        store.put(NOTES, key, {"text": state["said"]})
        return {**state, "answer": "I will remember that."}
    item = store.get(NOTES, key)
    return {**state, "answer": item.value["text"] if item else ""}


def make_agent(store: BaseStore) -> Any:
    """Return the graph, which is the same on both machines."""
    graph = StateGraph(State)
    graph.add_node("answer", answer)
    graph.add_edge(START, "answer")
    graph.add_edge("answer", END)
    return graph.compile(store=store)


# -- the two machines --------------------------------------------------------------


def learn(address: str) -> None:
    """Give the agent notes, after those that the memory holds, and print the number of each that it keeps."""
    with KeywordTreeStore.from_folder(address) as store:
        agent = make_agent(store)
        for number in itertools.count(len(store.search(NOTES, limit=100_000)) + 1):
            agent.invoke({"number": number, "said": f"what machine A learned, {number}", "answer": ""})
            print(number, flush=True)
            time.sleep(PAUSE_S)


def ask(address: str) -> None:
    """Ask the agent for one note after the other, each until it knows it, and print its number."""
    with KeywordTreeStore.from_folder(address) as store:
        agent = make_agent(store)
        for number in itertools.count(1):
            while not _knows(agent, number):
                time.sleep(0.01)
            print(number, flush=True)


def _knows(agent: Any, number: int) -> bool:
    try:
        turn = agent.invoke({"number": number, "said": "", "answer": ""})
    except StoreError:  # while the standby takes over
        return False
    return bool(turn["answer"] == f"what machine A learned, {number}")


class Machine:
    """A process that prints numbers; when each was read is kept."""

    def __init__(self, job: str, address: str, folder: str) -> None:
        self.times: dict[int, float] = {}
        # Not among the command's words, which others see: it holds a password.
        environment = {**os.environ, VARIABLE: address, "XDG_CACHE_HOME": folder}
        command = [sys.executable, __file__, job, "machine"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            self.times[int(line)] = time.monotonic()

    def wait_for(self, count: int, seconds: float = 60) -> None:
        """Wait until it has printed `count` more numbers."""
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
        hosts = f"127.0.0.1:{server.port},127.0.0.1:{standby.port}"
        dsn = f"postgresql://kt:{server.password}@{hosts}/postgres?target_session_attrs=read-write"
        address = f"{dsn}#team"
        with SharedLog(dsn) as log:
            log.setup()
        say("a PostgreSQL and its synchronous standby run, the tables are made")
        learner = Machine("learn", address, f"{folder}/a")
        asker = Machine("ask", address, f"{folder}/b")
        machines = [learner, asker]
        try:
            asker.wait_for(notes)
            say(f"A's agent has put {len(learner.times)} notes, B's agent knows {len(asker.times)}")
            say(f"B's agent knew a note {delay_ms(learner, asker):.0f} ms after A's put had returned (median)")
            learner.kill()
            acknowledged = learner.times
            time.sleep(0.5)
            say(f"A was killed after its put of note {max(acknowledged)}; B's agent knows {len(asker.times)} of them")
            learner = Machine("learn", address, f"{folder}/a")
            machines.append(learner)
            learner.wait_for(notes)
            say(f"A started again, found {min(learner.times) - 1} notes, went on; B's agent knows {len(asker.times)}")
            before = max(learner.times)
            server.stop("immediate")
            standby.promote()
            say("the server crashed, and the standby was promoted")
            learner.wait_for(notes)
            asker.wait_for(notes)
            say(f"both agents go on; A's longest wait for a put was {longest_wait_s(learner, before):.2f} s")
        finally:
            for machine in machines:
                machine.kill()
        acknowledged |= learner.times
        with SharedLog(dsn) as log, KeywordTree(f"{folder}/c", store=log.tree("team")) as tree:
            puts = Counter(
                record.metadata["langgraph"]["key"]
                for change in tree.Changes(0)
                for record in change.after
                if isinstance(record, Info)
            )
            lost = [number for number in acknowledged if not puts[f"note {number}"]]
            twice = [key for key, count in puts.items() if count > 1]
            say(f"acknowledged {len(acknowledged)}: {len(lost)} lost, {len(twice)} doubled; {problems(tree)}")
            if lost or twice:
                raise SystemExit(1)


def delay_ms(learner: Machine, asker: Machine) -> float:
    """Return how long a note took from one machine to the other, at the median."""
    delays = sorted(asker.times[number] - when for number, when in learner.times.items() if number in asker.times)
    return 1000 * delays[len(delays) // 2]


def longest_wait_s(learner: Machine, since: int) -> float:
    """Return the longest time between two acknowledged notes from that number on."""
    times = [when for number, when in learner.times.items() if number >= since]
    return max(later - when for when, later in itertools.pairwise(times)) - PAUSE_S


def problems(tree: KeywordTree) -> str:
    """Say what is wrong with a tree."""
    return "; ".join(tree.Verify()) or "Verify finds nothing wrong"


if __name__ == "__main__":
    if len(sys.argv) == 3:
        {"learn": learn, "ask": ask}[sys.argv[1]](os.environ[VARIABLE])
    else:
        try:
            main(*map(int, sys.argv[1:2]))
        except FileNotFoundError as error:
            raise SystemExit(str(error)) from None
