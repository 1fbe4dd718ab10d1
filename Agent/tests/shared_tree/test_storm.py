"""Storms of a minute with `make storm`, or of KEYWORD_TREE_SHARED_STORM_S seconds."""

from __future__ import annotations

import os

import pytest

from Agent.tests.shared import storm
from Agent.tests.shared.own_server import find_programs

LONG = bool(os.environ.get("KEYWORD_TREE_STORM"))
SECONDS = float(os.environ.get("KEYWORD_TREE_SHARED_STORM_S") or (60 if LONG else 0))

pytestmark = pytest.mark.skipif(
    find_programs() is None, reason="PostgreSQL is not installed (no initdb): apt-get install postgresql"
)


@pytest.mark.skipif(not SECONDS, reason="set KEYWORD_TREE_STORM=1, or KEYWORD_TREE_SHARED_STORM_S")
def test_nothing_is_lost_doubled_out_of_order_or_stale() -> None:
    report = storm.run(
        SECONDS,
        workers=6 if SECONDS > 30 else 3,
        failover=SECONDS > 30,
        least=100_000 if LONG else 0,
        folder=storm.memory_folder(),
    )
    print(f"\n{report}")

    assert not report.problems, str(report)
    assert report.acknowledged > 20 * SECONDS
    assert sum(report.faults.values()) >= SECONDS / 2


@pytest.mark.skipif(not LONG, reason="set KEYWORD_TREE_STORM=1")
def test_finds_what_goes_wrong_without_the_comparison() -> None:
    report = storm.run(90, mutant="without comparison", folder=storm.memory_folder())
    print(f"\n{report}")

    assert report.problems
