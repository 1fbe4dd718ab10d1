"""Find names, and what verbs say of them, in an English sentence.

A name is a capitalised word, or a run of them. The first word of a sentence is capital anyway: it counts where it is
known, or where what follows shows that it is somebody (`Tom moved`, `Ada's`), and it is none of the words that begin
sentences. A relation is

    names  [adverbs]  verb phrase  [the | a | his | …]  names

where the verb phrase is one of `_VERBS`, `_PASSIVES` or `_OF`, or kinship (`Lena's brother Max`). A further verb phrase
behind `and`, a comma or `who` has the same subject.

A wrong relation is worse than none. So a sentence states none at all where it asks, or has a word of `_find_doubt`
anywhere: what denies, doubts, reports, wishes, is still to come or has ended may stand before its verb or far behind
it ("Ada lives in Paris, or so I heard"). Nor is it a statement what somebody else says, thinks or pretends ("Ada
pretends Bob lives in Rome"), or what was so and need not be so today ("Ada lived in Rome").
"""

import re
from collections.abc import Callable, Iterator

from .extraction_rules import NAME, Findings, Mention, Mentions
from .extraction_words import CALENDAR, ENGLISH_NO_NAMES, JOINING_WORDS, NO_CAPITALS, PLACES_WITH_ADJECTIVES, TITLES

__all__ = ["find_mentions", "is_stated", "read_sentence"]

_Row = tuple[re.Pattern[str], str]

# Verb phrases, by the relation that they state: between the subject and what it is about.
_VERBS_BY_TYPE = {
    "works_on": r"(?:works?|worked|working|been working) on|develops?|developing|maintains?|maintained|contributes? to",
    "works_at": r"(?:works?|worked|working) (?:at|for)|(?:am|employed|hired|was hired) (?:by|at)|joined|"
    r"is employed (?:by|at)|(?:left|quit) {n} (?:for|and joined)|"
    r"is an? (?!student|pupil|professor|teacher|lecturer)(?:[a-z]+ ){1,3}at|is on the {n} team at",
    "lives_in": r"(?:lives?|lived|living|resides?|resided|settled|settled down)(?: (?:with|near) {g})? in|"
    r"(?:moves?|moved|relocated) (?:from {n} )?to",
    "born_in": r"born in",
    "comes_from": r"comes? from|came from|is from|am from|are from|grew up in|raised in",
    "studies_at": r"(?:studies|studied|study|studying) at|graduated from|is a student at|enrolled at",
    "teaches_at": r"(?:teaches|taught|teach|teaching) at|is an? (?:[a-z]+ )?(?:professor|teacher|lecturer) at",
    "manages": r"manages?|managed|leads?|led|heads?|headed|runs?|directs?|(?:is|am) in charge of|"
    r"(?:is|am) responsible for",
    "parent_of": r"has (?:a|one|two|three|four|five) (?:children|kids|sons?|daughters?)(?: called| named|,)?",
    "reports_to": r"reports? to|reported to",
    "part_of": r"is part of|belongs? to|is a (?:part|member|component|subsidiary|module) of",
    "located_in": r"(?:is |are )?(?:located|based|situated|headquartered) in|lies in|is in(?: the (?:north|south|east|"
    r"west|centre|center|middle) of)?|has (?:its|their) (?:headquarters|main office|offices?) in|, in(?= {n}\s*,)|"
    r"flows through|"
    r"is (?:the capital|a (?:city|town|village|district|region)) (?:of|in)|stands in",
    "founded": r"(?:co-?)?founded|set up",
    "created": r"wrote|written|created|invented|designed|composed|painted|authored",
    "owns": r"owns?|owned|bought|acquired|purchased",
    "uses": r"uses?|used|using",
    "depends_on": r"depends? on|needs?|requires?|relies on|rely on|(?:is|are) built on",
    "written_in": r"(?:is|was|are) (?:written|implemented) in",
    "replaces": r"replaces?|replaced",
    "likes": r"likes?|liked|loves?|loved|enjoys?|enjoyed|prefers?|adores?|is fond of",
    "dislikes": r"dislikes?|hates?|hated|can't stand|cannot stand",
    "knows": r"knows?|knew|met",
    "married_to": r"is married to|got married to|married",
    "friend_of": r"is (?:a |an old |a good |a close )?friends? (?:of|with)|are friends with",
    "speaks": r"speaks?",
    "visited": r"visited|travell?ed to|went to|(?:has |have )?been to",
}

