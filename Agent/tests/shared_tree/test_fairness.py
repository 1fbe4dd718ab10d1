"""No machine keeps another one waiting: three trials of the storm of fairness, which `make fairness` runs whole."""

from __future__ import annotations

import pytest

from Agent.tests.shared import fairness
from Agent.tests.shared_tree.conftest import make_server


@pytest.mark.parametrize("trial", ["a loop, and one 3 ms away", "400 ms away", "one is stopped"])
def test_no_write_waits_long(trial: str) -> None:
    machines = fairness.TRIALS[trial]
    with make_server() as server:
        waits = fairness.run(machines, 8 if "stopped" in trial else 5, server)

    assert all(each.is_fair() for each in waits), "\n".join(map(str, waits))
    assert all(len(each.seconds) > 5 for each in waits if each.machine.away_ms <= 20)
