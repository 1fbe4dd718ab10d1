"""What a repair brings back: flip bits in a store's files, repair it, and compare each record with what was written.

The tree has 300 keywords and infos in English and Chinese, every tenth info long, and changes of some of them. Bits are
flipped in the log, and as many in each projection; every seed does it again.
"""

from __future__ import annotations

import json
import random
import shutil
from argparse import Namespace
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from Agent.keyword_tree import KeywordTree
from Agent.repair import repair
from benchmarks import common, trees

LOG, KINDS = "change_log.jsonl", ("nodes", "infos", "links")
COUNT = 300


def fill(folder: Path) -> None:
    """Make the store: keywords and infos, a tenth of them changed."""
    draw = random.Random(COUNT)
    with KeywordTree(str(folder)) as tree:
        parents, infos = ["root"], []
        for number in range(COUNT):
            spec = trees.made_keyword(draw, draw.choice(parents))
            parents.append(tree.CreateKeyword(f"{spec['name']} {number}", spec["parent_id"], [f"alias {number}"]).id)
            text = trees.made_info(draw, draw.choice(parents))
            content = f"{number}: {text['content'] * (draw.randint(20, 100) if number % 10 == 0 else 1)}"
            infos.append(tree.CreateInfo(content, "chat, 3 May", text["keyword_ids"]).id)
        for id_ in draw.sample(parents[1:], COUNT // 10):
            tree.UpdateKeyword(id_, {"description": "changed: 改过"}, version=1)
        for id_ in draw.sample(infos, COUNT // 10):
            tree.UpdateInfo(id_, {"content": "changed: 改过了"})


def rows_of(operation: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return the rows that an operation brought, with their kinds."""
    after = operation["after"] or {}
    if "infos" in after:
        return [(kind, row) for kind in KINDS for row in after[kind]]
    return [("links" if "info_id" in after else "infos" if "content" in after else "nodes", after)] if after else []


def read(folder: Path) -> tuple[dict[str, Any], dict[tuple[str, ...], dict[str, Any]]]:
    """Return the operations of a log by their ids, and the last row of each record."""
    operations, rows = {}, {}
    for line in (folder / LOG).read_bytes().splitlines():
        operation = json.loads(line.strip(b"\0 ") or "null")
        if operation and operation["op"] != "checkpoint":
            names = ("op", "timestamp", "author", "agent_io", "before", "after")
            operations[operation["operation_id"]] = {name: operation[name] for name in names}
            for kind, row in rows_of(operation):
                rows[kind, *(row[name] for name in (("info_id", "keyword_id") if kind == "links" else ("id",)))] = row
    return operations, rows


def measure(store: Path, folder: Path, seed: int, bits: int) -> Counter[str]:
    """Damage a copy of the store, repair it, and count what came of its records and operations."""
    damaged, new, draw = Path(shutil.copytree(store, folder / "damaged")), folder / "new", random.Random(seed)
    for path in (damaged / LOG, *(damaged / f"{kind}.jsonl" for kind in KINDS)):
        data = bytearray(path.read_bytes())
        for place in draw.sample(range(len(data) * 8), bits):
            data[place // 8] ^= 1 << place % 8
        path.write_bytes(data)
    report = repair(damaged, new)
    (operations, rows), (new_operations, new_rows) = read(store), read(new)
    unproven = [rescue for rescue in report.rescued if not rescue.is_verified]
    listed = {id_ for rescue in unproven for id_ in rescue.id.split(" → ")} | {
        i for loss in report.losses for i in loss.ids
    }
    altered = [key for key in rows if new_rows.get(key, rows[key]) != rows[key]]
    shutil.rmtree(damaged)
    shutil.rmtree(new)
    return Counter(
        {
            "operations lost": len(operations.keys() - new_operations.keys()),
            "operations that differ": sum(operations.get(id_, each) != each for id_, each in new_operations.items()),
            "rows lost": len(rows.keys() - new_rows.keys()),
            "rows altered": len(altered),
            "rows altered and not listed": sum(not listed & {*key[1:]} for key in altered),
            "rows listed as not verified": len(unproven),
            "lines proven": len(report.corrected),
            "seeds with all data": report.has_all_data,
            "seeds with nothing lost": report.is_complete,
        }
    )


def run(options: Namespace) -> None:
    """Measure and report."""
    with common.working_folder(options) as folder:
        report = common.Report("Repair", options, folder)
        fill(folder / "store")
        operations, rows = read(folder / "store")
        seeds = options.rounds or (5 if options.quick else 40)
        totals: dict[int, Counter[str]] = {}
        for bits in (1, 10, 50):
            totals[bits] = Counter()
            for seed in range(seeds):
                totals[bits].update(measure(folder / "store", folder, seed, bits))
        names = ["bits in each file", *totals]
        table = [[name, *(f"{total[name]:,}" for total in totals.values())] for name in totals[1]]
        report.table(
            f"{len(operations):,} operations, {len(rows):,} rows; sums over {seeds} seeds", list(map(str, names)), table
        )
        for name in ("operations that differ", "rows altered and not listed"):
            report.target(name, sum(total[name] for total in totals.values()), 0, at_most=True)


if __name__ == "__main__":
    common.main(__doc__, run)
