"""What do changes to large trees cost: moving, merging, undoing, snapshots, compaction, looking back?

What and why, part by part (``--only`` takes their names):

- rows: how many rows each method writes, beside the records that differ afterwards, counted by comparing all of
  them. Wanted: equal; a row more is disk and log for nothing.
- change: moving a subtree of 100,000 keywords, merging a keyword with 10,000 links into another with as many,
  and undoing both; sqlite3 does the same in one transaction each, and keeps what an undo needs in tables, as an
  application would have to. Wanted: not slower.
- snapshot: `Snapshot()` of 1,000,000 keywords, without a copy and with one, beside copying the files and
  sqlite3's backup. Wanted: under a tenth of the time of copying the files.
- compact: `CompactStorage` of ten versions of each of 100,000 keywords, the history kept or forgotten, beside
  sqlite3's `VACUUM` of the same versions in a table, and the same with the old ones deleted before. Wanted: not
  slower.
- look: what `Verify`, `Changes` and `History` cost on that store, and their memory; sqlite3's
  `integrity_check` and an indexed query beside. No limit is set: `History` reads the log backwards, and this
  says what that means.

How: contenders take turns, ratios are taken per round, and their median is given. Both sides are compared,
record by record, before and after what is timed. sqlite3 does not look whether a later operation wrote what it
undoes, and reads nothing back after `VACUUM`; both favour it. A kept history favours the library: it gives the
old log a second name, where `VACUUM` writes all versions anew.

Repeat: ``python -m benchmarks.bench_methods`` (``--quick``: a tenth of the sizes).
"""

from __future__ import annotations

import functools
import os
import shutil
import statistics
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from Agent.keyword_tree import KeywordTree
from benchmarks import common, sqlite_peer, stores, trees

MODULE = "benchmarks.bench_methods"
PROJECTIONS = ("nodes.jsonl", "infos.jsonl", "links.jsonl")
LOG = "change_log.jsonl"


def timed(work: Callable[[], object]) -> float:
    """Return the seconds that `work` takes."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def _milliseconds(seconds: list[float]) -> str:
    value = statistics.median(seconds) * 1e3
    return f"{value:,.2f}" if value < 100 else f"{value:,.0f}"


# == rows ====================================================================================


def rows(report: common.Report, scratch: Path, options: Namespace) -> None:
    """Rows written beside records that changed."""
    folder = scratch / "rows"
    with KeywordTree(str(folder)) as tree:
        specs = [{**spec, "parent_id": spec["parent_id"] or "root"} for spec in trees.made_tree(1_000)]
        ids = [node.id for node in tree.BatchCreateKeywords(specs)]
        inner = [id_ for id_ in ids if len(tree.GetChildren(id_)) >= 2]
        infos = [info.id for info in tree.BatchCreateInfos(list(trees.made_infos(inner[-6:], 5)))]
        table, worst = [], 0
        for label, work in _operations(tree, inner, infos):
            for name, step in ((label, work), ("its undo", lambda: tree.Undo(_newest(tree)))):
                seq, before, lengths = tree.History(limit=1)[0].seq, _records(tree), _lengths(folder)
                step()
                written = _written(folder, lengths)
                after = _records(tree)
                changed = sum(before.get(key) != after.get(key) for key in {**before, **after})
                is_new = tree.History(limit=1)[0].seq > seq
                table.append([name, changed, written, int(is_new)])
                worst = max(worst, written - changed)
                if not is_new:
                    break
    report.table(
        "Rows written, and records that differ afterwards, in a tree of 1,000 keywords",
        ["operation", "records", "rows", "lines"],
        table,
    )
    report.target("rows written for nothing, at worst", worst, 0, at_most=True)


def _operations(tree: KeywordTree, inner: list[str], infos: list[str]) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the methods that change something, each on a part of the tree of its own."""
    first, second, third, fourth, fifth, sixth = inner[-6:]

    def version(id_: str) -> int:
        node = tree.GetKeyword(id_)
        assert node is not None
        return node.version

    def patch(description: str) -> Callable[[], object]:
        return lambda: tree.UpdateKeyword(first, {"description": description}, version(first))

    yield "`CreateKeyword`", lambda: tree.CreateKeyword("new", first)
    yield "`CreateInfo`, two links", lambda: tree.CreateInfo("new", keyword_ids=[first, second])
    yield "`UpdateKeyword`", patch("another")
    patch("the same")()
    yield "`UpdateKeyword`, nothing new", patch("the same")
    yield "`AddAlias`", lambda: tree.AddAlias(first, "another name")
    yield "`Confirm`", lambda: tree.Confirm("what is meant", first)
    yield "`MoveKeyword`, with children", lambda: tree.MoveKeyword(third, second)
    yield "`MergeKeywords`, 5 links each", lambda: tree.MergeKeywords(fourth, fifth)
    yield "`DeleteKeyword`, children move up", lambda: tree.DeleteKeyword(fifth)
    yield "`DeleteKeyword`, cascade", lambda: tree.DeleteKeyword(sixth, cascade=True)
    yield "`UpdateInfo`", lambda: tree.UpdateInfo(infos[0], {"content": "another"})
    yield "`LinkInfo`", lambda: tree.LinkInfo(infos[0], second)
    yield "`UnlinkInfo`", lambda: tree.UnlinkInfo(infos[0], first)
    yield "`DeleteInfo`", lambda: tree.DeleteInfo(infos[1])


