"""Tests of what a model may decide: searching, placing, linking, telling apart, finding doubles.

One table of failures, at least one of each kind, is walked with every function. What comes of it is exact, and what
fails leaves every file as it was. Names and contents come from strangers here, and clients that count tell what they
used.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typing_extensions import override

from Agent import keyword_tree as kt
from Agent.keyword_tree import (
    AgentDecision,
    ConflictError,
    DuplicateIdError,
    InvalidInputError,
    KeywordNode,
    KeywordTree,
    SearchResult,
    SearchStatus,
    StubLLMClient,
)
from Agent.tests.support import inside
from Agent.tests.support.looking import disk, keywords
from Agent.tests.support.models import Meeting, Model, Step, View, about, always, by_intent, idx, in_turn, match, names
from Agent.tests.support.small_tree import HOSTILE, INTENTS, NARROW, SPECS, WEB, WEBS, last_io, opened, read_once
from Agent.tests.support.threads import PATIENCE_S

NEWEST = "a web framework"

MATCHED, AMBIGUOUS, NOT_FOUND = SearchStatus.MATCHED, SearchStatus.AMBIGUOUS, SearchStatus.NOT_FOUND


pytestmark = pytest.mark.usefixtures("no_sync")


# == The table of replies =================================================================================


class Case(NamedTuple):
    """A reply to the first view, or what the client raises instead, and the reason that a tree gives for it."""

    name: str
    reply: Any
    reason: str


def to_group(action: str) -> Step:
    """Choose a group: what stands for keywords that are not shown."""
    key = "candidate_ids" if action == "ambiguous" else "node_ids"
    return lambda view: {"action": action, key: [next(i for i, n in enumerate(names(view)) if " more: " in n)]}


def hidden(action: str) -> Step:
    """Choose, by its id, a keyword that exists and is not shown."""
    key = "candidate_ids" if action == "ambiguous" else "node_ids"

    def say(view: View) -> Any:
        unseen = [spec["id"] for spec in SPECS if spec["name"] not in names(view)]
        assert unseen, "the view shows everything"
        return {"action": action, key: unseen[:1]}

    return say


def one_of(action: str, **fields: Any) -> dict[str, Any]:
    return {"action": action, **fields}


FAILURES = [
    Case("no object", '{"action":"match","node_id":0}', "invalid_reply"),
    Case("an action that is none", one_of("delete", node_id=0), "invalid_reply"),
    Case("a match beyond the view", one_of("match", node_id=99), "invalid_reply"),
    Case("several, one beyond the view", one_of("ambiguous", candidate_ids=[0, 99]), "invalid_reply"),
    Case("a jump beyond the view", one_of("jump", node_id=99), "invalid_jump"),
    Case("nothing named", one_of("match", node_ids=[]), "no_target"),
    Case("a reason that is no text", one_of("match", node_id=0, reason=["x"]), "invalid_reply"),
    Case("a match that is unsure", one_of("match", node_id=0, confidence=0.3), "unsure"),
    Case("missing", one_of("missing", suggest_name="龙井", reason="nothing fits"), "agent_missing"),
    Case("missing with targets", one_of("missing", node_id=0, node_ids=[0], candidate_ids=[0]), "agent_missing"),
    *(
        Case(f"raises {error!r}"[:60], error, "agent_failure")
        for error in (ConnectionError("refused"), RecursionError(), MemoryError(), StopIteration(), Exception("\ud800"))
    ),
    Case("raises a timeout", TimeoutError("60 s"), "agent_timeout"),
    Case("raises a class", TimeoutError, "agent_timeout"),
]
"""One or more for each reason; every form that a reply can have is tried with the tree's own tests."""
OF_HIDDEN = [
    *(Case(f"{action} of a group", to_group(action), "invalid_reply") for action in ("match", "ambiguous")),
    *(Case(f"{action} of what is not shown", hidden(action), "invalid_reply") for action in ("match", "ambiguous")),
    Case("jump to what is not shown", hidden("jump"), "invalid_jump"),
]
"""For functions whose view is of the tree."""
AMONG = [*OF_HIDDEN[2:4], Case("jump", one_of("jump", node_id=0), "invalid_jump")]
"""For functions whose view is of a few keywords, under which nothing is to be looked for."""

INTERRUPTIONS = [KeyboardInterrupt, SystemExit, GeneratorExit]


def parametrize(*cases: Case) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in cases])


