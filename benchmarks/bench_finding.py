"""How often the right keyword or memory is found, what is answered that nothing answers, and what it costs.

The sets are those of `finding_sets`. Contenders, in turns over the same questions:

    words     `KeywordTree.RankCandidates`, for memories `MemoryStore.recall`
    vectors   the same with an embedder (`EmbeddingTree`; `LocalEmbedder` of the extra [local])
    FTS5      sqlite3's, with its Porter stemmer, in a dozen plain lines
    bm25s     the library of this name
    cosine    the nearest of a unit's texts by the same embedder, numpy alone

Every second case of a set is one its constants may be chosen on ("even"), the others report ("odd"). Figures are
percentages of those odd cases that have an answer: right first / among five / among fifty. "Answered": the first has at
least `BAR`. Questions without an answer are the set's own where it has some, else forty of other sets. AUROC: how well
the first one's score separates questions with an answer from those without. Times are of the processor.

Repeat: ``pip install -e '.[local,benchmarks]'``, then ``python -m benchmarks.bench_finding`` (parts for `--only`:
words, vectors, confirmed, placing, costs; `--limit` cases of a half; `--sets` by the beginning of their names;
`--half` even or all; `--stores FOLDER` keeps the embedder's work).
"""

from __future__ import annotations

import contextlib
import random
import re
import sqlite3
import statistics
import sys
import tempfile
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from Agent.finding.calibration import ANSWER_BAR as BAR
from Agent.finding.embedder import LocalEmbedder, Meaning
from Agent.finding.tree import TreeRanker
from Agent.keyword_tree import KeywordTree
from Agent.memory import MemoryStore
from Agent.models.lexical_client import LexicalLLMClient
from benchmarks import common, finding_sets
from benchmarks.finding_sets import Case, Set, Unit

MODULE = "benchmarks.bench_finding"
Found = list[tuple[str, float]]
Rank = Callable[[Case], Found]


# == Contenders ==============================================================================


def texts_of(unit: Unit) -> list[str]:
    """Return what is said of a unit, each with its name before it."""
    name = unit.names[0] if unit.names else ""
    said = [*([unit.description] if unit.description else []), *unit.infos]
    return [f"{name}: {text}" if name else text for text in said] or list(unit.names)


def spaced(text: str) -> str:
    """Return a text with the characters of unspaced scripts apart: no peer cuts them itself."""
    return re.sub(r"([\u3040-\u30ff\u3400-\u9fff])", r" \1 ", text)


def fts5(units: Sequence[Unit]) -> Rank:
    """Return FTS5 over all that is said of a unit."""
    db = sqlite3.connect(":memory:")
    db.execute("create virtual table units using fts5(id unindexed, text, tokenize='porter unicode61')")
    rows = ((unit.id, spaced("\n".join([*unit.names, *texts_of(unit)]))) for unit in units)
    db.executemany("insert into units values (?, ?)", rows)

    def rank(case: Case) -> Found:
        words = dict.fromkeys(re.findall(r"\w+", spaced(f"{case.query} {case.description}")))
        query = " OR ".join(f'"{word}"' for word in words) or '""'
        sql = "select id, -rank from units where units match ? order by rank limit 50"
        return db.execute(sql, (query,)).fetchall()

    return rank


def bm25s(units: Sequence[Unit]) -> Rank:
    """Return bm25s over the same."""
    import bm25s as library  # type: ignore[import-not-found,import-untyped,unused-ignore]

    def cut(texts: list[str]) -> Any:
        return library.tokenize(
            list(map(spaced, texts)), stopwords="en", token_pattern=r"(?u)\w+", show_progress=False, return_ids=False
        )

    index = library.BM25()
    index.index(cut(["\n".join([*unit.names, *texts_of(unit)]) for unit in units]), show_progress=False)

    def rank(case: Case) -> Found:
        asked = cut([f"{case.query} {case.description}"])
        found, scores = index.retrieve(asked, k=min(50, len(units)), show_progress=False)
        return [(units[at].id, float(score)) for at, score in zip(found[0], scores[0], strict=True) if score > 0]

    return rank


