r"""What a small language model adds to words: questions in other words than the trees of `everyday/`.

Questions about half of `TREES` stand here, those about the other half are read from a file that is not part of the
repository, where it is there (`--questions`). No setting was chosen with those about `HELD_BACK` (`--trees`). Foreign
ones have no answer. Ways of answering:

    words      the lexical client: the first of the ranking, where its score reaches 0.4
    meaning    the lexical client over words and meaning together, where the extra `[local]` is installed
    sure       what the tree answers without a model: the first of the ranking, where it reaches the bar
    walk       a model is shown the whole view and writes a number, round by round, whatever words say
    cascade    what is sure without a call, else the best few with a fact each, then the walk; it writes a number
    names      the cascade with `LocalLLMClient`, which compares how likely the names are

The last three are measured for each `--model FILE.gguf`, over words and meaning where that is installed. Fresh tokens
are those that no cache held; seconds are of the processor.
"""

from __future__ import annotations

import argparse
import runpy
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import common, finding_sets
from keyword_tree import KeywordTree, LLMClient, StubLLMClient
from keyword_tree.finding.tree import TreeRanker
from keyword_tree.models.lexical_client import LexicalLLMClient
from keyword_tree.models.local_client import LocalLLMClient

QUESTIONS = Path(__file__).resolve().parents[2] / "shared" / "cases" / "model" / "other_words.py"
TREES = ["en_work", "zh_home", "en_home", "zh_work"]
HELD_BACK = ["en_life", "en_travel", "zh_life", "zh_travel"]
ASKED: dict[str, dict[str, str]] = {
    "en_work": {
        "who draws our screens?": "Priya Nair",
        "who makes the decisions in our group?": "Jonas Weber",
        "whose area is money transfer to shops?": "Mei Chen",
        "the student who just joined us": "Samuel",
        "looking back on the last two weeks together": "Retrospective",
        "where do warnings show up?": "Monitoring",
        "how long are copies of the data retained?": "PostgreSQL backups",
        "which customer settles bills quickly?": "Northwind Traders",
        "how big may a change be that colleagues look through?": "Code review",
        "where do guests leave their car?": "Parking",
        "paper jam, code for the device": "Printer",
        "get my train ticket paid back": "Travel expenses",
        "支付服务由谁负责？": "Mei Chen",
    },
    "zh_home": {
        "谁有高血压？": "妈妈",
        "谁不再抽烟了？": "爸爸",
        "孩子不能吃什么坚果？": "小雨",
        "姥姥家在哪个城市？": "外婆",
        "打雷的时候要照顾谁？": "豆豆",
        "小猫什么时候打预防针？": "团子",
        "泡茶的水要多烫？": "龙井茶",
        "洗衣服的机器报错": "洗衣机",
        "无线网的盒子放在哪里？": "路由器",
        "肉肉植物多久浇水？": "多肉",
        "汽车什么时候做检查？": "保养",
        "学琴的时间": "钢琴课",
        "which child must not eat peanuts?": "小雨",
    },
    "en_life": {
        "which drugs must a paramedic not give me?": "Allergies",
        "when does the family physician take calls?": "Dr. Osei",
        "I lie awake at night, any advice?": "Sleep",
        "stretching for the spine": "Back pain",
        "a cushion in case I lose my income": "Savings",
        "what do we pay the bank for the flat?": "Mortgage",
        "which scholar guides my final paper?": "Thesis",
        "who looks after the second set of door openers?": "Mrs. Silva|Neighbours",
        "the girl who is fond of night birds": "Reading mentor",
        "什么时候考统计？": "Statistics course",
        "how bad is my sight on the right?": "Eye doctor",
        "what must the accountant have by spring?": "Taxes",
        "who has thirty hours of work for me?": "City archive",
        "the man who guards a beacon": "The lighthouse keeper",
        "by when must I end the daily paper?": "Newspaper",
    },
    "en_travel": {
        "which booth has the tastiest fermented vegetables?": "Nishiki Market",
        "credit left for the Japanese metro": "Tokyo",
        "which boulevard should hungry tourists stay away from?": "Lisbon",
        "in which month do the small biting flies stay away?": "Scottish Highlands",
        "is our shelter for the campsite damaged?": "Tent",
        "painkillers that soon go out of date": "First-aid kit",
        "which of my mates eats no meat?": "Karin",
        "who in my circle is based in Spain?": "Diego",
        "who knew a good noodle soup?": "Yuki",
        "哪家意大利餐馆星期三不开门？": "Trattoria Nonna",
        "our landlady in the old imperial city": "Kyoto",
        "slow ride beside the water": "Porto",
        "how cold may a night outdoors be?": "Sleeping bag",
        "who borrowed my novel?": "The Remains of the Day|Karin",
        "my fastest 21 kilometres": "Half marathon",
    },
    "zh_life": {
        "哪些药我不能用？": "过敏",
        "看牙要星期几去？": "牙医",
        "晚上失眠有什么办法？": "睡眠",
        "脊椎难受练什么？": "腰疼",
        "买房借银行的钱每个月还多少？": "房贷",
        "毕业文章由谁指导？": "论文",
        "还要再采访几个人？": "访谈",
        "哪个单位要和我第二次见面谈工作？": "省博物馆",
        "家门的另一把钥匙放在谁手里？": "刘奶奶|邻居",
        "which child that I read with likes night birds?": "陪读",
        "我的眼镜度数是多少？": "眼科",
        "周末去哪儿做义工？": "图书馆值班",
        "每月自动买的指数": "沪深300",
        "房子的主人哪天才看消息？": "房东",
        "厨房滴水要买什么零件？": "水龙头",
    },
    "zh_travel": {
        "洱海边那家旅店的女主人姓什么？": "大理",
        "坐地铁的卡里剩多少钱？": "东京",
        "划船一个钟头要付多少？": "西湖",
        "露营的遮篷哪儿坏了？": "帐篷",
        "止痛片什么时候失效？": "药品",
        "哪个朋友不沾荤腥？": "阿凯",
        "谁在卖书？": "林悦",
        "单车坏了找哪个人？": "老何",
        "爬岩壁太频繁伤哪里？": "攀岩",
        "which restaurant is shut on Wednesdays?": "兰香馆",
        "古都的寺院什么时候人少？": "京都",
        "吃排骨要去哪个集市？": "丽江",
        "拍照的机器能撑多久？": "相机",
        "传统弦乐我练到哪一首？": "古琴",
        "二十一公里跑了多久？": "半程马拉松",
    },
}
FOREIGN: dict[str, list[str]] = {
    "en_work": [
        "what is on the menu of the canteen?",
        "how tall is Mount Fuji?",
        "translate good morning into Greek",
        "which film won the prize last year?",
        "股票今天涨了吗？",
    ],
    "zh_home": ["高铁几点开？", "法国的首都是哪里？", "帮我写一首诗", "今天股票怎么样？", "how do I reset a phone?"],
    "en_life": [
        "how do I renew my passport?",
        "how many legs has a spider?",
        "which band played at the wedding?",
        "set an alarm for six",
        "明天会下雨吗？",
        "how do I tie a bow tie?",
        "where is my umbrella?",
        "book a table for two tonight",
    ],
    "en_travel": [
        "what is the boiling point of alcohol?",
        "who is our plumber?",
        "explain recursion to me",
        "when is the parents' evening?",
        "帮我订一份外卖",
        "what does a kilo of flour cost?",
        "who painted the Mona Lisa?",
        "when does my contract at work end?",
    ],
    "zh_life": [
        "怎么换汽车轮胎？",
        "太平洋有多深？",
        "谁写了红楼梦？",
        "把灯关掉",
        "when does the pharmacy open?",
        "怎样给孩子取名？",
        "楼下超市几点打烊？",
        "play some jazz",
    ],
    "zh_travel": [
        "小数怎么化成分数？",
        "我家的水表在哪里？",
        "推荐一部动画片",
        "孩子的家长会是哪天？",
        "what does HTTP stand for?",
        "我的体重是多少？",
        "谁发明了火药？",
        "冰箱为什么响？",
    ],
}