# The same from behind: what it is about, then who.
_PASSIVES_BY_TYPE = {
    "created": r"(?:was|were|is) (?:written|created|invented|designed|composed|painted|made) by",
    "founded": r"(?:was|were) (?:co-?)?founded by",
    "works_on": r"(?:is|was|are) (?:being )?(?:developed|maintained) by",
    "manages": r"(?:is|was|are) (?:managed|led|headed|run|directed) by",
    "owns": r"(?:is|was|are) (?:owned|bought|acquired) by",
    "uses": r"(?:is|was|are) used by",
}

# Nouns that one is "of" somebody: "Leo is the father of Mia", "Mia is Leo's daughter", "Leo's daughter Mia".
_NOUNS_BY_TYPE = {
    "parent_of": "father|mother|parent|dad|mum|mom",
    "child_of": "son|daughter|child|kid",
    "sibling_of": "(?:twin )?(?:brother|sister)|sibling|twin",
    "married_to": "wife|husband|spouse|partner",
    "friend_of": "(?:best |old |good |close )?friend",
    "manages": "manager|boss|supervisor|head|leader|director",
    "created": "author|creator|inventor|designer|composer",
    "founded": "founder|co-founder",
}

_TOGETHER_BY_TYPE = {
    "knows": r"met|know each other|knew each other",
    "friend_of": r"are (?:good |close |old |best )?friends",
    "married_to": r"are married|got married",
    "sibling_of": r"are (?:siblings|twins|brothers|sisters|brother and sister)",
}

# Of these a verb in the past tense says that they were, not that they are; "joined" and "moved to" say that they are.
_STATES = frozenset(
    {"works_on", "works_at", "lives_in", "teaches_at", "manages", "reports_to", "part_of", "located_in", "owns", "uses"}
    | {"depends_on", "likes", "dislikes", "knows", "married_to", "friend_of", "speaks"}
)
_find_past_auxiliary = re.compile(r"\b(?:(?:was|were)(?! hired| bought| acquired)|had|used to)\b").search
_find_past = re.compile(
    r"\b(?:(?:was|were)(?! hired)|had|used to|worked|lived|resided|taught|managed|led|headed|reported|owned|used|liked|"
    r"loved|enjoyed|hated|knew|maintained)\b"
).search
_find_perfect = re.compile(r"\b(?:has|have)\b|['’]s ").search

# Only where a name of this kind is the target: "goes to" a school, and not to Rome.
_SCHOOL = re.compile(r"School|University|College|Academy|Institute|Kindergarten")

# Names are told in a row only where "and" joins the last: "Graz, Austria" and "Helios, Bob thinks" are no rows, nor is
# "Comet, and Ivo": there another clause begins.
_GROUP = rf"{NAME}(?:(?:(?:\s*,\s*{NAME}(?!['’]s))+\s*,?)?(?:\s+and\s+|\s*&\s*){NAME}(?!['’]s))*"
# What a name is said to be beside it, and what changes nothing: the Apollo project.
_KIND = (
    r"(?:\s+(?:project|programme|program|team|service|lab|library|office|app|application|system|company|group|database|"
    r"department|crew|parser|gateway|module|framework|tool))?"
)
_FILL = _KIND + (
    r"(?:\s*,?\s+(?:who|which|that))?"
    r"(?:\s+(?:now|also|still|just|currently|recently|really|always|often|both|already|once|first|mostly|usually|"
    r"has|have|had|is|was|are|were|been|'s|used to))*\s+"
)
_DETERMINER = (
    r"\s+(?:(?:the|a|an|his|her|its|their|my|our|this|old|new|famous|small|big|[Pp]roject|[Tt]eam|"
    r"a (?:cup|bit|lot|little|glass|pot) of)"
    r"\s+){0,2}"
)
_AND_THEN = re.compile(
    r"[^,;.:!?\ue000-\uefff]{0,40}?(?:\s*,?\s+and\s+(?:he\s+|she\s+|it\s+|they\s+)?|\s*,\s+(?:then\s+)?)"
)


def _rows(by_type: dict[str, str]) -> list[_Row]:
    return [
        (re.compile(rf"(?:{phrase.replace('{n}', NAME).replace('{g}', _GROUP)})(?![a-z])"), relation_type)
        for relation_type, phrase in by_type.items()
    ]