def cosine(units: Sequence[Unit], embedder: Any) -> Rank:
    """Return the plain nearest text of each unit."""
    import numpy as np

    owners = [unit.id for unit in units for _ in texts_of(unit)]
    matrix = np.array(embedder.embed([text[:2_000] for unit in units for text in texts_of(unit)]), np.float32)
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)

    def rank(case: Case) -> Found:
        text = f"{case.query}: {case.description}" if case.description else case.query
        (asked,) = embedder.embed_queries([text])
        scores = matrix @ (np.asarray(asked, np.float32) / np.linalg.norm(asked))
        best: dict[str, float] = {}
        for at in np.argsort(-scores):
            best.setdefault(owners[at], float(scores[at]))
            if len(best) == 50:
                break
        return list(best.items())

    return rank


def fill(tree: KeywordTree, units: Iterable[Unit], source: str = "") -> None:
    """Store units as keywords with infos."""
    units = list(units)
    for begin in range(0, len(units), 50_000):
        tree.BatchCreateKeywords([_spec_of(unit) for unit in units[begin : begin + 50_000]])
    infos = [{"content": text, "source": source, "keyword_ids": [unit.id]} for unit in units for text in unit.infos]
    for begin in range(0, len(infos), 10_000):
        tree.BatchCreateInfos(infos[begin : begin + 10_000])


def _spec_of(unit: Unit) -> dict[str, object]:
    """Return a unit as a keyword to be created."""
    spec = {"id": unit.id, "name": unit.names[0], "parent_id": unit.parent_id, "description": unit.description}
    return {**spec, "aliases": list(unit.names[1:])}


@contextlib.contextmanager
def own(which: Set, embedder: Any = None) -> Iterator[Rank]:
    """Yield the library's ranking of a set."""
    with tempfile.TemporaryDirectory(prefix="keyword-tree-finding-") as folder:
        if which.is_memory:
            with MemoryStore(folder, extract=None, meaning=meaning_of(embedder)) as store:
                ids: dict[str, str] = {store.remember(unit.infos[0], source="notes"): unit.id for unit in which.units}
                store.recall("warm up")  # reads all
                yield lambda case: [(ids[one.info.id], one.score) for one in store.recall(case.query, 50)]
            return
        with _opened(folder, embedder) as tree:
            fill(tree, which.units)
            tree.RankCandidates("warm up", 1)  # reads all
            if which.is_placing:
                yield lambda case: [
                    (id, 0.0) for id in _fit(tree, case) if id != "root" or case.gold == frozenset(["root"])
                ]
            else:
                yield lambda case: [(node.id, score) for node, score in tree.RankCandidates(case.query, 50)]


def _fit(tree: Any, case: Case) -> list[str]:
    """Return the parents that a new keyword is offered, best first: the only thing that no public call returns."""
    ids: list[str] = tree._engine.Fit(case.query, case.description, is_placing=True, count=0).ids
    return ids[:50]


def _opened(folder: str, embedder: Any) -> KeywordTree:
    return KeywordTree(folder, ranker=partial(TreeRanker, meaning=meaning_of(embedder)))


def meaning_of(embedder: Any) -> Any:
    """Return how to compare by meaning with an embedder: a question waits until all is read; None compares words."""
    return False if embedder is None else Meaning(embedder, patience_s=3600.0)


class Remembering:
    """An embedder that asks the model for each text once, over all runs."""

    def __init__(self, folder: Path | None) -> None:
        """Keep the vectors in a folder, or in memory."""
        self._model = LocalEmbedder()
        self.name = self._model.name
        self._db = sqlite3.connect(folder / "vectors.db" if folder else ":memory:", check_same_thread=False)
        self._db.execute("create table if not exists vectors(key blob primary key, vector blob) without rowid")

    def embed(self, texts: Sequence[str]) -> list[Any]:
        """Return vectors of texts."""
        return self._ask(texts, self._model.embed, b"t")

    def embed_queries(self, texts: Sequence[str]) -> list[Any]:
        """Return vectors of questions."""
        return self._ask(texts, self._model.embed, b"t")

    def _ask(self, texts: Sequence[str], embed: Callable[[list[str]], Any], kind: bytes) -> list[Any]:
        import numpy as np

        keys = [kind + blake2b(text.encode("utf-8", "replace"), digest_size=16).digest() for text in texts]
        found = {}
        for key, text in zip(keys, texts, strict=True):
            row = self._db.execute("select vector from vectors where key = ?", (key,)).fetchone()
            if row is None:
                row = (np.asarray(next(iter(embed([text]))), np.float32).tobytes(),)
                self._db.execute("insert or replace into vectors values (?, ?)", (key, row[0]))
            found[key] = np.frombuffer(row[0], np.float32)
        self._db.commit()
        return [found[key] for key in keys]


