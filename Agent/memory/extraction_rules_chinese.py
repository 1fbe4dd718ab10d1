"""Find names, and what verbs say of them, in a Chinese sentence.

Chinese separates no words and has no capitals, so a name is told by where it stands: in 《》「」“” and the like, in
Latin letters, before or behind one of the verbs below, or as a family name with one or two characters where a clause
begins. A clause is read as

    name[和name] [adverbs] verb name[和name] [what may follow]

and a clause without a name of its own goes on with the subject of the one before it. What is not a name of two to six
characters, has a word of grammar in it, or ends otherwise than a clause may, is no match.

A wrong relation is worse than none. So a sentence states none at all where it asks, or has a word of `_find_doubt`
anywhere: 如果, 听说, 拒绝, 明年, 曾经. With 不 or 没 no verb fits. Where a clause says when (去年, 小时候), or that
it was lived through (过), what may be over by now is not stated: 去年住在, but 去年搬到 is.
"""

import re
from collections.abc import Callable, Iterator

from .extraction_rules import NAME, Findings, Mention, Mentions
from .extraction_words import CHINESE_COMMON_ENDINGS, CHINESE_NO_NAMES

__all__ = ["find_mentions", "is_stated", "read_sentence"]

_HAN = r"[\u3400-\u9fff]"
# Characters that names hardly have: grammar, pronouns, measure words, and the verbs that stand beside names.
_NOT_IN_NAMES = (
    "的了着过是在有和与跟或不没很还就我你您他她它们这那哪谁什么怎吗呢吧啊呀个把被从向对给让会要想说得用叫"
    "又再但而且因所以如果虽只最太更每某几些请离即将拒"
)
_CHAR = rf"(?:(?![{_NOT_IN_NAMES}]){_HAN})"
_WORD = rf"(?:{NAME}|{_CHAR}(?:{_CHAR}){{1,5}}?)"
_SUBJECT = rf"{_WORD}(?:(?:和|与|跟|、){_WORD}){{0,3}}?"
_ADVERBS = (
    "(?:现在|目前|一直|最近|已经|刚刚|刚|还|也|正在|从小|去年夏天|去年|今年|上个?月|上周|春天|夏天|秋天|冬天|[一二三四五六七八九十]+月|每天|"
    "最初|都|后来|终于|这半年|小时候|昨天|前天|昨晚|今天|平时|平常|通常|经常)*"
)
_MEASURE = (
    "(?:了|过|着)?"
    "(?:[一两三四五六七八九十几]+(?:只|条|辆|台|个|套|家|座|部|本|杯|款|张|把|位|名|种)|那?家|这?个)?"
)
_TAIL = "(?:项目组|项目|公司|系统|小组|团队|计划组|服务|平台|手机|相机|餐厅|仓库|的工作|的开发|的事)?"
_END = r"(?:了|里|上|呢|好几年|多年|很多年|五年|两年|几年)?\s*$"

_PLACE_VERBS_BY_TYPE = {
    "works_at": "工作|上班|任职|供职|就职|做事|当[一-龥]{1,4}",
    "studies_at": "读书|上学|学习|念书|读研|留学|读博|上大学",
    "teaches_at": "教书|任教|教课|讲课|当老师",
    "lives_in": "生活|居住|定居|安家",
    "born_in": "出生",
    "comes_from": "长大",
}