_VERBS, _PASSIVES, _TOGETHER = _rows(_VERBS_BY_TYPE), _rows(_PASSIVES_BY_TYPE), _rows(_TOGETHER_BY_TYPE)
_OF = _rows({kind: rf"(?:is|was|are) (?:the |an? )?(?:{noun}) of" for kind, noun in _NOUNS_BY_TYPE.items()})

_match_predicate = re.compile(r"(?<=is |as )(?:an? )?(?:[A-Za-z]+ ){0,2}[A-Za-z]+(?=,? and )").match
_find_groups = re.compile(_GROUP).finditer
_match_group = re.compile(_DETERMINER + rf"(?P<names>{_GROUP})").match
_match_fill = re.compile(_FILL).match
_NOT_STATED = (
    # denied
    r"not|never|no(?!,)|nor|neither|none|nobody|hardly|barely|scarcely|rarely|seldom|(?<!a )few|false|untrue|incorrect|"
    r"any ?more|den(?:y|ies|ied)|refus\w+|declin\w+|fail(?:s|ed)?|stop(?:s|ped)?|ceas\w+|divorced|"
    # said, thought or made up by somebody
    r"say|says|said|saying|think|thinks|thought|thinking|believ\w+|ask|asks|asked|tell|tells|told|claim\w*|hears?|heard|"
    r"suppos\w+|alleg\w+|reportedly|apparent\w*|seem\w*|(?:looks?|sounds?) (?:like|as)|appears?|appeared|rumou?r\w*|"
    r"guess\w*|suspect\w*|assum\w+|imagin\w+|dream\w*|pretend\w*|suggest\w*|insist\w*|wonder\w*|doubt\w*|myth|legend|"
    r"gossip|according to|lied|lying|jok(?:e|es|ed|ing)|"
    r"in (?:\w+ ){0,2}(?:novel|story|tale|film|movie|book|play|game|dream)s?|"
    # wished, possible, or under a condition
    r"if|whether|unless|until|till|provided|providing|in case|otherwise|as soon as|want\w*|wish\w*|hop(?:e|es|ed|ing)|"
    r"plan(?:s|ned|ning)?|intend\w*|expect\w*|consider\w*|would|might|could|should|shall|maybe|perhaps|probably|"
    r"possibly|presumably|(?:un)?likely|either|let's|tr(?:y|ies|ied|ying)|attempt\w*|"
    # to come, or at an end
    r"about to|going to|tomorrow|soon|next(?! to\b| door)|upcoming|formerly|previously|originally|used to|back then|"
    r"at the time|in those days"
)
_find_doubt = re.compile(
    rf"\b(?i:{_NOT_STATED})(?![a-z])|\b(?:will|may)\b|(?<!\bca)n['’]t\b|can['’]t(?! stand)|cannot(?! stand)|['’]ll\b|"
    r"^(?:Had|Were|Should|May)\b|(?:^|,\s*)[Oo]nce\b(?! (?:a|more|again)\b)"
).search
# "… that Ada": said by somebody, but for what is as it is known.
_find_clause = re.compile(
    rf"(?<!\bremember)(?<!\bnote)(?<!\bnoted)(?<!\bknow)(?<!\bknows)(?<!\bfact)(?<!\btrue)(?<!\blearned)(?<!\blearnt)"
    rf"(?<!\bforget)(?<!\bforgot)(?<!\bconfirmed)(?<!\bannounced) that (?:the )?{NAME}",
    re.IGNORECASE,
).search
# "Ada pretends" before "Bob lives in Rome": that Bob does is not said by the sentence itself.
_find_somebody_claiming = re.compile(
    rf"(?:{NAME}|\b(?:I|you|he|she|we|they|people|everyone|everybody|someone|somebody))\s+(?:[a-z]+ly\s+)?"
    r"(?!(?:and|or|but|while|because|when|where|since|as|so|though|although|whereas|with|for|from|of|in|on|at|to|by)\s)"
    r"[a-z]+\s+$"
).search
# "the team at Comet", "the mayor of Rome": what is said is said of the team.
_find_preposition = re.compile(r"[a-z]\s+(?:at|of|from|with|near|by|behind|for|to)\s+(?:the\s+)?$").search
_CLAIM_LENGTH = 60  # characters before a name that are looked at for who claims something of it
_find_relative = re.compile(r"\b(?:who|which)\b").search
_match_relative = re.compile(r"\s*,?\s+(?:who|which)\b").match
_match_speaker = re.compile(r"([A-Z][\w'’-]*(?: [A-Z][\w'’-]*){0,2}):\s+").match


