"""Questions that need two facts, with the facts: made by chance from lists, the same each time, in two languages.

"Where does the person who works on Apollo live?" is answered by two memories that share a name which the question does
not say: who works on Apollo, and where that one lives. Each fact is told in one of several wordings, as it comes; some
name what they tell of by a verb, others go around it. Beside the facts that are asked for stand those of everybody
else, and things said that state nothing. Written before anything was measured with it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple

__all__ = ["LANGUAGES", "Fact", "World", "make_world"]


class Fact(NamedTuple):
    """One thing that was said."""

    id: str
    text: str


class TwoHops(NamedTuple):
    """A question, and the two facts that answer it: the one that it leads to first."""

    text: str
    evidence: tuple[str, str]


class World(NamedTuple):
    """What was said, and what is asked."""

    facts: list[Fact]
    questions: list[TwoHops]


class Language(NamedTuple):
    """The words of one language."""

    people: Sequence[str]
    things: Mapping[str, Sequence[str]]
    """By kind of thing: names."""
    wordings: Mapping[str, Sequence[str]]
    """By relation: how it may be told; {a} has it to {b}."""
    asked: Sequence[tuple[str, bool, str, str]]
    """(first relation, whether the question names its second end, second relation, question): the end of the first that
    the question does not name is the bridge, which the second goes out from."""
    chatter: Sequence[str]


_PEOPLE_EN = """
Abigail Alaric Alma Amos Anselm Arden Ariadne Astor Aurelia Baxter Beatrix Bertram Blythe Boris Bridget Calla Callum
Cecily Cedric Clement Cordelia Cosmo Cyrus Dahlia Damaris Darius Delphine Desmond Dorian Edith Elspeth Emeric Enid
Esme Ezra Fabian Fern Fergus Flora Florian Gareth Gideon Gilda Giles Greer Gwen Hadrian Hazel Hector Helga Hester Hollis
Horace Ida Ignatius Imogen Inga Iris Isolde Ivo Jarvis Jasper Jemima Jethro Jocelyn Josiah Judith Juno Kendra Kester
Kieran Lavinia Leander Leopold Lorcan Lorna Lucian Lydia Magnus Marcella Marius Maude Mavis Milo Minerva Moira Mortimer
Myra Nadia Nestor Niall Nigel Noelle Octavian Odette Oona Orla Orson Oswald Ottilie Penelope Percival Petra Phoebe Piers
Portia Quentin Quincy Ramona Raoul Regina Reuben Rhoda Roderick Rosalind Rowena Rufus Sabine Salome Samson Selma Seraph
Sibyl Silas Solange Sybilla Tabitha Tarquin Thaddeus Thea Tiberius Tobias Ulric Una Ursel Valentin Vera Verity Viola
Wallace Wanda Wilfred Winifred Xanthe Yolanda Yorick Zara Zelda Zeno
""".split()  # noqa: SIM905  read as a text

ENGLISH = Language(
    people=_PEOPLE_EN,
    things={
        "project": """Basalt Cormorant Driftwood Ember Foxglove Gannet Halcyon Isinglass Juniper Kittiwake Larkspur
            Marigold Nightjar Osprey Petrel Quillwort Redstart Sandpiper Teasel Umber Valerian Whimbrel Yarrow Zephyr
            Argonaut Bellwether Candlewick Dovetail Everglade Firebrand""".split(),  # noqa: SIM905
        "city": """Aberdeen Bergen Cordoba Dakar Eindhoven Fremantle Galway Heidelberg Innsbruck Jaipur Kaunas Lucerne
            Maribor Nantes Odessa Plovdiv Quito Reims Salerno Tampere Uppsala Valencia Wroclaw Yokohama Zagreb
            """.split(),  # noqa: SIM905
        "company": """Ashford Brookmill Corvane Deltamar Elmstone Fairgate Glenrock Hartwell Ironbridge Kingsway Lumen
            Millbrook Northgate Oakridge Pinecrest Ravenhill Stonebridge Thornbury Underwood Westlake""".split(),  # noqa: SIM905
        "tool": "Ansible Cassandra Elixir Flink Grafana Haskell Kotlin MongoDB Neo4j RabbitMQ Scala Vault".split(),  # noqa: SIM905
        "drink": "Assam Darjeeling Earl-Grey Gunpowder Lapsang Matcha Oolong Rooibos Sencha Keemun".split(),  # noqa: SIM905
    },
    wordings={
        "works_on": (
            "{a} works on {b}.",
            "{a} is working on {b} this year.",
            "{a} develops {b}.",
            "Since May {a} has been on the {b} crew.",
            "{b} is what {a} spends the days with.",
        ),
        "lives_in": (
            "{a} lives in {b}.",
            "{a} moved to {b} two years ago.",
            "{a} lives in {b}, close to the station.",
            "{a} has a small flat in {b}.",
            "Last week I visited {a} at home in {b}.",
        ),
        "works_at": (
            "{a} works at {b}.",
            "{a} works for {b}.",
            "{a} joined {b} in spring.",
            "{a} is on the payroll of {b}.",
            "{a} signed a contract with {b}.",
        ),
        "located_in": (
            "{a} is based in {b}.",
            "{a} is located in {b}.",
            "{a} has its offices in {b}.",
            "The headquarters of {a} are in {b}.",
        ),
        "manages": (
            "{a} leads {b}.",
            "{a} manages {b}.",
            "{a} is in charge of {b}.",
            "{b} is headed by {a}.",
        ),
        "uses": ("{a} uses {b}.", "{a} is built on {b}.", "{a} depends on {b}.", "{b} runs behind {a}."),
        "likes": ("{a} likes {b}.", "{a} loves a cup of {b}.", "{a} prefers {b}.", "{a} always orders {b}."),
        "married_to": (
            "{a} is married to {b}.",
            "{a} married {b} in June.",
            "{a} and {b} got married.",
            "{a}'s spouse is {b}.",
        ),
    },
    asked=(
        ("works_on", True, "lives_in", "Where does the person who works on {x} live?"),
        ("works_on", True, "likes", "Which tea should I buy for whoever develops {x}?"),
        ("works_on", True, "works_at", "What company employs the developer of {x}?"),
        ("manages", True, "lives_in", "In which city does the one who leads {x} live?"),
        ("manages", True, "likes", "What does the manager of {x} like to drink?"),
        ("works_at", False, "located_in", "In which city is the company located that {x} works for?"),
        ("married_to", False, "works_at", "Where does the person that {x} is married to work?"),
        ("married_to", False, "lives_in", "Where does the spouse of {x} live?"),
        ("manages", False, "uses", "What does the project that {x} leads use?"),
        ("works_on", False, "uses", "On which technology does the project depend that {x} works on?"),
    ),
    chatter=(
        "The kettle in the kitchen is broken again, number {n}.",
        "Please send the minutes of meeting {n} to everybody.",
        "Where do people usually have lunch on day {n}?",
        "Ticket {n} was closed without a comment.",
        "The train was {n} minutes late this morning.",
        "Nobody likes the new chairs in room {n}.",
        "Who lives in house {n} on the hill?",
        "It took {n} minutes to restart the build server.",
    ),
)

_GIVEN_ZH = "安博川丹恩帆歌涵佳可兰鸣宁鹏琪然舒桐薇希妍逸泽哲知"
_FAMILY_ZH = "白蔡程戴邓董范方顾郭韩贺侯胡"

CHINESE = Language(
    people=[family + given for family in _FAMILY_ZH for given in _GIVEN_ZH][::2],
    things={
        "project": """苍鹭 白桦 翠鸟 灯芯 飞蓬 谷雨 海棠 寒露 火棘 鲸落 兰舟 流萤 明月 南风 青禾 秋水 山雀 霜降 天枢
            望舒 雾凇 惊蛰 雪松 远山 云雀 竹影 紫苏 北斗 沉香 荻花""".split(),  # noqa: SIM905
        "city": """保定 承德 大连 鄂尔多斯 福州 贵阳 合肥 嘉兴 昆明 兰州 绵阳 宁波 莆田 泉州 韶关 太原 温州 徐州 烟台
            漳州 洛阳 柳州 银川 扬州 株洲""".split(),  # noqa: SIM905
        "company": """恒远科技 明瑞集团 瀚海软件 青石数据 北辰电子 长风物流 鼎新制药 飞驰汽车 光合能源 红杉教育 锦程旅游
            蓝湾地产 龙源食品 鹏举航空 启明仪器 瑞丰银行 盛世传媒 天工机械 云帆网络 中和保险""".split(),  # noqa: SIM905
        "tool": "Ansible Cassandra Elixir Flink Grafana Haskell Kotlin MongoDB Neo4j RabbitMQ Scala Vault".split(),  # noqa: SIM905
        "drink": "碧螺春 大红袍 铁观音 毛尖 白毫银针 正山小种 茉莉花茶 六安瓜片 滇红 寿眉".split(),  # noqa: SIM905
    },
    wordings={
        "works_on": (
            "{a}在开发{b}。",
            "{a}负责开发{b}。",
            "{a}参与了{b}项目。",
            "{a}这半年都在忙{b}的事。",
            "{b}项目组里有{a}。",
        ),
        "lives_in": (
            "{a}住在{b}。",
            "{a}去年搬到了{b}。",
            "{a}住在{b}，离地铁站不远。",
            "{a}的家在{b}。",
            "上周我去{b}看望了{a}。",
        ),
        "works_at": (
            "{a}在{b}工作。",
            "{a}在{b}上班。",
            "{a}春天加入了{b}。",
            "{a}是{b}的员工。",
            "{a}和{b}签了合同。",
        ),
        "located_in": ("{a}位于{b}。", "{a}的总部在{b}。", "{a}在{b}。", "{a}把办公室设在{b}。"),
        "manages": ("{a}领导{b}项目。", "{a}管理{b}项目。", "{a}是{b}的负责人。", "{b}由{a}带队。"),
        "uses": ("{a}使用{b}。", "{a}用的是{b}。", "{a}依赖{b}。", "{a}的后台跑着{b}。"),
        "likes": ("{a}喜欢{b}。", "{a}爱喝{b}。", "{a}最喜欢{b}。", "{a}每次都点{b}。"),
        "married_to": ("{a}和{b}结婚了。", "{a}的爱人是{b}。", "{a}和{b}是夫妻。", "{a}六月嫁给了{b}。"),
    },
    asked=(
        ("works_on", True, "lives_in", "开发{x}的人住在哪里？"),
        ("works_on", True, "likes", "参与{x}项目的人喜欢什么茶？"),
        ("works_on", True, "works_at", "开发{x}的人在哪家公司工作？"),
        ("manages", True, "lives_in", "{x}项目的负责人住在哪个城市？"),
        ("manages", True, "likes", "领导{x}项目的人喜欢喝什么？"),
        ("works_at", False, "located_in", "{x}工作的公司位于哪个城市？"),
        ("married_to", False, "works_at", "和{x}结婚的人在哪里工作？"),
        ("married_to", False, "lives_in", "{x}的爱人住在哪里？"),
        ("manages", False, "uses", "{x}领导的项目使用什么技术？"),
        ("works_on", False, "uses", "{x}开发的项目依赖什么？"),
    ),
    chatter=(
        "厨房的水壶又坏了，编号{n}。",
        "请把第{n}次会议的纪要发给大家。",
        "第{n}天大家一般在哪里吃午饭？",
        "工单{n}没有说明就关闭了。",
        "今天早上的火车晚点{n}分钟。",
        "没有人喜欢{n}号房间的新椅子。",
        "山上{n}号房子里住着谁？",
        "重启构建服务器花了{n}分钟。",
    ),
)

LANGUAGES: Mapping[str, Language] = {"English": ENGLISH, "Chinese": CHINESE}

_KINDS = {
    "works_on": "project",
    "lives_in": "city",
    "works_at": "company",
    "likes": "drink",
    "manages": "project",
    "uses": "tool",
    "located_in": "city",
}


def make_world(language: Language, count: int = 200, seed: int = 17) -> World:
    """Return what was said, in the order of saying it, and `count` questions."""
    chance = random.Random(seed)
    people = list(language.people)
    pairs = _draw_pairs(language, people, chance)
    facts: list[Fact] = []
    id_of: dict[tuple[str, str, str], str] = {}
    for relation, held in pairs.items():
        for one, other in held:
            id = id_of[relation, one, other] = f"{relation} {one} {other}"
            facts.append(Fact(id, chance.choice(language.wordings[relation]).format(a=one, b=other)))
    facts += [Fact(f"chatter {n}", chance.choice(language.chatter).format(n=n)) for n in range(1, len(facts) // 3)]
    chance.shuffle(facts)
    questions: list[TwoHops] = []
    for first, named_is_second, second, text in language.asked:
        found = []
        for one, other in pairs[first]:
            named, bridge = (other, one) if named_is_second else (one, other)
            onward = [pair for pair in pairs[second] if pair[0] == bridge]
            bridges = [pair for pair in pairs[first] if pair[1 if named_is_second else 0] == named]
            if len(onward) == 1 and len(bridges) == 1:
                evidence = (id_of[first, one, other], id_of[(second, *onward[0])])
                found.append(TwoHops(text.format(x=named), evidence))
        questions += chance.sample(found, count // len(language.asked))
    return World(facts, questions)


def _draw_pairs(language: Language, people: list[str], chance: random.Random) -> dict[str, list[tuple[str, str]]]:
    """Return who has what relation to whom: everybody lives and works somewhere, some lead, some are married."""
    things = {kind: list(names) for kind, names in language.things.items()}
    pairs = {
        relation: [(person, chance.choice(things[_KINDS[relation]])) for person in people]
        for relation in ("lives_in", "works_at", "likes")
    }
    workers = chance.sample(people, len(things["project"]))
    pairs["works_on"] = list(zip(workers, things["project"], strict=True))
    leaders = chance.sample([person for person in people if person not in workers], len(things["project"]))
    pairs["manages"] = list(zip(leaders, things["project"], strict=True))
    pairs["uses"] = [(project, chance.choice(things["tool"])) for project in things["project"]]
    pairs["located_in"] = [(company, chance.choice(things["city"])) for company in things["company"]]
    free = chance.sample(people, len(people))
    pairs["married_to"] = list(zip(free[: len(free) // 2], free[len(free) // 2 : 2 * (len(free) // 2)], strict=True))
    return pairs
