"""LangGraph's own tests of InMemoryStore, SqliteStore and their asynchronous twins, on `KeywordTreeStore`."""

import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from .fetching import ROOT, CannotFetchError, fetch

REPOSITORY = "langchain-ai/langgraph"
COMMIT = "f09cfe8ffc1eeffd68f4b628ed69c30f7cad229f"

SUITES = {
    "stores": ("checkpoint/tests/test_store.py", "checkpoint-sqlite/tests/test_store.py"),
    "asynchronous twins": ("checkpoint-sqlite/tests/test_async_store.py",),
    "time to live": ("checkpoint-sqlite/tests/test_ttl.py",),
}
REQUIRED = {"stores": 84}

_NAMES = {
    "from langgraph.store.memory import InMemoryStore": "from tests.langgraph_names import InMemoryStore",
    "from langgraph.store.sqlite import SqliteStore": "from tests.langgraph_names import SqliteStore",
    "from langgraph.store.sqlite.aio import AsyncSqliteStore": "from tests.langgraph_names import AsyncSqliteStore",
    "from langgraph.store.sqlite import AsyncSqliteStore": "from tests.langgraph_names import AsyncSqliteStore",
}


def run_their_tests(libraries: Path, names: tuple[str, ...]) -> tuple[int, int, list[str]]:
    """Return how many of LangGraph's tests pass, of how many, and the names of those that fail."""
    place = libraries.parent / "ours"
    shutil.rmtree(place, ignore_errors=True)
    tests = place / "tests"
    tests.mkdir(parents=True)
    (tests / "__init__.py").touch()
    shutil.copy(Path(__file__).with_name("langgraph_names.py"), tests)
    shutil.copy(libraries / "checkpoint/tests/embed_test_utils.py", tests)
    shutil.copy(libraries / "checkpoint-sqlite/tests/test_store.py", tests)  # the others import it
    files = []
    for name in names:
        text = (libraries / name).read_text(encoding="utf-8")
        for theirs, ours in _NAMES.items():
            text = re.sub(rf"^{re.escape(theirs)}$", ours, text, flags=re.MULTILINE)
        files.append(tests / f"test_{name.split('/')[0].replace('-', '_')}_{Path(name).stem}.py")
        files[-1].write_text(text, encoding="utf-8")
    report = place / "report.xml"
    (place / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\n", encoding="utf-8")  # or this project's counts
    options = ["-c", "pytest.ini", "-p", "no:cacheprovider", "-p", "no:xdist", f"--junitxml={report}", "-q"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(place)])}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *map(str, files)],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if not report.exists():
        raise CannotFetchError(f"pytest cannot run them: {done.stdout[-500:]}")
    cases = list(ElementTree.parse(report).iter("testcase"))
    failed = [
        case.get("name", "") for case in cases if case.find("failure") is not None or case.find("error") is not None
    ]
    skipped = [case for case in cases if case.find("skipped") is not None]
    return len(cases) - len(failed) - len(skipped), len(cases), failed


def main() -> bool:
    """Run them, print what came of it, and tell whether it is as promised."""
    libraries = fetch(REPOSITORY, COMMIT, "libs")
    is_good = True
    for title, names in SUITES.items():
        passed, total, failed = run_their_tests(libraries, names)
        required = REQUIRED.get(title, 0)
        promised = f" ({required} promised)" if required else ""
        print(f"LangGraph's tests of its {title} on KeywordTreeStore: {passed} of {total} pass{promised}")
        for name in failed:
            print(f"  fails: {name}")
        is_good &= passed >= required
    return is_good
