"""Builds the stores that are measured: one tree, its infos, and the same records in sqlite3.

Building is not measured here. With ``--stores FOLDER`` what was built is kept and used again.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from Agent.keyword_tree import KeywordNode, KeywordTree
from benchmarks import sqlite_peer, trees

BATCH = 20_000
"""Keywords per batch while building."""

# Beside a store lie NAME.sqlite (the same records), NAME.ids (every id, a line each), NAME.done (complete).


def searched_names(tree_name: str) -> dict[str, str]:
    """Return the names to search for, each with its id: at most 5,000, each the only one of its kind.

    In made trees they stand on the deepest level, so that every path has the same length at every size.
    """
    return trees.unique_names(trees.tree_named(tree_name), 5_000, deepest=tree_name != "admin_cn4")


def build(folder: Path, tree_name: str, *, infos_each: int = 0) -> Path:
    """Build by batches (unless it is there) ``folder/tree-NAME``, and beside it the same in sqlite3.

    Args:
        folder: where the stores are kept.
        tree_name: see `trees.tree_named`.
        infos_each: how many infos each of the `searched_names` gets.

    Returns:
        The folder of the store; the database has the same path with ".sqlite".
    """
    store = folder / f"tree-{tree_name}{f'-infos{infos_each}' if infos_each else ''}"
    if store.with_suffix(".done").exists():
        return store
    folder.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(store, ignore_errors=True)
    ids = ["root"]
    with KeywordTree(str(store)) as tree:
        for batch in trees.in_batches(trees.tree_named(tree_name), BATCH):
            tree.BatchCreateKeywords(batch)
            ids.extend(spec["id"] for spec in batch)
        searched = list(searched_names(tree_name).values()) if infos_each else []
        for batch in trees.in_batches(trees.made_infos(searched, infos_each), BATCH):
            tree.BatchCreateInfos(batch)
        _copy_to_sqlite(tree, ids, searched, store.with_suffix(".sqlite"))
    _finish(store, ids)
    return store


def _finish(store: Path, ids: Iterable[str]) -> None:
    store.with_suffix(".ids").write_text("".join(f"{id_}\n" for id_ in ids), encoding="utf-8")
    store.with_suffix(".done").touch()


def _copy_to_sqlite(tree: KeywordTree, ids: list[str], searched: list[str], path: Path) -> None:
    for leftover in path.parent.glob(path.name + "*"):
        leftover.unlink()
    connection = sqlite_peer.connect(path, create=True, synchronous="OFF")

    def nodes() -> Iterator[KeywordNode]:
        for id_ in ids:
            node = tree.GetKeyword(id_)
            assert node is not None
            yield node

    sqlite_peer.fill(connection, nodes())
    connection.execute("BEGIN")
    for keyword_id in searched:
        sqlite_peer.fill_infos(connection, keyword_id, tree.GetInfosOfKeyword(keyword_id))
    connection.execute("COMMIT")
    connection.execute(sqlite_peer.CHILDREN_INDEX)
    connection.execute("ANALYZE")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def build_by_single_operations(folder: Path, tree_name: str) -> Path:
    """Build (unless it is there) the same tree with one `CreateKeyword` per keyword, hence one log line each.

    It is written in memory where the system has `/dev/shm`, and copied: a million syncs would say nothing
    here.
    """
    store = folder / f"single-{tree_name}"
    if store.with_suffix(".done").exists():
        return store
    shutil.rmtree(store, ignore_errors=True)
    in_memory = Path("/dev/shm") if Path("/dev/shm").is_dir() else folder
    with tempfile.TemporaryDirectory(dir=in_memory) as quick:
        made_ids: dict[str | None, str] = {None: "root"}
        with KeywordTree(quick + "/store") as tree:
            for spec in trees.tree_named(tree_name):
                parent_id = made_ids[spec["parent_id"]]
                made = tree.CreateKeyword(spec["name"], parent_id, spec["aliases"], spec["description"])
                made_ids[spec["id"]] = made.id
        shutil.copytree(quick + "/store", store)
    _finish(store, made_ids.values())
    return store


def bytes_on_disk(store: Path) -> int:
    """Return the bytes of a store's files (of a database: with its write-ahead log)."""
    files = store.rglob("*") if store.is_dir() else store.parent.glob(store.name + "*")
    return sum(file.stat().st_size for file in files if file.is_file())