def _newest(tree: KeywordTree) -> str:
    return tree.History(limit=1)[0].operation_id


def _records(tree: KeywordTree) -> dict[tuple[str, ...], object]:
    """Return every live record; `level` and `children` follow from the parents and are no change of their own."""
    found: dict[tuple[str, ...], object] = {}
    waiting = ["root"]
    while waiting:
        id_ = waiting.pop()
        node = tree.GetKeyword(id_)
        assert node is not None
        waiting += node.children
        found[("keyword", id_)] = {
            name: value for name, value in vars(node).items() if name not in ("level", "children")
        }
    for page in range(1_000_000):
        infos = tree.ListInfos(page)
        for info in infos:
            found[("info", info.id)] = info
            found |= {("link", link.info_id, link.keyword_id): link for link in tree.GetLinks(info.id)}
        if not infos:
            break
    return found


def _lengths(folder: Path) -> list[int]:
    return [(folder / name).stat().st_size for name in PROJECTIONS]


def _written(folder: Path, lengths: list[int]) -> int:
    """Return how many rows stand behind these lengths: the files only ever grow by whole rows."""
    count = 0
    for name, length in zip(PROJECTIONS, lengths, strict=True):
        with (folder / name).open("rb") as file:
            file.seek(length)
            count += file.read().count(b"\n")
    return count


# == change ==================================================================================

MOVED, HOME, TARGET, SRC, DST = "moved", "home", "target", "src", "dst"


def change(report: common.Report, scratch: Path, options: Namespace) -> None:
    """Moving a large subtree, merging crowded keywords, undoing both."""
    rounds = options.rounds or (5 if options.quick else 15)
    size, links = (10_000, 1_000) if options.quick else (100_000, 10_000)
    with ExitStack() as stack:
        tree = stack.enter_context(KeywordTree(str(scratch / "change")))
        ids = _fill_for_change(tree, size, links)
        peer = sqlite_peer.SqliteMethods(_same_in_sqlite(tree, ids, scratch / "change.sqlite"))
        stack.callback(peer.close)
        sides: dict[str, Any] = {"KeywordTree": _TreeSide(tree), "sqlite3": peer}
        steps = (
            ("move", f"moving a subtree of {size:,}", lambda side: side.move(MOVED, TARGET)),
            ("merge", f"merging, {links:,} links each", lambda side: side.merge(SRC, DST)),
        )
        table, ratios = [], {}
        for name, label, work in steps:
            began = [_state(side) for side in sides.values()]
            _there_and_back(list(sides.values()), work)  # side by side, compared after each step
            results = common.interleaved(
                rounds, {name: functools.partial(_there_and_back, [side], work) for name, side in sides.items()}
            )
            assert [_state(side) for side in sides.values()] == began
            for step, what in enumerate((label, f"undoing it ({name})", f"undoing the undo ({name})")):
                of_step = {side: [times[step] for times in results[side]] for side in sides}
                ratio = common.median_ratio(of_step["sqlite3"], of_step["KeywordTree"])
                table.append([what, *(_milliseconds(of_step[side]) for side in sides), f"{ratio:.2f}"])
                ratios[what] = ratio
    report.table(
        f"One operation on many records, milliseconds ({rounds} rounds)",
        ["operation", *sides, "KeywordTree is … times as fast"],
        table,
    )
    for what, ratio in ratios.items():
        report.target(f"{what}, speed beside sqlite3", ratio, 1.0)