def read_sentence(sentence: str, start: int, find_known: Callable[[str], str | None], findings: Findings) -> None:
    """Note what a sentence names and states.

    Args:
        sentence: One sentence.
        start: Where in the text it begins.
        find_known: The name by which something is known already.
        findings: Takes what is found.
    """
    mentions = Mentions(sentence, find_mentions(sentence, find_known))
    for mention in mentions.all:
        findings.add_entity(mention.name, start + mention.start, start + mention.end)
    _read_tags(mentions, findings)
    if is_stated(mentions.text):
        _Reader(mentions, (start, start + len(sentence)), findings).read()


def is_stated(text: str) -> bool:
    """Tell whether a sentence, with its names as `Mentions` writes them, states what it says: see the top."""
    return not (text.rstrip("\"”» ").endswith("?") or _find_doubt(text) or _find_clause(text))


class _Reader:
    """Reads what the verbs of one sentence say."""

    def __init__(self, mentions: Mentions, span: tuple[int, int], findings: Findings) -> None:
        self._mentions = mentions
        self._span = span
        self._findings = findings
        self._text = _with_speaker(mentions.text)

    def read(self) -> None:
        for group in _find_groups(self._text):
            before = self._text[max(0, group.start() - _CLAIM_LENGTH) : group.start()]
            is_subject = not (_find_somebody_claiming(before) or _find_preposition(before))
            if is_subject or _match_relative(self._text, group.end()):
                self._read_subject(group)

    def _read_subject(self, group: re.Match[str]) -> None:
        subjects = self._mentions.names_in(group[0])
        end = group.end()
        for pattern, kind in _KIN:
            match = pattern.match(self._text, end)
            if match is None:
                continue
            others = self._mentions.names_in(match["other"])
            if kind in _STATES and _find_past_auxiliary(match[0]):
                break
            one, other = (subjects[-1:], others) if kind == "owns" else (others, subjects[-1:])
            self._relate(one, kind, other)
            subjects, end = others[:1], match.end()  # of him it goes on: "Lena's brother Max lives in Hamburg"
            break
        together = _match_fill(self._text, end)
        if together and len(subjects) == 2:
            for pattern, kind in _TOGETHER:
                if self._match_phrase(pattern, together.end()):
                    self._relate(subjects[:1], kind, subjects[1:])
        subjects, end = self._read_company(subjects, end)
        self._read_verbs(subjects, end)

    def _read_company(self, subjects: list[str], end: int) -> tuple[list[str], int]:
        """Read "and her husband Ivan", who joins the subjects, and ", Gustav's daughter,"."""
        for pattern, kind in _COMPANY:
            match = pattern.match(self._text, end)
            if match:
                others = self._mentions.names_in(match["other"])
                self._relate(
                    subjects[-1:] if kind == "married_to" else others,
                    kind,
                    others if kind == "married_to" else subjects[-1:],
                )
                return [*subjects, *others], match.end()
        for pattern, kind in _APPOSED:
            match = pattern.match(self._text, end)
            if match:
                self._relate(subjects[-1:], kind, self._mentions.names_in(match["other"]))
                return subjects, match.end() - 1
        return subjects, end

    def _read_verbs(self, subjects: list[str], end: int) -> None:
        """Read one verb phrase after the other, as long as they have this subject."""
        fill = _match_fill(self._text, end)
        while fill is not None:
            found = self._read_verb(subjects, fill)
            if found is None:
                predicate = _match_predicate(self._text, fill.end())  # "is Danish and lives in Aarhus"
                if predicate is None:
                    return
                found = predicate.end()
            onward = _AND_THEN.match(self._text, found)
            if onward is None:
                return
            fill = _match_fill(self._text, onward.end() - 1)
            if fill is not None and _find_relative(fill[0]):  # of what was named last, whose own turn comes
                return

    def _read_verb(self, subjects: list[str], fill: re.Match[str]) -> int | None:
        """Read a verb phrase and its objects; return where they end, None where there is none."""
        at = fill.end()
        of = _match_of(self._text, at)
        if of is not None:
            for kind, noun in _NOUNS_BY_TYPE.items():
                if re.fullmatch(noun, of["noun"]):
                    if kind not in _STATES or not _find_past_auxiliary(fill[0]):
                        self._relate(subjects, kind, self._mentions.names_in(of["other"]))
                    return of.end()
        for rows, is_reversed in ((_PASSIVES, True), (_OF, False), (_VERBS, False)):
            for pattern, kind in rows:
                phrase = self._match_phrase(pattern, at)
                objects = phrase and _match_group(self._text, phrase.end())
                if not phrase or not objects or _match_or(self._text, objects.end()):
                    continue
                if kind in _GIVEN and _match_second_object(self._text, objects.end()):
                    return None  # "wrote Ivo a letter"
                verb = self._text[fill.start() : phrase.end()]
                find_past = _find_past if rows is _VERBS else _find_past_auxiliary
                if kind not in _STATES or not find_past(verb) or _find_perfect(verb):
                    names = self._mentions.names_in(objects["names"])
                    if len(names) > 1 and self._begins_verb(objects.end()):
                        names.pop()  # "leads Comet and Ivo reports to …"
                    one, other = (names, subjects) if is_reversed else (subjects, names)
                    self._relate(one, kind, other)
                return objects.end()
        school = _match_goes_to(self._text, at)
        objects = school and _match_group(self._text, school.end())
        if objects:
            names = self._mentions.names_in(objects["names"])
            self._relate(subjects, "studies_at", [name for name in names if _SCHOOL.search(name)])
            return objects.end()
        return None

    def _begins_verb(self, at: int) -> bool:
        fill = _match_fill(self._text, at)
        return fill is not None and any(self._match_phrase(pattern, fill.end()) for pattern, _ in _VERBS)

    def _match_phrase(self, pattern: re.Pattern[str], at: int) -> re.Match[str] | None:
        """Match a phrase here, or where its auxiliary verb stands, which the filling words have passed over."""
        for back in ("is ", "was ", "are ", "were ", "has ", "have ", ""):
            begin = at - len(back)
            if self._text[max(0, begin) : at] == back:
                match = pattern.match(self._text, begin)
                if match and match.end() > at:
                    return match
        return None

    def _relate(self, sources: list[str], kind: str, targets: list[str]) -> None:
        for source in sources:
            for target in targets:
                self._findings.add_relation(source, kind, target, self._span)


