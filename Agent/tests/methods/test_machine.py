"""A Hypothesis state machine: a tree beside a plain dict that says what it has to hold, through everything there is.

Every public method, operations of many writes that end well or are taken back, undo and redo, snapshots, compaction,
crashes, closing and opening, and a second tree on the same folder. After each step the tree holds what the dict holds
and `Verify()` finds nothing.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("hypothesis", reason="Hypothesis is not installed: pip install '.[test]'")

from hypothesis import HealthCheck
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from Agent.keyword_tree import (
    Change,
    ConflictError,
    Info,
    InfoKeywordLink,
    InvalidInputError,
    KeywordNode,
    KeywordTree,
    NotFoundError,
    RelationType,
    SearchStatus,
    VersionConflictError,
)
from Agent.tests.support.examples import share
from Agent.tests.support.log_format import LOG, PROJECTIONS
from Agent.tests.support.oracle import Key, Oracle, Refusal, bare, compare

NAMES = ("Python", "ｐｙｔｈｏｎ", "编程", "C#", "C", "TCP/IP", "🐍", "a\tb\n", '"],"x', "机器 学习")
CONTENTS = ("知识", "fact", '{"id":"root"}', "长" * 1400, "long " * 900)
RELATIONS = tuple(RelationType)
POLICIES = ("reattach", "detach", "delete")

OWN_IDS = itertools.count(1)


pytestmark = pytest.mark.usefixtures("no_sync")


# == The steps ============================================================================================


class Step(NamedTuple):
    """One write: what the tree is asked, and what the dict makes of it, given the ids the tree made."""

    call: Callable[[KeywordTree], Any]
    expect: Callable[[Oracle, list[str]], None]


def keyword(plain: Oracle, number: int) -> str:
    """Choose a keyword: nearly always a live one, now and then one that was merged, or is gone."""
    ids = [*plain.of("node"), *plain.of("merged"), "nowhere"]
    return ids[number % len(ids)]


def info(plain: Oracle, number: int) -> str:
    ids = [*plain.of("info"), "nowhere"]
    return ids[number % len(ids)]


def create_keyword(p: Oracle, a: int, b: int, c: int) -> Step:
    name, parent, aliases = NAMES[b % len(NAMES)], keyword(p, a), NAMES[c % 7 : c % 3]
    return Step(
        lambda tree: [tree.CreateKeyword(name, parent, list(aliases)).id],
        lambda p, ids: p.create(ids[0], name, parent, aliases),
    )


def create_chain(p: Oracle, a: int, b: int, c: int) -> Step:
    ids = [f'{next(OWN_IDS)} ", {{"id":"' for _ in range(1 + c % 3)]
    parents = [keyword(p, a), *ids]
    specs = [{"id": id, "name": NAMES[(b + n) % len(NAMES)], "parent_id": parents[n]} for n, id in enumerate(ids)]

    def expect(p: Oracle, _ids: list[str]) -> None:
        for spec in specs:
            p.create(spec["id"], spec["name"], spec["parent_id"])

    return Step(lambda tree: [node.id for node in tree.BatchCreateKeywords(specs)], expect)


def create_info(p: Oracle, a: int, b: int, c: int) -> Step:
    content, linked = CONTENTS[b % len(CONTENTS)], [keyword(p, a), keyword(p, c)][: b % 3]
    return Step(
        lambda tree: [tree.CreateInfo(content, keyword_ids=linked).id],
        lambda p, ids: p.create_info(ids[0], content, linked),
    )


def create_infos(p: Oracle, a: int, b: int, c: int) -> Step:
    specs: list[dict[str, Any]] = [
        {"content": CONTENTS[(b + n) % len(CONTENTS)], "keyword_ids": [keyword(p, a + n)]} for n in range(1 + c % 2)
    ]

    def expect(p: Oracle, ids: list[str]) -> None:
        for spec, id in zip(specs, ids, strict=False):
            p.create_info(id, spec["content"], spec["keyword_ids"])

    return Step(lambda tree: [made.id for made in tree.BatchCreateInfos(specs)], expect)


def link_info(p: Oracle, a: int, b: int, c: int) -> Step:
    one, id, relation = info(p, a), keyword(p, b), RELATIONS[c % 4]
    return Step(lambda tree: tree.LinkInfo(one, id, relation), lambda p, _: p.link(one, id, relation))


def unlink_info(p: Oracle, a: int, b: int, c: int) -> Step:
    linked = [(one, id) for _, one, id in p.links()]
    one, id = linked[a % len(linked)] if linked and c % 4 else (info(p, a), keyword(p, b))
    return Step(lambda tree: tree.UnlinkInfo(one, id), lambda p, _: p.unlink(one, id))


def update_keyword(p: Oracle, a: int, b: int, c: int) -> Step:
    id, name = keyword(p, a), NAMES[b % len(NAMES)]
    patches: list[dict[str, Any]] = [
        {"name": name},
        {"aliases": [name, NAMES[a % len(NAMES)], name]},
        {"description": name, "metadata": {"n": b}},
        {"name": name, "aliases": []},
    ]
    patch = patches[c % 4]
    stale = c % 5 == 4

    def call(tree: KeywordTree) -> None:
        node = tree.GetKeyword(id)
        tree.UpdateKeyword(id, patch, (1 if node is None else node.version) + stale)

    def expect(p: Oracle, _ids: list[str]) -> None:
        led = p.need(id)
        if stale:
            raise Refusal(VersionConflictError)
        if led == "root" and ("name" in patch or "aliases" in patch):
            raise Refusal(InvalidInputError)
        values = dict(patch)
        if "aliases" in values:
            values["aliases"] = tuple(dict.fromkeys(values["aliases"]))
        if "metadata" in values:
            values["metadata"] = tuple(values["metadata"].items())
        p.change(led, **values)

    return Step(call, expect)


def add_alias(p: Oracle, a: int, b: int, c: int) -> Step:
    id, alias = keyword(p, a), NAMES[b % len(NAMES)]

    def expect(p: Oracle, _ids: list[str]) -> None:
        led = p.need(id, root=False)
        p.change(led, aliases=tuple(dict.fromkeys((*p.node(led).aliases, alias))))

    return Step(lambda tree: tree.AddAlias(id, alias), expect)


def remove_alias(p: Oracle, a: int, b: int, c: int) -> Step:
    bearers = [id for id in p.of("node") if p.node(id).aliases]
    id = bearers[a % len(bearers)] if bearers and c % 4 else keyword(p, a)
    held = p.node(id).aliases if ("node", id) in p.state else ()
    alias = held[b % len(held)] if held else "of no keyword"

    def expect(p: Oracle, _ids: list[str]) -> None:
        led = p.need(id)
        if alias not in p.node(led).aliases:
            raise Refusal(InvalidInputError)
        p.change(led, aliases=tuple(name for name in p.node(led).aliases if name != alias))

    return Step(lambda tree: tree.RemoveAlias(id, alias), expect)


def move_keyword(p: Oracle, a: int, b: int, c: int) -> Step:
    id, to = keyword(p, a), keyword(p, b)
    return Step(lambda tree: tree.MoveKeyword(id, to), lambda p, _: p.move(id, to))


def merge_keywords(p: Oracle, a: int, b: int, c: int) -> Step:
    src, dst = keyword(p, a), keyword(p, b)
    return Step(lambda tree: tree.MergeKeywords(src, dst), lambda p, _: p.merge(src, dst))


def delete_keyword(p: Oracle, a: int, b: int, c: int) -> Step:
    id, cascade, policy = keyword(p, a), bool(b % 2), POLICIES[c % 3]
    return Step(lambda tree: tree.DeleteKeyword(id, cascade, policy), lambda p, _: p.delete(id, cascade, policy))


def confirm(p: Oracle, a: int, b: int, c: int) -> Step:
    id, query = keyword(p, a), ("which 蛇?", "WHICH 蛇?", "怎么 学")[b % 3]
    return Step(lambda tree: tree.Confirm(query, id), lambda p, _: p.confirm(query, id))


def update_info(p: Oracle, a: int, b: int, c: int) -> Step:
    id, content = info(p, a), CONTENTS[b % len(CONTENTS)]

    def expect(p: Oracle, _ids: list[str]) -> None:
        p.state["info", p.need_info(id)] = (content, f"source {c}", (("n", c),))

    patch = {"content": content, "source": f"source {c}", "metadata": {"n": c}}
    return Step(lambda tree: tree.UpdateInfo(id, patch), expect)


def delete_info(p: Oracle, a: int, b: int, c: int) -> Step:
    id = info(p, a)
    return Step(lambda tree: tree.DeleteInfo(id), lambda p, _: p.delete_info(id))


MAKERS: tuple[Callable[[Oracle, int, int, int], Step], ...] = (
    *(create_keyword, create_chain, create_info, create_infos, link_info, unlink_info),
    *(update_keyword, add_alias, remove_alias, move_keyword, merge_keywords, delete_keyword),
    *(confirm, update_info, delete_info),
)
CHOICE = st.integers(0, 999)
CHOICES = st.tuples(st.sampled_from(MAKERS), CHOICE, CHOICE, CHOICE)
Choice = tuple[Callable[[Oracle, int, int, int], Step], int, int, int]


def perform(tree: KeywordTree, plain: Oracle, step: Step) -> tuple[Oracle, list[str]]:
    """Do a step on both; return the dict as it is then, and the ids that were made."""
    trial = plain.copy()
    try:
        step.expect(trial, [f"?{number}" for number in range(5)])
    except Refusal as refusal:
        with pytest.raises(refusal.errors):
            step.call(tree)
        return plain, []
    made = step.call(tree)
    ids = made if isinstance(made, list) else []
    after = plain.copy()
    step.expect(after, ids)
    return after, ids


def raising(error: type[Exception], is_due: int) -> contextlib.AbstractContextManager[object]:
    return pytest.raises(error) if is_due else contextlib.nullcontext()


def keys_of(record: KeywordNode | Info | InfoKeywordLink) -> list[Key]:
    if isinstance(record, InfoKeywordLink):
        return [("link", record.info_id, record.keyword_id)]
    if isinstance(record, Info):
        return [("info", record.id)]
    return [("node", record.id), ("merged", record.id)]


class Done(NamedTuple):
    """An operation that is in the log: its id, and each record it wrote as it was and as it became."""

    id: str
    was: dict[Key, Any]
    became: dict[Key, Any]


class Trees(RuleBasedStateMachine):
    """A tree beside a dict; a second tree on the same folder comes and goes."""

    def __init__(self) -> None:
        super().__init__()
        self.base = Path(tempfile.mkdtemp())
        self.folders = itertools.count(1)
        self.folder = self.base / "0"
        self.plain = Oracle()
        self.ids: set[str] = set()  # all there ever were
        self.done: list[Done] = []
        self.snapshots: dict[str, dict[Key, Any]] = {}
        self.derived: dict[Key, Any] = {}  # an index beside the tree, which follows `Changes`
        self.seq = 0
        self.tree = self.open()
        self.other: KeywordTree | None = None
        self.follow(self.plain)

    def open(self) -> KeywordTree:
        return KeywordTree(str(self.folder), max_candidates=4)

    def teardown(self) -> None:
        for tree in (self.tree, self.other):
            if tree is not None:
                tree.Close()
        shutil.rmtree(self.base)

    def write(self, step: Step) -> None:
        after, ids = perform(self.tree, self.plain, step)
        self.ids.update(ids)
        self.follow(after)

    def follow(self, after: Oracle) -> Change | None:
        """Take note of what the log says that a step has done; the dict is as in `after` from now on."""
        news = list(self.tree.Changes(self.seq))
        changes = [change for change in news if change.op not in ("create_store", "state")]
        if any(change.op == "state" for change in news):
            self.derived.clear()
        for change in news:
            self.seq = change.seq
            for record in change.after:
                self.derived[keys_of(record)[0]] = record
        self.derived = {key: record for key, record in self.derived.items() if not record.deleted}
        before, self.plain = self.plain, after
        self.ids.update(key[1] for key in after.state)
        changed = {key for key in {**before.state, **after.state} if before.state.get(key) != after.state.get(key)}
        assert len(changes) <= 1, "one step is one operation"
        if not changes:
            assert not changed, "a change that the log does not have"
            return None
        keys = [key for record in changes[0].after for key in keys_of(record)]
        assert changed <= set(keys), "a record changed that the log's line does not have"
        was, became = ({key: plain.state.get(key) for key in keys} for plain in (before, after))
        self.done.append(Done(changes[0].operation_id, was, became))
        return changes[0]

    # -- writing ------------------------------------------------------------------------------------------

    @initialize(choices=st.lists(CHOICES, max_size=8))
    def furnish(self, choices: list[Choice]) -> None:
        for maker, *numbers in choices:
            self.write(maker(self.plain, *numbers))

    @rule(choice=CHOICES)
    def write_one(self, choice: Choice) -> None:
        maker, *numbers = choice
        self.write(maker(self.plain, *numbers))

    @rule(choices=st.lists(CHOICES, max_size=5), inner=st.lists(CHOICES, max_size=3), end=st.integers(0, 3))
    def operate(self, choices: list[Choice], inner: list[Choice], end: int) -> None:
        """Write in an operation, with another one inside; each may be taken back, refused writes stand between."""
        plain = self.plain.copy()

        def write(plain: Oracle, choices: list[Choice]) -> Oracle:
            for maker, *numbers in choices:
                plain, ids = perform(self.tree, plain, maker(plain, *numbers))
                self.ids.update(ids)
                compare(self.tree, plain, self.ids)
            return plain

        with raising(ZeroDivisionError, end & 1), self.tree.Operation("edit 编辑"):
            plain = write(plain, choices)
            with raising(LookupError, end & 2), self.tree.Operation():
                within = write(plain, inner)
                if end & 2:
                    raise LookupError
            plain = plain if end & 2 else within
            compare(self.tree, plain, self.ids)
            if end & 1:
                raise ZeroDivisionError
        self.follow(self.plain if end & 1 else plain)

    @rule(choices=st.lists(CHOICES, min_size=1, max_size=3), between=CHOICES)
    def operate_while_another_writes(self, choices: list[Choice], between: Choice) -> None:
        """What stands in the block is done on what the other has left, or, where it no longer fits, not at all."""
        other = self.second()
        steps: list[tuple[Step, list[str]]] = []
        plain = self.plain
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.tree.Operation())
            for maker, *numbers in choices:
                if maker is not update_keyword:  # whose versions the dict does not know
                    step, before = maker(plain, *numbers), plain
                    plain, ids = perform(self.tree, plain, step)
                    self.ids.update(ids)
                    if plain is not before:
                        steps.append((step, ids))
            maker, *numbers = between
            meanwhile, ids = perform(other, self.plain, maker(self.plain, *numbers))
            self.ids.update(ids)
            end = stack.pop_all()
        try:
            end.close()
        except (InvalidInputError, NotFoundError):
            is_fit = False
        else:
            is_fit = True
        after = meanwhile.copy()
        try:
            for step, ids in steps:
                step.expect(after, ids)
        except Refusal:
            assert not is_fit, "what no longer fits was written"
            after = meanwhile
        else:
            assert is_fit, "what still fits was refused"
        self.tree.Refresh()
        self.follow_two(meanwhile, after)

    def follow_two(self, first: Oracle, second: Oracle) -> None:
        news = list(self.tree.Changes(self.seq))
        for number, change in enumerate(news):
            before, self.plain = self.plain, first if number == 0 and (first.state != self.plain.state) else second
            for record in change.after:
                self.derived[keys_of(record)[0]] = record
            keys = [key for record in change.after for key in keys_of(record)]
            was, became = ({key: plain.state.get(key) for key in keys} for plain in (before, self.plain))
            self.done.append(Done(change.operation_id, was, became))
            self.seq = change.seq
        self.derived = {key: record for key, record in self.derived.items() if not record.deleted}
        self.plain = second
        self.ids.update(key[1] for key in second.state)

    # -- going back ---------------------------------------------------------------------------------------

    @precondition(lambda self: self.done)
    @rule(back=st.integers(0, 12))
    def undo(self, back: int) -> None:
        done = self.done[-1 - back % len(self.done)]
        trial = self.plain.copy()
        for key, value in done.was.items():
            if value is None:
                trial.state.pop(key, None)
            else:
                trial.state[key] = value
        is_as_left = all(self.plain.state.get(key) == value for key, value in done.became.items())
        # Of what is gone, and of who linked when, the dict knows nothing: after another write it may differ.
        later = {key for other in self.done[self.done.index(done) + 1 :] for key in other.became}
        may_differ = any(key in later and (value is None or key[0] == "link") for key, value in done.became.items())
        if not (is_as_left and trial.is_sound()):
            with pytest.raises(ConflictError) as refused:
                self.tree.Undo(done.id)
            assert refused.value.records
            self.follow(self.plain)
            return
        try:
            self.tree.Undo(done.id)
        except ConflictError:
            assert may_differ, "nothing stands in the way"
        else:
            self.follow(trial)

    @rule(copy=st.booleans())
    def snapshot(self, copy: bool) -> None:
        name = self.tree.Snapshot(copy)
        assert name not in self.snapshots
        self.snapshots[name] = dict(self.plain.state)

    @precondition(lambda self: self.snapshots)
    @rule(number=CHOICE, within=st.booleans())
    def restore(self, number: int, within: bool) -> None:
        name = list(self.snapshots)[number % len(self.snapshots)]
        then, now = self.snapshots[name], self.plain.state
        # What was gone then and is gone now leads where it leads now.
        state = {key: value for key, value in then.items() if key[0] != "merged" or ("node", key[1]) in now}
        for key, value in now.items():
            if key[0] == "merged" and ("node", key[1]) not in then:
                state[key] = value
        if within:  # a part of an operation it cannot be; undoing can
            with self.tree.Operation(), pytest.raises(InvalidInputError):
                self.tree.Restore(name)
        self.tree.Restore(name)
        self.follow(Oracle(state, self.plain.born))

    # -- looking after it ---------------------------------------------------------------------------------

    @rule(keep_history=st.booleans())
    def compact(self, keep_history: bool) -> None:
        reported = self.tree.CompactStorage(keep_history)
        assert reported["snapshots"] == sorted(self.snapshots)
        if not keep_history:
            for done in self.done[-1:]:
                with pytest.raises(NotFoundError):
                    self.tree.Undo(done.id)
            self.done.clear()
        self.follow(self.plain)

    @rule(scope=CHOICE)
    def reorganize(self, scope: int) -> None:
        ids = self.plain.of("node")
        plan = self.tree.Reorganize(ids[scope % len(ids)] if scope % 3 else None)
        after = self.plain.copy()
        operation_id = self.tree.ApplyReorganizePlan(plan)
        groups = {change.operation_id: change for change in self.tree.Changes(self.seq)}
        made = [
            record
            for record in (groups[operation_id].after if operation_id in groups else ())
            if isinstance(record, KeywordNode) and ("node", record.id) not in self.plain.state
        ]
        for step in plan["steps"]:
            if step["action"] == "merge":
                after.merge(step["src_id"], step["dst_id"])
            elif step["action"] == "link":
                after.link(step["info_id"], step["keyword_id"], RelationType.PRIMARY)
            else:
                group = made.pop(0)
                after.create(group.id, step["name"], step["parent_id"])
                for id in step["ids"]:
                    after.move(id, group.id)
        assert not made
        self.follow(after)

    @rule(limit=st.integers(0, 5), number=CHOICE)
    def look_back(self, limit: int, number: int) -> None:
        newest = [change.operation_id for change in self.tree.History(limit=limit + 40)]
        expected = [done.id for done in reversed(self.done)]
        assert [id for id in newest if id in set(expected)][:limit] == expected[:limit]
        ids = sorted(self.ids)
        if ids:
            id = ids[number % len(ids)]
            assert all(id in change.Ids() for change in self.tree.History(id, limit))

    @rule(number=CHOICE)
    def look_up(self, number: int) -> None:
        text = (*NAMES, "which 蛇", "怎么学", "Python / C#")[number % (len(NAMES) + 3)]
        found = self.tree.Search(text, llm_expand_query=False)
        assert found.status in SearchStatus
        assert all(0 <= confidence <= 1 for _, confidence in self.tree.RankCandidates(text))
        bearers = [id for id in self.plain.of("node") if text in self.plain.node(id).confirmed and id != "root"]
        if found.reason == "confirmed" and found.node is not None:
            assert bare(text) in map(bare, found.node.confirmed)
        assert not bearers or found.status is not SearchStatus.NOT_FOUND

    # -- living on ----------------------------------------------------------------------------------------

    @rule()
    def reopen(self) -> None:
        self.tree.Close()
        self.tree = self.open()
        assert self.tree.recovery == ()

    @rule()
    def crash(self) -> None:
        """The process ends without closing anything."""
        self.tree = self.open()
        assert self.tree.recovery == ()

    @rule(share=st.floats(0, 1, exclude_max=True), choice=CHOICES)
    def crash_within_a_write(self, share: float, choice: Choice) -> None:
        """A line stands in the log in part: no caller got an answer, and it is cut."""
        self.lose_the_other(closes=True)
        old, self.folder = self.folder, self.base / str(next(self.folders))
        shutil.copytree(old, self.folder)
        start = len((self.folder / LOG).read_bytes().rstrip(b" \n")) + 1
        maker, *numbers = choice
        lost = self.open()
        perform(lost, self.plain, maker(self.plain, *numbers))
        log = (self.folder / LOG).read_bytes()
        end = len(log.rstrip(b" \n"))
        cut = start + int(share * (end - start)) if end > start else start
        shutil.copytree(old, self.folder, dirs_exist_ok=True)
        (self.folder / LOG).write_bytes(log[:cut])
        self.tree = self.open()
        assert bool(self.tree.recovery) == (cut > start)

    @rule(lost=st.sets(st.sampled_from(PROJECTIONS), min_size=1), is_damaged=st.booleans())
    def lose_projections(self, lost: set[str], is_damaged: bool) -> None:
        self.lose_the_other(closes=True)
        self.tree.Close()
        for name in lost:
            if is_damaged:
                (self.folder / name).write_bytes(b"\x00" * 50)
            else:
                (self.folder / name).unlink()
        self.tree = self.open()
        for aside in self.folder.glob("cut_tail-*"):  # rows that no log has, kept for repair: Verify() reports them
            aside.unlink()

    def second(self) -> KeywordTree:
        if self.other is None:
            self.other = self.open()
        else:
            self.other.Refresh()
        return self.other

    @rule()
    def go_on_with_the_other(self) -> None:
        """From now on the second tree writes; the first stays open, and reads."""
        other = self.second()
        compare(other, self.plain, self.ids)
        self.tree, self.other = other, self.tree

    @precondition(lambda self: self.other is not None)
    @rule(closes=st.booleans())
    def let_the_other_go(self, closes: bool) -> None:
        self.lose_the_other(closes)

    def lose_the_other(self, closes: bool) -> None:
        if closes and self.other is not None:
            self.other.Close()
        self.other = None

    @invariant()
    def holds_what_it_has_to(self) -> None:
        compare(self.tree, self.plain, self.ids)
        assert self.tree.Verify() == []
        assert set(self.derived) == {key for key in self.plain.state if key[0] != "merged"}
        for key, record in self.derived.items():
            if isinstance(record, KeywordNode):
                assert (record.name, record.parent_id) == (
                    self.plain.node(key[1]).name,
                    self.plain.node(key[1]).parent_id,
                )


TestTrees = Trees.TestCase
TestTrees.settings = share(1, stateful_step_count=30, suppress_health_check=list(HealthCheck))
