"""Hostile arguments: whatever is asked, no caller sees or changes another tenant's memories.

`make storm` asks a million times; KEYWORD_TREE_STORM_SIZE and KEYWORD_TREE_SEED make pieces of it.
"""

import math
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from Agent.context_engine import ContextEngineError, ContextEngineService, ContextNode, RelationEdge, RequestContext
from Agent.tests.support.looking import disk
from Agent.tests.support.plain_reader import open_engine

STORM = bool(os.environ.get("KEYWORD_TREE_STORM"))
COUNT = int(os.environ.get("KEYWORD_TREE_STORM_SIZE") or 1_000_000) if STORM else 2_000
SEED = int(os.environ.get("KEYWORD_TREE_SEED") or 18)

ADA = RequestContext("acme", "ada", "helper", "s1")
BOB = RequestContext("acme", "bob", "other", "s1")
EVE = RequestContext("rival", "ada", "helper", "s1")
"""Of another account, with Ada's names."""
OWN = ("ctx://acme/users/ada", "ctx://acme/agents/helper")
SECRET = "zqkiwi"

BOBS = "ctx://acme/users/bob/memories/preferences/zqkiwi"
TEXTS: list[Any] = [
    "", " ", "jazz", "zqkiwi", BOBS, "ctx://rival/users/ada/memories/profile", "ctx://acme/users/ada",
    "ctx://acme/users/ada/memories/preferences/jazz", "ctx://acme/users/ada/../bob", "ctx://acme/users/ada/%2e%2e/bob",
    "ctx://acme/users/ada/memories/preferences/link", "ctx://acme", "ctx://", "../../bob", "/etc/passwd",
    "a' OR 1=1 --", '" OR terms:zqkiwi', "zqkiwi*", "NEAR(zqkiwi love)", "terms : zqkiwi", "^zqkiwi", "%", "_",
    "\0", "\ud800", "\u202e", "龙井", "x" * 3_000, "?" * 50, b"zqkiwi",
    None, True, 0, -1, 7, 1.5, math.nan, math.inf, -math.inf, 1 << 70,
    [], {}, ["zqkiwi"], ["sessions"], ["preferences", "events"], ["preferences' OR '1'='1"], [7], ("profile",),
    {"since": 0}, {"owner_space": "user:bob"}, object(), ADA, BOB, "sessions", "preferences", "L2", "L9",
]  # fmt: skip


def make_store(folder: Path) -> ContextEngineService:
    """Return an engine with memories of three who must not see each other's."""
    engine = open_engine(folder)
    engine.commit_session(ADA, [{"role": "user", "content": "I love jazz. My name is Ada."}])
    for other in (BOB, EVE):
        said = [{"role": "user", "content": f"I love {SECRET}. My name is {SECRET}."}]
        engine.commit_session(other, said, used_tools=[f"grep-{SECRET}"])
        engine.remember(other, f"{SECRET} is a case.", "cases", SECRET)
    link = "ctx://acme/users/ada/memories/preferences/link"
    engine.write_node(ADA, ContextNode(link, "", "memory", "preferences", "", "a link", "", "- a link\n"))
    place = Path(engine.fs.resolve_path(ADA, link))
    (place / ".relations.json").write_text(f'[{{"to_uri": "{BOBS}", "relation_type": "near"}}]', encoding="utf-8")
    meta = Path(engine.fs.resolve_path(ADA, "ctx://acme/users/ada/memories/preferences")) / "led" / ".meta.json"
    meta.parent.mkdir()
    meta.write_text(f'{{"moved_to": "{BOBS}"}}', encoding="utf-8")
    return engine


def others(folder: Path) -> dict[str, bytes]:
    """Return every file of the others."""
    own = (".ctx/", "acme/users/ada/", "acme/agents/helper/")
    return {name: data for name, data in disk(folder).items() if not name.startswith(own)}


def questions(engine: ContextEngineService) -> list[tuple[Callable[..., object], tuple[str, ...], tuple[str, ...]]]:
    """Return each reading call, with the arguments that it takes by place and by name."""
    asked = ("target_uri", "categories", "top_k", "budget_tokens", "since", "until", "session_archive")
    return [
        (engine.search_memory, ("query",), asked),
        (engine.search_memory, ("query",), asked[:3]),
        (engine.read_memory, ("uri",), ("level", "expand_relations", "max_relations")),
        (engine.get_node, ("uri",), ()),
        (engine.list_children, ("uri",), ("recursive", "depth")),
        (engine.history, ("uri",), ("limit",)),
        (engine.brief, (), ("budget_tokens",)),
        (engine.relations.get_edges, ("uri",), ()),
    ]