def _kin_rows(template: str) -> list[_Row]:
    return [
        (re.compile(template.replace("{noun}", noun).replace("{n}", NAME).replace("{g}", _GROUP)), kind)
        for kind, noun in _NOUNS_BY_TYPE.items()
    ]


# "Lena's brother Max", "Pavel's manager is Irina", "Astrid's dog is named Biscuit"
_KIN = _kin_rows(
    r"(?P<form>['’]s)\s+(?!former|late|future|previous|next|old\s)(?:[a-z]+\s+)?(?:{noun})s?(?:\s+(?:is|was)(?:\s+(?:called|named))?|\s*,)?\s+(?P<other>{g})"
)
_KIN += [
    (
        re.compile(
            rf"(?P<form>['’]s)\s+(?:dog|cat|horse|parrot|company|boat|car)\s+(?:is\s+)?(?:called|named)\s+(?P<other>{NAME})"
        ),
        "owns",
    )
]
# "and her husband Ivan", "has two children, Lotte and Finn"
_COMPANY = _kin_rows(r"\s+and\s+(?:his|her|their)\s+(?:{noun})\s*,?\s+(?P<other>{n})")
_APPOSED = _kin_rows(r"\s*,\s+(?P<other>{n})['’]s\s+(?:[a-z]+\s+)?(?:{noun})\s*,\s")
_match_of = re.compile(rf"(?:(?<=is )|(?<=was ))(?P<other>{NAME})['’]s\s+(?P<noun>[a-z]+(?: [a-z]+)?)(?![a-z])").match
_match_or = re.compile(rf"\s*,?\s+or\s+{NAME}").match
_GIVEN = ("created", "owns")
_match_second_object = re.compile(r"\s+(?:an?|some|his|her|their)\s").match
_match_goes_to = re.compile(r"(?:goes|go|went) to(?![a-z])").match


def _with_speaker(text: str) -> str:
    """Return the sentence with the speaker's name for "I", of the same length, where it begins with `Name: `."""
    speaker = re.match(rf"({NAME}):\s", text)
    if speaker is None:
        return text
    said = re.sub(r"\bI(?:'m|’m)\b", lambda match: f"{speaker[1]} am"[: len(match[0])].ljust(len(match[0])), text[2:])
    return f" {speaker[1]}{re.sub(r'(?<![A-Za-z])I(?![A-Za-z])', speaker[1], said)}" if "I" in said else text


