r"""Which words of a message are its speaker's own, and what a sentence of them states.

>>> said = 'I live in Rome.\n> I live in Oslo.\nBob wrote: "I hate jazz."'
>>> own = own_words(said)
>>> "Rome" in own, "Oslo" in own, "jazz" in own, len(own) == len(said)
(True, False, False, True)
>>> is_stated("I live in Rome."), is_stated("Do I live in Rome?"), is_stated("如果我住在北京就好了。")
(True, False, False)
>>> is_about_speaker("I live in Rome"), is_about_speaker("my sister lives in Rome"), is_about_speaker("小林住在北京")
(True, False, False)
>>> is_denied("I don't like jazz"), is_denied("我喜欢爵士乐"), is_denied("I hate jazz")
(True, False, True)

Nothing here finds anything: these tests only refuse what a model says a person has said. They refuse too much rather
than too little. What is refused is still in the text, and is found there by its words.
"""

import re
from collections.abc import Iterator

__all__ = ["NOT_OWN", "clauses_of", "is_about_speaker", "is_denied", "is_request", "is_stated", "own_words",
           "sentences_of"]  # fmt: skip


NOT_OWN = "\0"
"""Takes the place of a character that is not the speaker's own."""


# Which words are the speaker's own

_is_fence = re.compile(r"\s{0,3}(?:```|~~~)").match
_is_quoted_line = re.compile(r"\s{0,3}[>|]").match
_is_header = re.compile(
    r"(?i)\s{0,8}(?:(?:from|to|cc|sent|subject|发件人|收件人|抄送|主题|发送时间|寄件人)\s?[:：]"
    r"|[-_=]{2,40}\s?(?:original|forwarded)|begin forwarded message|on .{4,100} wrote:\s?$"
    r"|.{0,40}(?:原始邮件|转发的?(?:邮件|消息|信息|内容)|聊天记录))"
).match
_is_turn = re.compile(
    r"\s{0,8}(?:[\[(【]?\d{1,4}[:：/-]\d{1,2}.{0,30}[:：]|(?!(?i:my|i|note|ps|update|我)\b)[\w.'’-]{1,20}"
    r"(?: [\w.'’-]{1,20}){0,2}(?: ?[\[(（【].{1,30}[\])）】])?\s?[:：](?![\d/]))"
).match
"""A line of a conversation: `[10:32] Bob: …`, `Bob: …`, 小林：…"""
_find_introduction = re.compile(
    r"(?i)(?:\b(?:e-?mail|mail|message|letter|text|post|article|review|transcript|chat|log|conversation|story|poem|lyrics"
    r"|song|essay|email|paragraph|sentence|translate|summari[sz]e|proofread|rewrite|rephrase|paraphrase|wrote|writes|says"
    r"|said|following|below|forwarded|pasted)\b"
    r"|邮件|来信|信件|消息|短信|文章|帖子|评论|聊天|对话|故事|歌词|作文|句子|段落|翻译|总结|概括|润色|改写|写道|写着|说道|如下|转发|下面|以下)"
    r"[^\n:：]{0,60}[:：](?!\d)"
).search
"""`Please translate: …`, `I got this mail: …`: what follows is another person's text."""
_find_play = re.compile(
    r"(?i)\b(?:pretend|imagine|role-?play(?:ing)?|let['’]s play|act as|acting as|you are now|suppose|in character"
    r"|once upon a time|my character|dialogue for|write (?:a|an|me) )"
    r"|假装|扮演|想象|假设|角色|演一|剧本|故事里|小说里|写一(?:篇|段|首|个)"
).search
_is_greeting = re.compile(r"(?i)\s{0,8}(?:dear|hi|hello|尊敬的|亲爱的)[ \w.'’-]{1,40}[,，:：!！]\s{0,8}$").match
_is_farewell = re.compile(
    r"(?i)\s{0,8}(?:(?:best|kind|warm)? ?regards|sincerely|yours|cheers|all the best|此致|敬上|祝好|谨上)\b"
).match
_PAIRS = (("“", "”"), ("「", "」"), ("『", "』"), ("«", "»"), ("‘", "’ "), ("``", "``"), ("`", "`"))
_NAME_IN_QUOTES = 40  # characters
_find_single_quotes = re.compile(r"(?<![^\W_])'(?=\w)|(?<=[\w.,!?])'(?![^\W_])").finditer
_speaks = re.compile(r"(?i)\b(?:i|i['’]?m|my|me|we|our|he|she|they|you)\b|[我你您他她]|[.!?。！？]$").search


def own_words(text: str) -> str:
    """Return a text of the same length in which what is not the speaker's own is `NOT_OWN`.

    Left out are code, quoted lines and speech, forwarded mail and conversations, letters with greeting and farewell,
    what an introduction announces ("Please translate: …"), and what follows the frame of a play ("Pretend that …").
    A name or title in quotation marks stays.

    Cost: some 50 ms for 100,000 characters.
    """
    held = list(text)
    for start, end in _others(text):
        held[start:end] = NOT_OWN * (end - start)
    return "".join(held)


