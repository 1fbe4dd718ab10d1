"""How often the right parent of a new keyword is offered, by `SuggestParents` and by a plain vote of siblings.

Two questions. Everyday products, in a taxonomy of a shop (`everyday/products.txt`): is a parent that a person would
accept among the three that are offered? Keywords held out of eight real trees, by name and description: is their own
parent first, among five, among fifty? The plain vote: keywords by BM25 of their names, aliases and description; each of
the best 200 votes for its parent, the k-th child of a parent with a weight of ½ᵏ, and for itself with 0.7.

Repeat: ``python -m benchmarks.bench_placing`` (`--limit` cases of a tree, `--half even` or `odd` of them).
"""

from __future__ import annotations

import heapq
import math
import random
import sys
from argparse import Namespace
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from Agent.finding import texts
from Agent.keyword_tree import KeywordTree
from benchmarks import common, finding_sets
from benchmarks.bench_finding import fill
from benchmarks.finding_sets import Unit

TREES = (
    "awesome_python", "awesome_python_cn", "wordnet_food", "clinc150_dev", "hwu64", "javaguide_q", "tldr", "admin_cn4",
)  # fmt: skip
VOTERS, ITSELF = 200, 0.7
K1, B = 1.2, 0.75

Place = Callable[[str, str], list[str]]
"""Name and description of a new keyword → ids of its possible parents, best first."""


def texts_of(name: str, *more: str) -> list[str]:
    """Return the terms of a keyword."""
    return texts.terms("\n".join([name, *more]))


def vote(units: Sequence[Unit]) -> Place:
    """Return the plain vote of siblings."""
    postings, lengths = defaultdict[str, dict[int, int]](dict), list[int]()
    for number, unit in enumerate(units):
        terms = texts_of("\n".join(unit.names), unit.description)
        lengths.append(len(terms))
        for term, count in Counter(terms).items():
            postings[term][number] = count
    mean = sum(lengths) / max(1, len(lengths))

    def place(name: str, description: str) -> list[str]:
        like = defaultdict[int, float](float)
        for term in {*texts_of(name, description)}:
            found = postings.get(term, {})
            rarity = math.log(1 + (len(units) - len(found) + 0.5) / (len(found) + 0.5))
            for number, count in found.items():
                like[number] += rarity * count * (K1 + 1) / (count + K1 * (1 - B + B * lengths[number] / mean))
        scores, weights = defaultdict[str, float](float), defaultdict[str, float](lambda: 1.0)
        for number, one in heapq.nlargest(VOTERS, like.items(), key=lambda pair: pair[1]):
            above = units[number].parent_id
            scores[above] += one * weights[above]
            weights[above] /= 2
            scores[units[number].id] += ITSELF * one
        return [id for id in sorted(scores, key=lambda id: -scores[id]) if id != "root"]

    return place


def own(tree: KeywordTree) -> Place:
    """Return what the library offers."""
    return lambda name, description: [node.id for node, _ in tree.SuggestParents(name, description, 50)]


def held_out(name: str, limit: int) -> tuple[list[Unit], list[tuple[str, str, str]]]:
    """Return a real tree without some of its leaves, and these: name, description, id of the parent."""
    rows = finding_sets.rows_of(f"{name}/tree.jsonl")
    parents = {row["parent_id"] for row in rows}
    leaves = [row for row in rows if row["id"] not in parents and row.get("parent_id") not in (None, "", "root")]
    random.Random(name).shuffle(leaves)
    left, several = {row["id"] for row in leaves[:limit]}, Counter(row["parent_id"] for row in rows)
    cases = [row for row in leaves[:limit] if several[row["parent_id"]] > 1]
    units = finding_sets.tree_of(name, left)
    return units, [(row["name"], row.get("description") or "", row["parent_id"]) for row in cases]


def first_five_fifty(place: Place, cases: Sequence[tuple[str, str, str]]) -> list[float]:
    """Return the percentages of cases whose parent is first, among five, among fifty."""
    found = [place(name, description)[:50] for name, description, _ in cases]
    at = [ids.index(gold) if gold in ids else 99 for ids, (_, _, gold) in zip(found, cases, strict=True)]
    return [100 * sum(one < most for one in at) / max(1, len(at)) for most in (1, 5, 50)]


def trees(report: common.Report, scratch: Path, options: Namespace) -> None:
    """Print both on the real trees."""
    rows, sums = list[list[str]](), {"own": [0.0] * 3, "vote": [0.0] * 3}
    for name in TREES:
        units, cases = held_out(name, options.limit)
        cases = cases[{"even": 0, "odd": 1}.get(options.half, 0) :: 1 if options.half == "all" else 2]
        with KeywordTree(str(scratch / name)) as tree:
            fill(tree, units)
            figures = {"own": first_five_fifty(own(tree), cases), "vote": first_five_fifty(vote(units), cases)}
        for which, found in figures.items():
            sums[which] = [total + one for total, one in zip(sums[which], found, strict=True)]
        rows.append([name, str(len(cases)), *map(cells, figures.values())])
    rows.append(["mean", "", *(cells([one / len(TREES) for one in found]) for found in sums.values())])
    report.table("Parents of held-out keywords: first / five / fifty", ["", "cases", "SuggestParents", "vote"], rows)


def cells(figures: Sequence[float]) -> str:
    """Return percentages as a table has them."""
    return " / ".join(f"{one:.1f}" for one in figures)


def products(report: common.Report, scratch: Path, options: Namespace) -> None:
    """Print the three parents that are offered for each product, and how many have a right one."""
    which, cases = finding_sets.everyday_tree(finding_sets.EVERYDAY / "products.txt")
    names = {unit.id: unit.names[0] for unit in which.units}
    rows, right = list[list[str]](), Counter[str]()
    with KeywordTree(str(scratch)) as tree:
        fill(tree, which.units)
        for case in cases:
            offered = {"own": own(tree)(case.query, "")[:3], "vote": vote(which.units)(case.query, "")[:3]}
            for by, ids in offered.items():
                right[by] += bool(case.gold & {*ids})
            mark = "yes" if case.gold & {*offered["own"]} else "no"
            rows.append([case.query, mark, "; ".join(names[id] for id in offered["own"])])
    report.table(f"Products, the right parent among three: {right['own']} of {len(cases)}", ["", "", "offered"], rows)
    report.line(f"vote: {right['vote']} of {len(cases)}; keywords: {len(which.units)}")


def run(options: Namespace) -> None:
    """Run the parts that are wanted."""
    common.run_parts("Placing", {"products": products, "trees": trees}, options)


def main() -> None:
    """Run as a program."""
    parser = common.parser(__doc__)
    parser.add_argument("--limit", type=int, default=300, help="cases of a tree at most")
    parser.add_argument("--half", choices=("odd", "even", "all"), default="all", help="which cases of a tree to report")
    run(parser.parse_args())


if __name__ == "__main__":
    main()
