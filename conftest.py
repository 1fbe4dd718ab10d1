"""What all tests share: profiles of Hypothesis, Ctrl-C, and an empty folder for every session in a document."""

import contextlib
import os
import signal
import sys
from collections.abc import Generator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

# Where the packages of an extra are missing, its modules have no session to run, and its tests nothing to test.
_EXTRAS = {
    ("click", "rich"): ["cli/[!_]*.py"],
    ("numpy",): ["finding/vectors.py", "finding/tree.py", "tests/context_engine/test_vectors.py"],
    ("yaml",): ["formats/obsidian_notes.py"],
    ("fastapi", "cryptography", "jinja2", "markdown_it", "httpx", "prometheus_client", "uvicorn"): ["knowhub/[!_]*.py"],
    ("mcp",): ["knowhub/mcp_server.py", "tests/knowhub/test_mcp_server.py"],
}
collect_ignore_glob = [
    f"Agent/{pattern}"
    for packages, patterns in _EXTRAS.items()
    if not all(map(find_spec, packages))
    for pattern in patterns
]

# Where an environment forbids Python to keep what it has compiled, hundreds of processes that tests start would compile
# the library again, and each worker every test.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# How many examples a property test tries is decided here. `make test` and CI try few, and the same every time: a run on
# unchanged code never fails by chance. `make storm` tries many, other ones each time.
with contextlib.suppress(ImportError):
    from hypothesis import HealthCheck, settings

    for profile, examples in {"quick": 30, "nightly": 1_000}.items():
        settings.register_profile(
            profile,
            max_examples=examples,
            derandomize=profile == "quick",
            database=None,
            deadline=None,
            print_blob=True,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
        )
    settings.load_profile("nightly" if os.environ.get("KEYWORD_TREE_STORM", "") not in ("", "0") else "quick")

# A shell that starts a run in the background lets it ignore Ctrl-C, and so would each process that a test starts and
# interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let a test fail that skips for want of what KEYWORD_TREE_MUST_TEST names, separated by commas."""
    report = yield
    if report.skipped and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2]
        must = [name for name in os.environ.get("KEYWORD_TREE_MUST_TEST", "").split(",") if name and name in reason]
        if must:
            report.outcome, report.longrepr = "failed", f"{reason} (KEYWORD_TREE_MUST_TEST names {', '.join(must)})"
    return report


@pytest.fixture(autouse=True)
def _sessions_write_elsewhere(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    if isinstance(request.node, pytest.DoctestItem):
        for name in ("KNOWHUB_KEY", "KNOWHUB_KEY_FILE", "KNOWHUB_URL", "KNOWHUB_TOKEN", "KNOWHUB_SCOPES"):
            monkeypatch.delenv(name, raising=False)  # a person's own
        folder: Path = tmp_path_factory.mktemp("session")
        monkeypatch.chdir(folder)

import_module("Agent")  # which makes `keyword_tree.…`, the name of the installed package, the same modules
