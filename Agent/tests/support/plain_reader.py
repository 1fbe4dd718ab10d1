"""A scripted model for the context engine: it answers what plain sentences say, as an annotator would."""

import json
import re
from typing import Any

from Agent.context_engine import ContextEngineService

_PROFILE = {
    "name": r"\b[Mm]y name is ([A-Z]\w+)|我叫(\w+)",
    "lives_in": r"\bI (?:live in|moved to) ([A-Z][\w ]*)|我(?:现在)?(?:住在|搬到)(\w+?)了?(?=[,，。]|$)",
}
_LIKES = r"\bI (?:really )?(?:love|like|hate) ([^.,]+)|我(?:喜欢|讨厌)(\w+)"
_ASKS = r"\bPlease always|请总是"


class PlainReader:
    """Answers extractions from the sentences of the users' messages, and nothing else."""

    def complete_json(self, prompt: str, schema: dict[str, Any], ctx: Any = None) -> dict[str, Any]:
        """Return the facts of the messages that are shown."""
        asked = json.loads(prompt)
        rows = []
        for message in asked.get("messages", ()):
            if message["role"] == "user":
                for sentence in re.findall(r"[^.!?。！？]+[.!?。！？]?", message["text"]):
                    rows += self._read(sentence.strip(), message["idx"])
        return {"entities": [], "relations": [], "facts": rows}

    def _read(self, sentence: str, idx: int) -> list[dict[str, Any]]:
        found = [("profile", "", key, value) for key, value in _values(_PROFILE, sentence)]
        found += [("preferences", value, "", sentence) for _, value in _values({"": _LIKES}, sentence)]
        if re.search(_ASKS, sentence):
            found.append(("preferences", "instructions", "", sentence))
        return [fact(*each, sentence, idx) for each in found]


def _values(patterns: dict[str, str], sentence: str) -> list[tuple[str, str]]:
    matches = ((key, match) for key, pattern in patterns.items() for match in re.finditer(pattern, sentence))
    return [(key, next(filter(None, match.groups())).strip()) for key, match in sorted(matches, key=_place)]


def _place(found: tuple[str, re.Match[str]]) -> int:
    return found[1].start()


def fact(category: str, topic: str, key: str, text: str, quote: str, idx: int = 0) -> dict[str, Any]:
    """Return one fact of a reply."""
    return {"category": category, "topic": topic, "key": key, "text": text, "quote": quote, "message": idx}


def open_engine(*args: Any, **more: Any) -> ContextEngineService:
    """Return an engine with this model, unless another one is named."""
    return ContextEngineService(*args, **{"llm": PlainReader(), **more})


def dump(engine: ContextEngineService, uri: str) -> list[tuple[Any, ...]]:
    """Return all that the index of a space holds, in an order that does not depend on the order of writing."""
    words = engine.words(uri)
    with words.reading() as db:
        found = db.execute("select uri, digest, category from node order by uri").fetchall()
        found += db.execute("select name, uri from name order by name, uri").fetchall()
        found += sorted(db.execute("select term, n from posting where first = 0"))
        # Not the time of an abstract: a commit that changes only a ledger leaves the index as it is.
        rows = db.execute(
            "select uri, level, part, category, ifnull(p.num, 2 * u.num) from row r join node n on n.num = r.node"
            " join unit u on u.id = level || ' ' || part || ' ' || node left join passage p on p.unit = u.num"
        ).fetchall()
        said = words._index.read([row[-1] for row in rows])
    return found + sorted((row[:-1], said[row[-1]][1]) for row in rows)
