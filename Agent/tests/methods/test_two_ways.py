"""Random histories: the straight way writes what the general way writes, and a group what one after another would."""

from __future__ import annotations

import itertools
import json
import os
import random
from collections.abc import Callable
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import Any

import pytest

from Agent.keyword_tree import Info, KeywordNode, KeywordTree, KeywordTreeError
from Agent.tests.support import inside

STORM = os.environ.get("KEYWORD_TREE_STORM", "") not in ("", "0")
HISTORIES, GROUPS = (1_000, 10_000) if STORM else (40, 300)
NAMES = ("tea", "Tea", "绿茶", "C#", "c", "a/b", "Ｔｅａ", "tea ", "t\u200bea")


def _opened(folder: Path, now: Callable[[], float]) -> KeywordTree:
    numbers = itertools.count()
    return KeywordTree(str(folder), new_id=lambda: f"id-{next(numbers)}", clock=now)


def _answer(call: Callable[[], Any]) -> object:
    try:
        found = call()
    except KeywordTreeError as error:
        return type(error).__name__, str(error)
    return json.dumps(vars(found), sort_keys=True) if hasattr(found, "id") else repr(found)


def _step(draw: random.Random, ids: list[str], number: int) -> Callable[[KeywordTree], object]:
    name, text = draw.choice(NAMES), f"content {number} 内容"
    one, other, links = draw.choice(ids), draw.choice(ids), draw.sample(ids, draw.randint(0, 3))
    alias, version = draw.sample(NAMES, draw.randint(0, 3)), draw.choice([1, 1, 2])
    given: dict[str, Any] = {
        "metadata": draw.choice([None, {}, {"k": [1.5, "é"]}]),
        "created_by": draw.choice(["user", "我"]),
    }
    steps: list[Callable[[KeywordTree], object]] = [
        *3 * [methodcaller("CreateKeyword", name, one, alias, "说明" * len(alias), **given)],
        *3 * [methodcaller("CreateInfo", text * draw.choice([1, 1, 400]), "s", links, **given)],
        methodcaller("CreateKeyword", name, one, id="given"),
        methodcaller("CreateKeyword", name, aliases=alias),
        methodcaller("CreateInfo", text, keyword_ids=links, id="given", operation="kept"),
        methodcaller("DeleteKeyword", one),
        methodcaller("MergeKeywords", one, other),
        methodcaller("MoveKeyword", one, other),
        lambda tree: tree.Undo(tree.last_operation),
        methodcaller("FindByName", name),
        *2 * [methodcaller("UpdateKeyword", one, {"name": name, "aliases": alias}, version)],
        methodcaller("UpdateKeyword", one, {"description": "说明", "metadata": {"k": len(alias)}}, version),
        *2 * [methodcaller("UpdateInfo", one, {"content": text * draw.choice([1, 1, 800])}, changed_by="我")],
        methodcaller("UpdateInfo", one, {"source": name}, version),
        methodcaller("AddAlias", one, name),
        methodcaller("RemoveAlias", one, name),
        methodcaller("Confirm", f"which {name}?", one),
        methodcaller("Unconfirm", f"which {name}?", one),
    ]
    return draw.choice(steps)


def _files(folder: Path) -> dict[str, bytes]:
    return {
        name: (folder / name).read_bytes() for name in ("change_log.jsonl", "nodes.jsonl", "infos.jsonl", "links.jsonl")
    }