# == Quality =================================================================================


class Figures(NamedTuple):
    """How one contender did on one set."""

    hits: tuple[float, float, float]
    answered: tuple[float, float, float]
    """Of questions with an answer: right, wrong; of those without: answered."""
    auroc: float
    times: list[float]

    def cells(self, is_scored: bool) -> list[str]:
        """Return what a table shows."""
        first = f"{self.hits[0]:.1f} / {self.hits[1]:.0f} / {self.hits[2]:.0f}"
        times = " / ".join(f"{1e3 * common.percentile(self.times, share):.1f}" for share in (0.5, 0.95))
        right, wrong, strange = self.answered
        return [first, times, *([f"{right:.0f}, {wrong:.0f}; {strange:.0f}", f"{self.auroc:.2f}"] if is_scored else [])]


def measure(rank: Rank, cases: Sequence[Case], strange: Sequence[str]) -> Figures:
    """Ask everything once."""
    hits, times, scores = [0, 0, 0], [], list[float]()
    right = wrong = 0
    for case in cases:
        began = time.process_time()
        found = rank(case)
        times.append(time.process_time() - began)
        scores.append(found[0][1] if found else 0.0)
        if found and scores[-1] >= BAR:
            right, wrong = (right + 1, wrong) if found[0][0] in case.gold else (right, wrong + 1)
        for at, depth in enumerate((1, 5, 50)):
            hits[at] += any(id in case.gold for id, _ in found[:depth])
    others = [found[0][1] if (found := rank(Case(query, frozenset()))) else 0.0 for query in strange]
    above = sum((one > other) + 0.5 * (one == other) for one in scores for other in others)
    share = 100 / max(1, len(cases))
    answered = sum(other >= BAR for other in others)
    return Figures(
        (hits[0] * share, hits[1] * share, hits[2] * share),
        (right * share, wrong * share, 100 * answered / max(1, len(others))),
        above / max(1, len(scores) * len(others)),
        times,
    )


def quality(report: common.Report, options: Namespace, all_sets: Sequence[Set], embedder: Any) -> None:
    """Print how each contender did on each set, and the means."""
    rows: list[list[str]] = []
    means: dict[str, list[Figures]] = {}
    for which in all_sets:
        if embedder is not None and which.is_large:
            continue
        asked = which.half(options.half, options.limit)
        strange = _strange(which, all_sets)
        with own(which) as words, contextlib.ExitStack() as stack:
            contenders: dict[str, Rank] = {"words": words}
            if embedder is not None:
                contenders["vectors"] = stack.enter_context(own(which, embedder))
                contenders["cosine"] = cosine(which.units, embedder)
            contenders |= {} if embedder is not None else {"FTS5": fts5(which.units), "bm25s": bm25s(which.units)}
            row = [f"{which.name}: {len(asked)}"]
            for name, rank in contenders.items():
                figures = measure(rank, asked, [] if which.is_placing else strange)
                means.setdefault(name, []).append(figures)
                row += figures.cells(is_scored=name in ("words", "vectors"))
        rows.append(row)
        report.line(" | ".join(row))
    columns = ["set"]
    for name in means:
        scored = [f"{name}: right, wrong; none", "AUROC"] if name in ("words", "vectors") else []
        columns += [f"{name}: first / 5 / 50", "ms p50 / p95", *scored]
    report.table(f"The {options.half} cases; answered at {BAR}", columns, rows)
    for name, measured in means.items():
        hits = " / ".join(f"{statistics.fmean(each.hits[at] for each in measured):.1f}" for at in range(3))
        searched = [each for each in measured if each.times and each.auroc] or measured  # placing has no score
        said = [statistics.fmean(each.answered[at] for each in searched) for at in range(3)]
        auroc = statistics.fmean(each.auroc for each in searched)
        answers = f"; answered right {said[0]:.1f}, wrong {said[1]:.1f}, what nothing answers {said[2]:.1f}"
        report.line(f"\nmean, {name}: {hits}{answers}; AUROC {auroc:.3f}")


