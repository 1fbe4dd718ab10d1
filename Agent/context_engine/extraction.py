"""The four extractors. A model fills them; without one they find nothing, but for the tools that were used.

A model is asked one question a chunk of a session, and its answers are checked one by one: question, schema and checks
are those of `memory.extraction`. What people said are strings in the question, and no URI and no id is in it. Each fact
cites one message by its `idx`, with the words that say it. What fails is recorded and dropped, the others stay. A call
that is late is not waited for: its messages wait for a worker.
"""

import time
from collections.abc import Container, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ..base.keys import hide_keys
from ..base.text import CountTokens, clean, cut_tokens, fold, mapping_of, one_line, read_time, time_of, to_json
from ..memory.extraction import FACTS_SCHEMA, Fact, Shown, check_fact, make_question, tokens_for
from ..models.model_clients import within
from .core.config import LEVEL_TOKENS, OWNER_OF
from .core.messages import mask, own_words
from .core.objects import LLM, CandidateMemory, Message, RequestContext, SessionArchive

MODEL_SECONDS = 60.0
"""So long a commit waits for a model, all its calls together."""

_CALLS, _CANDIDATES = 8, 50  # of a commit, at most
_CHUNK_TOKENS, _THREADS = 6_000, 4
_ROWS = 400  # statements in a chunk of 6,000 tokens, at 15 tokens each


Chunk: TypeAlias = list[tuple[int, Message]]
"""Messages that are asked about together, with their numbers from 1."""


class Allowance:
    """The rest of one commit's allowance of model calls and facts, shared by its archives."""

    def __init__(self) -> None:
        self.until = time.monotonic() + MODEL_SECONDS
        self.calls, self.candidates = _CALLS, _CANDIDATES


@dataclass
class Reading:
    """A model's facts of an archive's messages, which are numbered from 1."""

    candidates: list[CandidateMemory] = field(default_factory=list)
    unread: set[int] = field(default_factory=set)
    """Those that it was not asked about, or gave no answer."""
    is_partial: bool = False
    """Whether some candidates were dropped, or an extractor failed."""
    failures: list[dict[str, Any]] = field(default_factory=list)


class ModelReader:
    """Asks a model once a chunk, for all extractors together."""

    def __init__(self, llm: LLM, tokens: CountTokens) -> None:
        self._llm, self._count = llm, tokens
        self.concurrency: int | None = getattr(llm, "concurrency", None)
        """How many calls at a time are worth it; None where nothing says so."""

    def read(
        self,
        messages: Sequence[Message],
        archive: SessionArchive,
        ctx: RequestContext,
        wanted: Container[int] | None = None,
        allowance: Allowance | None = None,
    ) -> Reading:
        """Return the model's candidates of the wanted messages, None is all, within an allowance.

        Cost: a call of the model for each 6,000 tokens, fewer where its `context_tokens` hold less; four at a time, or
        as many as its `concurrency` says.
        """
        allowance, made = allowance or Allowance(), Reading()
        most = tokens_for(getattr(self._llm, "context_tokens", None), _CHUNK_TOKENS)
        wanted = range(1, len(messages) + 1) if wanted is None else wanted
        chunks = chunk_messages(messages, self._count, wanted, most)
        speakers = len({fold(message.name) for message in messages if message.role == "user" and message.name})

        def ask(chunk: Chunk) -> Reading:
            try:
                return self._ask(chunk, archive, ctx, speakers, allowance.until - time.monotonic())
            except Exception as error:  # the model's port: whatever happens there, the archive is kept
                failure = {"extractor": "model", "error": hide_keys(error, self._llm)[:300]}
                return Reading([], {number for number, _ in chunk}, failures=[failure])

        asked = chunks[: allowance.calls if allowance.candidates > 0 else 0]
        allowance.calls -= len(asked)
        made.unread.update(number for chunk in chunks[len(asked) :] for number, _ in chunk)
        with ThreadPoolExecutor(self.concurrency or _THREADS) as pool:
            for found in pool.map(ask, asked):
                made.candidates += found.candidates
                made.unread |= found.unread
                made.is_partial |= found.is_partial
                made.failures += found.failures
        return made

    def _ask(
        self, chunk: Chunk, archive: SessionArchive, ctx: RequestContext, speakers: int, seconds: float
    ) -> Reading:
        if seconds <= 0:
            raise TimeoutError("the commit's time for the model is over")
        shown = [Shown(each.text, each.role, time_of(each.at), each.name) for _, each in chunk]
        question = to_json(make_question(shown, ("facts",)))
        rows = mapping_of(within(seconds, lambda: self._llm.complete_json(question, FACTS_SCHEMA, ctx))).get("facts")
        if not isinstance(rows, list):
            raise ValueError("the reply has no list of facts")
        own = [Shown(own_words(each), each.role) for _, each in chunk]
        made, dropped = list[CandidateMemory](), list[dict[str, Any]]()
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
        return Reading(made, is_partial=bool(dropped), failures=dropped)