_VERBS_BY_TYPE = {
    "lives_in": "居住在|定居在|定居于|定居|生活在|家住|住在|住进|搬到|搬去了|搬进|现居|常驻|的家在|家在",
    "works_at": "就职于|任职于|供职于|加入|入职|跳槽到",
    "studies_at": "就读于|毕业于|考上|考进",
    "teaches_at": "任教于",
    "born_in": "出生在|出生于|生于",
    "comes_from": "来自|产自|的?老家在|出自|成长于",
    "works_on": "负责开发|负责维护|在开发|开发着|在研发|在研究|研究|维护|参与|在做|在写|从事|开发(?!了)",
    "created": "编写|写了|写过|创作|设计|发明|开发了|研发了|制作了|著有|撰写",
    "manages": "领导|管理|带领|主管|掌管|负责(?!开发|维护)",
    "part_of": "隶属于|隶属|归属于|属于",
    "located_in": "坐落在|坐落于|位于|地处|的?总部(?:位于|在|设在)|把(?:办公室|总部)设在|"
    r"在(?![学做看开等找忙处用写读吃喝睡玩准整修家])",
    "founded": "创办|创立|创建|成立了|开了|创下",
    "owns": "买了|拥有|收购",
    "uses": "使用|采用|用的是|在用|用",
    "depends_on": "依赖于|依赖|需要|基于|依靠",
    "replaces": "取代|代替|替代",
    "likes": "最喜欢|喜欢听|喜欢喝|喜欢吃|喜欢|喜爱|热爱|偏爱|爱喝|爱吃|爱听|最爱|爱",
    "dislikes": "讨厌|厌恶",
    "knows": "认识|见过|结识",
    "married_to": "嫁给|娶了",
    "speaks": "会说|会讲|精通|能说",
    "visited": "去过|去了|到过|访问|游览|参观",
}

# A是B的…; A的…(是)B
_NOUNS_BY_TYPE = {
    "parent_of": "父亲|母亲|爸爸|妈妈|爹|娘",
    "child_of": "儿子|女儿|孩子",
    "sibling_of": "哥哥|弟弟|姐姐|妹妹|大哥|二哥|大姐",
    "married_to": "妻子|丈夫|爱人|老婆|老公|太太|先生",
    "friend_of": "好朋友|朋友|好友",
    "manages": "负责人|经理|领导|主管|上司|老板|组长|队长",
    "founded": "创始人|创办人",
    "created": "作者|设计者|发明者|开发者",
}
_BELONGING_BY_TYPE = {  # A是B的…
    "studies_at": "学生|研究生|博士生",
    "works_at": "员工|职员|老师|教师|教授|工程师|医生|护士|经理|研究员|记者|编辑|设计师",
    "part_of": "一部分|子公司|模块|组成部分",
    "located_in": "(?:一座|一个)?(?:城市|首都|省会|小镇|小城|县城|村庄)",
}
_TOGETHER_BY_TYPE = {
    "married_to": "结婚|是夫妻|是一对夫妻",
    "friend_of": "是(?:好|老)?朋友",
    "knows": "认识|互相认识|见过面",
    "sibling_of": "是(?:兄弟|姐妹|兄妹|姐弟|双胞胎)",
}
_PASSIVES_BY_TYPE = {
    "created": "写|开发|设计|创作|制作|编写|研发",
    "founded": "创办|创立|创建|成立",
    "manages": "领导|负责|管理|带队|主管|牵头",
    "works_on": "维护",
}

_OBJECTS = rf"(?P<objects>{_WORD}(?:(?:和|与|跟|、|以及){_WORD}){{0,3}}?)"
_OTHER = rf"(?P<other>{_WORD})"

_Read = Callable[["_Clause", re.Match[str], list[str]], None]

