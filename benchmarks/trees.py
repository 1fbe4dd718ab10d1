"""Trees to measure with: made ones of any size, and the real one of China's administrative divisions.

A made tree has a fan-out of ten and six levels at every size (what grows is the share of nodes that have
children), so that a path is as long in a small tree as in a large one and only the size differs. Names are of
several words, half English, half Chinese; about one in seven is not unique, a tenth have an alias in the
other language, and three in ten a description. The same size and seed always make the same tree.
"""

from __future__ import annotations

import json
import random
import uuid
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

from benchmarks.common import data_folder

Spec = dict[str, Any]
"""The arguments of one `CreateKeyword`, by name, with the id it is to have."""

LEVELS = 6
FAN_OUT = 10


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_QUALITIES = _words(
    """
    Adaptive Ancient Asynchronous Atomic Balanced Binary Bounded Causal Cellular Classical Coastal
    Composite Concurrent Continuous Digital Discrete Distributed Dynamic Elastic Embedded Federated
    Floating Functional Generic Global Hybrid Immutable Incremental Industrial Linear Local Marine
    Medieval Mobile Modular Nested Optical Organic Parallel Persistent Portable Quantum Relational Rural
    Secure Sparse Static Urban
    """
)
_THINGS = _words(
    """
    Agent Analysis Archive Array Asset Battery Bridge Broker Buffer Cache Catalogue Channel Circuit
    Climate Cluster Code Commit Compiler Contract Corpus Crystal Cursor Cycle Database Delivery Device
    Diagram Document Domain Engine Error Event Evidence Factor Field Filter Forest Format Frame Garden
    Gateway Grammar Graph Harbour History Image Index Industry Journal Kernel Keyword Language Layer
    Ledger Lemma Library License Logic Machine Market Matrix Memory Message Metal Method Mirror Model
    Module Monitor Museum Network Node Notation Object Operator Orbit Parser Partition Pattern Payment
    Pipeline Planet Policy Process Protocol Proof Query Queue Reactor Record Reef Region Registry Relation
    Report Resource River Schema Script Sensor Server Session Signal Snapshot Station Stream Table
    """
)
_PLACES = _words(
    """
    Accra Berlin Bogota Cairo Chengdu Dakar Delhi Dublin Geneva Hanoi Harbin Helsinki Istanbul Jakarta
    Kyoto Lagos Lima Lisbon London Lyon Madrid Manila Nairobi Naples Osaka Oslo Paris Porto Prague Quito
    Rome Seoul Shanghai Sydney Tallinn Tokyo Turin Vienna Warsaw Xiamen
    """
)
_QUALITIES_CN = _words(
    """
    自适应 古代 异步 原子 平衡 二进制 有界 因果 细胞 经典 沿海 复合 并发 连续 数字 离散 分布式 动态 弹性
    嵌入式 联邦 浮点 函数式 通用 全球 混合 不可变 增量 工业 线性 本地 海洋 中世纪 移动 模块化 嵌套 光学
    有机 并行 持久 便携 量子 关系型 乡村 安全 稀疏 静态 城市
    """
)
_THINGS_CN = _words(
    """
    代理 分析 档案 数组 资产 电池 桥梁 中介 缓冲 缓存 目录 通道 电路 气候 集群 代码 提交 编译器 合同 语料
    晶体 游标 周期 数据库 配送 设备 图表 文档 领域 引擎 错误 事件 证据 因子 字段 过滤器 森林 格式 框架
    花园 网关 语法 图谱 港口 历史 图像 索引 产业 日志 内核 关键词 语言 层次 账本 引理 图书馆 许可 逻辑
    机器 市场 矩阵 记忆 消息 金属 方法 镜像 模型 模块 监控 博物馆 网络 节点 记号 对象 算子 轨道 解析器
    分区 模式 支付 流水线 行星 策略 进程 协议 证明 查询 队列 反应堆 记录 礁石 区域 注册表 关系 报告 资源
    河流 架构 脚本 传感器 服务器 会话 信号 快照 车站 流 表格
    """
)
_PLACES_CN = _words(
    """
    阿克拉 柏林 波哥大 开罗 成都 达喀尔 德里 都柏林 日内瓦 河内 哈尔滨 赫尔辛基 伊斯坦布尔 雅加达 京都
    拉各斯 利马 里斯本 伦敦 里昂 马德里 马尼拉 内罗毕 那不勒斯 大阪 奥斯陆 巴黎 波尔图 布拉格 基多 罗马
    首尔 上海 悉尼 塔林 东京 都灵 维也纳 华沙 厦门
    """
)


