"""Made trees of any size, and the stores that are measured: a tree, and the same records in sqlite3.

A made tree has a fan-out of ten and six levels at every size, so that a path is as long in a small tree as in a large
one. Names are of some words, half English, half Chinese, and about one in seven is not unique; a tenth have an alias in
the other language, and three in ten a description. The same size always makes the same tree.
"""

from __future__ import annotations

import itertools
import random
import shutil
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from Agent.keyword_tree import KeywordTree
from benchmarks import sqlite_peer

Spec = dict[str, Any]
"""The arguments of one `CreateKeyword` or `CreateInfo`, by name."""

LEVELS, FAN_OUT, BATCH = 6, 10, 20_000

_ENGLISH = (
    "Adaptive Ancient Atomic Balanced Causal Coastal Digital Elastic Federated Global Immutable Local Marine "
    "Mobile Nested Optical Parallel Persistent Quantum Rural Secure Sparse Static Urban",
    "Agent Archive Battery Bridge Broker Buffer Cache Climate Compiler Contract Crystal Database Engine Evidence "
    "Forest Garden Gateway Harbour Index Journal Kernel Ledger Library Market Memory Mirror Module Museum Network "
    "Orbit Parser Pattern Payment Planet Proof Query Queue Reactor Region Registry River Schema Sensor Server Signal",
    "Accra Berlin Cairo Chengdu Delhi Geneva Hanoi Harbin Kyoto Lagos Lima Lisbon Oslo Prague Quito Seoul Xiamen",
)
_CHINESE = (
    "自适应 古代 原子 平衡 因果 沿海 数字 弹性 联邦 全球 不可变 本地 海洋 移动 嵌套 光学 并行 持久 量子 乡村 安全 稀疏",
    "代理 档案 电池 桥梁 中介 缓冲 缓存 气候 编译器 合同 晶体 数据库 引擎 证据 森林 花园 网关 港口 索引 日志 内核 "
    "市场 记忆 镜像 模块 博物馆 网络 轨道 解析器 模式 支付 行星 证明 查询 队列 反应堆 区域 河流 架构 信号",
    "阿克拉 柏林 开罗 成都 德里 日内瓦 河内 哈尔滨 京都 拉各斯 利马 里斯本 奥斯陆 布拉格 基多 首尔 厦门",
)


def _name(draw: random.Random, words: tuple[str, ...], joint: str) -> str:
    qualities, things, places = (text.split() for text in words)
    parts = [draw.choice(places)] if draw.random() < 0.5 else []
    return joint.join([*parts, draw.choice(qualities), draw.choice(things), draw.choice(things)])


def made_keyword(draw: random.Random, parent_id: str) -> Spec:
    """Return one keyword under `parent_id`, without an id."""
    languages = [(_ENGLISH, " "), (_CHINESE, "")]
    own, other = languages if draw.random() < 0.5 else languages[::-1]
    name = _name(draw, *own)
    aliases = [_name(draw, *other)] if draw.random() < 0.1 else []
    description = f"{name}: parts, limits and uses. 组成、限度与用途。" if draw.random() < 0.3 else ""
    return {"name": name, "parent_id": parent_id, "aliases": aliases, "description": description}


def made_info(draw: random.Random, keyword_id: str) -> Spec:
    """Return one info of one to four sentences on a keyword."""
    sentences = [f"{_name(draw, _ENGLISH, ' ')} meets {_name(draw, _CHINESE, '')}." for _ in range(draw.randint(1, 4))]
    return {"content": " ".join(sentences), "source": "made", "keyword_ids": [keyword_id]}


def made_tree(count: int, top: str = "root", seed: int = 7) -> Iterator[Spec]:
    """Yield `count` keywords with ids, parents before their children, level by level."""
    draw, parents, left = random.Random(seed), [top], count
    low, high = 1.0, float(FAN_OUT)  # by what factor the keywords that have children grow from level to level
    for _ in range(60):
        middle = (low + high) / 2
        is_less = sum(middle**level for level in range(LEVELS)) < count / FAN_OUT
        low, high = (middle, high) if is_less else (low, middle)
    for level in range(1, LEVELS + 1):
        size = left if level == LEVELS else min(left, len(parents) * FAN_OUT)
        ids = [str(uuid.UUID(int=draw.getrandbits(128), version=4)) for _ in range(size)]
        for index, id_ in enumerate(ids):
            yield {"id": id_, **made_keyword(draw, parents[index * len(parents) // size])}
        left -= size
        inner = min(size, max(1, round(low**level)))
        parents = [ids[position * size // inner] for position in range(inner)]


def searched_names(count: int) -> dict[str, str]:
    """Return up to 2,000 names of the deepest level that no other keyword has, each with its id."""
    seen, levels, kept = Counter[str](), {"root": 0}, dict[str, str]()
    for spec in made_tree(count):
        levels[spec["id"]] = levels[spec["parent_id"]] + 1
        seen.update(text.casefold() for text in (spec["name"], *spec["aliases"]))
        kept[spec["name"]] = spec["id"]
    deepest = max(levels.values())
    alone = [(name, id_) for name, id_ in kept.items() if seen[name.casefold()] == 1 and levels[id_] == deepest]
    return dict(random.Random(13).sample(alone, min(2_000, len(alone))))


def build(folder: Path, count: int, infos_each: int = 0) -> Path:
    """Build (unless it is there) a store of `count` keywords, and beside it the same in sqlite3, NAME.sqlite.

    Args:
        folder: where the stores are kept.
        count: keywords.
        infos_each: how many infos each of the `searched_names` gets.
    """
    store = folder / f"tree-{count}{f'-infos{infos_each}' * bool(infos_each)}"
    if store.with_suffix(".done").exists():
        return store
    folder.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(store, ignore_errors=True)
    store.with_suffix(".sqlite").unlink(missing_ok=True)
    with KeywordTree(str(store)) as tree:
        specs = made_tree(count)
        while batch := list(itertools.islice(specs, BATCH)):
            tree.BatchCreateKeywords(batch)
        draw = random.Random(11)
        searched = list(searched_names(count).values()) if infos_each else []
        infos = [made_info(draw, id_) for id_ in searched for _ in range(infos_each)]
        for start in range(0, len(infos), BATCH):
            tree.BatchCreateInfos(infos[start : start + BATCH])
        sqlite_peer.copy(tree, store.with_suffix(".sqlite"), searched)
    store.with_suffix(".done").touch()
    return store


def bytes_on_disk(store: Path) -> int:
    """Return the bytes of a store's files (of a database: with its write-ahead log)."""
    files = store.rglob("*") if store.is_dir() else store.parent.glob(store.name + "*")
    return sum(file.stat().st_size for file in files if file.is_file())