_match_time = re.compile(
    "(?:昨天|今天|明天|前天|昨晚|去年|今年|前年|最近|现在|目前|上周|上个月|周末|后来|以前|今早|早上|晚上|其实|原来|我(?:的)?(?:妹妹|哥哥|弟弟|姐姐|朋友|同事|同学|老师|爸爸|妈妈)|另外|还有|对了|不，|嗯，)+"
).match
_NOT_STATED = (
    # denied
    "并非|绝非|并不是|不是|没人|没有人|无人|很少有|谁[都也]不|谁[都也]没|不再|再也|拒绝|否认|放弃|未能|未曾|尚未|从未|从没|没能|"
    "差点|差一点|险些|几乎|别(?![人墅的名])|不要|不同意|谣[传言]|造谣|假的|离婚|离职|辞职|"
    # said, thought or made up by somebody
    "听说|(?<![数证收论占])据|传闻|传言|传说|好像|似乎|貌似|看来|看样子|疑似|估计|猜|怀疑|相信|不信|觉得|认为|以为|声称|自称|宣称|表示|"
    "(?<![会能小])说(?!明)|(?<![访学顾])问(?!题)|告诉|假装|装作|梦[见到想里中]|(?:小说|故事|电影|电视剧|剧|书|游戏)[里中](?![心国])|"
    # asked, wished, possible, or under a condition
    "是不是|是否|会不会|要不要|有没有|能不能|如果|假如|假使|假设|设想|倘若|要是|要不是|若(?:是|非|不)|万一|除非|只要|只有|"
    "一旦|的话|可能|也许|或许|或者|大概|应该|应当|(?<![理思联幻感])想(?![法起])|有望|打算|计划(?=[要去在到])|准备(?!好)|希望|愿意|争取|试图|"
    "尝试|申请|建议|请|吗|"
    # to come, or at an end
    "即将|将[要会来]?(?=[到去在加入搬住成嫁娶担任负])|就要|快要|快[^乐递手餐捷]{1,6}了|马上|要去|要搬|要来|明[年天]|"
    "后[年天](?!来)|下个?(?:月|周|星期|季度)|以后|曾(?=经|[在住是任为从和与跟于参负管领加开])|当时|那时|当年|以前|之前|从前|"
    "先前|原先|原本|原来|本来|一度|早年|直到|为止"
)
_find_doubt = re.compile(rf"{_NOT_STATED}|(?:^|[，,；;])等(?![等于级])").search
# Of these a clause that says when, or 过, says that they were, and not that they are; 搬到 and 加入 say that they are.
_STATES = frozenset(
    {"works_on", "works_at", "lives_in", "teaches_at", "manages", "part_of", "located_in", "owns", "uses", "depends_on"}
    | {"likes", "dislikes"}
)
_find_time_past = re.compile(
    r"去年|前年|昨[天晚]|前天|上个?(?:月|周|星期)|小时候|最初|那年|大学时|年轻时|[\d一二三四五六七八九〇零]{2,4}年(?![来以])|(?<![不超经路])过"
).search
_find_change = re.compile("搬|住进|定居|安家|加入|入职|跳槽|买|收购|取代").search
_is_question = re.compile(r"[？?]\s*[”」』\"]?\s*$|(?:吗|呢|什么|谁|哪里|哪儿)[。？?]?$").search


def read_sentence(sentence: str, start: int, find_known: Callable[[str], str | None], findings: Findings) -> None:
    """Note what a sentence names and states; see `extraction_rules_english.read_sentence`."""
    mentions = Mentions(sentence, find_mentions(sentence, find_known))
    for mention in mentions.all:
        findings.add_entity(mention.name, start + mention.start, start + mention.end)
    has_statement = _may_state(mentions.text)
    subjects: list[str] = []
    speaker = _match_speaker(mentions.text)
    if speaker:
        subjects = mentions.names_in(speaker["name"]) or [speaker["name"]]
    for clause in _find_clauses(mentions.text[speaker.end() if speaker else 0 :]):
        reader = _Clause(mentions, clause[0], (start, start + len(sentence)), findings, has_statement, find_known)
        subjects = reader.read(subjects, has_speaker=bool(speaker)) or subjects
    for tag in _find_tags(mentions.text):
        for mention in mentions.all:
            findings.entities[mention.name].tags[tag.casefold()] = None


def is_stated(text: str) -> bool:
    """Tell whether a sentence, with its names as `Mentions` writes them, states all that it says: see the top.

    The verbs above do not fit with 不 and 没; whoever reads others has to pass over such sentences.
    """
    return _may_state(text) and _find_negation(text) is None


def _may_state(text: str) -> bool:
    return not (_is_question(text) or _find_doubt(text))