def _there_and_back(sides: list[Any], work: Callable[[Any], None]) -> tuple[float, float, float]:
    """Do an operation, undo it, undo the undo (all timed), and undo once more, on every side alike."""
    times = []
    for step in range(4):
        newest = [side.newest() if step else "" for side in sides]
        begun = time.perf_counter()
        for side, operation_id in zip(sides, newest, strict=True):
            if step == 0:
                work(side)
            else:
                side.undo(operation_id)
        times.append(time.perf_counter() - begun)
        states = [_state(side) for side in sides]
        assert all(state == states[0] for state in states), "the two sides differ"
    return times[0], times[1], times[2]


def _state(side: Any) -> tuple[object, ...]:
    """Return where everything that these operations touch hangs."""
    children = [side.children(id_) for id_ in (HOME, TARGET, MOVED, SRC, DST)]
    return (*children, side.infos(SRC), side.infos(DST), side.find("source of all"))


class _TreeSide:
    """The library under the names that `sqlite_peer.SqliteMethods` has."""

    def __init__(self, tree: KeywordTree) -> None:
        self._tree = tree

    def move(self, id_: str, to: str) -> None:
        self._tree.MoveKeyword(id_, to)

    def merge(self, src: str, dst: str) -> None:
        self._tree.MergeKeywords(src, dst)

    def undo(self, operation: str) -> None:
        self._tree.Undo(operation)

    def newest(self) -> str:
        return _newest(self._tree)

    def children(self, id_: str) -> list[str]:
        node = self._tree.GetKeyword(id_)
        return list(node.children) if node is not None and node.id == id_ else []

    def infos(self, id_: str) -> set[str]:
        node = self._tree.GetKeyword(id_)
        if node is None or node.id != id_:
            return set()
        return {info.id for info in self._tree.GetInfosOfKeyword(id_, size=1_000_000)}

    def find(self, name: str) -> list[str]:
        return sorted(node.id for node in self._tree.FindByName(name))


def _fill_for_change(tree: KeywordTree, size: int, links: int) -> list[str]:
    """Make the keywords and the infos; a tenth of the links are doubles. Return the keywords' ids, root first."""
    homes = [{"name": id_, "id": id_, "parent_id": "root"} for id_ in (HOME, TARGET)]
    moved = [{"name": MOVED, "id": MOVED, "parent_id": HOME}]
    crowded = [
        {"name": "Source of all", "id": SRC, "parent_id": HOME, "aliases": ["来源"]},
        {"name": "Destination", "id": DST, "parent_id": HOME, "aliases": ["目的地"]},
    ]
    beneath = [{**spec, "parent_id": spec["parent_id"] or MOVED} for spec in trees.made_tree(size)]
    of_src = [{**spec, "parent_id": SRC} for spec in trees.made_tree(10, seed=17)]
    made = tree.BatchCreateKeywords([*homes, *moved, *crowded, *beneath, *of_src])
    of_both = links // 10
    keywords = [[SRC, DST]] * of_both + [[SRC], [DST]] * (links - of_both)
    contents = trees.made_infos([DST], len(keywords))
    tree.BatchCreateInfos(
        [
            {**spec, "keyword_ids": linked, "id": f"info {number}"}
            for number, (spec, linked) in enumerate(zip(contents, keywords, strict=True))
        ]
    )
    return ["root", *(node.id for node in made)]