def _read_tags(mentions: Mentions, findings: Findings) -> None:
    """Note what a sentence says that somebody is, and its #tags, for all that it names."""
    for match in _find_predicates(mentions.text):
        for name in mentions.names_in(match["names"]):
            findings.entities[name].tags[match["noun"]] = None
    for tag in _find_tags(mentions.text):
        for mention in mentions.all:
            findings.entities[mention.name].tags[tag.casefold()] = None


_find_predicates = re.compile(
    rf"(?P<names>{NAME})(?:\s*,\s+who)?\s+(?:is|was)\s+an?\s+(?:[a-z-]+\s+){{0,2}}?(?P<noun>[a-z]{{3,}})"
    r"(?=\s*(?:[.,;!]|and\b|at\b|in\b|from\b|for\b|with\b|who\b|$))"
).finditer
_find_tags = re.compile(r"(?<!\w)#(\w{2,40})").findall


# Names


def find_mentions(sentence: str, find_known: Callable[[str], str | None]) -> Iterator[Mention]:
    """Yield the names of a sentence, the surest first: what is quoted, what is known, what is capitalised."""
    speaker = _match_speaker(sentence)
    begin = speaker.end() if speaker else 0
    if speaker and speaker[1].split()[0] not in ENGLISH_NO_NAMES:
        yield Mention(find_known(speaker[1]) or speaker[1], *speaker.span(1))
    for quoted in _find_quoted(sentence):
        if len(quoted[1].split()) <= 8 and (quoted[1][0].isupper() or not quoted[1][0].isascii()):
            yield Mention(find_known(quoted[1]) or quoted[1].strip(" ,.;"), *quoted.span())
    words = list(_find_words(sentence, begin))
    yield from _known_among(sentence, words, find_known)
    yield from _capitalised_among(sentence, words, find_known)
    for word in words:  # a name in Chinese
        if 2 <= len(word[0]) <= 6 and all("\u3400" <= char <= "\u9fff" for char in word[0]):
            yield Mention(find_known(word[0]) or word[0], *word.span())


_find_quoted = re.compile(r"[\"“«「『《]([^\"”»」』》]{2,80})[\"”»」』》]").finditer
_find_words = re.compile(r"(?:(?:Mr|Mrs|Ms|Dr|Prof|St|Mt)\.)|[^\W_]+(?:[-'’&.][^\W_]+)*(?:\+\+|#)?").finditer
_LONGEST = 5  # words of a known name


def _known_among(
    sentence: str, words: list[re.Match[str]], find_known: Callable[[str], str | None]
) -> Iterator[Mention]:
    """Yield the longest runs of words that are known; a name that is written with a capital needs one here, too."""
    first = 0
    while first < len(words):
        if first > 0 and words[first - 1][0].rstrip(".") in TITLES:  # Mrs Carter need not be the Carter who is known
            first += 1
            continue
        for count in range(min(_LONGEST, len(words) - first), 0, -1):
            start, end = words[first].start(), words[first + count - 1].end()
            written = re.sub(r"['’]s?$", "", sentence[start:end])
            name = find_known(written) if len(written) > 1 else None
            if name is not None and (written[0].isupper() or not name[0].isupper()) and written not in ENGLISH_NO_NAMES:
                yield Mention(name, start, start + len(written))
                first += count - 1
                break
        first += 1


def _capitalised_among(
    sentence: str, words: list[re.Match[str]], find_known: Callable[[str], str | None]
) -> Iterator[Mention]:
    """Yield runs of capitalised words, with what joins them: Maria Lopez, St. Mary's School, Bank of Ireland."""
    first = 0
    while first < len(words):
        if not _is_capital(words[first][0]):
            first += 1
            continue
        last = first
        while (following := _next_in_name(sentence, words, last)) is not None:
            last = following
        yield from _name_in(sentence, words[first : last + 1], is_first=first == 0, find_known=find_known)
        first = last + 1


def _is_capital(word: str) -> bool:
    return any(char.isupper() for char in word[:3]) and word.rstrip(".") not in NO_CAPITALS