def _others(text: str) -> Iterator[tuple[int, int]]:
    """Yield what is not the speaker's own, from where to where."""
    lines, place = [], 0
    for line in text.splitlines(keepends=True):
        lines.append((place, line))
        place += len(line)
    turns = [number for number, (_, line) in enumerate(lines) if _is_turn(line)]
    greeting = next((start for start, line in lines if _is_greeting(line)), None)
    if greeting is not None and any(_is_farewell(line) for start, line in lines if start > greeting):
        yield greeting, len(text)
    is_code, spoken = False, frozenset(turns)
    for number, (start, line) in enumerate(lines):
        if _is_fence(line):
            is_code = not is_code
            yield start, start + len(line)
        elif is_code or _is_quoted_line(line) or line.startswith(("    ", "\t")):
            yield start, start + len(line)
        elif _is_header(line):
            yield start, len(text)
            break
        elif number in spoken:  # to the end of the paragraph
            following = number + 1
            while following < len(lines) and lines[following][1].strip() and following not in spoken:
                following += 1
            yield start, lines[following][0] if following < len(lines) else len(text)
    if (announced := _find_introduction(text)) is not None:
        yield announced.end(), len(text)
    if (play := _find_play(text)) is not None:
        yield play.start(), len(text)
    yield from _quotes(text)


def _quotes(text: str) -> Iterator[tuple[int, int]]:
    for opening, closing in _PAIRS:
        start = text.find(opening)
        while start >= 0:
            end = text.find(closing, start + len(opening))
            end = len(text) if end < 0 else end + len(closing)
            if not _is_name(text[start + len(opening) : end - len(closing)]):
                yield start, end
            start = text.find(opening, end)
    marks = [place for place, char in enumerate(text) if char in '"＂']
    for start, end in zip(marks[::2], [*marks[1::2], len(text)], strict=False):
        if not _is_name(text[start + 1 : end]):
            yield start, end + 1 if end < len(text) else end
    singles = [match.start() for match in _find_single_quotes(text)]
    for start, end in zip(singles[::2], singles[1::2], strict=False):
        if not _is_name(text[start + 1 : end]):
            yield start, end + 1


def _is_name(quoted: str) -> bool:
    """Whether the text in quotation marks is a name or a title, and no speech."""
    words = quoted.split()
    if not words or len(quoted) > _NAME_IN_QUOTES or _speaks(quoted):
        return False
    return not quoted.isascii() or all(word[:1].isupper() or not word[:1].isalpha() for word in words)


# What a sentence states