_find_negation = re.compile("(?<!差)不(?![同过仅但只久错断管论少光单])|没(?!错)|未(?!来)|无法").search


_find_clauses = re.compile(r"[^，。！？；,!?;：:\n]+").finditer
_find_tags = re.compile(r"#(\w{2,40})").findall
_match_speaker = re.compile(rf"(?P<name>{NAME}|{_CHAR}{{2,4}})[：:]\s*(?=\S)").match


class _Clause:
    """Reads one clause, which begins with its subject or goes on with the one before."""

    def __init__(
        self,
        mentions: Mentions,
        text: str,
        span: tuple[int, int],
        findings: Findings,
        is_stated: bool,
        find_known: Callable[[str], str | None],
    ) -> None:
        self._mentions = mentions
        self._findings = findings
        self._span = span
        self._find_known = find_known
        text = "".join(text.split()).strip("“”\"「」『』《》")
        time = _match_time(text)
        self._text = text[time.end() :] if time else text
        self._is_stated = is_stated
        self._is_past = _find_time_past(text) is not None and _find_change(text) is None

    def read(self, before: list[str], has_speaker: bool) -> list[str]:
        """Note what the clause says; return its subjects, the given ones where it has none of its own."""
        if self._is_stated:
            if has_speaker and self._text.startswith("我"):
                self._read_predicate(before, self._text[1:])
                return before
            subjects = self._read_stated()
            if subjects:
                return subjects
            if before and self._read_predicate(before, self._text):
                return before
        return self._note_person()

    def _read_stated(self) -> list[str]:
        """Try each pattern at the beginning of the clause; return the subjects of the first that fits."""
        for pattern, read in _PATTERNS:
            match = pattern(self._text)
            if match is None:
                continue
            subjects = self.names(match["subject"])
            if subjects and read(self, match, subjects):
                return subjects
        return []

    def _read_predicate(self, subjects: list[str], text: str) -> bool:
        """Read a verb phrase whose subject is known."""
        for pattern, read in _PREDICATES:
            match = pattern(text)
            if match is not None and read(self, match, subjects):
                return True
        return False

    def _note_person(self) -> list[str]:
        """Note a family name with one or two characters where the clause begins, whatever it goes on with."""
        if self._text[:1] and re.match(NAME, self._text):
            return self.names(self._text[0])
        match = _match_person(self._text)
        if match is None or match["name"] in CHINESE_NO_NAMES or match["name"][:2] in CHINESE_NO_NAMES:
            return []
        found = self.names(match["name"])
        self._note(found)
        for name in found:
            self._findings.entities[name].types["person"] += 1
        return found

    # -- what the patterns read --

    def relate(self, sources: list[str], kind: str, targets: list[str]) -> bool:
        """Note relations and their ends; says whether there were both ends."""
        if not sources or not targets:
            return False
        self._note([*sources, *targets])
        if self._is_past and kind in _STATES:
            return True
        for source in sources:
            for target in targets:
                self._findings.add_relation(source, kind, target, self._span)
        return True

    def tag(self, names: list[str], noun: str) -> bool:
        """Note what names are said to be."""
        self._note(names)
        for name in names:
            self._findings.entities[name].tags[noun] = None
        return bool(names)

    def names(self, part: str) -> list[str]:
        """Return the names in a part of the clause; none where one of them is no name."""
        names = []
        for word in re.split("和|与|跟|、|以及", part):
            found = self._mentions.names_in(word)
            if not found:
                name = _trim_name(word)
                if not _may_be_name(name):
                    return []
                found = [self._find_known(name) or name]
            names += found
        return names

    def _note(self, names: list[str]) -> None:
        for name in names:
            start, end = self._mentions.place_of(name)
            self._findings.add_entity(name, self._span[0] + start, self._span[0] + end)


_TAILS = ("项目组", "项目", "公司", "系统", "小组", "团队", "平台", "服务", "仓库", "餐厅", "集团军")


