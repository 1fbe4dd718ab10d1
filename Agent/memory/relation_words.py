"""Tell which relations a question asks for, by its words: `lives_in` for "Where does … live?", 住在哪里 and "home".

>>> sorted(asked_relations("Where does the person who works on Apollo live?"))
['lives_in', 'works_at', 'works_on']
>>> sorted(asked_relations("小林的爱人住在哪里？"))
['lives_in', 'married_to']

A question in other words asks for nothing here, and recall goes by the text.
"""

import re
from collections.abc import Iterable

from ..finding.texts import STOP_WORDS as ASKING_WORDS
from ..finding.texts import terms as terms_of
from .keywords import STOP_WORDS

__all__ = [
    "ONE_AT_A_TIME",
    "RELATION_TYPES",
    "SPEAKER",
    "asked_relations",
    "asked_subjects",
    "relation_of",
    "says_relation",
    "subjects_of",
    "words_of",
]

_WORDS = {
    "works_on": "work works working develop develops developer maintain maintains maintainer build builds contribute "
    "开发 研发 参与 维护 在做 从事",
    "works_at": "work works working worked employ employs employer employed company job colleague office "
    "工作 上班 任职 就职 供职 公司 单位 雇主",
    "lives_in": "live lives living lived home reside resides residence address flat moved "
    "住 家在 居住 定居 生活 搬到 现居",
    "born_in": "born birth birthplace 出生 生于 籍贯",
    "comes_from": "come comes from origin hometown grew raised 来自 老家 家乡 哪里人 长大 产自",
    "studies_at": "study studies studied student school university college graduate graduated "
    "读书 上学 学习 就读 毕业 学校 大学",
    "teaches_at": "teach teaches teacher professor school university 教书 任教 老师 学校",
    "manages": "manage manages manager lead leads leader head heads run runs boss charge direct director responsible "
    "supervisor 领导 管理 负责 主管 带队 上司 经理 老板",
    "reports_to": "report reports boss manager supervisor 汇报 上司 领导",
    "part_of": "part belong belongs component member 属于 隶属 一部分",
    "located_in": "locate located base based headquarters city country situated office 位于 总部 坐落 地址 城市",
    "founded": "found founded founder start started 创办 创立 创建 创始人 成立",
    "created": "write wrote written author create created creator invent invented design designed designer compose "
    "写 作者 创作 设计 发明 开发",
    "owns": "own owns owner bought buy acquire acquired has pet 拥有 买 收购 主人 养",
    "uses": "use uses used using technology tool database 使用 采用 用 技术 工具",
    "depends_on": "depend depends need needs require requires rely relies technology built 依赖 需要 基于 技术",
    "written_in": "written language implemented 语言 用什么写",
    "replaces": "replace replaces replaced successor predecessor 取代 代替 替代",
    "likes": "like likes liked love loves enjoy enjoys prefer prefers favourite favorite fond "
    "喜欢 喜爱 爱喝 爱吃 偏爱 最爱",
    "dislikes": "dislike dislikes hate hates stand 讨厌 厌恶",
    "knows": "know knows met meet friend acquaintance 认识 见过",
    "friend_of": "friend friends 朋友 好友",
    "married_to": "marry married wife husband spouse partner 结婚 爱人 妻子 丈夫 老婆 老公 配偶 太太 夫妻 嫁 娶",
    "parent_of": "parent parents father mother dad mum mom child children son daughter kids "
    "父亲 母亲 爸爸 妈妈 父母 儿子 女儿 孩子",
    "child_of": "child children son daughter parent parents father mother kids 儿子 女儿 孩子 父亲 母亲 父母",
    "sibling_of": "brother sister sibling siblings twin 哥哥 弟弟 姐姐 妹妹 兄弟 姐妹",
    "speaks": "speak speaks language languages 会说 语言 会讲",
    "visited": "visit visited travel travelled traveled trip went been 去过 访问 游览 旅行 到过 参观",
}

_STEMS = {kind: frozenset(terms_of(re.sub(r"[^ -~]", "", words))) for kind, words in _WORDS.items()}
_UNSPACED = {kind: [word for word in words.split() if not word.isascii()] for kind, words in _WORDS.items()}