def test_the_tables_have_every_reason_that_ends_in_nothing() -> None:
    reasons = {reason for outcome, reason in inside.OUTCOMES.values() if outcome == "missing"}

    # Nothing vanishes while these models think; that is what the last class but one is about.
    assert {case.reason for case in (*FAILURES, *OF_HIDDEN)} == reasons - {"stale_view"}


class TestSearch:
    @parametrize(*FAILURES, *OF_HIDDEN)
    def test_ends_with_the_reason_and_writes_nothing(self, case: Case, folder: Path) -> None:
        with opened(folder, always(case.reply), max_candidates=NARROW) as (tree, model):
            before = disk(folder)
            found = tree.Search("what may I drink?")

            assert (found.status, found.reason, found.rounds) == (NOT_FOUND, case.reason, 1)
            assert (found.node, found.path, found.candidates, found.infos) == (None, [], [], [])
            assert found.suggested_parent_id == "root"
            assert found.suggested_name == (case.reply["suggest_name"] if case.name == "missing" else None)
            assert disk(folder) == before
            model.say = always({"action": "match", "node_id": 0})
            assert tree.Search("what may I drink?").status is MATCHED


CANCELLED: dict[str, tuple[Callable[[Any], Step], Callable[[KeywordTree], object]]] = {
    "placing": (
        lambda error: in_turn({"action": "jump", "node_id": 0}, error),
        lambda tree: tree.CreateKeyword("龙井"),
    ),
    "placing several": (
        lambda error: in_turn(match("茶"), error),
        lambda tree: tree.BatchCreateKeywords([{"name": "龙井"}, {"name": "碧螺春"}]),
    ),
    "linking several": (
        lambda error: in_turn(match("茶"), error),
        lambda tree: tree.BatchCreateInfos([{"content": each, "auto_link": True} for each in ("喝茶", "喝咖啡")]),
    ),
    "choosing": (always, lambda tree: tree.Search("python", context="it bites")),
    "looking for doubles": (partial(about, WEB, "dedup_check"), lambda tree: tree.Reorganize()),
    "looking for places": (partial(about, WEB, "suggest_parent"), lambda tree: tree.Reorganize()),
}


@pytest.mark.parametrize("error", INTERRUPTIONS)
@pytest.mark.parametrize("what", CANCELLED)
def test_what_is_cancelled_leaves_the_store_as_it_was(what: str, error: type[BaseException], folder: Path) -> None:
    answer, call = CANCELLED[what]
    with opened(folder, answer(error)) as (tree, _):
        before, known = disk(folder), keywords(tree)
        with pytest.raises(error):
            call(tree)

        assert disk(folder) == before
        assert (keywords(tree), tree.ListInfos(), tree.Verify()) == (known, [], [])


class TestSuggestParent:
    @parametrize(*FAILURES, *OF_HIDDEN)
    def test_that_fails_puts_the_keyword_on_the_root_and_says_why(self, case: Case, folder: Path) -> None:
        with opened(folder, always(case.reply), max_candidates=NARROW) as (tree, model):
            before = keywords(tree)
            made = tree.CreateKeyword("龙井", description="绿茶的一种")

            assert made.parent_id == "root"
            assert keywords(tree) == {**before, made.id: made}
            io = last_io(tree)
            assert (io["intent"], io["outcome"], io["reason"]) == ("suggest_parent", "missing", case.reason)
            assert len(model.sent) == len(io["rounds"]) == 1
            assert tree.Verify() == []

    @pytest.mark.parametrize(
        ("arguments", "error"),
        [
            ({"name": ""}, InvalidInputError),
            ({"name": "x" * 513}, InvalidInputError),
            ({"name": "龙井", "metadata": {"a": math.nan}}, InvalidInputError),
            ({"name": "龙井", "aliases": [5]}, InvalidInputError),
        ],
    )
    def test_no_model_is_asked_about_what_cannot_be_stored(
        self, arguments: dict[str, Any], error: type[Exception], folder: Path
    ) -> None:
        with opened(folder, match("茶")) as (tree, model):
            before = disk(folder)
            with pytest.raises(error):
                tree.BatchCreateKeywords([{"name": "碧螺春"}, arguments])

            assert model.sent == []
            assert disk(folder) == before

    def test_that_cannot_be_stored_after_all_leaves_the_store_as_it_was(self, folder: Path) -> None:
        def take_the_id(view: View) -> Any:
            tree.BatchCreateKeywords([{"id": "longjing", "name": "早到", "parent_id": "root"}])
            taken.append(disk(folder))
            return match("茶")(view)

        taken: list[dict[str, bytes]] = []
        with opened(folder, take_the_id) as (tree, _):
            with pytest.raises(DuplicateIdError):
                tree.BatchCreateKeywords([{"id": "longjing", "name": "龙井"}])

            assert disk(folder) == taken[0]
            assert tree.GetChildren("tea") == []