def _same_in_sqlite(tree: KeywordTree, ids: list[str], path: Path) -> Path:
    with closing(sqlite_peer.connect(path, create=True)) as connection:
        sqlite_peer.fill(connection, (node for id_ in ids if (node := tree.GetKeyword(id_)) is not None))
        connection.execute("BEGIN")
        seen: set[str] = set()
        for keyword_id in (SRC, DST):
            for info in tree.GetInfosOfKeyword(keyword_id, size=1_000_000):
                if info.id not in seen:
                    connection.execute(sqlite_peer.INSERT_INFO, sqlite_peer.info_row(info))
                seen.add(info.id)
                link = (info.id, keyword_id, "PRIMARY", info.created_by, info.created_at, 0)
                connection.execute(sqlite_peer.INSERT_LINK, link)
        connection.execute("COMMIT")
        connection.executescript(sqlite_peer.METHOD_TABLES)
        connection.execute("ANALYZE")
    return path


# == snapshot ================================================================================


def snapshot(report: common.Report, scratch: Path, options: Namespace) -> None:
    """Setting a large store aside."""
    rounds, name = options.rounds or (3 if options.quick else 5), "100000" if options.quick else "1000000"
    built = stores.build(options.stores or scratch, name)
    store, copy = scratch / "snapshot", scratch / "copied"
    shutil.copytree(built, store)
    os.sync()
    with ExitStack() as stack:
        tree = stack.enter_context(KeywordTree(str(store)))
        database = stack.enter_context(closing(sqlite_peer.connect(built.with_suffix(".sqlite"))))

        def set_aside(copied: bool) -> Callable[[], float]:
            def once() -> float:
                made: list[str] = []
                seconds = timed(lambda: made.append(tree.Snapshot(copy=copied)))
                shutil.rmtree(store / "snapshots" / made[0])
                return seconds

            return once

        def copy_files() -> float:
            copy.mkdir()
            files = [file for file in store.iterdir() if file.is_file()]
            seconds = timed(lambda: [shutil.copyfile(file, copy / file.name) for file in files])
            shutil.rmtree(copy)
            return seconds

        def back_up() -> float:
            path = scratch / "backup.sqlite"
            with closing(sqlite_peer.connect(path)) as target:
                seconds = timed(lambda: database.backup(target))
            for leftover in scratch.glob("backup.sqlite*"):
                leftover.unlink()
            return seconds

        contenders = {
            "`Snapshot()`": set_aside(False),
            "`Snapshot(copy=True)`": set_aside(True),
            "copying the files, unsynced": copy_files,
            "sqlite3's backup": back_up,
        }
        common.interleaved(1, contenders)
        results = common.interleaved(rounds, contenders)
        at = tree.Snapshot()
        tree.UpdateKeyword(tree.GetChildren("root")[0].id, {"description": "changed"}, 1)
        seconds = timed(lambda: tree.Restore(at))
    base = results["copying the files, unsynced"]
    report.table(
        f"Setting {int(name):,} keywords aside, milliseconds ({rounds} rounds)",
        ["way", "ms", "to copying the files"],
        [[way, _milliseconds(of_way), f"{common.median_ratio(of_way, base):.4f}"] for way, of_way in results.items()],
    )
    report.line(f"\n`Restore` of it, after one change: {seconds:,.1f} s (it reads the snapshot's whole log).")
    ratio = common.median_ratio(results["`Snapshot()`"], base)
    report.target("time of a snapshot / of copying the files", ratio, 0.1, at_most=True)


# == compact =================================================================================

VERSIONS = 10


