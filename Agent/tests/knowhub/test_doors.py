"""Tests of what must stay shut, and of what must not stop the service: asked over HTTP, as a hostile user would."""

import contextlib
import errno
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import httpx
import pytest

from Agent.cli.command_line import hub as hub_command
from Agent.knowhub import gate, serving
from Agent.knowhub.files import hub_place
from Agent.knowhub.hub import LOCAL, KnowHub
from Agent.knowhub.pages import add_pages
from Agent.knowhub.services.store import Quota
from Agent.knowhub.tokens import Tokens, agents_token, own_token
from Agent.tests.knowhub.support import Served, done, serve

ENTRY = {"task": "boil an egg", "content": "Seven minutes.", "types": ["tool"], "scopes": ["org:x"]}
WRITER = ("read", "write", "secrets")


@pytest.fixture
def alice(served: Served) -> httpx.Client:
    return served.client("alice", WRITER, ["org:x"])


def save(client: httpx.Client, **fields: Any) -> str:
    return str(done(client.post("/api/knowledge", json={**ENTRY, **fields}))["entry"]["id"])


def put(client: httpx.Client, path: str, key: str = "", **body: Any) -> httpx.Response:
    headers = {"If-Match": "*"} if path.startswith("/api/resource") else {}
    return client.put(path, json=body, headers={**headers, **({"Idempotency-Key": key} if key else {})})