class TestLinkInfo:
    @parametrize(*FAILURES, *OF_HIDDEN)
    def test_that_fails_stores_the_info_without_keywords(self, case: Case, folder: Path) -> None:
        with opened(folder, always(case.reply), max_candidates=NARROW) as (tree, model):
            before = keywords(tree)
            info = tree.CreateInfo("喜欢喝龙井茶，不加糖。", "chat", auto_link=True)

            assert tree.GetInfo(info.id) == info
            assert (info.content, info.source) == ("喜欢喝龙井茶，不加糖。", "chat")
            assert tree.ListInfos(unlinked=True) == [info]
            assert keywords(tree) == before
            io = last_io(tree)
            assert (io["intent"], io["outcome"], io["reason"]) == ("link_info", "missing", case.reason)
            assert len(model.sent) == 1

    @parametrize(*FAILURES)
    def test_that_fails_keeps_the_keywords_that_were_given(self, case: Case, folder: Path) -> None:
        with opened(folder, always(case.reply)) as (tree, _):
            info = tree.CreateInfo("喜欢喝龙井茶。", keyword_ids=["coffee"], auto_link=True)

            assert [node.id for node, _ in tree.GetKeywordsOfInfo(info.id)] == ["coffee"]

    def test_puts_it_on_all_that_were_chosen(self, folder: Path) -> None:
        several = {"action": "ambiguous", "candidate_ids": [0, 1]}
        with opened(folder, in_turn(match("茶"), match("茶", "咖啡"), several)) as (tree, model):
            infos = [tree.CreateInfo(f"{n}", keyword_ids=["zoo"], auto_link=True) for n in range(3)]

            linked = [[node.name for node, _ in tree.GetKeywordsOfInfo(info.id)] for info in infos]
            assert linked == [["animals", "茶"], ["animals", "茶", "咖啡"], ["animals", *names(model.views[2])[:2]]]
            assert [link.created_by for link in tree.GetLinks(infos[0].id)] == ["user", "agent"]

    @pytest.mark.parametrize(
        ("chosen", "lose"),
        [
            (("茶", "咖啡"), lambda tree: tree.DeleteKeyword("tea")),
            (("茶",), lambda tree: tree.MergeKeywords("tea", "coffee")),
        ],
        ids=["deleted", "merged"],
    )
    def test_leaves_out_what_was_deleted_and_follows_what_was_merged_while_the_model_thought(
        self, chosen: tuple[str, ...], lose: Callable[[KeywordTree], object], folder: Path
    ) -> None:
        def say(view: View) -> Any:
            reply = match(*chosen)(view)
            lose(tree)
            return reply

        with opened(folder, say) as (tree, _):
            info = tree.CreateInfo("喝茶或咖啡", auto_link=True)

            assert [node.id for node, _ in tree.GetKeywordsOfInfo(info.id)] == ["coffee"]
            assert last_io(tree)["reason"] == "stale_view"

    def test_leaves_out_what_vanished_while_the_next_was_thought_of(self, folder: Path) -> None:
        def lose(view: View) -> Any:
            if view["content"] == "second":
                tree.DeleteKeyword("tea")
            return match("茶", "咖啡")(view) if view["content"] == "first" else {"action": "missing"}

        with opened(folder, lose) as (tree, _):
            specs = [{"content": content, "auto_link": True} for content in ("first", "second")]
            first, second = tree.BatchCreateInfos(specs)

            assert [node.id for node, _ in tree.GetKeywordsOfInfo(first.id)] == ["coffee"]
            assert tree.ListInfos(unlinked=True) == [second]