def _strange(which: Set, all_sets: Sequence[Set]) -> list[str]:
    """Return questions that nothing answers: the set's own, else those of other sets, half of them in its language."""
    mine = [case.query for case in which.cases if not case.gold]
    if mine:
        return random.Random(6).sample(mine, min(80, len(mine)))
    source = which.name.split(",")[0].split("_")[0]
    others = [each for each in all_sets if source not in each.name and not each.is_placing and not each.is_large]
    asked = [(each.is_chinese, case.query) for each in others for case in each.cases if case.gold]
    random.Random(6).shuffle(asked)
    near = [query for is_chinese, query in asked if is_chinese == which.is_chinese][:30]
    return [*near, *[query for is_chinese, query in asked if is_chinese != which.is_chinese][:10]]


def confirmed(report: common.Report, options: Namespace) -> None:
    """Print what confirmed queries bring."""
    rows = []
    for count in (0, 1, 3, 10):
        which = finding_sets.confirmed(count)
        with own(which) as rank:
            rows.append([str(count), *measure(rank, which.half(options.half, 750), []).cells(is_scored=False)])
    report.table("Confirmed queries, clinc150_dev", ["for each intent", "first / 5 / 50", "ms p50 / p95"], rows)


def placing(report: common.Report, options: Namespace) -> None:
    """Print what becomes of everyday keywords that are created without a parent, each in the tree as it was."""
    counts = {language: Counter[str]() for language in ("en", "zh")}
    for path in sorted(finding_sets.EVERYDAY.glob("*_*.txt")):
        if path.stem.startswith("facts"):
            continue
        which, cases = finding_sets.everyday_tree(path)
        with tempfile.TemporaryDirectory() as folder, KeywordTree(folder, LexicalLLMClient()) as tree:
            fill(tree, which.units)
            for case in cases:
                made = tree.CreateKeyword(case.query)
                parent = tree.GetPath(made.id)[-2].id
                is_right = ("/" if parent == "root" else parent) in case.gold
                counts[path.stem[:2]]["right" if is_right else "at the root" if parent == "root" else "wrong"] += 1
                tree.DeleteKeyword(made.id)
    columns = ["right", "at the root", "wrong"]
    rows = [[language, *(str(found[column]) for column in columns)] for language, found in counts.items()]
    report.table("Everyday keywords created without a parent", ["", *columns], rows)


# == Costs ===================================================================================


def _said() -> tuple[Callable[[], str], list[str]]:
    """Return what draws the beginning of a real text, some 70 characters, and questions that are asked of such."""
    draw, contents = random.Random(8), list[str]()
    for name in ("awesome_python", "awesome_python_cn", "memorybank_en", "memorybank_cn"):
        contents += [row["content"] for row in finding_sets.rows_of(f"{name}/infos.jsonl")]
    rows = (finding_sets.rows_of(f"memorybank_{language}/questions.jsonl") for language in ("en", "cn"))
    return lambda: draw.choice(contents)[:73], [row["question"] for part in rows for row in part]


def _many(count: int, infos: int) -> Iterator[Unit]:
    """Yield keywords whose names and infos are made of the words of real ones."""
    say, _ = _said()
    for number in range(count):
        yield Unit(f"k{number}", [f"{say()[:24].strip()} {number}"], infos=[f"{say()} {number}" for _ in range(infos)])