class TestTokens:
    @pytest.mark.parametrize("way", ["revoked", "expired", "another address"])
    def test_the_last_token_stays_revoked_after_a_restart(self, tmp_path: Path, way: str, monkeypatch: Any) -> None:
        now = [time.time()]
        tokens = Tokens(tmp_path / "tokens", lambda: now[0])
        text, made = own_token(tokens)
        if way == "expired":
            tokens.revoke(made.digest)
            tokens.make(made.principal, made.rights, ["*"], now[0] + 1, text=text)
            now[0] += 2
        else:
            assert tokens.revoke(made.digest)
        if way == "another address":
            monkeypatch.setattr("Agent.knowhub.tokens.own_principal", lambda: "ada@elsewhere.example")

        again = Tokens(tmp_path / "tokens", lambda: now[0])
        assert own_token(again)[0] != text
        assert again.find(text) is None

    def test_one_that_could_not_be_read_for_once_holds_later(self, tmp_path: Path, monkeypatch: Any) -> None:
        text, _ = own_token(Tokens(tmp_path / "tokens"))
        tokens = Tokens(tmp_path / "tokens")
        with monkeypatch.context() as patch:
            patch.setattr(tokens.files, "read", Mock(side_effect=OSError("too many open files")))
            assert tokens.find(text) is None
        assert tokens.find(text) is not None

    def test_agents_have_a_token_of_their_own_whose_votes_count(self, hub: KnowHub, served: Served) -> None:
        mine, agents = (make(hub.tokens)[0] for make in (own_token, agents_token))
        person, agent = (served.anonymous({"Authorization": f"Bearer {text}"}) for text in (mine, agents))
        id = save(person)
        case = {"add_helpful_case": {"task": "breakfast"}}

        own = done(person.put(f"/api/knowledge/{id}", json=case))
        counted = done(agent.put(f"/api/knowledge/{id}", json=case))
        again = done(agent.put(f"/api/knowledge/{id}", json=case))
        batch = {"feedback_list": [{"knowledge_id": id, "is_helpful": True}]}
        many = done(person.post("/api/knowledge/batch_update", json=batch))

        assert len(done(person.get(f"/api/knowledge/{id}/feedback"))["results"]) == 4  # kept, if not counted
        assert (own["entry"]["eval"]["helpful"], "own entry" in own["note"]) == (0, True)
        assert (counted["entry"]["eval"]["helpful"], counted["note"]) == (1, "")
        assert (again["entry"]["eval"]["helpful"], "earlier vote" in again["note"]) == (1, True)
        assert "own entry" in many["results"][0]["detail"]
        assert agent.get("/api/token").status_code == 403

    @pytest.mark.parametrize("name", ["ada\u200b", "a\u00adda", "ａda", "a\u3164", "", "a b", "x" * 101, "ada\ufe0f"])
    def test_a_name_hides_nothing(self, served: Served, name: str) -> None:
        client = served.client("root")
        refused = 422 if name in ("", "a b", "x" * 101) else 403  # 422 is for what the document's schema refuses
        assert client.post("/api/token", json={"principal": name}).status_code == refused
        with pytest.raises(Exception, match="principal"):
            served.hub.tokens.make(name)
        if " " not in name and name:
            scopes = {"scopes": [name + "\u200b"]}
            assert client.post("/api/token", json={"principal": "b", **scopes}).status_code == 403
            assert client.put("/api/group/a", json={"members": ["b"], **scopes}).status_code == 403
            assert client.post("/api/knowledge", json={**ENTRY, **scopes}).status_code == 403
            assert client.put("/api/resource/a", json={"title": "t", **scopes}).status_code == 403

    def test_a_full_disk_is_said(self, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
        client = served.client("root")

        def full(*_: object, **__: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr("Agent.knowhub.files.write_new", full)
        assert client.post("/api/token", json={"principal": "bob"}).status_code == 507

    @pytest.mark.parametrize("name", ["Authorization", "Idempotency-Key", "If-Match"])
    def test_two_headers_are_refused(self, served: Served, name: str) -> None:
        one, other = (f"Bearer {served.token(who)}" for who in ("ada", "bob"))
        headers = [("Authorization", one), (name, one), (name, other)]
        assert httpx.get(f"{served.url}/api/knowledge", headers=headers, trust_env=False).status_code == 400


class TestSecrets:
    @pytest.mark.parametrize("name", ["allowed_hosts", "allowed_programs"])
    def test_where_one_goes_is_said_by_who_may_read_it(self, served: Served, alice: httpx.Client, name: str) -> None:
        path, listed = "/api/resource/cred/a", dict[str, Any](allowed_hosts=["api.good.example"], allowed_programs={})
        secret = {"title": "t", "secure_body": "S3CR3T", "scopes": ["org:x"], "metadata": listed}
        assert alice.put(path, json=secret).status_code == 201
        changed: dict[str, Any] = {"title": "t", "metadata": {**listed, name: ["evil.example"]}}
        curator = served.client("cura", ("read", "write", "curate"), ["org:x"])
        trusted = served.client("tru", ("read", "write", "curate", "secrets"), ["org:x"])

        assert put(curator, path, **changed).status_code == 403
        assert put(curator, path, title="u").status_code == 200  # what does not touch the list
        operation = done(put(trusted, path, **changed))["operation_id"]
        seen = done(alice.get("/api/operation"))["results"][0]
        assert (seen["operation_id"], seen["verb"], seen["principal"]) == (operation, "allow", "tru")
        back = done(put(trusted, path, title="u", metadata=listed))["operation_id"]
        assert curator.post(f"/api/operation/{back}/undo").status_code == 403
        assert done(alice.get(path))["metadata"] == listed


class TestRetries:
    def test_a_key_holds_for_a_call_that_changed_nothing(self, alice: httpx.Client) -> None:
        id = save(alice, score=5)
        path = f"/api/knowledge/{id}"
        first = put(alice, path, "k", update_score=5)
        assert (done(first)["operation_id"], put(alice, path, "k", update_score=2).status_code) == ("", 409)
        done(put(alice, path, update_score=1))
        assert done(put(alice, path, "k", update_score=5))["entry"]["eval"]["score"] == 1

    @pytest.mark.parametrize(
        ("method", "path", "body", "other"),
        [
            ("PATCH", "/api/knowledge/{}", {"task": "boil an egg"}, {"task": "other"}),
            ("PUT", "/api/trace/t/goals", {"goals": []}, {"goals": [{"id": "g"}]}),
            ("PUT", "/api/resource/r", {"title": "t"}, {"title": "u"}),
            ("POST", "/api/import", {"lines": [{"kind": "nonsense"}]}, {"lines": [{**ENTRY, "kind": "knowledge"}]}),
            (
                "POST", "/api/knowledge/batch_update",
                {"atomic": False, "feedback_list": [{"knowledge_id": "knowledge-nope", "is_helpful": True}]},
                {"atomic": False, "feedback_list": [{"knowledge_id": "knowledge-nope", "is_helpful": False}]},
            ),
            ("PUT", "/api/knowledge/{}", {}, {"update_score": 1}),
        ],
    )  # fmt: skip
    def test_another_body_under_such_a_key_is_refused(
        self, alice: httpx.Client, method: str, path: str, body: Any, other: Any
    ) -> None:
        path = path.format(save(alice))
        alice.put("/api/resource/r", json={"title": "t"})
        alice.put("/api/trace/t/goals", json={"goals": []})
        headers = {"Idempotency-Key": "k", **({"If-Match": "*"} if method == "PATCH" or "resource" in path else {})}

        first = done(alice.request(method, path, json=body, headers=headers))
        assert done(alice.request(method, path, json=body, headers=headers)) == first
        assert alice.request(method, path, json=other, headers=headers).status_code == 409

    def test_what_keeps_a_key_is_shown_to_nobody(self, alice: httpx.Client, hub: KnowHub) -> None:
        put(alice, f"/api/knowledge/{save(alice, score=5)}", "k", update_score=5)
        shown = done(alice.get("/api/operation"))["results"]
        assert [each["verb"] for each in shown] == ["save"]
        assert all(line["kind"] == "knowledge" for line in hub.export(LOCAL))

    def test_who_may_curate_no_more_undoes_nothing_of_others(self, served: Served, alice: httpx.Client) -> None:
        id = save(alice)
        curator = served.client("carl", ("read", "write", "curate"), ["org:x"])
        headers = {"If-Match": "*"}
        changed = done(curator.patch(f"/api/knowledge/{id}", json={"content": "Eight."}, headers=headers))
        former = served.client("carl", ("read", "write"), ["org:x"])

        assert former.post(f"/api/operation/{changed['operation_id']}/undo").status_code == 403
        assert done(alice.get(f"/api/knowledge/{id}"))["content"] == "Eight."
        assert curator.post(f"/api/operation/{changed['operation_id']}/undo").status_code == 200

    @pytest.mark.parametrize("tag", ['W/"1"', '"1"', "1"])
    def test_a_weak_tag_names_a_version_too(self, alice: httpx.Client, tag: str) -> None:
        path = f"/api/knowledge/{save(alice)}"
        assert alice.patch(path, json={"content": "Eight."}, headers={"If-Match": tag}).status_code == 200
        assert alice.patch(path, json={"content": "Nine."}, headers={"If-Match": tag}).status_code == 412

    @pytest.mark.parametrize("cursor", ["0", "1e308_x", "-1.5_", "nan_x", "1.5_é", "_", "1.5_a b", "9" * 16 + ".0_a"])
    def test_a_forged_cursor_is_refused_or_a_place(self, alice: httpx.Client, cursor: str) -> None:
        id = save(alice)
        for path in ("knowledge", "resource", "operation", "proposal", f"knowledge/{id}/feedback"):
            answer = alice.get(f"/api/{path}", params={"cursor": cursor})
            assert (answer.status_code, answer.json().get("results")) in ((422, None), (200, [])), path


class TestSharing:
    def test_what_one_saves_in_an_organisation_others_find(self, hub: KnowHub, served: Served) -> None:
        hub.tokens.org = "org:acme"
        admin = served.client("root")
        made = [done(admin.post("/api/token", json={"principal": name}))["token"] for name in ("ann", "ben")]
        ann, ben = (served.anonymous({"Authorization": f"Bearer {text}"}) for text in made)
        unsaid = {name: value for name, value in ENTRY.items() if name != "scopes"}

        shared = done(ann.post("/api/knowledge", json=unsaid))
        private = done(ann.post("/api/knowledge", json={**unsaid, "task": "fry fish", "scopes": ["user:owner"]}))

        assert (shared["entry"]["scopes"], shared["note"]) == (["org:acme"], "")
        assert "nobody else" in private["note"]
        found = done(ben.get("/api/knowledge/search", params={"q": "egg"}))
        assert ([each["task"] for each in found["results"]], found["hidden"]) == (["boil an egg"], 0)
        empty = [done(ben.get("/api/knowledge/search", params={"q": q})) for q in ("fry fish", "zzzz")]
        assert [(each["count"], each["hidden"]) for each in empty] == [(0, 1), (0, 1)]  # no question changes the number
        stranger = served.client("eve", WRITER, ["org:other"])
        assert done(stranger.get("/api/knowledge/search", params={"q": "egg"}))["hidden"] == 0
        assert done(stranger.post("/api/knowledge", json=unsaid))["entry"]["scopes"] == ["user:owner"]
        assert done(ann.get("/api/me"))["default_scopes"] == ["org:acme"]
        secret = done(ann.put("/api/resource/a", json={"title": "t", "secure_body": "s"}))
        assert secret["resource"]["scopes"] == ["user:owner"]  # nothing secret is shared unsaid

    def test_without_one_all_is_as_the_document_says(self, served: Served) -> None:
        client = served.client("ann", WRITER, [])
        made = done(client.post("/api/knowledge", json={**ENTRY, "scopes": ["user:owner"]}))
        assert done(client.get("/api/me"))["organisation"] == ""
        assert "nobody else" in made["note"]


class TestNobodyStopsIt:
    def test_unfinished_bodies_hold_no_memory(self, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
        head = f"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {1024 * 1024}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", served.port), 10) as stranger:
            stranger.sendall(head.encode() + b"a" * 1000)
            assert b" 413 " in stranger.recv(1000)
        monkeypatch.setattr(gate, "ARRIVING_LIMIT", 300_000)
        text = served.token("ada")
        head = f"POST /api/import HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {text}\r\n"
        with contextlib.ExitStack() as stack:
            answers = []
            for _ in range(4):
                caller = stack.enter_context(socket.create_connection(("127.0.0.1", served.port), 10))
                caller.sendall(head.encode() + b"Content-Length: 900000\r\n\r\n" + b"a" * 100_000)
                caller.settimeout(0.5)
                with contextlib.suppress(TimeoutError):
                    answers.append(caller.recv(1000))
            assert any(b" 503 " in each for each in answers)
        assert done(served.client("ada").get("/api/me"))["principal"] == "ada"

    def test_who_reads_no_answer_is_let_go(self, served: Served, hub: KnowHub, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(serving, "WRITE_S", 0.3)
        for number in range(40):
            hub.save(LOCAL, {"task": f"t{number}", "content": "x" * 60_000, "types": ["tool"], "scopes": ["org:x"]})
        text = served.token("rita", ["read"], ["org:x"])
        with contextlib.ExitStack() as stack:
            for _ in range(2):
                reader = stack.enter_context(socket.socket())
                reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
                reader.connect(("127.0.0.1", served.port))
                reader.sendall(
                    f"GET /api/export HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {text}\r\n\r\n".encode()
                )
            client = served.anonymous({"Authorization": f"Bearer {text}"})
            statuses, end = [], time.monotonic() + 20
            while 200 not in statuses and time.monotonic() < end:
                with client.stream("GET", "/api/export") as answer:
                    statuses.append(answer.status_code)
                time.sleep(0.05)
        assert statuses[0] == 429  # two are under way
        assert statuses[-1] == 200  # and no more

    def test_an_export_ends_with_its_token(self, served: Served, hub: KnowHub) -> None:
        for number in range(100):
            hub.save(LOCAL, {"task": f"t{number}", "content": "x" * 60_000, "types": ["tool"], "scopes": ["org:x"]})
        text, made = hub.tokens.make("eve", ["read"], ["org:x"])
        size = 0
        with served.anonymous({"Authorization": f"Bearer {text}"}).stream("GET", "/api/export") as answer:
            for block in answer.iter_raw():
                if not size:
                    hub.tokens.revoke(made.digest)
                size += len(block)
        assert 0 < size < 100 * 60_000

    def test_attempts_without_a_token_are_limited_by_address(self, hub: KnowHub) -> None:
        with serve(hub, attempts_per_second=2.0) as served:
            wrong = served.anonymous({"Authorization": "Bearer kh_" + "a" * 43})
            statuses = [wrong.get("/api/knowledge").status_code for _ in range(12)]
            logins = [served.anonymous().post("/login", data={"token": "kh_x"}).status_code for _ in range(3)]
            good = served.client("ada").get("/api/me").status_code
        assert (statuses[0], statuses[-1], logins[-1], good) == (401, 429, 429, 200)


class TestWithoutAHome:
    def test_nothing_is_written_beside_the_program(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "KNOWHUB_DATA"):
            monkeypatch.delenv(name, raising=False)

        def nobody(*_: object) -> None:
            raise KeyError("uid not found")

        monkeypatch.setattr("pwd.getpwuid", nobody)
        with pytest.raises(Exception, match="no home directory"):
            hub_place()
        with KnowHub(tmp_path / "hub") as hub, pytest.raises(Exception, match="no home directory"):
            hub.put_resource(LOCAL, "a", {"title": "A", "secure_body": "s"})
        assert sorted(os.listdir(tmp_path)) == ["hub"]

    def test_tools_keep_what_they_say_without_docstrings(self) -> None:
        code = (
            "from Agent.knowhub.tools import TOOLS; from Agent.knowhub.goal_tool import goal;"
            "print([len(t.schema['description']) > 20 for t in (*TOOLS, goal)])"
        )
        done = subprocess.run([sys.executable, "-OO", "-c", code], capture_output=True, text=True, check=True)
        assert re.findall("True|False", done.stdout) == ["True"] * 9


RECORD = {
    "id": "knowledge-20260305-a1b2", "message_id": "msg-1", "types": ["strategy", "tool"], "task": "boil an egg",
    "tags": {"category": "preference"}, "scopes": ["org:x"], "owner": "agent:research_agent",
    "content": "Seven minutes.",
    "resource_ids": ["code/selenium/login"], "source": {"name": "n", "category": "exp", "message_id": "msg-1"},
    "eval": {
        "score": 4, "helpful": 5, "harmful": 1, "confidence": 0.9, "helpful_history": [{"task": "t"}],
        "harmful_history": [],
    },
    "created_at": "2026-03-05T12:00:00Z", "updated_at": "2026-03-05T12:00:00Z",
}  # fmt: skip
"""As the document has it, whole."""


class TestWholeRecords:
    def test_are_imported_with_their_votes_by_who_may_admin(self, served: Served, hub: KnowHub, tmp_path: Path) -> None:
        admin, voter = served.client("root"), served.client("vera", WRITER, ["org:x"])
        report = done(admin.post("/api/import", json={"lines": [RECORD]}))
        assert (report["written"], report["errors"], report["notes"]) == (1, [], [])
        path = f"/api/knowledge/{RECORD['id']}"
        judged = done(voter.put(path, json={"add_harmful_case": {"task": "u"}}))["entry"]["eval"]

        assert (judged["score"], judged["helpful"], judged["harmful"], judged["confidence"]) == (4, 5, 2, 0.9)
        assert [case["task"] for case in judged["helpful_history"]] == ["t"]
        lines = [json.loads(line) for line in admin.get("/api/export").text.splitlines()]
        with KnowHub(tmp_path / "other") as other:
            assert other.take_in(LOCAL, lines)["errors"] == []
            assert other.get(LOCAL, str(RECORD["id"]))["eval"] == done(admin.get(path))["eval"]

    def test_votes_that_others_bring_are_left_out_and_said(self, alice: httpx.Client) -> None:
        report = done(alice.post("/api/import", json={"lines": [RECORD]}))
        assert report["written"] == 1
        assert "admin" in report["notes"][0]["detail"]
        judged = done(alice.get("/api/knowledge"))["results"][0]["eval"]
        assert (judged["score"], judged["helpful"], judged["harmful"]) == (4, 0, 0)


class TestGroups:
    def test_a_member_sees_what_the_group_may(self, served: Served, alice: httpx.Client) -> None:
        root, ben = served.client("root"), served.client("ben", WRITER, [])
        id = save(alice)
        assert ben.get(f"/api/knowledge/{id}").status_code == 404
        done(root.put("/api/group/cooks", json={"members": ["ben", "zoe"], "scopes": ["org:x"]}))
        assert ben.get(f"/api/knowledge/{id}").status_code == 200
        assert done(ben.get("/api/me"))["scopes"] == ["org:x"]
        done(root.put("/api/group/cooks", json={"members": ["zoe"], "scopes": ["org:x"]}))
        assert ben.get(f"/api/knowledge/{id}").status_code == 404

    def test_are_kept_by_page_and_command_too(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        with KnowHub(tmp_path) as hub, serve(hub, add_pages) as served:
            page = served.anonymous()
            page.post("/login", data={"token": served.token("root")})
            assert page.post("/groups", data={"group": "cooks", "members": "ben", "scopes": "org:x"}).status_code == 303
            assert "cooks" in page.get("/tokens").text
            for name in ("../x", "厨 师", "x" * 101):
                assert page.post("/groups", data={"group": name, "members": "ben"}).status_code == 422
            ben = served.client("ben", WRITER, [])
            assert done(ben.get("/api/me"))["scopes"] == ["org:x"]
            asked = ["--data", str(tmp_path)]
            assert hub_command(["group", "cooks", "--members", "zoe", "--scopes", "org:x,org:y", *asked]) == 0
            assert capsys.readouterr().out == "cooks: zoe  org:x,org:y\n"
            assert done(ben.get("/api/me"))["scopes"] == []
            assert hub_command(["group", "cooks", "--scopes", "org:y", *asked]) == hub_command(["group", *asked]) == 0
            assert capsys.readouterr().out == "cooks: zoe  org:y\n" * 2
            assert hub_command(["group", "cooks", "--members", "", *asked]) == 0
            assert (capsys.readouterr().out, hub.tokens.groups()) == ("", {})
            for name in ("cooks", "厨师"):
                assert hub_command(["group", name, *asked]) == 2
                assert name in capsys.readouterr().err
            assert hub_command(["group", "厨师", "--members", "zoe", *asked]) == 0
            done(served.client("root").put("/api/group/厨师", json={"members": ["ben"], "scopes": ["org:x"]}))
            capsys.readouterr()
            assert hub_command(["group", "--json", *asked]) == hub_command(["token", "--json", *asked]) == 0
            groups, made = map(json.loads, capsys.readouterr().out.splitlines())
            assert groups == [{"id": "厨师", "members": ["ben"], "scopes": ["org:x"]}]
            assert made["token"].startswith("kh_")

    def test_admin_of_one_scope_gives_nothing_of_another(self, served: Served, alice: httpx.Client) -> None:
        done(alice.post("/api/knowledge", json={**ENTRY, "scopes": ["user:owner"]}))
        lead = served.client("lead", ("read", "write", "admin"), ["org:y"])
        wrong: list[Any] = [
            {"principal": "new", "scopes": ["org:x"]}, {"principal": "new", "scopes": ["*"]},
            {"principal": "new", "rights": ["secrets"], "scopes": ["org:y"]},
            {"principal": "alice", "scopes": ["org:y"]}, {"principal": "alice", "scopes": []},
        ]  # fmt: skip
        for body in wrong:
            assert lead.post("/api/token", json=body).status_code == 403, body
        made = done(lead.post("/api/token", json={"principal": "new", "scopes": ["org:y"]}))
        assert [each["id"] for each in done(lead.get("/api/token"))["results"]].count(made["id"]) == 1
        other = served.hub.tokens.make("alice", WRITER, ["org:x"])[1]
        assert other.digest not in lead.get("/api/token").text
        assert lead.delete(f"/api/token/{other.digest}").status_code == 404
        assert lead.put("/api/group/g", json={"members": ["lead"], "scopes": ["org:x"]}).status_code == 403
        done(served.client("root").put("/api/group/g", json={"members": ["a"], "scopes": ["org:x"]}))
        assert lead.put("/api/group/g", json={"members": [], "scopes": []}).status_code == 403
        assert lead.delete(f"/api/token/{made['id']}").status_code == 200


class TestQuotas:
    def test_say_what_is_used_up(self, tmp_path: Path) -> None:
        with KnowHub(tmp_path / "hub", quota=Quota(3, 1000)) as hub, serve(hub, calls_per_minute=30) as served:
            ann, ben, root = (served.client(name, WRITER, ["org:x"]) for name in ("ann", "ben", "cem"))
            for _ in range(2):
                save(ann)
            assert ann.put("/api/resource/a", json={"title": "t", "body": "x" * 990}).status_code == 507
            done(ann.put("/api/resource/a", json={"title": "t", "body": "x"}))
            mine = done(ann.get("/api/knowledge"))["results"][0]["id"]
            grown, case = {"content": "x" * 990}, {"add_helpful_case": {"outcome": "x" * 1990}}
            assert ann.patch(f"/api/knowledge/{mine}", json=grown, headers={"If-Match": "*"}).status_code == 507
            done(ann.patch(f"/api/knowledge/{mine}", json={"content": "x"}, headers={"If-Match": "*"}))
            for body in (case, {"evolve_feedback": "x" * 1990}):
                assert ben.put(f"/api/knowledge/{mine}", json=body).status_code == 507
            assert done(ben.get(f"/api/knowledge/{mine}/feedback"))["results"] == []
            assert ann.post("/api/knowledge", json=ENTRY).status_code == 507
            many = {"lines": [{**ENTRY, "task": f"t{number}"} for number in range(4)]}
            assert ben.post("/api/import", json=many).status_code == 507
            assert done(ben.get("/api/knowledge"))["count"] == 2  # those of ann
            save(ben)
            statuses = [root.get("/api/me").status_code for _ in range(40)]
            assert statuses == sorted(statuses)
            assert {statuses[0], statuses[-1]} == {200, 429}
            figures = served.client("boss").get("/metrics").text
            assert ("knowhub_quota_entries 3.0" in figures, "knowhub_largest_share 3.0" in figures) == (True, True)


class TestMeaning:
    @pytest.mark.parametrize("is_meant", [True, False])
    def test_a_search_finds_what_is_said_in_other_words(self, tmp_path: Path, is_meant: bool) -> None:
        pytest.importorskip("numpy", reason="the extra [embeddings] is not installed")
        from Agent.finding import embedder

        meaning = embedder.Meaning(embedder.HashingEmbedder([("egg", "qwibble")]), 240.0) if is_meant else False
        with KnowHub(tmp_path, meaning=meaning) as hub, serve(hub) as served:
            ada = served.client("ada", WRITER, ["org:x"])
            for number in range(12):
                save(ada, task=f"Sweep hall {number} with a broom", content="Slowly.")
            id = save(ada, task="egg", content="Seven minutes.")
            found = done(ada.get("/api/knowledge/search", params={"q": "qwibble"}))["results"]
        assert [each["id"] for each in found] == [id] * is_meant

    def test_a_server_loads_the_model_before_anybody_asks(self, tmp_path: Path) -> None:
        pytest.importorskip("numpy", reason="the extra [embeddings] is not installed")
        from Agent.finding import embedder

        loaded = threading.Event()

        class Loaded(embedder.HashingEmbedder):
            def load(self) -> None:
                loaded.set()

        with KnowHub(tmp_path, meaning=embedder.Meaning(Loaded(), 240.0)) as hub, serve(hub):
            assert loaded.wait(10)


class TestAudit:
    def test_says_who_read_which_secret_and_who_was_refused(self, served: Served, alice: httpx.Client) -> None:
        for id in ("cred/a", "cred/b"):
            done(alice.put(f"/api/resource/{id}", json={"title": "t", "secure_body": "S3CR3T", "scopes": ["org:x"]}))
        bob = served.client("bob", WRITER, ["org:x"])
        nosy = served.client("nosy", ["read"], ["org:x"])
        blind = served.client("blind", WRITER, ["org:y"])
        done(bob.get("/api/secret/cred/a"))
        assert [nosy.get("/api/secret/cred/a").status_code for _ in range(3)] == [403] * 3
        assert blind.get("/api/secret/cred/a").status_code == 404

        def seen(client: httpx.Client) -> list[tuple[str, str, str]]:
            rows = done(client.get("/api/access"))["results"]
            return [(each["resource_id"], each["principal"], each["outcome"]) for each in rows]

        assert seen(alice) == [("cred/a", "nosy", "refused"), ("cred/a", "bob", "read")]  # of refusals one a minute
        assert seen(served.client("root")) == seen(alice)
        assert (seen(bob), seen(nosy), seen(blind)) == (seen(alice)[1:], seen(alice)[:1], [])
        assert "S3CR3T" not in alice.get("/api/access").text
        assert {each["verb"] for each in done(alice.get("/api/operation"))["results"]} == {"keep"}

    def test_is_kept_for_ninety_days(self, tmp_path: Path) -> None:
        now = [1_800_000_000.0]
        with KnowHub(tmp_path / "hub", clock=lambda: now[0]) as hub:
            hub.put_resource(LOCAL, "a", {"title": "t", "secure_body": "s"})
            hub.reveal(LOCAL, "a")
            now[0] += 89 * 86_400
            hub.reveal(LOCAL, "a")
            hub.sweep()
            assert hub.accesses(LOCAL)["count"] == 2
            now[0] += 2 * 86_400
            hub.sweep()
            assert hub.accesses(LOCAL)["count"] == 1