class TestDisambiguateSameName:
    @parametrize(*FAILURES, *AMONG)
    def test_that_fails_leaves_the_choice_open_and_writes_nothing(self, case: Case, folder: Path) -> None:
        with opened(folder, always(case.reply)) as (tree, model):
            before = disk(folder)
            found = tree.Search("python", context="装饰器怎么写？")

            assert (found.status, found.reason, found.rounds) == (AMBIGUOUS, "exact", 1)
            assert [node.id for node in found.candidates] == ["python", "snake"]
            assert (found.node, found.candidate_count, found.names_shown) == (None, 2, 2)
            assert found.steps[0].reason or case.reason in ("agent_missing", "no_target", "unsure")
            assert disk(folder) == before
            assert len(model.sent) == 1  # there is nothing to look at under

    @pytest.mark.parametrize(("chosen", "path"), [("snake", "animals"), ("python", "programming")])
    def test_gives_the_one_that_was_chosen(self, chosen: str, path: str, folder: Path) -> None:
        say = lambda view: {"action": "match", "node_id": idx(view, "Python", path)}  # noqa: E731  it has a name
        with opened(folder, say) as (tree, model):
            found = tree.Search("Python", context="it bites")

            assert (found.status, found.reason) == (MATCHED, "agent_match")
            assert [node.id for node in found.path][-1] == chosen
        [view] = model.views
        assert (view["intent"], view["query"], view["context"]) == ("disambiguate_same_name", "Python", "it bites")
        assert [candidate["path"] for candidate in view["candidates"]] == ["programming / Python", "animals / Python"]

    @pytest.mark.parametrize("reply", [match("Python", "Python"), {"action": "match", "node_ids": [0, 1]}])
    def test_several_are_no_choice_and_one_twice_is(self, reply: Any, folder: Path) -> None:
        with opened(folder, always(reply)) as (tree, _):
            found = tree.Search("Python", context="it bites")

        assert found.status is (MATCHED if callable(reply) else AMBIGUOUS)

    @pytest.mark.parametrize(
        ("query", "context", "may_ask"), [("Python", "", True), ("茶", "x", True), ("Python", "x", False)]
    )
    def test_no_model_is_asked_without_need(self, query: str, context: str, may_ask: bool, folder: Path) -> None:
        with opened(folder, match("Python")) as (tree, model):
            tree.Search(query, may_ask, context)

        assert model.sent == []

    def test_what_vanished_while_the_model_thought_is_not_chosen(self, folder: Path) -> None:
        def lose(view: View) -> Any:
            tree.DeleteKeyword("snake")
            return {"action": "match", "node_id": idx(view, "Python", "animals")}

        with opened(folder, lose) as (tree, _):
            found = tree.Search("Python", context="it bites")

            assert (found.status, found.node) == (AMBIGUOUS, None)