def _serve_opening(folder: str, is_memory: bool) -> Callable[..., dict[str, Any]]:
    store = MemoryStore(folder, extract=None) if is_memory else KeywordTree(folder)
    ask: Callable[[str, int], object] = store.recall if isinstance(store, MemoryStore) else store.RankCandidates
    before, draw, (_, asked) = common.rss_mb(), random.Random(9), _said()

    def answer(questions: int) -> dict[str, Any]:
        times = []
        for query in draw.choices(asked, k=questions):
            times.append(_processor_s(partial(ask, query, 10)))
        return {"times": times, "grown": common.rss_mb() - before}

    return answer


def _processor_s(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def costs(report: common.Report, options: Namespace) -> None:
    """Print what the first question after opening takes, later ones, memory, and what the index takes on disk."""
    rows, scale = [], 20 if options.quick else 1
    for count, infos in ((50_000 // scale, 0), (100_000 // scale, 3), (0, 100_000 // scale)):
        with common.working_folder(options) as folder:
            if count:
                units = list(_many(count, infos))
                with KeywordTree(str(folder)) as tree:
                    fill(tree, units)
                    made = _processor_s(partial(tree.RankCandidates, "warm up"))
            else:
                say, _ = _said()
                units = [Unit("", infos=[f"{say()} {number}"]) for number in range(infos)]
                with MemoryStore(str(folder), extract=None) as store:
                    for start in range(0, infos, 10_000):
                        part = units[start : start + 10_000]
                        store.tree.BatchCreateInfos([{"content": each.infos[0], "keyword_ids": []} for each in part])
                    made = _processor_s(partial(store.recall, "warm up"))
            text = sum(len(said.encode()) for unit in units for said in [*unit.names, *unit.infos])
            del units
            files = [path for path in folder.rglob("indexes/*.db") if path.is_file()]
            size = sum(path.stat().st_size for path in files)
            with common.Worker(MODULE, "opening", folder=str(folder), is_memory=not count) as worker:
                first = worker.ask(questions=1)
                later = worker.ask(questions=400)
        p50, p95 = (1e3 * common.percentile(later["times"], share) for share in (0.5, 0.95))
        times = [f"{made:.1f}", f"{first['times'][0]:.2f}", f"{p50:.1f} / {p95:.1f}"]
        sizes = [f"{later['grown']:.0f}", f"{size / 2**20:.0f}", f"{text / 2**20:.0f}"]
        name = f"{count:,} keywords, {count * infos:,} infos" if count else f"{infos:,} memories"
        rows.append([name, *times, *sizes])
        report.line(" | ".join(rows[-1]))
    columns = ["", "taken in s", "first s", "later ms p50 / p95", "grows MiB", "index MiB", "text"]
    report.table("The index of words: taken in, asked first after opening, asked later", columns, rows)


def run(options: Namespace) -> None:
    """Measure all parts that were asked for."""
    report = common.Report("Finding", options, Path(tempfile.gettempdir()))
    all_sets = []
    for read in finding_sets.sets():
        with contextlib.suppress(common.Skip):
            which = read()
            if not options.sets or which.name.startswith(tuple(options.sets.split(","))):
                all_sets.append(which)
    if common.wanted(options, "words"):
        quality(report, options, all_sets, None)
    if common.wanted(options, "vectors"):
        quality(report, options, all_sets, Remembering(options.stores))
    parts: dict[str, Callable[[common.Report, Namespace], None]] = {"confirmed": confirmed, "placing": placing}
    parts["costs"] = costs
    for name, part in parts.items():
        if common.wanted(options, name):
            try:
                part(report, options)
            except common.Skip as reason:
                report.skipped(name, reason)


def main() -> None:
    """Run as a program, or as one of its own workers."""
    if common.serve({"opening": _serve_opening}):
        return
    parser = common.parser(__doc__)
    parser.add_argument("--limit", type=int, default=75, help="cases of a half at most")
    parser.add_argument("--sets", default="", help="the beginnings of the sets' names, comma-separated")
    parser.add_argument("--half", choices=("odd", "even", "all"), default="odd", help="which cases of a set to report")
    run(parser.parse_args())


if __name__ == "__main__":
    main()