class ByNumber(LocalLLMClient):
    """The same model, which writes the number of a candidate under a grammar, as one behind a service does."""

    lean = True
    short_list = 8


class Walking(ByNumber):
    """And is always shown whole views."""

    short_list = 0


class Case(NamedTuple):
    """A question, and the names that are right; none: nothing answers it."""

    query: str
    gold: frozenset[str]


class Counts:
    """What came of the questions in one way."""

    def __init__(self) -> None:
        self.right = self.wrong = self.refused = self.foreign = self.asked = self.strangers = 0
        self.fresh = self.written = self.seconds = 0.0

    def add(self, case: Case, found: str | None) -> None:
        """Count an answer."""
        if not case.gold:
            self.strangers += 1
            self.foreign += found is not None
            return
        self.asked += 1
        self.right += found in case.gold
        self.wrong += found is not None and found not in case.gold
        self.refused += found is None

    def row(self, name: str) -> list[str]:
        """Return a row of the table."""
        count = max(1, self.asked + self.strangers)
        shares = [f"{100 * each / max(1, self.asked):.0f} %" for each in (self.right, self.wrong, self.refused)]
        costs = [f"{self.fresh / count:.0f}", f"{self.written / count:.0f}", f"{self.seconds / count:.2f}"]
        return [name, *shares, f"{self.foreign} of {self.strangers}", *costs]