def _trim_name(word: str) -> str:
    for tail in _TAILS:
        if word.endswith(tail) and len(word) > len(tail) + 1:
            return word.removesuffix(tail)
    return word


def _may_be_name(word: str) -> bool:
    if not 2 <= len(word) <= 8 or word in CHINESE_NO_NAMES:
        return False
    common = next((ending for ending in CHINESE_COMMON_ENDINGS if word.endswith(ending)), "")
    if common and len(word) <= len(common) + 1:
        return False
    return _find_no_name_part(word) is None and not word.endswith(_ACTIVITIES) and word[0] not in _VERB_BEGINNINGS


_ACTIVITIES = ("上班", "工作", "见面", "学习", "读书", "开会", "吃饭", "上学", "生活", "出生", "长大", "合同", "进行")


# What stands between a name and its verb.
_find_no_name_part = re.compile(
    "[昨今明前后]天|昨晚|周[一二三四五六日末]$|星期|平时|平常|通常|经常|大学时|考虑|决定|开始|继续|同意|答应|承诺|努力|需要|正式|大量"
).search
_VERB_BEGINNINGS = "骑听看吃喝跑打玩做写读睡爬唱跳一被"

_FAMILY_NAMES = (
    "赵钱孙李周吴郑王冯陈褚卫蒋沈韩杨朱秦许何吕张孔曹严华金魏陶姜戚谢邹喻柏苏潘葛范彭郎鲁韦马苗方俞任袁柳鲍史唐费廉岑薛雷贺倪汤滕罗毕郝安常傅齐康伍余元卜顾孟黄穆萧尹姚邵"
    "汪毛禹狄米贝明臧计伏成戴宋庞熊纪舒屈项祝董梁杜阮蓝闵季贾路江童颜郭梅盛林钟徐邱骆高夏蔡田樊胡凌霍虞万柯卢莫房裘缪解应宗丁邓洪包左石崔吉龚程邢裴陆荣翁荀惠曲封芮靳段焦"
    "巴牧山谷车侯全班仰仲伊宫宁仇甘武符刘景詹束龙叶幸司黎薄印白怀蒲邰从鄂索咸籍赖卓蔺屠蒙池乔阴闫佟刁连习容向古易慎戈廖庾终暨居衡步都耿满弘匡文寇广禄阙东欧利师巩聂关荆"
)
_DOUBLE_NAMES = "欧阳|司马|上官|诸葛|夏侯|东方|皇甫|尉迟|公孙|慕容|令狐|司徒"
_BEHIND_NAMES = "是在的不没会说想可和从向对与每今昨去把被给让也都还就正用已曾住爱喜负来叫有怕离：、跟教现"
_match_person = re.compile(
    rf"(?P<name>(?:{_DOUBLE_NAMES}|[{_FAMILY_NAMES}]|[小老阿](?=[{_FAMILY_NAMES}强明红伟丽芳]))"
    rf"{_CHAR}(?:{_CHAR})??)(?=[{_BEHIND_NAMES}])"
).match


# Patterns: what a clause may be, the most particular first


def _verb_pattern(verb: str, objects: str = _OBJECTS, end: str = _END) -> str:
    return rf"{_ADVERBS}(?:{verb}){_MEASURE}{objects}{_TAIL}{end}"


_Row = tuple[Callable[[str], re.Match[str] | None], Callable[[_Clause, re.Match[str], list[str]], bool]]


def _make(pattern: str, read: Callable[[_Clause, re.Match[str], list[str]], bool]) -> _Row:
    return re.compile(pattern).match, read


def _object_reader(kind: str) -> Callable[[_Clause, re.Match[str], list[str]], bool]:
    def read(clause: _Clause, match: re.Match[str], subjects: list[str]) -> bool:
        return clause.relate(subjects, kind, clause.names(match["objects"]))

    return read


def _reversed_reader(kind: str) -> Callable[[_Clause, re.Match[str], list[str]], bool]:
    def read(clause: _Clause, match: re.Match[str], subjects: list[str]) -> bool:
        return clause.relate(clause.names(match["objects"]), kind, subjects)

    return read