def _next_in_name(sentence: str, words: list[re.Match[str]], last: int) -> int | None:
    """Return the place of the capitalised word that goes on with a name, over `of` and `de` too."""
    if re.search(r"['’]s$", words[last][0]) and not _is_saint(words[: last + 1]):
        return None
    at = last + 1
    while at < len(words) and _between(sentence, words, at) == " " and words[at][0] in JOINING_WORDS:
        at += 1
    is_near = at < len(words) and _between(sentence, words, at) in (" ", " & ")
    return at if is_near and at - last <= 3 and _is_capital(words[at][0]) else None


def _between(sentence: str, words: list[re.Match[str]], at: int) -> str:
    """Return what stands before a word."""
    return sentence[words[at - 1].end() : words[at].start()]


def _is_saint(words: list[re.Match[str]]) -> bool:
    """Tell whether a possessive is a part of a name: St. Mary's School."""
    return len(words) > 1 and words[-2][0] == "St."


def _name_in(
    sentence: str, run: list[re.Match[str]], is_first: bool, find_known: Callable[[str], str | None]
) -> Iterator[Mention]:
    words = [match[0] for match in run]
    begin = 0
    if is_first:
        while begin < len(words) and (words[begin] in ENGLISH_NO_NAMES or words[begin].endswith("ly")):
            if " ".join(words[begin : begin + 2]) in PLACES_WITH_ADJECTIVES:
                break
            begin += 1
    while begin < len(words) - 1 and _is_date(words[begin], sentence[: run[begin].start()]):  # "On Monday Tom met Sue"
        begin += 1
    while begin < len(words) and (words[begin] in _HEADS or words[begin] in JOINING_WORDS):
        if words[begin] == "The" and not is_first and len(words) - begin == 2:
            break  # a title: "wrote The Dispossessed"
        begin += 1
    if begin >= len(words):
        return
    start, end = run[begin].start(), run[-1].end()
    written = re.sub(r"['’]s?$", "", sentence[start:end])
    single = begin == len(words) - 1
    if single and _is_no_name(written, sentence[:start]):
        return
    if single and is_first and begin == 0 and not _looks_like_a_name(written, sentence[start + len(written) :]):
        return
    yield Mention(find_known(written) or written, start, start + len(written))


def _is_date(word: str, before: str) -> bool:
    """Tell whether a word is a day, or a month behind "in" and the like: May and June are names, too."""
    return word.endswith("day") if word in CALENDAR and not _find_before_date(before) else word in CALENDAR


_find_before_date = re.compile(r"\b(?:[Ii]n|[Oo]n|[Ss]ince|[Ll]ast|[Tt]his|[Ee]very|[Bb]y|[Ee]arly|[Ll]ate)\s+$").search

_HEADS = ("The", "A", "An", "Project", "Team")


def _is_no_name(word: str, before: str) -> bool:
    if word in ENGLISH_NO_NAMES or word in CALENDAR or word.rstrip("s") in CALENDAR:
        return True
    # "Lars is Danish": where somebody is from, and no name, but for languages that are spoken.
    describes = re.search(r"\b(?:is|was|are|were|an?|the)\s+$", before)
    return bool(describes and re.search(r"(?:ish|ese|ian|can|ench|erman)$", word))


def _looks_like_a_name(word: str, after: str) -> bool:
    """Tell whether the first word of a sentence is somebody or something, by what comes next."""
    if any(char.isupper() for char in word[1:]) or any(char.isdigit() for char in word):
        return True
    if word.endswith(("ing", "ly")):
        return False
    if _find_subject_signs(after):
        return True
    return not word.endswith("s") and bool(re.match(r"\s+[a-z]+(?:ed|s)\b", after))


_find_subject_signs = re.compile(
    r"['’]s\b|\s*,\s+who\b|\s*,\s+which\b|:\s|\s+(?:and|&)\s+(?:[A-Z]|his\b|her\b)|\s*,\s+[A-Z]\w+(?:['’]s|\s*,|\s+and\b)|"
    r"\s+(?:is|was|has|does|did|can|can't|cannot|isn't|wasn't|didn't|doesn't|never|also|now|just|might|would|will|said|"
    r"thinks|lives|works|worked|moved|likes|loves|hates|uses|knows|wrote|met|left|runs|owns|leads|speaks|bought|sold|"
    r"won|went|came|told|made|grew|has|belongs|comes|depends|needs|requires|lies|teaches|studies|joined|left)\b"
).match
