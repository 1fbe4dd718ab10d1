"""Generated programs over every door: no caller is ever shown what is not for them.

Each text that a program writes holds a mark of its own, and a ledger beside the hub notes who may see that mark: those
who could see the version that it was written into. After the program every principal knocks at every door, and all
that is answered, errors too, is searched for marks. Ids are marks as well.

The doors are all there are: the methods of `KnowHub` for every id, and over the wire REST, pages and MCP, these for
some ids of a program. A run of the tests goes through 20 programs, `make storm` through 2,000, in pieces.
"""

import json
import os
import random
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from Agent.keyword_tree import StubLLMClient
from Agent.knowhub.application import create_app
from Agent.knowhub.gate import Settings
from Agent.knowhub.hub import KnowHub
from Agent.knowhub.pages import add_pages
from Agent.knowhub.records import Json, KnowHubError
from Agent.knowhub.serving import add_mcp
from Agent.knowhub.tokens import Token

STORM = bool(os.environ.get("KEYWORD_TREE_STORM"))
PIECE = 100 if STORM else 20
STEPS = 14
ASKERS, ASKED_FOR = 1, 2
"""So many principals of a program ask over the wire, for so many ids: a request takes as long as twenty calls."""
WIRED = 4
"""In a storm every fourth program."""
_MARK = re.compile(r"mk\d+x|(?:knowledge|feedback|proposal)-[0-9a-z-]+")


class Echo(StubLLMClient):
    """A model that says back what it was shown, so that a leak into a prompt would come out again."""

    def __init__(self) -> None:
        super().__init__([1])

    def Chat(self, messages: Any, json_schema: Any) -> Json:
        question = json.loads(messages[-1]["content"])
        if question["intent"] == "route_knowledge":
            return {"chosen": list(range(len(question["candidates"])))}
        if question["intent"] == "merge_knowledge":
            texts = [entry["content"] for entry in question["entries"]]
            return {"same": True, "task": question["entries"][0]["task"], "content": " ".join(texts)}
        return {"content": question["content"] + "!"}


class Wire:
    """The doors of one hub that are asked over the wire: REST, pages, MCP."""

    def __init__(self, client: TestClient, hub: KnowHub) -> None:
        self._client = client
        self._hub = hub
        self._told: dict[str, tuple[str, str]] = {}  # by principal: the text of a token, of a session

    def _keys(self, token: Token) -> tuple[str, str]:
        if token.principal not in self._told:
            text, _ = self._hub.tokens.make(token.principal, token.rights, token.scopes)
            session = self._hub.tokens.log_in(text)
            assert session is not None
            self._told[token.principal] = (text, session[0])
        return self._told[token.principal]

    def api(self, token: Token, path: str) -> str:
        return self._client.get(path, headers={"Authorization": f"Bearer {self._keys(token)[0]}"}).text

    def page(self, token: Token, path: str, method: str = "GET") -> str:
        # The page's own way back is not an answer of the hub: it is what was asked for.
        answer = self._client.request(method, path, headers={"Cookie": f"knowhub={self._keys(token)[1]}"})
        return re.sub(r'<a href="/language[^>]*>', "", answer.text)

    def mcp(self, token: Token, method: str, params: Json) -> str:
        headers = {"Authorization": f"Bearer {self._keys(token)[0]}", "Accept": "application/json, text/event-stream"}
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer = self._client.post("/mcp", json=body, headers={**headers, "MCP-Protocol-Version": "2025-06-18"})
        assert answer.status_code == 200, answer.text
        return answer.text

    def call(self, token: Token, name: str, **arguments: Any) -> str:
        return self.mcp(token, "tools/call", {"name": name, "arguments": arguments})