def compact(report: common.Report, scratch: Path, options: Namespace) -> None:
    """Compaction of a long history."""
    rounds, count = options.rounds or (3 if options.quick else 5), 10_000 if options.quick else 100_000
    built = _build_versions(options.stores or scratch, count)
    before = stores.bytes_on_disk(built), stores.bytes_on_disk(built.with_suffix(".sqlite"))
    sizes: dict[str, int] = {}

    def ours(keep: bool) -> Callable[[], float]:
        def once() -> float:
            store = scratch / "compact"
            shutil.copytree(built, store)
            os.sync()
            with KeywordTree(str(store)) as tree:
                seconds = timed(lambda: tree.CompactStorage(keep_history=keep))
                assert tree.TreeMetrics()["keywords"] == count
            sizes[f"keep {keep}"] = stores.bytes_on_disk(store)
            shutil.rmtree(store)
            return seconds

        return once

    def theirs(keep: bool) -> Callable[[], float]:
        def once() -> float:
            path = scratch / "compact.sqlite"
            shutil.copyfile(built.with_suffix(".sqlite"), path)
            os.sync()
            with closing(sqlite_peer.connect(path)) as connection:

                def work() -> None:
                    if not keep:
                        connection.execute("DELETE FROM old_nodes")
                    connection.execute("VACUUM")
                    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

                seconds = timed(work)
                assert connection.execute("SELECT count(*) FROM nodes").fetchone() == (count + 1,)
            sizes[f"sqlite {keep}"] = stores.bytes_on_disk(path)
            for leftover in scratch.glob("compact.sqlite*"):
                leftover.unlink()
            return seconds

        return once

    contenders = {
        "`CompactStorage()`, history kept aside": ours(True),
        "`CompactStorage(keep_history=False)`": ours(False),
        "sqlite3 `VACUUM`, history kept": theirs(True),
        "sqlite3, history deleted, `VACUUM`": theirs(False),
    }
    results = common.interleaved(rounds, contenders)
    table = []
    for (name, seconds), size, was in zip(
        results.items(), ("keep True", "keep False", "sqlite True", "sqlite False"), (0, 0, 1, 1), strict=True
    ):
        typical = statistics.median(seconds)
        megabytes = before[was] / 2**20
        table.append(
            [
                name,
                f"{typical:.2f}",
                f"{count * VERSIONS / typical:,.0f}",
                f"{megabytes:,.0f}",
                f"{sizes[size] / 2**20:,.0f}",
            ]
        )
    report.table(
        f"Compaction of {VERSIONS} versions of each of {count:,} keywords ({rounds} rounds)",
        ["way", "s", "versions/s", "MiB before", "MiB after"],
        table,
    )
    names = list(results)
    for ours_, theirs_ in ((names[0], names[2]), (names[1], names[3])):
        report.target(f"{ours_}: speed beside {theirs_}", common.median_ratio(results[theirs_], results[ours_]), 1.0)


def _build_versions(folder: Path, count: int) -> Path:
    """Build (unless it is there) keywords with `VERSIONS` versions each, and the same in sqlite3.

    Every version is an operation of its own. It is written in memory where the system has `/dev/shm`, and copied.
    """
    store = folder / f"versions-{count}"
    if store.with_suffix(".done").exists():
        return store
    folder.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(store, ignore_errors=True)
    for leftover in folder.glob(store.name + ".sqlite*"):
        leftover.unlink()
    in_memory = Path("/dev/shm") if Path("/dev/shm").is_dir() else folder
    ids = ["root"]
    with (
        tempfile.TemporaryDirectory(dir=in_memory) as quick,
        closing(sqlite_peer.connect(store.with_suffix(".sqlite"), create=True, synchronous="OFF")) as connection,
    ):
        with KeywordTree(quick + "/store") as tree:
            for batch in trees.in_batches(trees.made_tree(count), stores.BATCH):
                ids += [node.id for node in tree.BatchCreateKeywords(batch)]
            sqlite_peer.fill(connection, (node for id_ in ids if (node := tree.GetKeyword(id_)) is not None))
            connection.executescript(sqlite_peer.METHOD_TABLES)
            peer = sqlite_peer.SqliteMethods(connection)
            for version in range(1, VERSIONS):
                connection.execute("BEGIN")
                for id_ in ids[1:]:
                    text = f"What is known of it, revised for the {version}. time."
                    tree.UpdateKeyword(id_, {"description": text}, version)
                    peer.describe(id_, text)
                connection.execute("COMMIT")
        shutil.copytree(quick + "/store", store)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    store.with_suffix(".ids").write_text("".join(f"{id_}\n" for id_ in ids), encoding="utf-8")
    store.with_suffix(".done").touch()
    return store


# == look ====================================================================================