def _english(draw: random.Random) -> str:
    name = f"{draw.choice(_QUALITIES)} {draw.choice(_THINGS)} {draw.choice(_THINGS)}"
    return f"{name} in {draw.choice(_PLACES)}" if draw.random() < 0.5 else name


def _chinese(draw: random.Random) -> str:
    name = f"{draw.choice(_QUALITIES_CN)}{draw.choice(_THINGS_CN)}{draw.choice(_THINGS_CN)}"
    return f"{draw.choice(_PLACES_CN)}{name}" if draw.random() < 0.5 else name


def made_spec(draw: random.Random, parent_id: str | None) -> Spec:
    """Return one keyword beneath `parent_id`, without an id."""
    in_english = draw.random() < 0.5
    name, alias = (_english(draw), _chinese) if in_english else (_chinese(draw), _english)
    description = ""
    if draw.random() < 0.3:
        description = (
            f"The {name}: what is known about its parts, limits and uses."
            if in_english
            else f"{name}:组成、限度与用途的已知内容。"
        )
    return {
        "name": name,
        "parent_id": parent_id,
        "aliases": [alias(draw)] if draw.random() < 0.1 else [],
        "description": description,
    }


def made_id(draw: random.Random) -> str:
    """Return a version 4 UUID out of `draw`."""
    return str(uuid.UUID(int=draw.getrandbits(128), version=4))


def made_tree(count: int, seed: int = 7) -> Iterator[Spec]:
    """Yield `count` keywords, parents before their children, level by level."""
    draw = random.Random(seed)
    parents: list[str | None] = [None]
    growth = _growth(count / FAN_OUT)
    left = count
    for level in range(1, LEVELS + 1):
        size = left if level == LEVELS else min(left, len(parents) * FAN_OUT)
        ids: list[str | None] = []
        for index in range(size):
            spec = made_spec(draw, parents[index * len(parents) // size])
            spec["id"] = made_id(draw)
            ids.append(spec["id"])
            yield spec
        left -= size
        inner = min(size, max(1, round(growth**level)))
        parents = [ids[position * size // inner] for position in range(inner)]


def _growth(inner: float) -> float:
    """Return by what factor the nodes that have children grow per level, for `inner` of them in all."""
    low, high = 1.0, float(FAN_OUT)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(middle**level for level in range(LEVELS)) < inner else (low, middle)
    return low


def admin_tree() -> Iterator[Spec]:
    """Yield China's administrative divisions, four levels, with their short names as aliases.

    Raises:
        Skip: the data is not there.
    """
    with (data_folder() / "admin_cn4" / "tree.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            short = row.get("short") or row["name"]
            yield {
                "id": row["id"],
                "name": row["name"],
                "parent_id": row["parent_id"],
                "aliases": [short] if short != row["name"] else [],
                "description": row["description"],
            }


def tree_named(name: str) -> Iterator[Spec]:
    """Yield the tree called `name`: "admin_cn4", or a number of made nodes."""
    return admin_tree() if name == "admin_cn4" else made_tree(int(name))


def in_batches(specs: Iterator[Spec], size: int) -> Iterator[list[Spec]]:
    """Yield `specs` as lists of at most `size`."""
    while batch := list(islice(specs, size)):
        yield batch


def made_infos(keyword_ids: list[str], each: int, seed: int = 11) -> Iterator[Spec]:
    """Yield `each` infos for every keyword, as the arguments of `CreateInfo`."""
    draw = random.Random(seed)
    for keyword_id in keyword_ids:
        for _ in range(each):
            sentences = [f"{_english(draw)} meets {_chinese(draw)}." for _ in range(draw.randint(1, 4))]
            yield {"content": " ".join(sentences), "source": "made", "keyword_ids": [keyword_id]}


def unique_names(specs: Iterator[Spec], count: int, *, deepest: bool = False, seed: int = 13) -> dict[str, str]:
    """Return up to `count` names that no other keyword has as name or alias, each with its id.

    They come in random order.

    Args:
        specs: the tree, parents before their children.
        count: how many.
        deepest: only from the deepest level.
        seed: another seed, another choice.
    """
    seen = Counter[str]()
    levels: dict[str | None, int] = {None: 0}
    kept = []
    for spec in specs:
        levels[spec["id"]] = levels[spec["parent_id"]] + 1
        kept.append((spec["name"], spec["id"]))
        seen.update({text.casefold() for text in [spec["name"], *spec["aliases"]]})
    level = max(levels.values()) if deepest else 0
    alone = [(name, id_) for name, id_ in kept if seen[name.casefold()] == 1 and levels[id_] >= level]
    return dict(random.Random(seed).sample(alone, min(count, len(alone))))