_find_ends = re.compile(r"[。！？!?；;\n\0]|\.(?=\s|$)").finditer
_ends_in_abbreviation = re.compile(r"(?:^|[\s(])(?:Mr|Mrs|Ms|Dr|St|Prof|No|vs|[A-Z])\.$").search
_DOUBTFUL = frozenset(
    """
    if unless whether could might perhaps maybe possibly probably wish wishes wished hope hopes hoping should suppose
    imagine pretend supposedly apparently allegedly rumor rumors rumored rumour rumours rumoured say says said tell
    tells told ask asks asked heard hear hears think thinks thought believe believes believed claim claims claimed
    guess guesses assume assumes assumed according dream dreams dreamt dreamed joke jokes joking kidding almost nearly
    sarcasm
    """.split()  # noqa: SIM905  read as a text
)
"""Words of doubt, wish and hearsay."""
_find_words = re.compile(r"[a-z]+").findall
_NOT_STATED = re.compile(
    r"[?？]|\bmay\b"
    r"|(?i:\bwould\b(?! (?:like|love|prefer))|\b(?:he|she|they|you|it)['’]d\b)"
    r"|(?i:^(?:do|does|did|am|are|is|was|were|have|has|can|shall|will|what|where|who|when|why|how|which)\b)"
    r"|(?i:(?<!\S)/s\b|\byeah,? right|\boh,? (?:great|sure|wonderful|joy|yeah|perfect|fantastic|lovely|good|yes)\b"
    r"|\bjust (?:love|adore)|\bwhat a (?:joy|pleasure|treat)|\bthanks a lot|\blucky me|\bsure, because)|[🙄😒🙃]"
    r"|吗|呢[。！]?$|是不是|会不会|如果|要是|假如|假设|倘若|万一|假装|想象|扮演|可能|也许|或许|大概|希望|但愿|恨不得|听说|据说|传闻"
    r"|告诉|以为|认为|觉得|声称|[他她说]说|说[我过道是，,：:]|写道|梦见|梦到|开玩笑|差点|好像|呵呵|才怪|可真|真是太|好极了|我可太|谢谢你啊|才不"
).search
_DENIES = re.compile(
    r"(?i:\b(?:not|never|no|nor|neither|nobody|none|without|no longer|used to|anymore|any more|formerly|previously"
    r"|stopped|stop|quit|gave up|refuse[sd]?|avoids?|hates?|hated|dislikes?|disliked|detests?|loathes?|despises?"
    r"|allergic|left|ex|cannot|can['’]?t|hardly|instead of|rather than)\b|n['’]t\b|\bdont\b)"
    r"|不(?!过|错|仅|但|同)|没|别(?!人|的|墅)|非(?!常|洲)|无(?!锡)|曾经|以前|从前|过去|原来|不再|戒|讨厌|厌恶|反感|过敏|恨|拒绝|避免|离开"
).search
_SPEAKER = r"(?i:\b(?:i|i['’]?(?:m|ve|ll)|me|my|mine|we|we['’]re|our)\b)|我|俺|咱|本人"
_KIN = (
    r"sister|brother|mother|father|mom|mum|dad|wife|husband|son|daughter|friend|boss|colleague|neighbou?r|uncle|aunt"
    r"|cousin|teacher|partner|girlfriend|boyfriend|grandmother|grandfather|grandma|grandpa|roommate|flatmate|parents"
    r"|kids?|children|child|family|team|manager|client|customer|coworker|ex|dog|cat|niece|nephew|doctor|landlord"
)
_KIN_ZH = (
    "妹|姐|哥|弟|妈|爸|父|母|妻|老公|老婆|丈夫|儿子|女儿|朋友|同事|同学|老板|上司|邻居|叔|姨|姑|舅|爷|奶奶|外公|外婆|室友"
    "|老师|客户|孩子|爱人|先生|太太|家人"
)
_find_subject = re.compile(
    rf"(?P<other>(?i:\b(?:my|our)\s(?:[\w-]{{1,20}}\s){{0,2}}?(?:{_KIN})s?\b)"
    rf"|我们?的?[大小老二三]?(?:{_KIN_ZH})"
    r"|(?i:\b(?:he|she|they|his|her|their|him|them|who|guy|man|woman|people|some(?:one|body)|every(?:one|body)|nobody)\b)"
    r"|他|她|人家|别人|有人|大家|某人|谁)"
    rf"|(?P<speaker>{_SPEAKER})"
).search
_ASKS_ASSISTANT = re.compile(
    r"(?i)\s{0,4}(?:please|always|never|from now on|in (?:the )?future|do not|don['’]t|call me|answer|reply|use|speak"
    r"|write|keep|only)\b|\s{0,4}(?:请|麻烦|以后|今后|从现在|别|不要|务必|总是|永远|叫我|用)"
).match
_split_clauses = re.compile(
    r"[,;:，；：、()（）—]|\s-\s|(?i:\s(?:and|but|or|while|whereas|because|since|so|that|which|who|whom|whose|where|when|then"
    r"|although|though|after|before|until|as)\s)|而且|但是|不过|因为|所以|然后|并且|以及|可是|而|但"
).split
_CONTINUES = re.compile(
    r"(?i)\s{0,4}(?:am|work|live|was|have|like|love|moved|study|teach|speak|hate|enjoy|prefer|now|also|still|don['’]t|never)\b"
    r"|\s{0,4}(?:在|住|是|叫|当|做|喜欢|也|还|已|现|目前|爱|有|来自|出生|工作|搬|常|每|最|从|不|姓|今年)"
).match
"""A clause that leaves out its subject: it has that of the clause before it."""


def sentences_of(text: str) -> Iterator[tuple[int, int]]:
    """Yield where each sentence begins and ends, blanks around it left out.

    >>> text = "Dr. Lee left. 小林来了。Why?"
    >>> [text[start:end] for start, end in sentences_of(text)]
    ['Dr. Lee left.', '小林来了。', 'Why?']
    """
    start = 0
    ends = [match.end() for match in _find_ends(text) if not _ends_in_abbreviation(text[: match.end()][-8:])]
    for end in [*ends, len(text)]:
        stripped = text[start:end].strip().strip(NOT_OWN)
        if stripped:
            begin = text.index(stripped[0], start)
            yield begin, begin + len(stripped)
        start = end


def is_stated(sentence: str) -> bool:
    """Tell whether a sentence states what it says: it is no question, no wish, no hearsay, and not ironic."""
    return _DOUBTFUL.isdisjoint(_find_words(sentence.lower())) and not _NOT_STATED(sentence)


def is_denied(text: str) -> bool:
    """Tell whether a text denies: by a negation, by the past, or by a word of dislike."""
    return bool(_DENIES(text))


def clauses_of(text: str) -> list[str]:
    """Return the clauses of the sentences of a text, without those that are blank."""
    sentences = (text[start:end] for start, end in sentences_of(text))
    return [clause for sentence in sentences for clause in _split_clauses(sentence) if clause and clause.strip()]


def is_about_speaker(clause: str, before: str = "") -> bool:
    """Tell whether a clause is about who speaks.

    Args:
        clause: One clause.
        before: The clause before it, whose subject it may have.
    """
    found = _find_subject(clause)
    if found is None and before and _CONTINUES(clause):
        found = _find_subject(before)
    return found is not None and found["speaker"] is not None


def is_request(sentence: str) -> bool:
    """Tell whether a sentence asks the assistant for something: "Please always …", 请总是…."""
    return bool(_ASKS_ASSISTANT(sentence))