def proposals(plan: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return the steps of a plan that a model has a part in, without their reasons."""
    return [tuple(value for key, value in step.items() if key != "why") for step in plan["steps"]]


class TestReorganize:
    @pytest.mark.parametrize(
        ("intent", "case"),
        [
            pytest.param(intent, case, id=f"{intent}: {case.name}")
            for intent, more in (
                ("dedup_check", AMONG),
                ("suggest_parent", []),
            )  # a view of the tree hides nothing here
            for case in (*FAILURES, *more)
        ],
    )
    def test_bad_replies_propose_nothing_and_write_nothing(self, intent: str, case: Case, folder: Path) -> None:
        with opened(folder, about(WEB, intent, case.reply)) as (tree, model):
            before = disk(folder)
            plan = tree.Reorganize()

            assert plan["steps"] == []
            assert disk(folder) == before
            assert sum((view["intent"], view["query"]) == (intent, WEB) for view in model.views) == 1

    def test_a_double_is_proposed_and_only_then_merged(self, folder: Path) -> None:
        with opened(folder, about(WEBS, "dedup_check", match(WEB, reason="the same words"))) as (tree, model):
            before, known = disk(folder), keywords(tree)
            plan = tree.Reorganize()

            assert proposals(plan) == [("merge", "webs", "web")]
            assert plan["steps"][0]["why"] == "the model: the same words"
            assert disk(folder) == before
            calls = len(model.sent)
            operation = tree.ApplyReorganizePlan(json.loads(json.dumps(plan)))
            assert tree.GetKeyword("webs") == tree.GetKeyword("web")
            assert tree.Search(WEBS).node == tree.GetKeyword("web")
            assert len(model.sent) == calls
            tree.Undo(operation)
            assert {id: node.name for id, node in keywords(tree).items()} == {id: n.name for id, n in known.items()}

    def test_a_double_is_looked_for_among_what_reads_alike(self, folder: Path) -> None:
        with opened(folder, always({"action": "missing"})) as (tree, model):
            tree.Reorganize()

        views = [view for view in model.views if view["intent"] == "dedup_check"]
        assert views
        for view in views:
            assert 1 <= len(view["candidates"]) <= 6
        [view] = [view for view in views if view["query"] == WEBS]
        assert WEB in names(view)
        assert WEBS not in names(view)  # nothing is its own double

    def test_a_misplaced_keyword_is_proposed_and_only_then_moved(self, folder: Path) -> None:
        with opened(folder, about(WEB, "suggest_parent", match("Python", reason="made of it"))) as (tree, _):
            before = disk(folder)
            plan = tree.Reorganize()

            assert proposals(plan) == [("move", "web", "python")]
            assert plan["steps"][0]["why"] == "the model: made of it"
            assert disk(folder) == before
            tree.ApplyReorganizePlan(plan)
            assert [node.id for node in tree.GetPath("web")] == ["root", "code", "python", "web"]
            assert tree.History(limit=1)[0].op == "reorganize"

    @pytest.mark.parametrize(
        "reply",
        [match("programming"), match(WEB), match("茶", "咖啡"), {"action": "ambiguous", "candidate_ids": [0, 1]}],
    )
    def test_where_it_already_stands_and_several_are_no_proposal(self, reply: Any, folder: Path) -> None:
        with opened(folder, about(WEB, "suggest_parent", reply)) as (tree, _):
            assert tree.Reorganize()["steps"] == []

    def test_a_place_under_itself_is_no_proposal(self, folder: Path) -> None:
        with opened(folder, about("programming", "suggest_parent", match(WEB))) as (tree, _):
            assert tree.Reorganize()["steps"] == []

    @pytest.mark.parametrize("doubles", [{WEB: WEBS, WEBS: WEB}, {NEWEST: WEB, WEBS: NEWEST}])
    def test_proposals_that_do_not_fit_together_are_left_out(self, folder: Path, doubles: dict[str, str]) -> None:
        def say(view: View) -> Any:
            other = doubles.get(view["query"], "")
            return match(other)(view) if view["intent"] == "dedup_check" and other else {"action": "missing"}

        with opened(folder, say) as (tree, _):
            made = tree.CreateKeyword(NEWEST, "zoo")
            plan = tree.Reorganize()

            # What one merges away is no target of another.
            assert proposals(plan) == [("merge", made.id if NEWEST in doubles else "webs", "web")]
            tree.ApplyReorganizePlan(plan)
            assert tree.Verify() == []

    def test_a_plan_that_the_tree_has_outgrown_is_refused(self, folder: Path) -> None:
        with opened(folder, about(WEBS, "dedup_check", match(WEB))) as (tree, _):
            plan = tree.Reorganize()
            tree.AddAlias("web", "网页框架")
            before = disk(folder)
            with pytest.raises(ConflictError, match="outgrown the plan at 'web'"):
                tree.ApplyReorganizePlan(plan)

            assert disk(folder) == before


# == What strangers write =================================================================================

KNOWN_FIELDS = {
    "search": {"intent", "query", "path", "candidates"},
    "suggest_parent": {"intent", "query", "description", "path", "candidates"},
    "link_info": {"intent", "query", "content", "path", "candidates"},
    "disambiguate_same_name": {"intent", "query", "context", "path", "candidates"},
    "dedup_check": {"intent", "query", "description", "path", "candidates"},
}


def ask_everything(tree: KeywordTree, text: str) -> tuple[SearchResult, KeywordNode, str, SearchResult, dict[str, Any]]:
    """Ask each of the five questions with a stranger's text in it; what is made is made by the tree's model."""
    found = tree.Search(f"where is {text}?")
    made = tree.CreateKeyword(f"{text[:500]}-new", description=text)
    info = tree.CreateInfo(f"about {text}", auto_link=True)
    chosen = tree.Search("Python", context=text)
    return found, made, info.id, chosen, tree.Reorganize()


@contextmanager
def strange_tree(folder: Path, text: str, say: Step) -> Iterator[tuple[KeywordTree, Model, str]]:
    """Give a tree with a stranger's keyword in it, and the keyword's id; ids are UUIDs here."""
    model = Model(say)
    with KeywordTree(str(folder), model) as tree:
        for place in ("programming", "animals"):
            tree.CreateKeyword("Python", tree.CreateKeyword(place, "root").id)
        top = tree.CreateKeyword(text, "root", aliases=[f"{text[:500]} alias"], description=text)
        tree.CreateKeyword(f"{text[:500]} below", top.id, description=text)
        yield tree, model, top.id


class TestStrangers:
    @pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
    def test_what_they_write_stands_in_strings_of_one_object(self, text: str, folder: Path) -> None:
        with strange_tree(folder, text, always({"action": "missing"})) as (tree, model, _):
            _, made, _, _, plan = ask_everything(tree, text)
            wanted = {node.name for node in keywords(tree).values()}

        assert {step["action"] for step in plan["steps"]} <= {"link"}
        assert all(step["why"].startswith("by rule: its text names ") for step in plan["steps"])
        assert made.parent_id == "root"
        seen: dict[str, list[dict[str, Any]]] = {}
        for messages in model.sent:
            assert [(message["role"], *message) for message in messages] == [
                ("system", "role", "content"),
                ("user", "role", "content"),
            ]
            view = read_once(messages[1]["content"])
            seen.setdefault(view["intent"], []).append(view)
            assert view.keys() == KNOWN_FIELDS[view["intent"]] - ({"description"} - view.keys())
            assert [candidate["idx"] for candidate in view["candidates"]] == list(range(len(view["candidates"])))
            for candidate in view["candidates"]:
                assert candidate.keys() == {"idx", "name", "path"}
                assert candidate["name"] in wanted
                assert candidate["path"] == candidate["name"] or len(candidate["path"]) <= 200
            assert json.dumps(view, ensure_ascii=False, separators=(",", ":")) == messages[1]["content"]
        assert set(seen) == set(INTENTS)
        assert seen["search"][0]["query"] == f"where is {text}?"
        assert (seen["suggest_parent"][0]["query"], seen["suggest_parent"][0]["description"]) == (
            f"{text[:500]}-new",
            text,
        )
        assert seen["link_info"][0]["content"] == f"about {text}"
        assert seen["disambiguate_same_name"][0]["context"] == text
        assert text in names(seen["search"][0])

    @pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
    def test_the_worst_they_can_do_is_to_be_chosen(self, text: str, folder: Path) -> None:
        def obey(view: View) -> Any:  # a model that does what the stranger says, wherever that is shown
            return {"action": "match", "node_id": idx(view, text)} if text in names(view) else {"action": "missing"}

        with strange_tree(folder, text, obey) as (tree, _, stranger_id):
            before = keywords(tree)
            found, made, info_id, chosen, _ = ask_everything(tree, text)

            assert (found.status, found.path[-1].id) == (MATCHED, stranger_id)
            assert made.parent_id == stranger_id
            assert [node.id for node, _ in tree.GetKeywordsOfInfo(info_id)] == [stranger_id]
            assert (chosen.status, chosen.reason) == (AMBIGUOUS, "exact")
            after = keywords(tree)
            assert {id: node for id, node in after.items() if id != made.id} == before
            assert [change.op for change in tree.History(limit=2)] == ["create_info", "create_keyword"]
            assert tree.Verify() == []

    @pytest.mark.parametrize("letter", ["x", "茶", "\x01", '"', "🐍"], ids=["x", "茶", "control", "quote", "snake"])
    def test_a_very_long_text_is_cut(self, letter: str, folder: Path) -> None:
        text = letter * 300_000
        with opened(folder, always({"action": "missing"})) as (tree, model):
            found = tree.Search(text)
            made = tree.CreateKeyword("龙井", description=text[:65_536])
            info = tree.CreateInfo(text, auto_link=True)
            tree.Search("Python", context=text)
            kept = tree.GetInfo(info.id)

            assert (found.status, found.reason) == (NOT_FOUND, "agent_missing")
            assert made.description == text[:65_536]
            assert kept is not None
            assert kept.content == text
        fields = ["query", "description", "content", "context"]
        assert [view[field] for view, field in zip(model.views, fields, strict=True)] == [text[:2000]] * 4
        assert max(len(messages[1]["content"]) for messages in model.sent) < 6 * 2000 + 2000

    def test_no_message_is_larger_than_its_parts_may_be(self, folder: Path) -> None:
        worst = "x" + "\x01" * 511  # six characters each in JSON
        model = Model(in_turn(*[{"action": "jump", "node_id": 0}] * 2, {"action": "missing"}))
        with KeywordTree(str(folder), model) as tree:
            parent = "root"
            for _ in range(4):
                made = tree.BatchCreateKeywords([{"name": worst, "parent_id": parent} for _ in range(60)])
                parent = made[0].id
            tree.Search(worst[:100] * 30)

        sizes = [len(messages[1]["content"]) for messages in model.sent]
        assert len(sizes) == 3
        assert max(sizes) <= 6 * (50 * (512 + 200) + 2000 + 3 * 200) + 50 * 40 + 200


# == What services can keep ===============================================================================


class TestPrompts:
    def test_each_intent_has_one_system_text_whatever_is_asked(self, tmp_path: Path) -> None:
        systems: dict[str, set[str]] = {}
        schemas: dict[str, set[str]] = {}
        for number, text in enumerate(("x", *[*HOSTILE.values()][::3])):
            options = {"max_candidates": 5 + number, "descend_max_rounds": 1 + number}
            with opened(tmp_path / f"{number}", always({"action": "missing"}), **options) as (tree, model):
                tree.CreateKeyword(text, "root")
                ask_everything(tree, text)
            for messages, view, schema in zip(model.sent, model.views, model.schemas, strict=True):
                systems.setdefault(view["intent"], set()).add(messages[0]["content"])
                schemas.setdefault(view["intent"], set()).add(json.dumps(schema))

        assert set(systems) == set(INTENTS)
        assert [len(texts) for texts in systems.values()] == [1] * 5
        assert len({text for texts in systems.values() for text in texts}) == 5  # each has its own task
        for intent, [text] in systems.items():
            [sent] = schemas[intent]
            assert json.loads(text[text.index("{", text.index("Reply schema:")) :]) == json.loads(sent)
            targets = json.loads(sent)["properties"]["targets"]
            assert 1 <= targets["maxItems"] <= 5  # a small model does not stop by itself

    def test_what_varies_comes_last(self, folder: Path) -> None:
        order = ["intent", "path", "candidates", "query", "description", "content", "context"]
        with opened(folder, always({"action": "missing"})) as (tree, model):
            ask_everything(tree, "tea")

        for messages in model.sent:
            assert [message["role"] for message in messages] == ["system", "user"]
            view = json.loads(messages[1]["content"])
            assert list(view) == [name for name in order if name in view]
            assert messages[1]["content"].startswith(f'{{"intent":"{view["intent"]}","path":')

    def test_are_written_in_english(self) -> None:
        for intent in INTENTS:
            system = inside.system_text(intent)
            assert not re.search(r"[^\x00-\x7f…–]", system)  # the two marks of a group's name
            assert len(system) < 2200


# == What it costs ========================================================================================


class Spent(NamedTuple):
    input_tokens: Any = 0
    output_tokens: Any = 0
    cost: Any = None


class Counting(Model):
    """A model that reports what each call used."""

    def __init__(self, say: Step, *spent: Any) -> None:
        super().__init__(say)
        self.left = list(spent)
        self.last_usage: Any = None

    @override
    def Chat(self, messages: list[dict[str, str]], json_schema: dict[str, Any]) -> Any:
        self.last_usage = self.left.pop(0)
        return super().Chat(messages, json_schema)


class TestCosts:
    def test_are_reported_for_each_round_and_in_all(self, folder: Path) -> None:
        jump = {"action": "jump", "node_id": 0, "reason": "deeper"}
        model = Counting(in_turn(jump, match("茶")), Spent(900, 40, 0.5), Spent(700, 30, 0.25))
        with KeywordTree(str(folder), model) as tree:
            tree.BatchCreateKeywords(SPECS)
            found = tree.Search("what may I drink?")

        assert [(step.input_tokens, step.output_tokens, step.cost) for step in found.steps] == [
            (900, 40, 0.5),
            (700, 30, 0.25),
        ]
        assert (found.input_tokens, found.output_tokens, found.cost) == (1600, 70, 0.75)
        assert (found.rounds, found.names_shown) == (2, sum(len(view["candidates"]) for view in model.views))

    @parametrize(*FAILURES)
    @pytest.mark.parametrize("context", ["", "it bites"], ids=["search", "disambiguate"])
    def test_of_what_failed_are_reported_too(self, case: Case, context: str, folder: Path) -> None:
        model = Counting(always(case.reply), Spent(900, 40, 0.5))
        with KeywordTree(str(folder), model) as tree:
            tree.BatchCreateKeywords(SPECS)
            found = tree.Search("Python" if context else "what may I drink?", context=context)

        assert (found.input_tokens, found.output_tokens, found.cost, found.rounds) == (900, 40, 0.5, 1)
        assert [(step.input_tokens, step.output_tokens, step.cost) for step in found.steps] == [(900, 40, 0.5)]

    @pytest.mark.parametrize(
        ("reported", "tokens"),
        [
            (None, (0, 0, 0.0)),
            ("many", (0, 0, 0.0)),
            (Spent(900, 40), (900, 40, 0.0)),
            (Spent(None, 40, 0.5), (0, 40, 0.5)),
            (Spent(-900, 40, -0.5), (0, 40, 0.0)),
            (Spent(math.nan, math.inf, math.nan), (0, 0, 0.0)),
            (Spent(10**400, 40, 0.5), (0, 0, 0.0)),
            (Spent("many", 40, 0.5), (0, 0, 0.0)),
            (Spent([900], 40, 0.5), (0, 0, 0.0)),
            (Spent(True, 2.9, 1), (1, 2, 1.0)),
        ],
    )
    def test_that_cannot_be_read_lose_no_answer(
        self, reported: Any, tokens: tuple[int, int, float], folder: Path
    ) -> None:
        with KeywordTree(str(folder), Counting(match("茶"), reported)) as tree:
            tree.BatchCreateKeywords(SPECS)
            found = tree.Search("what may I drink?")

        assert found.status is MATCHED
        assert (found.input_tokens, found.output_tokens, found.cost) == tokens

    def test_are_counted_by_the_tree(self, folder: Path) -> None:
        with opened(folder, by_intent(search=match("茶"))) as (tree, model):
            tree.Search("what may I drink?")
            tree.CreateKeyword("龙井")
            tree.CreateInfo("喝茶", auto_link=True)
            tree.Search("Python", context="it bites")
            spent = tree.TreeMetrics()

        shown = sum(len(view["candidates"]) for view in model.views)
        assert (spent["descents"], spent["model_calls"], spent["names_shown"]) == (4, 4, shown)


# == What happens meanwhile ===============================================================================


class TestMeanwhile:
    def test_one_that_is_cancelled_does_not_disturb_another(self, folder: Path) -> None:
        meeting = Meeting(2)

        def say(view: View) -> Any:
            meeting.think()
            return KeyboardInterrupt() if view["query"] == "cancelled" else match("茶")(view)

        with opened(folder, say) as (tree, _), ThreadPoolExecutor(2) as threads:
            asked = [threads.submit(tree.CreateKeyword, name) for name in ("cancelled", "龙井")]
            meeting.interrupt(lambda: None)

            assert isinstance(asked[0].exception(PATIENCE_S), KeyboardInterrupt)
            assert asked[1].result(PATIENCE_S).parent_id == "tea"
            assert "cancelled" not in {node.name for node in keywords(tree).values()}
            assert tree.Verify() == []

    def test_a_tree_that_is_closed_meanwhile_says_so(self, folder: Path) -> None:
        def say(view: View) -> Any:
            tree.Close()
            return match("茶")(view)

        with opened(folder, say) as (tree, _), pytest.raises(kt.ClosedError):
            tree.CreateKeyword("龙井")
        with KeywordTree(str(folder)) as again:
            assert set(keywords(again)) == {spec["id"] for spec in SPECS}


class TestReplies:
    def test_a_decision_object_is_the_reply_that_it_is(self, tmp_path: Path) -> None:
        stub = StubLLMClient([AgentDecision("match", node_id=0, reason="the only one")])
        with KeywordTree(str(tmp_path), stub) as tree:
            tea = tree.CreateKeyword("tea", "root")
            found = tree.Search("what may I drink?")

            assert (found.reason, found.node and found.node.id) == ("agent_match", tea.id)
            assert [(step.action, step.reason) for step in found.steps] == [("match", "the only one")]

    def test_namesakes_that_an_open_operation_made_are_shown(self, tmp_path: Path) -> None:
        stub = StubLLMClient([{"action": "match", "node_id": 1}])
        with KeywordTree(str(tmp_path), stub) as tree, tree.Operation():
            planet = tree.CreateKeyword("Mercury", "root", description="a planet")
            metal = tree.CreateKeyword("Mercury", "root", description="a metal")
            found = tree.Search("Mercury", context="it is liquid")

            assert (found.reason, found.node and found.node.id) == ("agent_match", metal.id)
            question = json.loads(stub.calls[0][0][-1]["content"])
            assert [candidate["idx"] for candidate in question["candidates"]] == [0, 1]
            assert planet.id != metal.id