@pytest.mark.usefixtures("no_sync")
def test_the_straight_way_gives_the_same_bytes_memory_and_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight = inside.note_straight_writes(monkeypatch)
    for seed in range(HISTORIES):
        found = []
        for way in ("straight", "general"):
            folder, draw = tmp_path / f"{way}-{seed}", random.Random(seed)
            now, answers = [1_000.0], []
            with monkeypatch.context() as patch, _opened(folder, lambda now=now: now[0]) as tree:  # type: ignore[misc]
                if way == "general":
                    inside.never_straight(patch)
                for number in range(draw.randint(5, 25)):
                    now[0] += 0.125  # not by each reading: what is refused may be decided twice
                    there = [record.id for records in (tree, tree.ListInfos()) for record in records]
                    step = _step(draw, ["root", "nowhere", "given", *there], number)
                    answers.append(_answer(partial(step, tree)))
                found.append((answers, _files(folder), inside.held(tree), tree.Verify()))
        assert found[0] == found[1], seed
        assert found[0][3] == []
    assert len(straight) > HISTORIES
    kinds = {(type(record), record.version > 1) for record in straight}
    assert kinds == set(itertools.product((KeywordNode, Info), (False, True)))


class _Twin:
    """A tree whose jobs are committed together, or one by one."""

    def __init__(self, folder: Path, *, together: bool) -> None:
        self.folder, self.now, self.together, numbers = folder, 1.0, together, itertools.count()
        self.tree = KeywordTree(str(folder), new_id=lambda: f"id-{next(numbers)}", clock=lambda: self.now)

    def commit(self, writes: list[Callable[[KeywordTree], object]]) -> list[object]:
        self.now += 1
        jobs = inside.take_down(tree := self.tree, [partial(write, self.tree) for write in writes])
        for group in [jobs] if self.together else [[job] for job in jobs]:
            inside.commit(tree, group)
        return [(type(job.error).__name__, str(job.error), job.is_written) for job in jobs]

    def look(self) -> tuple[object, ...]:
        lines = [json.loads(line) for line in _files(self.folder)["change_log.jsonl"].splitlines() if line.strip()]
        said = [{key: line[key] for key in line.keys() - {"crc", "prev", "durable"}} for line in lines]
        return said, [*_files(self.folder).values()][1:], inside.held(self.tree)


def _group(draw: random.Random, ids: list[str], operations: list[str]) -> list[Callable[[KeywordTree], object]]:
    writes: list[Callable[[KeywordTree], object]] = []
    for _ in range(draw.randint(2, 6)):
        one, other, undone = draw.choice(ids), draw.choice(ids), draw.choice(operations[-8:])
        name, policy = draw.choice(NAMES), draw.choice(["reattach", "detach", "delete"])
        own, info, cascade = f"own-{draw.randint(0, 3)}", f"info-{draw.randint(0, 2)}", draw.random() < 0.3
        kinds = [
            methodcaller("CreateKeyword", name, one),
            methodcaller("CreateKeyword", "own", one, id=own),
            methodcaller("CreateInfo", "content", "", [one, other]),
            methodcaller("CreateInfo", "content", "", [one], id=info),
            methodcaller("DeleteInfo", info),
            methodcaller("LinkInfo", info, one),
            methodcaller("UnlinkInfo", info, one),
            methodcaller("MergeKeywords", one, other),
            methodcaller("MoveKeyword", one, other),
            methodcaller("DeleteKeyword", one, cascade, policy),
            methodcaller("AddAlias", one, name),
            *3 * [methodcaller("Undo", undone)],
        ]
        writes.append(draw.choice(kinds))
    return writes


@pytest.mark.usefixtures("no_sync")
def test_a_group_is_what_one_after_another_would_have_been(tmp_path: Path) -> None:
    """Errors' names and their order, rows, tables and what undo needs, included."""
    for seed in range(GROUPS // 10):
        draw = random.Random(seed)
        twins = [_Twin(tmp_path / f"{seed}-{together}", together=together) for together in (True, False)]
        try:
            for _ in range(10):
                history = twins[0].tree.History(limit=50)
                ids = ["root", *(node.id for node in twins[0].tree), *(f"own-{n}" for n in range(2))]
                writes = _group(draw, ids, [change.operation_id for change in reversed(history)])
                assert twins[0].commit(writes) == twins[1].commit(writes), seed
                assert twins[0].look() == twins[1].look(), seed
            assert all(twin.tree.Verify() == [] for twin in twins)
        finally:
            for twin in twins:
                twin.tree.Close()
