"""Every call fails, once or for good, with every error that disks know."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from Agent.tests.store.faults.sagas import SAGA, Saga, calm_saga
from Agent.tests.store.faults.survivors import SagaSurvivor, Survivor, faults_at
from Agent.tests.store.faults.worlds import LONG, STORM, Step, World, storm, within_budget, workload
from Agent.tests.support.faulty_files import Door

EVERYTHING = (  # once, with two trees, so that one takes in what the other wrote, and checkpoints
    Step("a", "open"),
    Step("a", "keyword", ({"id": "k1", "name": "first", "parent_id": "root", "aliases": ["1st"]},)),
    Step("a", "info", ({"id": "i1", "content": LONG, "keyword_ids": ["k1"]},)),
    Step("b", "open"),
    Step("b", "read", ({"id": "i1"},)),
    Step("b", "info", ({"id": "i2", "content": "short", "keyword_ids": ["k1", "root"]},)),
    Step("a", "refresh"),
    Step("a", "group", tuple({"id": f"g{n}", "name": f"group {n}", "parent_id": "k1"} for n in range(3))),
    Step("b", "link", ({"info_id": "i1", "keyword_id": "g1", "relation": "SOURCE"},)),
    Step("b", "infos", tuple({"id": f"b{n}", "content": f"{n} {LONG}", "keyword_ids": ["g2"]} for n in range(4))),
    Step("b", "close"),
    Step("a", "link", ({"info_id": "i1", "keyword_id": "g1", "relation": "EXAMPLE"},)),
    Step("a", "keywords", tuple({"id": f"k{n}", "name": f"k {n}" * 40, "parent_id": "g0"} for n in range(2, 9))),
    Step("a", "close"),
    Step("a", "open"),
    Step("a", "info", ({"id": "i3", "content": "the last"},)),
)


def failures_of(
    calm: World,
    steps: Sequence[Step],
    survive: Callable[[], Survivor],
    is_chosen: Callable[[float], bool],
    what: str,
    rng: random.Random,
    tally: Counter[str],
) -> list[str]:
    """Run steps with each fault of each call that the calm world made, without a storm those that chance chooses."""
    failures: list[str] = []
    calls = list(enumerate(calm.disk.calls))
    cases = [(call, name, fault) for call, name in calls for fault in faults_at(call, name.split(" ")[0], rng)]
    for call, name, fault in within_budget(cases, rng):
        if not (STORM or is_chosen(rng.random())):
            continue
        survivor = survive()
        try:
            survivor.run(steps, fault)
        except Exception as error:
            failures.append(f"{call} {name}, {fault}: {type(error).__name__}: {str(error)[:500]}")
        tally[f"{what}, runs"] += 1
        tally.update({f"{what}, {each}": count for each, count in survivor.counts.items()})
    return failures


class TestErrors:
    @pytest.mark.parametrize("seed", storm(1, 20))
    def test_of_any_call_leave_memory_and_disk_as_they_were(self, door: Door, tally: Counter[str], seed: int) -> None:
        steps = workload(seed, 14) if seed else EVERYTHING
        calm = World(door)
        calm.run(steps)
        rng = random.Random(f"errors {seed}")

        def survive() -> Survivor:
            return Survivor(World(door), rng)

        assert failures_of(calm, steps, survive, lambda chance: chance >= 0.975, "errors", rng, tally) == []


class TestMethodsOnAFailingDisk:
    @pytest.mark.parametrize("seed", storm(1, 4))
    def test_leave_memory_and_disk_as_they_were(self, door: Door, tally: Counter[str], seed: int) -> None:
        calm = calm_saga(door)
        rng = random.Random(f"failing methods {seed}")

        def survive() -> Survivor:
            return SagaSurvivor(Saga(door, calm=calm.states), rng)

        assert failures_of(calm, SAGA, survive, lambda chance: chance <= 0.004, "errors in methods", rng, tally) == []