GOOD: dict[str, list[Any]] = {
    "query": ["jazz", "zqkiwi", "who is Ada, and what does she love?"],
    "uri": [*OWN, f"{OWN[0]}/memories/preferences/link", f"{OWN[0]}/memories/preferences/led", BOBS],
    "target_uri": [*OWN, BOBS, None],
    "categories": [["preferences"], ["sessions"], None],
    "top_k": [1, 10, 1_000],
    "budget_tokens": [1, 100, 10**9],
    "level": ["L0", "L1", "L2"],
    "session_archive": [None],
}  # fmt: skip


def test_no_filter_lets_anything_out(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    refused = answered = 0
    with make_store(tmp_path) as engine:
        before = others(tmp_path)
        asking = questions(engine)
        for _ in range(COUNT):
            call, needed, optional = chance.choice(asking)
            names = [*needed, *chance.sample(optional, chance.randint(0, len(optional)))]
            given = {
                name: chance.choice(GOOD[name] if name in GOOD and chance.random() < 0.5 else TEXTS) for name in names
            }
            by_place = [given.pop(name) for name in needed]
            try:
                found = call(ADA, *by_place, **given)
            except ContextEngineError:
                refused += 1
                continue
            answered += 1
            shown = repr(found).replace(repr(by_place[0])[1:-1], "") if needed else repr(found)
            if SECRET in shown:
                held = _without_the_question(found)
                assert SECRET not in repr(held), (call, by_place, given, held)
        assert others(tmp_path) == before
    assert refused > COUNT // 20
    assert answered > COUNT // 20
    if STORM:
        print(f"\n{COUNT:,} hostile filters (seed {SEED}), {answered:,} answered: 0 escapes")


def test_no_number_is_too_large(tmp_path: Path) -> None:
    with make_store(tmp_path) as engine:
        for top in (1 << 62, 1 << 63, 1 << 70, 10**400):
            assert engine.search_memory(ADA, "jazz", top_k=top, budget_tokens=top).blocks
            assert engine.history(ADA, f"{OWN[0]}/memories/preferences/jazz", limit=top)


def changes(engine: ContextEngineService, chance: random.Random, stolen: str) -> Callable[[], object]:
    """Return a writing call with hostile arguments."""

    def any_of() -> Any:
        return chance.choice(TEXTS) if chance.random() < 0.7 else chance.choice([*GOOD["uri"], *OWN])

    node = ContextNode(any_of(), any_of(), any_of(), any_of(), any_of(), "an abstract", any_of(), any_of(), {})
    edge = RelationEdge(any_of(), any_of(), "near")
    message = {"role": any_of(), "content": any_of(), "id": any_of(), "at": any_of(), "name": any_of()}
    calls: list[Callable[[], object]] = [
        lambda: engine.write_node(ADA, node),
        lambda: engine.write_node(ADA, any_of()),
        lambda: engine.remember(ADA, any_of(), any_of(), any_of(), any_of()),
        lambda: engine.remember(ADA, "she says", chance.choice(["profile", "events", "skills"]), any_of()),
        lambda: engine.commit_session(ADA, [message], any_of(), any_of(), any_of()),
        lambda: engine.commit_session(ADA, [message], [any_of()], [{"name": any_of(), "ok": any_of()}]),
        lambda: engine.commit_session(RequestContext("acme", "ada", "helper", any_of()), [message]),
        lambda: engine.move_node(ADA, any_of(), any_of()),
        lambda: engine.delete_node(ADA, any_of(), any_of()),
        lambda: engine.confirm(ADA, any_of(), any_of()),
        lambda: engine.adopt(ADA, any_of()),
        lambda: engine.forget(ADA, any_of()),
        lambda: engine.undo(ADA, chance.choice([stolen, any_of()])),
        lambda: engine.extract_again(ADA, any_of()),
        lambda: engine.relations.upsert_edges(ADA, any_of(), [edge]),
        lambda: engine.relations.remove_edges(ADA, any_of(), [any_of()]),
        lambda: engine.fs.write_level(ADA, any_of(), any_of(), any_of()),
        lambda: engine.fs.write_metadata(ADA, any_of(), any_of()),
    ]
    return chance.choice(calls)


def test_no_argument_changes_what_is_not_ones_own(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    done = 0
    with make_store(tmp_path) as engine:
        stolen = engine.fs.log(BOB)[0]["id"]
        before = others(tmp_path)
        for _ in range(COUNT // 100 if STORM else 300):
            try:
                changes(engine, chance, stolen)()
                done += 1
            except ContextEngineError:
                pass
        assert done > 10
        assert others(tmp_path) == before
        assert engine.search_memory(BOB, SECRET).blocks
        assert [line for line in engine.verify() if "by hand" not in line] == []


def _without_the_question(found: Any) -> Any:
    """Return what a search found, without what it was asked."""
    return (found.seed_hits, found.blocks) if hasattr(found, "seed_hits") else found