def _together_reader(kind: str) -> Callable[[_Clause, re.Match[str], list[str]], bool]:
    def read(clause: _Clause, match: re.Match[str], subjects: list[str]) -> bool:
        return len(subjects) == 2 and clause.relate(subjects[:1], kind, subjects[1:])

    return read


def _kin_reader(kind: str) -> Callable[[_Clause, re.Match[str], list[str]], bool]:
    """Of "A的姐姐B住在…" the rest is said of B."""

    def read(clause: _Clause, match: re.Match[str], subjects: list[str]) -> bool:
        others = clause.names(match["other"])
        if not others or not clause.relate(others, kind, subjects):
            return False
        clause._read_predicate(others, match["rest"])
        return True

    return read


def _tag_reader(clause: _Clause, match: re.Match[str], subjects: list[str]) -> bool:
    return clause.tag(subjects, match["noun"])


def _predicates() -> list[_Row]:
    """Return what may follow a subject."""
    rows = [
        _make(rf"{_ADVERBS}在(?:{_WORD}的)?{_OBJECTS}(?:{verbs}){_END[:-1]}.{{0,4}}$", _object_reader(kind))
        for kind, verbs in _PLACE_VERBS_BY_TYPE.items()
    ]
    rows += [
        _make(rf"{_ADVERBS}从{_WORD}(?:搬到了?|搬去了?){_OBJECTS}{_END}", _object_reader("lives_in")),
        _make(rf"{_ADVERBS}从{_WORD}跳槽到了?{_OBJECTS}{_TAIL}{_END}", _object_reader("works_at")),
        _make(rf"{_ADVERBS}向{_OBJECTS}汇报", _object_reader("reports_to")),
        _make(rf"{_ADVERBS}(?:和|跟|与){_OBJECTS}(?:认识|见过)", _object_reader("knows")),
        _make(rf"{_ADVERBS}(?:和|跟|与){_OBJECTS}结了?婚", _object_reader("married_to")),
        _make(rf"(?:是)?用{_OBJECTS}(?:写|编写|实现|开发)的", _object_reader("written_in")),
        _make(rf"(?:由|是由|是){_OBJECTS}创(?:办|立|建)", _reversed_reader("founded")),
        _make(rf"养了?.{{0,3}}叫{_OBJECTS}的", _object_reader("owns")),
        _make(rf"是(?:{_WORD})?领导的", lambda *_: False),
    ]
    rows += [
        _make(rf"{_ADVERBS}(?:由|是由|是){_OBJECTS}(?:{verbs})(?:的)?$", _reversed_reader(kind))
        for kind, verbs in _PASSIVES_BY_TYPE.items()
    ]
    rows += [
        _make(rf"是{_OBJECTS}{_TAIL}的(?:{nouns}){_END}", _object_reader(kind))
        for kind, nouns in (*_NOUNS_BY_TYPE.items(), *_BELONGING_BY_TYPE.items())
    ]
    rows += [
        _make(
            rf"的(?:{nouns})(?:是|叫)?{_OTHER}(?P<rest>$|是.*|在.*|{_ADVERBS}(?:{_any_verb()}).*|退休.*)",
            _kin_reader(kind),
        )
        for kind, nouns in _NOUNS_BY_TYPE.items()
    ]
    rows += [
        _make(rf"的(?:猫|狗|公司|店|车)(?:叫|名叫|叫做){_OBJECTS}{_END}", _object_reader("owns")),
        _make(rf"{_ADVERBS}最喜欢的{_CHAR}{{1,3}}是{_OBJECTS}{_END}", _object_reader("likes")),
        _make(rf"是(?P<objects>{_CHAR}{{2,3}})人$", _origin_reader),
        _make(rf"在{_OBJECTS}都?有(?:办公室|分公司|分部|总部)", _object_reader("located_in")),
    ]
    for kind, verbs in _VERBS_BY_TYPE.items():
        # Behind a name in quotation marks, in Latin letters or known, a clause may go on.
        sure = rf"(?:{_WORD}的)?(?P<objects>{NAME}(?:(?:和|与|跟|、){NAME})*)(?!的)"
        rows.append(_make(rf"{_ADVERBS}(?:{verbs}){_MEASURE}{sure}", _object_reader(kind)))
        rows.append(_make(_verb_pattern(verbs, rf"(?:{_WORD}的)?{_OBJECTS}"), _object_reader(kind)))
    rows.append(_make(r"是(?:一|个|位|名|部|家|种){0,2}(?P<noun>[\u3400-\u9fff]{2,4})$", _tag_reader))
    return rows