def _candidate_of(fact: Fact, number: int, message: Message, archive: SessionArchive) -> CandidateMemory:
    topic, content = one_line(fact.topic) or "profile", clean(cut_tokens(fact.text, LEVEL_TOKENS["L2"]))
    sources = [{"archive": archive.archive_uri, "message": f"m{number}"}]
    owner = OWNER_OF[fact.category]
    return CandidateMemory(fact.category, owner, topic, "", "", content, 0.9, sources, fact.key, message.at)


def chunk_messages(
    messages: Sequence[Message], count: CountTokens, wanted: Container[int], most: int = _CHUNK_TOKENS
) -> list[Chunk]:
    """Return the wanted messages, whole, in chunks of limited tokens, without forgotten ones.

    What was read is known by the numbers of messages, which stay, whatever is forgotten of them.
    """
    chunks: list[Chunk] = []
    size = 0
    for number, message in enumerate(messages, 1):
        if number not in wanted or message.forgotten or not message.text.strip():
            continue
        tokens = count(message.text) + 20
        if not chunks or size + tokens > most:
            chunks.append([])
            size = 0
        if tokens > most:  # one that no model would read to its end
            cut = cut_tokens(message.text, most - 100, count)
            message = Message(message.id, message.role, cut, message.at, message.name, {"content": cut})
        chunks[-1].append((number, message))
        size += tokens
    return chunks


def read_tools(archive: SessionArchive) -> list[CandidateMemory]:
    """Return how tools and skills went in a session: a candidate for each, with its figures as JSON in `overview`.

    A skill was used where a call says `"kind": "skill"`, or where its memory is among those that helped.
    """
    used: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for call in map(mapping_of, archive.stats.get("used_tools") or ()):
        if call.get("name"):
            used.setdefault(("skills" if call.get("kind") == "skill" else "tools", str(call["name"])), []).append(call)
    for uri in map(str, archive.stats.get("used_contexts") or ()):
        if "/skills/" in uri:
            used.setdefault(("skills", uri.rpartition("/")[2]), []).append({})
    found = []
    for (category, name), calls in used.items():
        failures = [call for call in calls if call.get("ok") is False]
        figures = {
            "calls": len(calls),
            "successes": len(calls) - len(failures),
            "failures": len(failures),
            "seconds": round(sum(float(call.get("seconds") or 0.0) for call in calls), 3),
        }
        errors = dict.fromkeys(one_line(str(call["error"])) for call in failures if call.get("error"))
        times = [at for call in calls if (at := read_time(call.get("at"))) is not None]
        content, sources = cut_tokens("; ".join(errors), 300), [{"archive": archive.archive_uri, "message": ""}]
        at = max(times, default=float(archive.stats.get("at") or 0.0))
        made = category, OWNER_OF[category], name, "", to_json(figures), content, 1.0, sources, "", at
        found.append(CandidateMemory(*made))
    return found


def describe_tool(tool: Any) -> dict[str, Any]:
    """Return a used tool as the archive keeps it: `name`, `ok`, `seconds`, `error`, `kind`, `at`."""
    made = mapping_of(tool) if not isinstance(tool, str) else {"name": tool}
    seconds, error = made.get("seconds"), made.get("error")
    return {
        "name": one_line(str(made.get("name") or ""))[:100],
        "ok": made.get("ok") is not False and not error,
        "seconds": float(seconds) if isinstance(seconds, (int, float)) and not isinstance(seconds, bool) else 0.0,
        **({"error": mask(one_line(str(error)))[:300]} if error else {}),
        **({"kind": "skill"} if made.get("kind") == "skill" else {}),
        **({"at": made["at"]} if read_time(made.get("at")) is not None else {}),
    }


class _Extractor:
    """The base of all four: one call of the model for each chunk serves all of them."""

    categories: tuple[str, ...] = ()

    def extract(
        self, messages: Sequence[Message], archive: SessionArchive, ctx: RequestContext
    ) -> list[CandidateMemory]:
        """Return candidates of this extractor's categories, each with its sources; none without a model.

        `archive.stats["reading"]` is the `Reading` of the messages that was made for all of them.
        """
        reading = archive.stats.get("reading") or Reading()
        return [candidate for candidate in reading.candidates if candidate.category in self.categories]


class ProfileExtractor(_Extractor):
    """Who the user is."""

    categories = ("profile",)


class PreferenceExtractor(_Extractor):
    """The user's likes, and wishes for the answers."""

    categories = ("preferences",)


class EntityEventExtractor(_Extractor):
    """People, places, projects; and events."""

    categories = ("entities", "events")


class ProcedureExtractor(_Extractor):
    """How things are done; how tools went is counted, with a model and without."""

    categories = ("cases", "patterns", "skills")

    def extract(
        self, messages: Sequence[Message], archive: SessionArchive, ctx: RequestContext
    ) -> list[CandidateMemory]:
        """Return cases, patterns and skills, and the tools and skills that were used."""
        return [*super().extract(messages, archive, ctx), *read_tools(archive)]


EXTRACTORS: tuple[_Extractor, ...] = (
    ProfileExtractor(), PreferenceExtractor(), EntityEventExtractor(), ProcedureExtractor()
)
"""The four of them."""