def look(report: common.Report, scratch: Path, options: Namespace) -> None:
    """Checking, following and looking back, on a long history."""
    rounds, count = options.rounds or 3, 10_000 if options.quick else 100_000
    built = _build_versions(options.stores or scratch, count)
    store = scratch / "look"
    shutil.copytree(built, store)
    shutil.copy(built.with_suffix(".sqlite"), store.with_suffix(".sqlite"))
    shutil.copy(built.with_suffix(".ids"), store.with_suffix(".ids"))

    def asked(role: str) -> Callable[[], dict[str, Any]]:
        def once() -> dict[str, Any]:
            with common.Worker(MODULE, role, store=str(store)) as worker:
                return worker.ask()

        return once

    results = common.interleaved(rounds, {role: asked(role) for role in ("tree", "sqlite")})
    table = []
    for role, label in (("tree", "KeywordTree"), ("sqlite", "sqlite3")):
        for step in results[role][0]:
            seconds = [answer[step]["s"] for answer in results[role]]
            peak = statistics.median(answer[step]["peak"] for answer in results[role])
            table.append([f"{label}: {step}", _milliseconds(seconds), f"{peak:,.0f}"])
    report.table(
        f"Looking back on {count * VERSIONS:,} versions of {count:,} keywords ({rounds} rounds, fresh processes)",
        ["step", "ms", "MiB peak so far"],
        table,
    )


def _serve_look(store: str) -> Callable[..., dict[str, Any]]:
    def answer() -> dict[str, Any]:
        ids = Path(store).with_suffix(".ids").read_text(encoding="utf-8").split("\n")
        middle = ids[len(ids) // 2]
        opened: list[KeywordTree] = []
        figures = {"opening": _measured(lambda: opened.append(KeywordTree(store)))}
        tree = opened[0]
        newest = tree.History(limit=1)[0].seq
        versions: list[int] = []

        def count(changes: Callable[[], Any]) -> Callable[[], None]:
            return lambda: versions.append(sum(1 for _ in changes()))

        steps: dict[str, Callable[[], object]] = {
            "`History()`, the newest 50": count(tree.History),
            "`History(id)`, all of one keyword": count(lambda: tree.History(middle)),
            "`Changes(since)`, the last 1,000": count(lambda: tree.Changes(newest - 1_000)),
            "`Changes()`, all": count(tree.Changes),
            "`Verify()`": lambda: versions.append(len(tree.Verify())),
        }
        figures |= {name: _measured(step) for name, step in steps.items()}
        assert versions[:2] == [50, VERSIONS], versions
        assert versions[-1] == 0, "Verify found something"
        tree.Close()
        return figures

    return answer


def _serve_look_sqlite(store: str) -> Callable[..., dict[str, Any]]:
    def answer() -> dict[str, Any]:
        ids = Path(store).with_suffix(".ids").read_text(encoding="utf-8").split("\n")
        middle = ids[len(ids) // 2]
        with closing(sqlite_peer.connect(Path(store).with_suffix(".sqlite"))) as connection:

            def all_of(statement: str, *values: object) -> Callable[[], object]:
                return lambda: connection.execute(statement, values).fetchall()

            steps = {
                "newest 50, by number": all_of("SELECT * FROM old_nodes ORDER BY operation DESC LIMIT 50"),
                "all of one keyword, no index": all_of("SELECT * FROM old_nodes WHERE id = ?", middle),
                "all versions, as tuples": all_of("SELECT * FROM old_nodes ORDER BY operation"),
                "`integrity_check`": all_of("PRAGMA integrity_check"),
            }
            return {name: _measured(step) for name, step in steps.items()}

    return answer


def _measured(step: Callable[[], object]) -> dict[str, float]:
    return {"s": timed(step), "peak": common.peak_rss_mb()}


# == Program =================================================================================

PARTS: dict[str, Callable[[common.Report, Path, Namespace], None]] = {
    "rows": rows,
    "change": change,
    "snapshot": snapshot,
    "compact": compact,
    "look": look,
}


def run(options: Namespace) -> None:
    """Measure and report."""
    with common.working_folder(options) as scratch:
        report = common.Report("Methods", options, scratch)
        for name, part in PARTS.items():
            if common.wanted(options, name):
                report.line(f"\n### {name}")
                part(report, scratch, options)


def main() -> None:
    """Run as a program, or as one of its own workers."""
    if common.serve({"tree": _serve_look, "sqlite": _serve_look_sqlite}):
        return
    run(common.parser(__doc__).parse_args())


if __name__ == "__main__":
    main()