def cases_of(path: Path, trees: Sequence[str], every: int) -> dict[str, list[Case]]:
    """Return every n-th question for each tree, those with an answer first, then foreign ones."""
    asked = {tree: list(questions.items()) for tree, questions in ASKED.items()}
    foreign = dict(FOREIGN)
    if path.is_file():
        held = runpy.run_path(str(path))
        asked |= {tree: list(pairs) for tree, pairs in held["HARD"].items()}
        foreign |= held["FOREIGN"]
    else:
        print(f"{path.name} is not here: its questions are not asked", file=sys.stderr)
    return {
        tree: [Case(query, frozenset(gold.split("|"))) for query, gold in pairs[::every]]
        + [Case(query, frozenset()) for query in foreign[tree][::every]]
        for tree, pairs in asked.items()
        if tree in trees
    }


def fill(tree: KeywordTree, name: str) -> None:
    """Write one of the everyday trees."""
    units = finding_sets.everyday_tree(finding_sets.EVERYDAY / f"{name}.txt")[0].units
    tree.BatchCreateKeywords(
        [{"id": u.id, "name": u.names[0], "aliases": list(u.names[1:]), "parent_id": u.parent_id} for u in units]
    )
    tree.BatchCreateInfos([{"content": text, "keyword_ids": [u.id]} for u in units for text in u.infos])


def ask(
    cases: dict[str, list[Case]], folder: Path, client: LLMClient, make: Callable[..., Any], **options: Any
) -> Counts:
    """Ask every question in one way."""
    counts = Counts()
    for name, questions in cases.items():
        with make(str(folder / name), llm_client=client, **options) as tree:
            if not len(tree):
                fill(tree, name)
            tree.RankCandidates("once", 1)
            for case in questions:
                began, before = time.process_time(), getattr(client, "usage", None)
                found = tree.Search(case.query)
                counts.seconds += time.process_time() - began
                counts.add(case, found.node.name if found.node else None)
                if before is not None:
                    used = client.usage  # type: ignore[attr-defined]  # a client that counts has it
                    counts.fresh += used.input_tokens - before.input_tokens - used.cached_tokens + before.cached_tokens
                    counts.written += used.output_tokens - before.output_tokens
    return counts


def ways(options: argparse.Namespace) -> Iterator[tuple[str, LLMClient, Callable[..., Any], dict[str, Any]]]:
    """Yield each way with its client, what makes the tree, and the tree's options."""
    make: Callable[..., KeywordTree] = partial(KeywordTree, ranker=partial(TreeRanker, meaning=False))
    yield "words", LexicalLLMClient(), make, {}
    try:
        from keyword_tree.finding import EmbeddingTree, LocalEmbedder

        make = partial(EmbeddingTree, embedder=LocalEmbedder(), patience_s=60.0)
    except ImportError as error:
        print(f"meaning is not measured: {error}", file=sys.stderr)
    else:
        yield "meaning", LexicalLLMClient(), make, {}
    nothing = StubLLMClient([{"action": "missing"}] * 10_000)
    nothing.short_list = 8
    yield "sure", nothing, make, {}
    for path in options.model:
        for name, kind, more in (
            ("walk", Walking, {"always_ask": True}),
            ("cascade", ByNumber, {}),
            ("names", LocalLLMClient, {}),
        ):
            if name in options.ways:
                client = kind(path, timeout_s=300.0, threads=options.threads, chat_template=options.chat_template)
                yield f"{name}, {Path(path).stem}", client, make, more


def run(options: argparse.Namespace) -> None:
    """Measure every way."""
    cases = cases_of(options.questions, options.trees, options.every)
    with common.working_folder(options) as scratch:
        report = common.Report("models", options, scratch)
        report.line(f"{sum(map(len, cases.values()))} questions about {', '.join(cases)}")
        rows = []
        for number, (name, client, make, more) in enumerate(ways(options)):
            rows.append(ask(cases, scratch / f"way {number}", client, make, **more).row(name))
            print(*rows[-1], sep=" | ", flush=True)
        head = ["way", "right", "wrong", "refused", "foreign answered", "fresh tokens", "written", "processor s"]
        report.table("Questions in other words", head, rows)


def main() -> None:
    """Run the program."""
    parser = common.parser(__doc__)
    parser.add_argument("--model", action="append", default=[], metavar="FILE.gguf", help="may be repeated")
    parser.add_argument("--questions", type=Path, default=QUESTIONS, help="other questions than those that stand here")
    parser.add_argument("--trees", nargs="*", default=TREES, help="of everyday/; those of HELD_BACK chose no setting")
    parser.add_argument("--every", type=int, default=1, help="ask each second question with 2, each third with 3, …")
    parser.add_argument("--ways", nargs="*", default=["walk", "cascade", "names"], help="of those with a model")
    parser.add_argument("--chat-template", default="", help="for files without one, such as chatml")
    parser.add_argument("--threads", type=int, default=None, help="of the processor, for a model")
    run(parser.parse_args())


if __name__ == "__main__":
    main()
