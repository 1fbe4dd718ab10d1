"""What a repair brings back: flip bits in a store's files, repair it, and compare each record with what was written.

The tree has some hundred keywords and infos in English and Chinese, every tenth info long, and changes of some of them.
``--bits`` are flipped in the log, and as many in each projection; ``--seeds`` says how often that is done anew.

    python -m benchmarks.bench_repair --seeds 30 --bits 10
    python -m benchmarks.bench_repair --cost 100000
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from Agent.keyword_tree import KeywordTree
from Agent.repair import repair

LOG = "change_log.jsonl"
KINDS = ("nodes", "infos", "links")
_ENGLISH = ["kettle", "boils", "water", "for", "green", "tea", "while", "nobody", "reads", "old", "letters", "rivers"]
_CHINESE = "水开了以后泡一壶龙井茶没有人在厨房里读那些关于河流的旧信明天下午三点见面请带上钥匙"


def fill(folder: Path, count: int = 300) -> None:
    """Make a store of so many keywords and infos, change a tenth of them, and close it."""
    draw = random.Random(count)
    with KeywordTree(str(folder)) as tree:
        parents = ["root"]
        infos: list[str] = []
        for n in range(count):
            words = draw.sample(_ENGLISH, 4) if n % 2 else draw.sample(_CHINESE, 6)
            name = f"{' '.join(words)} {n}" if n % 2 else f"{''.join(words)}{n}"
            parents.append(tree.CreateKeyword(name, draw.choice(parents), [f"alias {n}"]).id)
            unit = " ".join(draw.choices(_ENGLISH, k=12)) if n % 2 else "".join(draw.choices(_CHINESE, k=30))
            content = f"{n}: {unit * (draw.randint(20, 200) if n % 10 == 0 else 1)}"
            infos.append(tree.CreateInfo(content, "chat, 3 May" if n % 2 else "聊天", [draw.choice(parents)]).id)
        for n, id in enumerate(draw.sample(parents[1:], count // 10)):
            tree.UpdateKeyword(id, {"description": f"changed {n}: 改过"}, version=1)
        for n, id in enumerate(draw.sample(infos, count // 10)):
            tree.UpdateInfo(id, {"content": f"changed {n}: 改过了"})


def flip(path: Path, bits: int, draw: random.Random) -> None:
    """Flip so many bits of a file."""
    data = bytearray(path.read_bytes())
    for place in draw.sample(range(len(data) * 8), bits):
        data[place // 8] ^= 1 << place % 8
    path.write_bytes(data)


def rows_of(operation: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows that an operation brought, with their kinds."""
    after = operation["after"] or {}
    if "infos" in after:
        yield from ((kind, row) for kind in KINDS for row in after[kind])
    elif after:
        yield "links" if "info_id" in after else "infos" if "content" in after else "nodes", after


def read(folder: Path) -> tuple[dict[str, dict[str, Any]], dict[tuple[str, ...], dict[str, Any]]]:
    """Return the operations of a log by their ids, and the last row of each record."""
    operations, rows = {}, {}
    for line in (folder / LOG).read_bytes().splitlines():
        if line.strip():
            operation = json.loads(line)
            if operation["op"] != "checkpoint":
                operations[operation["operation_id"]] = {
                    name: operation[name] for name in ("op", "timestamp", "author", "agent_io", "before", "after")
                }
            for kind, row in rows_of(operation):
                names = ("info_id", "keyword_id") if kind == "links" else ("id",)
                rows[kind, *(row[name] for name in names)] = row
    return operations, rows


def measure(store: Path, folder: Path, seed: int, bits: int) -> Counter[str]:
    """Damage a copy of the store, repair it, and count what came of its records and operations."""
    damaged, new = folder / "damaged", folder / "new"
    shutil.copytree(store, damaged)
    draw = random.Random(seed)
    for name in (LOG, *(f"{kind}.jsonl" for kind in KINDS)):
        flip(damaged / name, bits, draw)
    report = repair(damaged, new)
    (operations, rows), (new_operations, new_rows) = read(store), read(new)
    unproven = {tuple(rescue.id.split(" → ")) for rescue in report.rescued if not rescue.is_verified}
    told = {id for key in unproven for id in key} | {id for loss in report.losses for id in loss.ids}
    found = {key: new_rows[key] for key in rows if key in new_rows}
    counts = Counter(
        {
            "operations lost": len(operations.keys() - new_operations.keys()),
            "operations that differ": sum(operations.get(id, each) != each for id, each in new_operations.items()),
            "rows lost": len(rows) - len(found),
            "rows altered": sum(row != rows[key] for key, row in found.items()),
            "rows told as not verified": sum(not rescue.is_verified for rescue in report.rescued),
            "rows altered and told by nobody": sum(
                row != rows[key] and not told & {*key[1:]} for key, row in found.items()
            ),
            "lines proven": len(getattr(report, "corrected", ())),
            "seeds with all data": report.has_all_data,
            "seeds with nothing lost": report.is_complete,
        }
    )
    shutil.rmtree(damaged)
    shutil.rmtree(new)
    return counts


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--bits", type=int, default=10)
    parser.add_argument("--count", type=int, default=300, help="keywords, and as many infos")
    parser.add_argument("--cost", type=int, default=0, help="measure the time for a tree of so many keywords instead")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="keyword-tree-repair-") as made:
        folder = Path(made)
        if options.cost:
            measure_cost(folder, options.cost)
            return
        fill(folder / "store", options.count)
        total: Counter[str] = Counter()
        for seed in range(options.seeds):
            total.update(measure(folder / "store", folder, seed, options.bits))
        operations, rows = read(folder / "store")
        print(f"{options.seeds} seeds, {options.bits} bits a file; {len(operations)} operations, {len(rows)} rows")
        for name, count in total.items():
            print(f"| {name} | {count:,} |")


def measure_cost(folder: Path, count: int) -> None:
    """Print the processor time of a repair of a tree of so many keywords, whole and damaged, and of half as many."""
    for size in (count // 2, count):
        store = folder / f"store {size}"
        with KeywordTree(str(store)) as tree:
            for start in range(0, size, 10):
                tree.BatchCreateKeywords(
                    [{"name": f"keyword {n} 关键词", "parent_id": "root"} for n in range(start, start + 10)]
                )
        for bits in (0, 10, 1000):
            if bits:
                flip(store / LOG, bits, random.Random(bits))
            begun = time.process_time()
            repair(store, folder / f"new {size} {bits}")
            print(f"| {size:,} | {bits:,} | {time.process_time() - begun:.1f} s |", flush=True)


if __name__ == "__main__":
    main()
