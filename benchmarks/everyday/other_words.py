"""Questions in other words than the trees beside it, and foreign ones: written before any result, to choose no setting.

`python -m benchmarks.bench_models --questions benchmarks/everyday/other_words.py --trees …`
"""

HARD: dict[str, list[tuple[str, str]]] = {
    "en_work": [
        ("who is away caring for a newborn?", "Mei Chen"),
        ("how long are the copies of the data kept?", "PostgreSQL backups|Database"),
    ],
    "zh_home": [
        ("谁已经不吸烟了？", "爸爸"),
        ("奶奶辈的人讲什么方言？", "外婆"),
    ],
    "en_home": [
        ("which appliance complains about a kinked tube?", "Dishwasher"),
        ("who sees patients after midnight?", "Anna"),
    ],
    "zh_work": [
        ("谁讨厌别人发语音？", "李敏"),
        ("哪个客户对开票的名称有要求？", "绿源超市"),
    ],
    "en_life": [
        ("which medicine must I not be given?", "Allergies"),
        ("the loan for our home", "Mortgage"),
    ],
    "en_travel": [
        ("which friend eats no meat?", "Karin"),
        ("the broken part of our shelter", "Tent"),
    ],
    "zh_life": [
        ("还贷款是几号？", "房贷"),
        ("夜里行动的鸟，哪个孩子爱看？", "陪读"),
    ],
    "zh_travel": [
        ("哪个朋友是卖书的老板？", "林悦"),
        ("退烧药还能用到什么时候？", "药品"),
    ],
}
"""Tree → question and the names of its answers."""
FOREIGN: dict[str, list[str]] = {
    "en_work": [
        "who won the chess tournament in Oslo?",
        "how tall is the office building?",
        "translate good morning into Finnish",
        "where can I charge my electric scooter?",
        "what did Samuel pay for his flat?",
    ],
    "zh_home": [
        "月亮离地球多远？",
        "微波炉能热鸡蛋吗？",
        "我的驾照什么时候到期？",
        "用一句话介绍莎士比亚",
        "who painted the Mona Lisa?",
    ],
    "en_home": [
        "how many planets are there?",
        "when does the hairdresser open?",
        "what is the square root of 1764?",
        "where did we put the ladder?",
        "which platform does the night train leave from?",
    ],
    "zh_work": [
        "公司班车几点发车？",
        "鲸鱼用什么呼吸？",
        "陈思养猫吗？",
        "帮我起一个笔名",
        "how do I fold a paper plane?",
    ],
    "en_life": [
        "how far is it to the moon?",
        "who borrowed my drill?",
        "recommend a film for tonight",
        "what is the name of the dentist?",
        "does the gym open on holidays?",
    ],
    "en_travel": [
        "how do vaccines work?",
        "when is the swimming pool cleaned?",
        "what was the score of the final?",
        "where is the spare car key?",
        "convert 30 miles to kilometres",
    ],
    "zh_life": [
        "怎样煮意大利面？",
        "健身卡还能用多久？",
        "谁发明了电话？",
        "弟弟的大学在哪座城市？",
        "给我写一副对联",
    ],
    "zh_travel": [
        "怎么给植物施肥？",
        "公司的网址是什么？",
        "蓝鲸有多重？",
        "孩子几点放学？",
        "谁写了《战争与和平》？",
    ],
}
"""Tree → questions that nothing in it answers."""
