"""Tests of what a search and a brief leave out, of how large a store grows, and of what is never written."""

from pathlib import Path

from Agent.context_engine import ContextEngineService, RequestContext

ADA = RequestContext("acme", "ada", "helper", "s1")
PREFERENCES = "ctx://acme/users/ada/memories/preferences"
TOKEN = "4f9a8b7c6d5e4f3a2b1c0d9e8f7a6b5c"


def test_three_old_facts_of_one_entity_are_found_by_a_question_about_all(engine: ContextEngineService) -> None:
    wanted = ["Anna's cat is called Mimi.", "Anna's birthday is in May.", "Anna's boat lies in Genoa."]
    for number, text in enumerate([*wanted, *(f"Anna bought chair number {n} for the office." for n in range(30))]):
        engine.remember(ADA, text, "entities", "Anna", at=1_790_000_000.0 + number)
    found = engine.search_memory(ADA, "Anna's cat, her birthday and her boat?")

    assert set(wanted) <= {block.content_excerpt for block in found.blocks}


def test_a_brief_has_more_than_twenty_and_dangers_and_what_is_pinned_first(engine: ContextEngineService) -> None:
    engine.remember(ADA, "Is allergic to peanuts.", "preferences", "peanuts", at=1_700_000_000.0)
    pinned = engine.remember(ADA, "Wants short answers.", "preferences", "answers", at=1_700_000_001.0)
    engine.fs.write_metadata(ADA, pinned, {"metadata": {"pinned": True}})
    for number in range(30):
        engine.remember(ADA, f"Likes record {number}.", "preferences", f"record {number}")
    brief = engine.brief(ADA, budget_tokens=2_000)

    assert brief.uris[:2] == [f"{PREFERENCES}/answers", f"{PREFERENCES}/peanuts"]
    assert len(brief.uris) == 32


def test_many_small_sessions_leave_no_long_wal(tmp_path: Path) -> None:
    with ContextEngineService(tmp_path) as engine:
        for number in range(150):
            ctx = RequestContext("acme", "ada", "helper", f"s{number}")
            engine.commit_session(ctx, [{"role": "user", "content": f"Message {number}: {'x y ' * 200}"}])
        wals = {path.name: path.stat().st_size for path in (tmp_path / ".ctx").rglob("*-wal")}
        assert max(wals.values()) < 6_000_000, wals
        assert engine.prune(engine.fs.clock() + 1) >= 150


def test_secrets_of_tool_calls_reach_no_file(tmp_path: Path) -> None:
    calls = [{"id": "c1", "function": {"name": "curl", "arguments": f'{{"header": "Authorization: Bearer {TOKEN}"}}'}}]
    messages = [
        {"role": "user", "content": "Fetch it."},
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "tool", "content": f'{{"password": "{TOKEN}"}}'},
        {"role": "assistant", "content": [{"type": "tool_use", "name": "x", "input": {"api_key": TOKEN}}]},
    ]
    with ContextEngineService(tmp_path) as engine:
        tools = [{"name": "curl", "ok": False, "error": f"401 for Authorization: Bearer {TOKEN}"}]
        engine.commit_session(ADA, messages, used_tools=tools)
        assert engine.commit_session(ADA, messages).status == "unchanged"
        assert engine.search_memory(ADA, "curl header").blocks

    holding = [path for path in tmp_path.rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()]
    assert holding == []
