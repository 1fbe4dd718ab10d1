"""What does a find cost that needs a model? Characters and tokens of its prompts, for each intent, on real trees.

What: searches, placements, links of infos, same-named keywords that a context tells apart, and the questions about
doubles that `Reorganize` asks; in English and in Chinese, without and with `show_descriptions`. A client writes down
every message and lets `LexicalLLMClient` decide, so the rounds are those of a decision-maker that compares words;
another model may take more or fewer. What is found by name costs nothing, and is counted apart.

Why: the prompt is the price. And what stands the same at the beginning of every prompt of an intent, services can
take from their caches, from some length on (512 to 4,096 tokens with most): so this length is measured as well.

How: tokens by o200k_base, from `tiktoken` where that can get its vocabulary, or from `bpe-openai`, which brings it
along (`pip install bpe-openai`); without either characters / 4, which is about right for English and far too low for
Chinese; the report says which. Only what the tree writes is counted: the few tokens that a service adds around each
message are not, nor is a schema that it takes as a parameter of its own.

The forms of a view (`view="paths"`, and what a client asks for by `candidate_fields`) are held beside each other by the
first prompt of the same searches; the infos that come with a tree hang on its keywords.

Repeat: ``python -m benchmarks.bench_prompts`` (``--quick``: 20 finds of each kind, and no tree of 43,118 keywords;
``--only forms``, or a tree's name).
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import inspect
import json
import random
import sys
from argparse import Namespace
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from typing_extensions import override

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from Agent.keyword_tree import KeywordTree, LLMClient
from Agent.lexical_client import LexicalLLMClient
from benchmarks import common, trees

TREES = ("clinc150_dev", "awesome_python", "awesome_python_cn", "wordnet_food", "admin_cn4")
LARGE = "admin_cn4"
LANGUAGES = {"awesome_python_cn": "zh", "admin_cn4": "zh"}
"""Of names and queries; English where nothing is said."""
INTENTS = ("search", "suggest_parent", "link_info", "disambiguate_same_name", "dedup_check")
SEED = 17

Prompts = list[str]
"""What a model was sent for one find, one text for each round."""
FORMS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "paths alone": ((), {"view": "paths"}),
    "with excerpts": (("excerpt",), {}),
    "paths, with excerpts": (("excerpt",), {"view": "paths"}),
    "excerpts and scores": (("excerpt", "score"), {}),
}
"""A form of a view -> the candidates' further fields, and the tree's arguments."""


class Listener(LLMClient):
    """Writes down what a model would be sent; words decide."""

    def __init__(self, fields: tuple[str, ...] = ()) -> None:
        self.candidate_fields = fields
        self._mind = LexicalLLMClient()
        self.heard: list[tuple[str, str]] = []
        """Intent and prompt of every round since `take`."""

    @override
    def Chat(self, messages: list[dict[str, str]], json_schema: dict[str, Any]) -> dict[str, Any]:
        intent = json.loads(messages[-1]["content"])["intent"]
        self.heard.append((intent, "\n".join(message["content"] for message in messages)))
        return self._mind.Chat(messages, json_schema)

    def take(self) -> dict[str, Prompts]:
        """Return the prompts since the last call, by intent."""
        taken: dict[str, Prompts] = defaultdict(list)
        for intent, prompt in self.heard:
            taken[intent].append(prompt)
        self.heard.clear()
        return taken


# == What is asked ===========================================================================


def _rows(tree: str, kind: str, count: int) -> list[dict[str, Any]]:
    path = common.data_folder() / tree / f"{kind}.jsonl"
    if not path.exists():
        return []
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return random.Random(SEED).sample(rows, min(count, len(rows)))


def _specs(name: str) -> list[trees.Spec]:
    """Return the keywords of a tree, parents first, without those that are to be placed."""
    held_out = {row["id"] for row in _rows(name, "holdout", sys.maxsize)}
    waiting: dict[str, list[trees.Spec]] = defaultdict(list)
    with (common.data_folder() / name / "tree.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            if row["id"] not in held_out:
                parent_id = "root" if row["parent_id"] in (None, *held_out) else row["parent_id"]
                fields = {field: row[field] for field in ("id", "name", "aliases", "description")}
                waiting[parent_id].append({**fields, "parent_id": parent_id})
    specs = waiting["root"]
    for spec in specs:  # grows as it goes
        specs.extend(waiting[spec["id"]])
    return specs


def _finds(tree: KeywordTree, name: str, count: int) -> Iterator[Callable[[], object]]:
    """Yield everything that is to be found in a tree, as a call."""
    for row in _rows(name, "queries", count):
        yield lambda row=row: tree.Search(row["query"])  # type: ignore[misc]  # mypy does not infer such a lambda
    for row in _rows(name, "holdout", count):
        yield lambda row=row: tree.CreateKeyword(row["name"], description=row["description"])  # type: ignore[misc]
    for row in _rows(name, "infos", count):
        yield lambda row=row: tree.CreateInfo(row["content"], row["source"], auto_link=True)  # type: ignore[misc]
    for spec in _same_named(name, count):
        yield lambda spec=spec: tree.Search(spec["name"], context=spec["description"] or spec["above"])  # type: ignore[misc]


def _same_named(name: str, count: int) -> list[trees.Spec]:
    """Return keywords that share their name with others, each with the name above it."""
    seen: dict[str, list[trees.Spec]] = defaultdict(list)
    names: dict[str, str] = {}
    for spec in _specs(name):
        names[spec["id"]] = spec["name"]
        seen[spec["name"].casefold()].append({**spec, "above": names.get(spec["parent_id"], "")})
    shared = [spec for specs in seen.values() if len(specs) > 1 for spec in specs]
    return random.Random(SEED).sample(shared, min(count, len(shared)))


# == Measuring ===============================================================================


def _token_counter() -> tuple[Callable[[str], int], str]:
    """Return what counts tokens, and what to call it."""
    why = []
    for package in ("tiktoken", "bpe_openai"):  # the second has the same vocabulary within
        try:
            encode = importlib.import_module(package).get_encoding("o200k_base").encode
        except (ImportError, OSError) as error:  # the first fetches its vocabulary when it is first used
            why.append(f"{package}: {type(error).__name__}")
        else:
            version = importlib.metadata.version(package.replace("_", "-"))
            return functools.partial(_count_by, encode), f"tokens by o200k_base ({package} {version})"
    return lambda text: len(text) // 4, f"tokens ESTIMATED as characters / 4, too low for Chinese ({', '.join(why)})"


def _count_by(encode: Callable[..., Sequence[int]], text: str) -> int:
    return len(encode(text, disallowed_special=()))  # what looks like a mark of a chat is text


def _common_prefix(texts: Sequence[str]) -> str:
    """Return what all texts begin with: what the first and the last in order do."""
    first, last = min(texts), max(texts)
    differing = (index for index, (one, other) in enumerate(zip(first, last, strict=False)) if one != other)
    return first[: next(differing, min(len(first), len(last)))]


def _listen(name: str, options: Namespace, **arguments: Any) -> tuple[dict[str, list[Prompts]], int]:
    """Ask everything of a tree.  Returns the prompts of each find, by intent, and how many finds needed none."""
    listener = Listener()
    heard: dict[str, list[Prompts]] = defaultdict(list)
    free = 0
    with common.working_folder(options) as folder, KeywordTree(str(folder), listener, **arguments) as tree:
        for batch in trees.in_batches(iter(_specs(name)), 5000):
            tree.BatchCreateKeywords(batch)
        for find in _finds(tree, name, 20 if options.quick else 100):
            find()
            taken = listener.take()
            free += not taken
            for intent, prompts in taken.items():
                heard[intent].append(prompts)
        tree.Reorganize()
        # Each is a find of its own; the placements that it asks about are those of above once more.
        heard["dedup_check"] = [[prompt] for prompt in listener.take()["dedup_check"]]
    return heard, free


def _middle_and_most(values: Sequence[int]) -> list[str]:
    return [f"{common.percentile(values, share):,}" for share in (0.5, 0.95)]


def _measure(name: str, options: Namespace, count_tokens: Callable[[str], int]) -> tuple[list[list[str]], int]:
    """Return a row for each intent that a tree has questions for, and how many finds needed no model."""
    heard, free = _listen(name, options)
    can_show = "show_descriptions" in inspect.signature(KeywordTree).parameters
    shown = _listen(name, options, show_descriptions=True)[0] if can_show else {}
    rows = []
    for intent in filter(heard.get, INTENTS):
        finds = heard[intent]
        prefix = _common_prefix([prompt for prompts in finds for prompt in prompts])
        tokens, told = (
            [sum(map(count_tokens, prompts)) for prompts in found.get(intent, [])] for found in (heard, shown)
        )
        rounds = sum(map(len, finds)) / len(finds)
        row = [f"{name} ({LANGUAGES.get(name, 'en')}), {intent}", f"{len(finds)}", f"{rounds:.2f}"]
        row += _middle_and_most([sum(map(len, prompts)) for prompts in finds])
        row += _middle_and_most(tokens)
        row += _middle_and_most(told) if told and told != tokens else ["–", "–"]
        row += [f"{len(prefix):,}", f"{count_tokens(prefix):,}"]
        row += [f"{count_tokens(prefix) * sum(map(len, finds)) / sum(tokens):.0%}"]
        rows.append(row)
    return rows, free


def _first_prompts(name: str, options: Namespace, fields: tuple[str, ...], arguments: dict[str, Any]) -> Prompts:
    """Return the first prompt of every search in a tree with its infos."""
    listener, prompts = Listener(fields), []
    with common.working_folder(options) as folder, KeywordTree(str(folder), listener, **arguments) as tree:
        specs = _specs(name)
        tree.BatchCreateKeywords(specs)
        known = {spec["id"] for spec in specs}
        infos = [row for row in _rows(name, "infos", sys.maxsize) if row["source"] in known]
        tree.BatchCreateInfos([{"content": row["content"], "keyword_ids": [row["source"]]} for row in infos])
        for row in _rows(name, "queries", 20 if options.quick else 100):
            tree.Search(row["query"])
            prompts += [prompt for intent in listener.take().values() for prompt in intent[:1]]
    return prompts


def _compare_forms(name: str, options: Namespace, count_tokens: Callable[[str], int]) -> list[str]:
    """Return a row: the tokens of a search's first prompt in each form, beside those of names and paths."""

    def middle(fields: tuple[str, ...], arguments: dict[str, Any]) -> float:
        tokens = [count_tokens(prompt) for prompt in _first_prompts(name, options, fields, arguments)]
        return common.percentile(tokens, 0.5)

    usual = middle((), {})
    told = [middle(*form) for form in FORMS.values()]
    return [
        f"{name} ({LANGUAGES.get(name, 'en')})",
        f"{usual:,}",
        *(f"{each:,} ({each / usual - 1:+.0%})" for each in told),
    ]


