"""A scripted extractor for tests of the graph: it reads plain sentences, as an annotator would."""

import re

from typing_extensions import override

from Agent.memory.extraction import ExtractedEntity, ExtractedRelation, Extraction, Extractor, FindKnown

_NAME = r"(?:(?:Mr|Mrs|Dr)\.? )?[A-Z]\w+"
_SAYS = re.compile(
    rf"(?P<source>{_NAME}|[\u4e00-\u9fff]{{2}}(?=住在|喜欢)) ?"
    r"(?P<verb>works on|works at|lives in|likes|knows|住在|喜欢) ?"
    rf"(?P<target>{_NAME}|[a-z]+ [a-z]+|[\u4e00-\u9fff]+)"
)
_IS = re.compile(rf"(?P<source>{_NAME}) is a (?P<what>\w+)")
_BOSS = re.compile(rf"(?P<source>{_NAME})'s boss is (?P<target>{_NAME})")
_TYPES = {"works on": "works_on", "works at": "works_at", "lives in": "lives_in", "住在": "lives_in", "喜欢": "likes"}


class PlainExtractor(Extractor):
    """Reads who works on, works at, lives in, likes or knows what, and what a person is."""

    @override
    def extract(self, text: str, find_known: FindKnown = lambda _: None) -> Extraction:
        entities: dict[str, ExtractedEntity] = {}
        relations = []
        for sentence in re.finditer(r"(?:Mrs?\.|Dr\.|[^.。!?])+[.。!?]?", text):
            for match in _IS.finditer(sentence[0]):
                name = find_known(match["source"]) or match["source"]
                entities[name] = ExtractedEntity(name, "person", tags=(match["what"], "person"))
            for match in _BOSS.finditer(sentence[0]):
                for found in (match["source"], match["target"]):
                    name = find_known(found) or found
                    entities.setdefault(name, ExtractedEntity(name, "person", tags=("person",)))
            for match in _SAYS.finditer(sentence[0]):
                source, target = (find_known(match[end]) or match[end] for end in ("source", "target"))
                entities.setdefault(source, ExtractedEntity(source, "person", tags=("person",)))
                entities.setdefault(target, ExtractedEntity(target))
                start = sentence.start() + len(sentence[0]) - len(sentence[0].lstrip())
                kind = _TYPES.get(match["verb"], match["verb"])
                relations.append(ExtractedRelation(source, target, kind, 1.0, start, sentence.end()))
        return Extraction(text, tuple(entities.values()), tuple(relations))
