"""Candidates by a model: one question a chunk of a session, whose answers are checked one by one.

The question, the schema of the reply and the checks are those of `memory.extraction`: what people said are strings in
the question, data and no instructions, and no URI and no id is in it. Each fact of the reply cites one message by its
`idx`, with the words that say it. What fails is recorded and dropped, the others stay. A call that is late is not
waited for: its messages wait for a worker.
"""

import time
from collections.abc import Container, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

from ...base.text import CountTokens, clean, cut_tokens, fold, mapping_of, one_line, time_of, to_json
from ..core.config import (
    CHUNK_TOKENS,
    LEVEL_TOKENS,
    MODEL_CALLS,
    MODEL_CANDIDATES,
    MODEL_SECONDS,
    MODEL_THREADS,
    OWNER_OF,
)
from ..core.messages import own_words
from ..core.objects import CandidateMemory, Message, RequestContext, SessionArchive
from ..core.ports import LLM
from ..providers.library import SCHEMA, Fact, Shown, check_fact, make_question, within

__all__ = ["Allowance", "ModelReader"]

_ROWS = 400  # so many statements 6,000 tokens may hold, of 15 tokens each


Chunk: TypeAlias = list[tuple[int, Message]]
"""Messages that are asked about together, with their numbers from 1."""


class Allowance:
    """What one commit may still ask of a model, and write of what it finds; its archives share it."""

    def __init__(self) -> None:
        self._until = time.monotonic() + MODEL_SECONDS
        self.calls, self.candidates = MODEL_CALLS, MODEL_CANDIDATES

    def seconds_left(self) -> float:
        """Return how long its models may still be waited for."""
        return self._until - time.monotonic()

    def is_spent(self) -> bool:
        """Whether nothing is left of it."""
        return self.calls <= 0 or self.candidates <= 0 or self.seconds_left() <= 0


class ModelReader:
    """Asks a model once a chunk, for all extractors together."""

    def __init__(self, llm: LLM, tokens: CountTokens) -> None:
        self._llm, self._count = llm, tokens

    def read(self, messages: Sequence[Message], archive: SessionArchive, ctx: RequestContext) -> list[CandidateMemory]:
        """Return the model's candidates, the same to each extractor that asks with the same `archive`.

        What became of asking is in `archive.stats`:

            allowance   (given) what may still be asked; 8 calls and 60 seconds, where nothing is given
            waiting     (given and returned) the numbers of the messages that are to be read; all where nothing is given
            failed      (returned) those of whose candidates some were dropped
            failures    (returned) what went wrong

        Cost: a call of the model for each 6,000 tokens, four at a time.
        """
        if "found" not in archive.stats:
            archive.stats["found"] = self._ask_all(messages, archive, ctx)
        found: list[CandidateMemory] = archive.stats["found"]
        return found

    def _ask_all(
        self, messages: Sequence[Message], archive: SessionArchive, ctx: RequestContext
    ) -> list[CandidateMemory]:
        waiting = archive.stats.get("waiting", range(1, len(messages) + 1))
        chunks = chunk_messages(messages, self._count, set(waiting))
        allowance = archive.stats.get("allowance") or Allowance()
        failures = archive.stats.setdefault("failures", [])
        failed = archive.stats.setdefault("failed", [])
        candidates: list[CandidateMemory] = []
        speakers = len({fold(message.name) for message in messages if message.role == "user" and message.name})

        def ask(chunk: Chunk) -> tuple[list[CandidateMemory], list[dict[str, str]], Exception | None]:
            if allowance.seconds_left() <= 0:
                return [], [], TimeoutError("the commit's time for the model is over")
            try:
                return *self._ask(chunk, archive, ctx, speakers, allowance.seconds_left()), None
            except Exception as error:  # the model's port: whatever happens there, the archive is kept
                return [], [], error

        asked = chunks[: allowance.calls]
        allowance.calls -= len(asked)
        unread = {number for chunk in chunks[len(asked) :] for number, _ in chunk}
        with ThreadPoolExecutor(MODEL_THREADS) as pool:
            for chunk, (made, wrong, error) in zip(asked, pool.map(ask, asked), strict=True):
                numbers = [number for number, _ in chunk]
                failures += wrong
                candidates += made
                failed += numbers if wrong else []
                if error is not None:
                    failures.append({"extractor": "model", "error": f"{type(error).__name__}: {error}"[:300]})
                    unread.update(numbers)
        archive.stats["waiting"] = sorted(unread)
        return candidates

    def _ask(
        self, chunk: Chunk, archive: SessionArchive, ctx: RequestContext, speakers: int, seconds: float
    ) -> tuple[list[CandidateMemory], list[dict[str, str]]]:
        shown = [Shown(each.text, each.role, time_of(each.at), each.name) for _, each in chunk]
        question = to_json(make_question(shown, ("facts",)))
        reply = within(seconds, lambda: self._llm.complete_json(question, SCHEMA, ctx))
        rows = mapping_of(reply).get("facts")
        if not isinstance(rows, list):
            raise ValueError("the reply has no list of facts")
        own = [Shown(own_words(each), each.role) for _, each in chunk]
        made, dropped = [], []
        if len(rows) > _ROWS:
            dropped.append({"extractor": "model", "error": f"{len(rows) - _ROWS} facts beyond {_ROWS} of a reply"})
        for row in rows[:_ROWS]:
            fact, wrong = check_fact(row, own, speakers)
            if fact is not None:
                made.append(_candidate_of(fact, *chunk[fact.message], archive))
            else:
                dropped.append({"extractor": "model", "error": wrong})
        # What is said last is what holds, in whatever order a model lists it.
        made.sort(key=lambda candidate: int(candidate.source_refs[-1]["message"][1:]))
        return made, dropped


def _candidate_of(fact: Fact, number: int, message: Message, archive: SessionArchive) -> CandidateMemory:
    topic, content = one_line(fact.topic) or "profile", clean(cut_tokens(fact.text, LEVEL_TOKENS["L2"]))
    sources = [{"archive": archive.archive_uri, "message": f"m{number}"}]
    owner = OWNER_OF[fact.category]
    return CandidateMemory(fact.category, owner, topic, "", "", content, 0.9, sources, fact.key, message.at)


def chunk_messages(messages: Sequence[Message], count: CountTokens, wanted: Container[int]) -> list[Chunk]:
    """Return the wanted messages, whole, in chunks of some 6,000 tokens, without forgotten ones.

    What was read is known by the numbers of messages, which stay, whatever is forgotten of them.
    """
    chunks: list[Chunk] = []
    size = 0
    for number, message in enumerate(messages, 1):
        if number not in wanted or message.forgotten or not message.text.strip():
            continue
        tokens = count(message.text) + 20
        if not chunks or size + tokens > CHUNK_TOKENS:
            chunks.append([])
            size = 0
        if tokens > CHUNK_TOKENS:  # one that no model would read to its end
            cut = cut_tokens(message.text, CHUNK_TOKENS - 100, count)
            message = Message(message.id, message.role, cut, message.at, message.name, {"content": cut})
        chunks[-1].append((number, message))
        size += tokens
    return chunks
