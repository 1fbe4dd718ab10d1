"""What does a find cost that needs a model? Characters and tokens of its prompts, for each intent, on real trees.

What: searches, placements, links of infos, and, where same-named keywords are told apart by a context, that too. A
client writes down every message and lets `LexicalLLMClient` decide, so the rounds are those of a decision-maker that
compares words; another model may take more or fewer. What is found by name costs nothing, and is counted apart.

Why: the prompt is the price. And what stands the same at the beginning of every prompt of an intent, services can
take from their caches, from some length on (512 to 4,096 tokens with most): so this length is measured as well.

How: tokens by tiktoken's `o200k_base` where it is installed and has its vocabulary, else characters / 4, which is
about right for English and far too low for Chinese; the report says which. Only what the tree writes is counted: the
few tokens that a service adds around each message are not, nor is a schema that it takes as a parameter of its own.

Repeat: ``python -m benchmarks.bench_prompts`` (``--quick``: 20 finds of each kind, and no tree of 43,118 keywords).
"""

from __future__ import annotations

import importlib
import inspect
import json
import random
import sys
from argparse import Namespace
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from typing_extensions import override

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from Agent.keyword_tree import KeywordTree, LLMClient
from Agent.lexical_client import LexicalLLMClient
from benchmarks import common, trees

TREES = ("clinc150_dev", "awesome_python", "awesome_python_cn", "wordnet_food", "admin_cn4")
LARGE = "admin_cn4"
SEED = 17

Prompts = list[str]
"""What a model was sent for one find, one text for each round."""


class Listener(LLMClient):
    """Writes down what a model would be sent; words decide."""

    def __init__(self) -> None:
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
    if "context" in inspect.signature(tree.Search).parameters:
        search: Callable[..., object] = tree.Search
        for spec in _same_named(name, count):
            yield lambda spec=spec: search(spec["name"], context=spec["description"] or spec["above"])  # type: ignore[misc]


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
    try:
        encoding = importlib.import_module("tiktoken").get_encoding("o200k_base")
    except ImportError:
        why = "tiktoken is not installed"
    except OSError as error:  # it fetches its vocabulary when it is first used
        why = f"tiktoken cannot get its vocabulary ({type(error).__name__})"
    else:
        return lambda text: len(encoding.encode(text, disallowed_special=())), "tokens by tiktoken's o200k_base"
    return lambda text: len(text) // 4, f"tokens ESTIMATED as characters / 4, too low for Chinese: {why}"


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed)


def _common_prefix(texts: Sequence[str]) -> str:
    """Return what all texts begin with: what the first and the last in order do."""
    first, last = min(texts), max(texts)
    differing = (index for index, (one, other) in enumerate(zip(first, last, strict=False)) if one != other)
    return first[: next(differing, min(len(first), len(last)))]


def _measure(name: str, options: Namespace, count_tokens: Callable[[str], int], report: common.Report) -> None:
    listener = Listener()
    by_intent: dict[str, list[Prompts]] = defaultdict(list)
    asked = free = 0
    with common.working_folder(options) as folder, KeywordTree(str(folder), listener) as tree:
        for batch in trees.in_batches(iter(_specs(name)), 5000):
            tree.BatchCreateKeywords(batch)
        for find in _finds(tree, name, 20 if options.quick else 100):
            find()
            taken = listener.take()
            asked, free = asked + bool(taken), free + (not taken)
            for intent, prompts in taken.items():
                by_intent[intent].append(prompts)
    rows = []
    for intent, finds in by_intent.items():
        characters = [sum(map(len, prompts)) for prompts in finds]
        tokens = [sum(map(count_tokens, prompts)) for prompts in finds]
        prefix = _common_prefix([prompt for prompts in finds for prompt in prompts])
        rows.append(
            (
                intent,
                len(finds),
                f"{_mean(map(len, finds)):.2f}",
                f"{_mean(characters):,.0f}",
                f"{max(characters):,}",
                f"{_mean(tokens):,.0f}",
                f"{max(tokens):,}",
                f"{len(prefix):,}",
                f"{count_tokens(prefix):,}",
                f"{len(prefix) * _mean(map(len, finds)) / _mean(characters):.0%}",
            )
        )
    columns = (
        *("intent", "finds", "rounds", "characters", "at most", "tokens", "at most"),
        *("stable characters", "stable tokens", "stable share"),
    )
    report.table(f"{name}: {asked} finds asked a model, {free} did not need one; per find", columns, rows)


def run(options: Namespace) -> None:
    """Measure every tree and print the tables."""
    count_tokens, how = _token_counter()
    with common.working_folder(options) as folder:
        report = common.Report("What a find costs with a model", options, folder)
    report.line(f"\n{how}. Stable: the same at the beginning of every prompt of the intent.")
    for name in TREES:
        if not common.wanted(options, name) or (options.quick and name == LARGE):
            continue
        try:
            _measure(name, options, count_tokens, report)
        except common.Skip as reason:
            report.skipped(name, reason)


if __name__ == "__main__":
    run(common.parser(__doc__).parse_args())