def asked_relations(question: str) -> frozenset[str]:
    """Return the types that the words of a question ask for."""
    terms = set(terms_of(question))
    return frozenset(
        kind for kind in _WORDS if terms & _STEMS[kind] or any(word in question for word in _UNSPACED[kind])
    )


RELATION_TYPES = tuple(_WORDS)
"""The types that have words of their own."""

ONE_AT_A_TIME = frozenset(["lives_in", "works_at"])
"""Types of which the newest statement takes the place of older ones, for most people at most times."""


def words_of(relation_types: Iterable[str]) -> str:
    """Return the words that ask for some types, or say them."""
    return " ".join(_WORDS[kind] for kind in sorted(relation_types))


def relation_of(term: str, relation_types: Iterable[str]) -> str:
    """Return which of some types a term is a word of; the term itself where it is none's.

    >>> relation_of("mov", ["lives_in"]), relation_of("我住", ["lives_in"]), relation_of("tea", ["lives_in"])
    ('lives_in', 'lives_in', 'tea')
    """
    for kind in relation_types:
        if term in _STEMS[kind] or any(word in term or term in word for word in _UNSPACED[kind]):
            return kind
    return term


def says_relation(text: str, relation_type: str) -> bool:
    """Tell whether a text has a word for a relation: one of its type's, else one of its type's name.

    >>> says_relation("Ada is allergic to nuts.", "allergic_to"), says_relation("小林对花生过敏。", "过敏")
    (True, True)
    >>> says_relation("Ada works on Apollo.", "works_on"), says_relation("Ada works on Apollo.", "killed")
    (True, False)
    """
    words = relation_type.replace("_", " ")
    stems = set(terms_of(words)) - _SMALL if words.isascii() else set()
    unspaced = [word for word in words.split() if not word.isascii()]
    stems, unspaced = stems | _STEMS.get(relation_type, set()), unspaced + _UNSPACED.get(relation_type, [])
    return bool(stems.intersection(terms_of(text))) or any(word in text for word in unspaced)


_SMALL = frozenset(re.findall(r"\w+", "a an and as at by for from has have in is of on the to was were with"))


SPEAKER = "\0speaker"
"""Stands for who speaks among the subjects of a text."""


def subjects_of(text: str, relation_type: str) -> frozenset[str]:
    """Return the terms of who has a relation by what a text states, `SPEAKER` for who speaks.

    >>> sorted(subjects_of("In June Ada moved to Rome. Does Bob live in Oslo?", "lives_in"))
    ['ada', 'jun']
    >>> subjects_of("I moved to Rome.", "lives_in") == {SPEAKER} == subjects_of("我搬到罗马了。", "lives_in")
    True
    """
    from .own_words import clauses_of, is_about_speaker, is_stated, sentences_of  # its patterns take time to compile

    found: set[str] = set()
    for start, end in sentences_of(text):
        before = ""
        for clause in clauses_of(text[start:end]) if is_stated(text[start:end]) else ():
            place = _find_word(clause, relation_type) if _names_place(clause) else None
            if place is not None and is_about_speaker(clause, before):
                found.add(SPEAKER)
            elif place is not None:
                found |= set(terms_of(clause[:place])) - STOP_WORDS
            before = clause
    return frozenset(found)


def asked_subjects(question: str) -> frozenset[str]:
    """Return the terms of whom a question may be about, `SPEAKER` for the caller."""
    from .own_words import is_about_speaker

    subjects = frozenset(terms_of(question)) - STOP_WORDS - ASKING_WORDS  # 我 is also in 我妹妹
    return subjects | ({SPEAKER} if is_about_speaker(question) else set())


def _find_word(clause: str, relation_type: str) -> int | None:
    """Return where the first word of a relation is."""
    stems, places = _STEMS[relation_type], [clause.find(word) for word in _UNSPACED[relation_type]]
    places += [match.start() for match in _find_words(clause) if not stems.isdisjoint(terms_of(match[0]))]
    return min((place for place in places if place >= 0), default=None)


_find_words = re.compile(r"[A-Za-z]+").finditer
_names_place = re.compile(r"(?i:\b(?:at|in|to|for|with|from|near|as)\b)|[在到去于]").search