def run(options: Namespace) -> None:
    """Measure every tree and print the tables."""
    count_tokens, how = _token_counter()
    with common.working_folder(options) as folder:
        report = common.Report("What a find costs with a model", options, folder)
    rows, free = [], {}
    for name in TREES:
        if not common.wanted(options, name) or (options.quick and name == LARGE):
            continue
        try:
            found, free[name] = _measure(name, options, count_tokens)
        except common.Skip as reason:
            report.skipped(name, reason)
        else:
            rows += found
    columns = (
        *("tree, intent", "finds", "rounds", "characters p50", "p95", "tokens p50", "p95"),
        *("with descriptions p50", "p95", "stable characters", "stable tokens", "stable share"),
    )
    report.table(f"Prompts of one find; {how}", columns, rows)
    report.line("\nStable: the same at the beginning of every prompt of the intent; its share is one of tokens.")
    report.line("Found by name, and so for nothing: " + ", ".join(f"{name} {count}" for name, count in free.items()))
    if common.wanted(options, "forms"):
        compared = [_compare_forms(name, options, count_tokens) for name in TREES if name != LARGE]
        report.table(f"First prompt of a search, median; {how}", ("tree", "names and paths", *FORMS), compared)


if __name__ == "__main__":
    run(common.parser(__doc__).parse_args())