def _origin_reader(clause: _Clause, match: re.Match[str], subjects: list[str]) -> bool:
    if f"{match['objects']}人" in CHINESE_NO_NAMES:
        return False
    return clause.relate(subjects, "comes_from", clause.names(match["objects"]))


def _any_verb() -> str:
    return "|".join(_VERBS_BY_TYPE.values())


_PREDICATES = _predicates()


def _patterns() -> list[_Row]:
    """Return what a clause with a subject of its own may be."""
    rows = [
        _make(rf"(?P<subject>{_WORD}(?:和|与|跟|、){_WORD}){_ADVERBS}(?:{verbs})", _together_reader(kind))
        for kind, verbs in _TOGETHER_BY_TYPE.items()
    ]

    def read_rest(clause: _Clause, match: re.Match[str], subjects: list[str]) -> bool:
        return clause._read_predicate(subjects, match["rest"])

    return [*rows, *_split_rows(read_rest)]


def _split_rows(read: Callable[[_Clause, re.Match[str], list[str]], bool]) -> list[_Row]:
    """Return a subject of each length, the shortest first, with the rest of the clause."""
    names = [NAME, *(rf"{_CHAR}{{{count}}}" for count in (2, 3, 4, 5, 6))]
    companions = [f"(?:和|与|跟|、){name}" for name in names[:4]]
    return [
        _make(rf"(?P<subject>{name}{_TAIL}{companion})(?P<rest>.+)", read)
        for name in names
        for companion in ("", *companions)
    ]


_PATTERNS = _patterns()


# Names


def find_mentions(sentence: str, find_known: Callable[[str], str | None]) -> Iterator[Mention]:
    """Yield the names that can be told before any verb is looked for: quoted, known, Latin."""
    yield from _known_among(sentence, find_known)
    for match in _find_called(sentence):
        yield Mention(find_known(match[1]) or match[1], *match.span(1))
    for match in _find_quoted(sentence):
        yield Mention(find_known(match[1]) or match[1], *match.span())
    for match in _find_latin(sentence):
        if any(char.isupper() for char in match[0]):
            yield Mention(find_known(match[0]) or match[0], *match.span())


_find_quoted = re.compile(r"[「『《“\"]([^」』》”\"「『《“]{2,30})[」』》”\"]").finditer
_find_latin = re.compile(r"[A-Za-z][A-Za-z0-9+#.&-]*[A-Za-z0-9+#](?: [A-Z][A-Za-z0-9]*)*").finditer
_find_called = re.compile(rf"(?:我叫|名叫|名字叫|名字是)({_CHAR}{{2,3}})(?=[。，！的]|$)").finditer
_find_runs = re.compile(r"[\u3400-\u9fff]{2,}").finditer
_LONGEST = 8  # characters of a known name


def _known_among(sentence: str, find_known: Callable[[str], str | None]) -> Iterator[Mention]:
    """Yield the longest runs of characters that are known; a single character is a part of too many words."""
    for run in _find_runs(sentence):
        first = run.start()
        while first < run.end() - 1:
            for end in range(min(run.end(), first + _LONGEST), first + 1, -1):
                name = find_known(sentence[first:end])
                if name is not None:
                    yield Mention(name, first, end)
                    first = end - 1
                    break
            first += 1
