"""Word lists of the rules that find entities: what begins sentences, or stands where names do, and is no name."""

__all__ = [
    "CALENDAR",
    "CHINESE_COMMON_ENDINGS",
    "CHINESE_NO_NAMES",
    "ENGLISH_NO_NAMES",
    "JOINING_WORDS",
    "NO_CAPITALS",
    "PLACES_WITH_ADJECTIVES",
    "TITLES",
]

ENGLISH_NO_NAMES = frozenset(
    """
    The A An This That These Those There Here It He She We You They I My Your His Her Its Our Their Who
    What When Where Why How Which Whose Is Are Was Were Am Be Been Do Does Did Has Have Had Can Could
    Will Would Shall Should May Might Must If Unless Whether Because Since Although Though While As At
    By For From In Into Of On Onto Off Over Under Up Down To With Without After Before During Between
    Among About Against Along Around And Or But Nor So Yet Not No Yes Yeah Please Thanks Thank Hello Hi
    Hey Dear Sorry Welcome Goodbye Bye Well Oh Ah Okay Ok Sure Right Also Then Now Today Tomorrow
    Yesterday Tonight Soon Later Again Always Never Often Sometimes Usually Recently Currently Already
    Still Just Maybe Perhaps Probably Actually Finally First Second Third Last Next Once Twice Another
    Other Others Some Any All Both Each Every Either Neither Many Much More Most Few Several Such Same
    One Two Three Four Five Six Seven Eight Nine Ten Nobody Somebody Anybody Everybody Nothing Something
    Anything Everything Someone Anyone Everyone None Let Let's Make Take Get Give Go Come See Look Note
    Remember Remind Ask Tell Say Said Says Think Know Try Use Using Turn Put Keep Set Add Remove Delete
    Create Update Open Close Run Start Stop Send Read Write Check Call Buy Bring Find Show Help Wait
    Water Dinner Lunch Breakfast Coffee Tea Work Traffic Music Weather Rain Snow Money Time Life Home
    Food Bread Milk People Children Customers Users User Meeting Meetings Backups Backup Deployment
    Ticket Tickets Password Passwords Tests Test Code Data Documentation According Despite Instead
    However Therefore Moreover Meanwhile Unfortunately Number Page Chapter Version Figure Table Section
    Step Day Week Month Year Mom Dad Mum Mother Father Sister Brother Boss Manager Team Project Company
    School University Server Servers Frontend Backend Service Services Nice Good Great Bad New Old Only
    Even Ever Too Very Than Like Unlike Until Till Upon Via Per Beside Besides Beyond Behind Except Within
    Inside Outside Near Throughout Regarding Concerning Contrary Rather Wherever Whenever Whoever Whatever
    Few Hardly Suppose Imagine Pretend Assume Consider Believe Expect Wonder Guess Doubt
    """.split()  # noqa: SIM905  read as a text
)
"""Words that begin sentences with a capital."""

PLACES_WITH_ADJECTIVES = frozenset(
    f"New {place}"
    for place in """
    York Zealand Delhi Orleans Jersey Mexico Hampshire England Haven Guinea South Caledonia Brunswick Plymouth
    """.split()  # noqa: SIM905  read as a text
) | {"Great Britain"}
"""The first two words of names that begin as a sentence may."""

TITLES = ("Mr", "Mrs", "Ms", "Dr", "Prof")
"""Before a person's name, with a dot or without one."""

CALENDAR = frozenset(
    """
    Monday Tuesday Wednesday Thursday Friday Saturday Sunday January February March April May June July
    August September October November December Christmas Easter Spring Summer Autumn Winter
    """.split()  # noqa: SIM905  read as a text
)
"""Days, months and seasons."""

NO_CAPITALS = frozenset(
    """
    I I'm I've I'd I'll OK AM PM ASAP FYI TODO FAQ PS CEO CTO NB IMO BTW URL ID
    """.split()  # noqa: SIM905  read as a text
)
"""Written in capitals, and no names."""

JOINING_WORDS = frozenset(
    """
    of de la le van von der den du di da del dos y ter bin
    """.split()  # noqa: SIM905  read as a text
)
"""Small words within names."""

CHINESE_NO_NAMES = frozenset(
    """
    大家 有人 没人 别人 自己 公司 老师 天气 会议 家里 这里 那里 今天 明天 昨天 周末 周一 周二 周三
    周四 周五 周六 周日 周年 上海话 程序 程度 方便 方法 方面 高兴 任何 常常 白天 白色 万一 金额
    江南 时间 时候 马上 马路 水果 花生 黄色 黄金 安全 安排 平时 平均 和平 成功 成本 成立 明白 明显
    毛病 米饭 张开 强调 双方 单位 计划 谢谢 谢天 于是 余额 元旦 顾客 孟子 包括 包装 包子 石头 章节
    项目 季节 熊猫 向来 向往 温度 温馨 连接 连续 丁香 贺卡 雷雨 应该 应用 历史 齐全 全部 经常 服务
    系统 客户 用户 饭后 晚饭 早饭 午饭 发票 备份 程序员 打印机 服务器 账单 标志 天下 人们 我们 朋友
    同事 中午 下午 上午 早上 晚上 半夜 史上 上班 上网 上课 下班 学习 开会 出差 早起 周围 周期 周到
    高级 高度 高速 高铁 马车 马虎 钱包 段落 方向 方案 方式 白菜 常见 常用 华丽 汤圆 水平 安静 乐意
    纪念 纪录 祝福 成为 成员 计算 关于 关系 关闭 欧元 欧洲 曾经 游戏 车票 车站 路上 路口 宫殿 凌晨
    童年 游客 连忙 习惯 牛奶 边上 农民 温暖 别墅 庄稼 柴火 充满 满意 司机 红色 红茶 绿茶 绿色 蓝色
    黑色 灰色 男人 女人 老人 好人 坏人 病人 客人 工人 主人 个人 本人 名人 商人 军人 诗人 爱人 家人
    亲人 外国人 中国人 机器人 负责人 然后 注意 确实 其实 可以 必须 需要 通常 一般 平常 首先 其次 最终 同时
    另外 并且 不过 尤其 特别 主要 比如 例如 通过 根据 按照 为了 由于 除了 对于 至于 只好 随时 顺便 仍然
    """.split()  # noqa: SIM905  read as a text
)
"""Words that stand where names do, or begin with a family name."""

CHINESE_COMMON_ENDINGS = tuple(
    """
    图书馆 超市 医院 学校 机场 车站 咖啡馆 书店 面馆 房间 办公室 东西 地方 时候 问题 事情 老人 孩子
    朋友 同事 同学 学生 老师 医生 师傅 员们 服务器 打印机 程序员 会议 天气 代码 文件 数据 密码 窗户
    显卡 钱 药 饭 歌 书 电影 音乐 小说 爬山
    """.split()  # noqa: SIM905  read as a text
)
"""What ends so is called by what it is, and not by a name."""