class Program:
    """One generated program over a hub, and who may see what of it."""

    def __init__(self, hub: KnowHub, seed: int, wire: Wire | None = None) -> None:
        self.hub = hub
        self.wire = wire
        self.random = random.Random(seed)
        self.seed = seed
        self.teams = [f"team{seed}:{name}" for name in "abc"]
        teams = [self.random.sample(self.teams, number % 3) for number in range(5)]
        # One names the scope that means "the owner alone": it must see no more by that.
        self.tokens = [
            Token(f"p{seed}-{number}", self.rights(number), frozenset([*mine, *["user:owner"] * (number == 3)]))
            for number, mine in enumerate(teams)
        ]
        self.sights = {token.principal: set(mine) for token, mine in zip(self.tokens, teams, strict=True)}
        self.allowed: dict[str, list[tuple[frozenset[str], str]]] = {}  # mark → whose versions it stood in
        self.written_by: dict[str, str] = {}
        self.entries: list[str] = []
        self.resources: list[str] = []
        self.operations: list[str] = []
        self.proposals: list[str] = []

    def rights(self, number: int) -> frozenset[str]:
        return frozenset({"read", "write", "secrets"} | ({"curate"} if number in (2, 4) else set()))

    def mark(self, writer: Token) -> str:
        mark = f"mk{self.seed * 1000 + len(self.allowed)}x"
        self.allowed[mark] = []
        self.written_by[mark] = writer.principal
        return mark

    def allow(self, text: str, scopes: Any, principal: str) -> None:
        for mark in _MARK.findall(text):
            self.allowed.setdefault(mark, []).append((frozenset(scopes), principal))

    def scopes_for(self, token: Token) -> list[str]:
        mine = [*token.scopes, "user:owner"]
        return self.random.sample(mine, self.random.randint(1, len(mine)))

    def may_see(self, token: Token, scopes: Iterable[str], principal: str) -> bool:
        """The contract's rule in words of its own, lest a fault in `tokens` is measured by itself."""
        return any(
            scope in self.sights[token.principal] or (scope == "user:owner" and principal == token.principal)
            for scope in scopes
        )

    def attempt(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return call(*args, **kwargs)
        except KnowHubError as error:
            self.check(args[0], json.dumps(error.to_json()), "an error")
            return None

    def note(self, token: Token, answer: Mapping[str, Any] | None) -> None:
        """Note who may see the version of an entry that an answer reports."""
        if answer is None:
            return
        entry = answer.get("entry")
        if entry is not None:
            current = self.hub.ledger.read(entry["id"])
            if current is not None:
                text = f"{current.id} {current.fields['task']} {current.content}"
                self.allow(text, current.fields["scopes"], current.created_by)
        if answer.get("operation_id"):
            self.operations.append(answer["operation_id"])
        self.check(token, json.dumps(answer), "an answer")

    # -- steps --

    def save(self, token: Token) -> None:
        scopes = self.scopes_for(token)
        text = self.random.choice([self.mark(token), "the same words"])
        body = {"task": f"find tea {self.mark(token)}", "content": f"{text} said", "types": ["tool"], "scopes": scopes}
        answer = self.hub.save(token, body)
        self.entries.append(answer["entry"]["id"])
        self.note(token, answer)

    def patch(self, token: Token) -> None:
        patch: Json = {"content": f"now {self.mark(token)} said"}
        if self.random.random() < 0.6:
            patch["scopes"] = self.scopes_for(token)
        self.note(token, self.attempt(self.hub.patch, token, self.entry(), patch))

    def known_ids(self) -> set[str]:
        kinds = ("knowledge", "feedback", "proposal", "resource", "trace")
        return {known.id for kind in kinds for known in self.hub.catalog.all(kind)}

    def judge(self, token: Token) -> None:
        id, mark = self.entry(), self.mark(token)
        body: Json = {"add_helpful_case": {"task": mark}}
        if self.random.random() < 0.4:
            body = {"evolve_feedback": f"say {mark}"}
        known = self.hub.catalog.lead(id)
        if known is not None:  # who sees the entry as it is now
            self.allow(mark, frozenset(known.fields["scopes"]), known.created_by)
        before = self.known_ids()
        answer = self.attempt(self.hub.update, token, id, body)
        if known is not None:
            for new in self.known_ids() - before:
                self.allow(new, frozenset(known.fields["scopes"]), known.created_by)
        if answer is not None and "evolution" in answer:
            self.proposals.append(answer["evolution"]["proposal_id"])
        self.note(token, answer)

    def delete(self, token: Token) -> None:
        self.note(token, self.attempt(self.hub.delete, token, self.entry()))

    def undo(self, token: Token) -> None:
        if self.operations:
            self.note(token, self.attempt(self.hub.undo, token, self.random.choice(self.operations)))

    def slim(self, token: Token) -> None:
        answer = self.attempt(self.hub.slim, token)
        for id in self.entries:
            record = self.hub.ledger.read(id)
            if record is not None:
                text = f"{id} {record.fields['task']} {record.content}"
                if answer is not None and answer["merged"]:
                    self.check_merge(record.fields["scopes"], record.created_by, text)
        if answer is not None:
            self.note(token, answer)

    def check_merge(self, scopes: list[str], principal: str, text: str) -> None:
        """What was merged had equal scopes and principal, so a token that sees the whole could see the parts."""
        for mark in _MARK.findall(text):
            assert (frozenset(scopes), principal) in self.allowed[mark], (self.seed, mark)

    def put(self, token: Token) -> None:
        id = self.random.choice([*self.resources, f"r{self.seed}/{len(self.resources)}"])
        mark, hidden, scopes = self.mark(token), self.mark(token), self.scopes_for(token)
        body = {"title": f"t {mark}", "body": mark, "secure_body": hidden, "scopes": scopes}
        old = self.hub.ledger.read(f"resource/{id}")
        version = old.version if old is not None and self.random.random() < 0.7 else None
        answer = self.attempt(self.hub.put_resource, token, id, body, version)
        if answer is not None:
            self.resources.append(id)
            self.allow(f"{mark} {hidden}", scopes, answer["resource"]["created_by"])
        self.note(token, answer)

    def decide(self, token: Token) -> None:
        if self.proposals:
            call: Any = self.random.choice([self.hub.accept, self.hub.reject])
            self.note(token, self.attempt(call, token, self.random.choice(self.proposals)))

    def entry(self) -> str:
        return self.random.choice(self.entries or ["knowledge-1"])

    def run(self) -> None:
        steps = [self.save] * 5 + [self.patch] * 4 + [self.judge] * 4 + [self.undo] * 3 + [self.put] * 3
        steps += [self.delete, self.slim, self.decide]
        for token in self.tokens[:3]:
            self.save(token)
        for _ in range(STEPS):
            self.random.choice(steps)(self.random.choice(self.tokens))
        for token in self.tokens:
            self.knock(token)
        if self.wire is not None:
            for token in self.random.sample(self.tokens, ASKERS):
                self.knock_over_the_wire(token, self.wire)

    # -- the doors --

    def knock(self, token: Token) -> None:
        hub, most = self.hub, {"limit": 200}
        doors: list[tuple[str, Any, tuple[Any, ...]]] = [
            ("search", hub.search, ({"q": "find tea said", "top_k": 50, "min_score": 1, "route": "recall"},)),
            ("routed", hub.search, ({"q": "find tea", "top_k": 50, "min_score": 1},)),
            ("list", hub.list_knowledge, (most,)),
            ("resources", hub.list_resources, (most,)),
            ("operations", hub.operations, (most,)),
            ("export", lambda token: list(hub.export(token)), ()),
            ("dry slim", hub.slim, ({"dry_run": True},)),
        ]
        doors += [
            ("proposals", hub.proposals, ({"state": state, **most},)) for state in ("open", "accepted", "rejected")
        ]
        for id in self.entries:
            doors += [("get", hub.get, (id,)), ("history", hub.history, (id,)), ("feedback", hub.feedback, (id, most))]
        for id in set(self.resources):
            doors += [("resource", hub.get_resource, (id,)), ("secret", hub.reveal, (id,))]
            doors += [("versions", hub.history, (f"resource/{id}",))]
        for name, door, arguments in doors:
            try:
                said = json.dumps(door(token, *arguments))
            except KnowHubError as error:
                said = json.dumps(error.to_json())
            self.check(token, said, name)

    def knock_over_the_wire(self, token: Token, wire: Wire) -> None:
        ids = self.random.sample(self.entries, min(ASKED_FOR, len(self.entries)))
        paths = self.random.sample(self.resources, min(ASKED_FOR, len(self.resources)))
        search = "/api/knowledge/search?q=find+tea+said&top_k=50&min_score=1"
        lists = ("/api/knowledge", "/api/resource", "/api/proposal", "/api/operation", "/api/export", "/metrics")
        pages = ["/", "/?q=find+tea", "/?q=find+tea&route=model", "/tree", "/tree?types=tool", "/resources"]
        pages += ["/proposals", "/operations", "/goals", *(["/slim"] if token.may("curate") else [])]
        said = {path: wire.api(token, path) for path in (search, *lists)}
        said |= {f"page {path}": wire.page(token, path) for path in pages}
        for id in ids:
            said |= {f"{id}{part}": wire.api(token, f"/api/knowledge/{id}{part}") for part in _PARTS}
            said |= {f"page {id}{part}": wire.page(token, f"/knowledge/{id}{part}") for part in ("", *_PAGES)}
            said[f"tool {id}"] = wire.call(token, "knowledge_get", knowledge_id=id)
            address = {"uri": f"knowhub://knowledge/{id}"}
            said[f"uri {id}"] = wire.mcp(token, "resources/read", address)
        for path in paths:
            said |= {f"{kind} {path}": wire.api(token, f"/api/{kind}/{path}") for kind in ("resource", "secret")}
            said[f"page {path}"] = wire.page(token, f"/resources/{path}")
            said[f"reveal {path}"] = wire.page(token, f"/reveal/{path}", "POST")
            said[f"tool {path}"] = wire.call(token, "resource_get", resource_id=path)
            said[f"uri {path}"] = wire.mcp(token, "resources/read", {"uri": f"knowhub://resource/{path}"})
        said["tool search"] = wire.call(token, "knowledge_search", query="find tea said", top_k=50, min_score=1)
        said["tool list"] = wire.call(token, "knowledge_list", limit=200)
        for door, text in said.items():
            asked = set(_MARK.findall(door))  # an id that was asked for may be named
            self.check(token, "\n".join(mark for mark in _MARK.findall(text) if mark not in asked), door)

    def check(self, token: Token, said: str, door: str) -> None:
        for mark in set(_MARK.findall(said)):
            versions = self.allowed.get(mark)
            if door == "an answer" and self.written_by.get(mark) == token.principal:
                continue  # who narrows an entry to others is still shown what they wrote themselves
            if versions is None:
                if mark.startswith("mk"):
                    raise AssertionError(f"program {self.seed}: {door} showed {token.principal} a foreign {mark}")
                continue  # an id that was just made, and is noted with its first answer
            if versions and not any(self.may_see(token, scopes, principal) for scopes, principal in versions):
                raise AssertionError(f"program {self.seed}: {door} showed {token.principal} {mark}, for {versions}")
            if not versions and mark.startswith("mk") and door not in ("an answer", "an error"):
                raise AssertionError(f"program {self.seed}: {door} showed {token.principal} {mark}, which was refused")


_PARTS = ("", "/history", "/feedback")
_PAGES = ("/history", "/edit")


@pytest.mark.parametrize("first", range(0, 2000 if STORM else PIECE, PIECE))
def test_generated_programs_leak_nothing(monkeypatch: pytest.MonkeyPatch, first: int) -> None:
    monkeypatch.setattr("Agent.knowhub.routing.CALLS_PER_MINUTE", 10**9)
    place = "/dev/shm" if Path("/dev/shm").is_dir() else None  # what is durable is others' test
    with tempfile.TemporaryDirectory(dir=place) as folder, KnowHub(folder, Echo()) as hub:
        app = create_app(hub, Settings(requests_per_second=1e9))
        add_pages(app)
        add_mcp(app)
        with TestClient(app, "http://localhost", follow_redirects=False) as client:
            wire = Wire(client, hub)
            for seed in range(first, first + PIECE):
                Program(hub, seed, wire if not STORM or seed % WIRED == 0 else None).run()


def test_the_search_for_leaks_finds_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("Agent.knowhub.tokens.is_visible", lambda *_: True)
    with KnowHub(tmp_path / "hub", Echo()) as hub:
        programs = [Program(hub, seed) for seed in range(20)]
        with pytest.raises(AssertionError, match="showed"):
            any(program.run() for program in programs)  # type: ignore[func-returns-value]
