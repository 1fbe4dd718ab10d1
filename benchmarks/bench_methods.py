"""What do changes to large trees cost: moving, merging, undoing, snapshots, compaction, looking back?

Parts (``--only`` takes their names):

- change: moving a subtree of 100,000 keywords, merging a keyword with 10,000 links into another with as many, and
  undoing both.
- snapshot: `Snapshot()` of 1,000,000 keywords, beside copying the files. Wanted: under a tenth of the time.
- history: ten versions of each of 100,000 keywords: `Verify`, `Changes`, `History`, and `CompactStorage` beside
  sqlite3's `VACUUM` of the same rows. Wanted: compaction not slower.
"""

from __future__ import annotations

import os
import shutil
import statistics
from argparse import Namespace
from contextlib import closing
from pathlib import Path

from Agent.keyword_tree import KeywordTree
from benchmarks import common, sqlite_peer, trees

VERSIONS = 10


def change(report: common.Report, scratch: Path, options: Namespace) -> None:
    """Moving a large subtree, merging crowded keywords, undoing both."""
    size, links = (10_000, 1_000) if options.quick else (100_000, 10_000)
    with KeywordTree(str(scratch / "change")) as tree:
        homes = ("home", "target", "source", "destination")
        tree.BatchCreateKeywords([{"name": name, "id": name, "parent_id": "root"} for name in homes])
        tree.BatchCreateKeywords(
            [{"name": "moved", "id": "moved", "parent_id": "home"}, *trees.made_tree(size, "moved")]
        )
        of_both = [["source", "destination"]] * (links // 10)
        linked = of_both + [["source"], ["destination"]] * (links - len(of_both))
        tree.BatchCreateInfos([{"content": f"info {n}", "keyword_ids": ids} for n, ids in enumerate(linked)])
        taken: dict[str, list[float]] = {}
        for _ in range(options.rounds or (3 if options.quick else 7)):
            for name, work in (
                (f"moving a subtree of {size:,}", lambda: tree.MoveKeyword("moved", "target")),
                (f"merging, {links:,} links each", lambda: tree.MergeKeywords("source", "destination")),
            ):
                taken.setdefault(name, []).append(common.timed(work))
                undoing = common.timed(lambda: tree.Undo(tree.History(limit=1)[0].operation_id))
                taken.setdefault(f"{name}: undoing it", []).append(undoing)
        assert len(tree.GetInfosOfKeyword("source", size=links + 1)) == links
    rows = [[name, f"{1e3 * statistics.median(of):,.2f}"] for name, of in taken.items()]
    report.table("One operation on many records", ["operation", "ms"], rows)


def snapshot(report: common.Report, scratch: Path, options: Namespace) -> None:
    """Setting a large store aside."""
    count = 50_000 if options.quick else 1_000_000
    store = Path(shutil.copytree(trees.build(options.stores or scratch, count), scratch / "snapshot"))
    os.sync()
    with KeywordTree(str(store)) as tree:

        def set_aside(copy: bool) -> float:
            made: list[str] = []
            seconds = common.timed(lambda: made.append(tree.Snapshot(copy=copy)))
            shutil.rmtree(store / "snapshots" / made[0])
            return seconds

        def copy_files() -> float:
            (scratch / "copied").mkdir()
            files = [file for file in store.iterdir() if file.is_file()]
            seconds = common.timed(lambda: [shutil.copyfile(file, scratch / "copied" / file.name) for file in files])
            shutil.rmtree(scratch / "copied")
            return seconds

        turns = {
            "`Snapshot()`": lambda: set_aside(False),
            "`Snapshot(copy=True)`": lambda: set_aside(True),
            "copying the files, unsynced": copy_files,
        }
        common.interleaved(1, turns)
        taken = common.interleaved(options.rounds or (3 if options.quick else 5), turns)
        name = tree.Snapshot()
        tree.UpdateKeyword(tree.GetChildren("root")[0].id, {"description": "changed"}, 1)
        taken["`Restore`, after one change"] = [common.timed(lambda: tree.Restore(name))]
    rows = [[name, f"{1e3 * statistics.median(of):,.1f}"] for name, of in taken.items()]
    report.table(f"Setting {count:,} keywords aside", ["way", "ms"], rows)
    ratio = common.median_ratio(taken["`Snapshot()`"], taken["copying the files, unsynced"])
    report.target("time of a snapshot / of copying the files", ratio, 0.1, at_most=True)


def history(report: common.Report, scratch: Path, options: Namespace) -> None:
    """Looking back on a long history, and compacting it."""
    count = 1_000 if options.quick else 100_000
    built = scratch / "versions"
    with KeywordTree(str(built)) as tree, closing(sqlite_peer.connect(scratch / "old.sqlite", create=True)) as peer:
        peer.executescript(f"CREATE TABLE old ({sqlite_peer.NODE}); PRAGMA synchronous = OFF; BEGIN")
        ids = [node.id for node in tree.BatchCreateKeywords(list(trees.made_tree(count)))]
        insert = sqlite_peer.INSERT_NODE.replace("INTO nodes", "INTO old")
        for version in range(1, VERSIONS):
            with tree.Operation(f"version {version}"):
                for id_ in ids:
                    node = tree.UpdateKeyword(id_, {"description": f"What is known, version {version}."}, version)
                    peer.execute(insert, sqlite_peer.node_row(node))
        peer.execute("COMMIT")
        rows = []
        for name, work in {
            "`History()`, the newest 50": tree.History,
            "`History(id)` of one keyword": lambda: tree.History(ids[count // 2]),
            "`Changes()`, all": lambda: list(tree.Changes()),
            "`Verify()`": tree.Verify,
        }.items():
            rows.append([name, f"{1e3 * common.timed(work):,.1f}", ""])

        def compact(keep: bool) -> float:
            store = Path(shutil.copytree(built, scratch / "compact"))
            os.sync()
            with KeywordTree(str(store)) as copied:
                seconds = common.timed(lambda: copied.CompactStorage(keep_history=keep))
            sizes.append(trees.bytes_on_disk(store) / 2**20)
            shutil.rmtree(store)
            return seconds

        def vacuum() -> float:
            seconds = common.timed(lambda: peer.execute("VACUUM") and peer.execute("PRAGMA wal_checkpoint(TRUNCATE)"))
            sizes.append(trees.bytes_on_disk(scratch / "old.sqlite") / 2**20)
            return seconds

        sizes: list[float] = []
        turns = {
            "`CompactStorage()`": lambda: compact(True),
            "`CompactStorage(keep_history=False)`": lambda: compact(False),
            "sqlite3 `VACUUM`": vacuum,
        }
        taken = common.interleaved(options.rounds or 3, turns)
    rows += [
        [name, f"{1e3 * statistics.median(of):,.1f}", f"{size:,.0f}"]
        for (name, of), size in zip(taken.items(), sizes, strict=False)
    ]
    report.table(f"{VERSIONS} versions of each of {count:,} keywords", ["step", "ms", "MiB afterwards"], rows)
    ratio = common.median_ratio(taken["sqlite3 `VACUUM`"], taken["`CompactStorage()`"])
    report.target("`CompactStorage()`, speed beside `VACUUM`", ratio, 1.0)


PARTS = {"change": change, "snapshot": snapshot, "history": history}

if __name__ == "__main__":
    common.main(__doc__, lambda options: common.run_parts("Methods", PARTS, options))
