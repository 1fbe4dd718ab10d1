"""A scripted model for tests of the graph: it reads plain sentences, as an annotator would."""

import json
import re
from typing import Any

from Agent.keyword_tree import LLMClient

_NAME = r"(?:(?:Mr|Mrs|Dr)\.? )?[A-Z]\w+"
_SAYS = re.compile(
    rf"(?P<source>{_NAME}|[\u4e00-\u9fff]{{2}}(?=住在|喜欢)) ?"
    r"(?P<verb>works on|works at|lives in|likes|knows|住在|喜欢) ?"
    rf"(?P<target>{_NAME}|[a-z]+ [a-z]+|[\u4e00-\u9fff]+)"
)
_IS = re.compile(rf"(?P<source>{_NAME}) is a (?P<what>\w+)")
_BOSS = re.compile(rf"(?P<source>{_NAME})'s boss is (?P<target>{_NAME})")
_TYPES = {"works on": "works_on", "works at": "works_at", "lives in": "lives_in", "住在": "lives_in", "喜欢": "likes"}


class PlainModel(LLMClient):
    """Reads who works on, works at, lives in, likes or knows what, and what a person is; chooses nothing in a tree."""

    def Chat(self, messages: list[dict[str, str]], json_schema: dict[str, Any]) -> dict[str, Any]:
        """Return what a text says; outside of an extraction, nothing."""
        question = json.loads(messages[-1]["content"])
        if question["intent"] != "extract":
            return {"action": "missing"}
        entities: dict[str, dict[str, Any]] = {}
        relations = []

        def name(found: str, kind: str = "concept", *tags: str) -> None:
            entities.setdefault(found, {"name": found, "type": kind, "description": "", "tags": [*tags]})

        for sentence in re.finditer(r"(?:Mrs?\.|Dr\.|[^.。!?])+[.。!?]?", question["messages"][0]["text"]):
            for match in _IS.finditer(sentence[0]):
                entities.pop(match["source"], None)
                name(match["source"], "person", match["what"], "person")
            for match in _BOSS.finditer(sentence[0]):
                name(match["source"], "person", "person")
                name(match["target"], "person", "person")
            for match in _SAYS.finditer(sentence[0]):
                name(match["source"], "person", "person")
                name(match["target"])
                kind = _TYPES.get(match["verb"], match["verb"])
                ends = {"source": match["source"], "type": kind, "target": match["target"]}
                relations.append({**ends, "weight": 1.0, "quote": sentence[0].strip(), "message": 0})
        return {"entities": [*entities.values()], "relations": relations}
