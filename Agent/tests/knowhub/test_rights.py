"""Whose an entry is, who sees it, and whose votes count: over HTTP, as principals who try to bend it."""

import socket
import time
from typing import Any

import httpx
import pytest

from Agent.knowhub.catalog import Following
from Agent.knowhub.hub import LOCAL, KnowHub
from Agent.knowhub.records import Json
from Agent.knowhub.tokens import Token
from Agent.tests.knowhub.support import Served, done, serve

ENTRY = {"task": "boil an egg", "content": "Seven minutes.", "types": ["usecase"], "scopes": ["org:x"]}
WRITER = ("read", "write")


@pytest.fixture
def alice(served: Served) -> httpx.Client:
    """A writer of `org:x`."""
    return served.client("alice", WRITER, ["org:x"])


@pytest.fixture
def bob(served: Served) -> httpx.Client:
    """Another one."""
    return served.client("bob", WRITER, ["org:x"])


def save(client: httpx.Client, **fields: Any) -> Json:
    saved: Json = done(client.post("/api/knowledge", json={**ENTRY, **fields}))["entry"]
    return saved


def delete(client: httpx.Client, path: str) -> Json:
    version = done(client.get(path))["version"]
    gone: Json = done(client.delete(path, headers={"If-Match": f'"{version}"'}))
    return gone


def votes(client: httpx.Client, id: str) -> tuple[int, int]:
    judged = done(client.get(f"/api/knowledge/{id}"))["eval"]
    return judged["helpful"], judged["harmful"]


def vote(client: httpx.Client, id: str, which: str = "helpful", **case: str) -> Json:
    judged: Json = done(client.put(f"/api/knowledge/{id}", json={f"add_{which}_case": {"task": "breakfast", **case}}))
    return judged


class TestIds:
    """An id belongs to the principal that made it."""

    def test_an_import_does_not_take_the_id_of_a_deleted_entry(self, alice: Any, bob: Any, served: Served) -> None:
        entry = save(alice)
        for number in range(5):
            vote(served.client(f"voter-{number}", WRITER, ["org:x"]), entry["id"])
        gone = delete(alice, f"/api/knowledge/{entry['id']}")

        done(
            bob.post(
                "/api/import", json={"lines": [{**ENTRY, "id": entry["id"], "content": "Bob's", "created_by": "alice"}]}
            )
        )

        assert bob.get(f"/api/knowledge/{entry['id']}").status_code == 404
        (his,) = done(bob.get("/api/knowledge"))["results"]
        assert (his["content"], his["created_by"], his["eval"]["helpful"]) == ("Bob's", "bob", 0)
        done(alice.post(f"/api/operation/{gone['operation_id']}/undo"))
        back = done(alice.get(f"/api/knowledge/{entry['id']}"))
        assert (back["content"], back["created_by"], back["eval"]["helpful"]) == ("Seven minutes.", "alice", 5)

    def test_nor_that_of_one_whose_making_was_undone(self, alice: Any, served: Served) -> None:
        saved = done(alice.post("/api/knowledge", json=ENTRY))
        done(alice.post(f"/api/operation/{saved['operation_id']}/undo"))
        admin = served.client("root", ("read", "write", "admin"), ["*"])
        line = {**ENTRY, "id": saved["entry"]["id"], "created_by": "bob"}

        report = done(admin.post("/api/import", json={"lines": [line]}))

        assert (report["written"], len(report["errors"])) == (0, 1)

    @pytest.mark.parametrize("is_purged", [False, True])
    def test_a_deleted_resource_is_not_another_s_to_take(
        self, hub: KnowHub, alice: Any, bob: Any, is_purged: bool
    ) -> None:
        resource = {"title": "Deploy", "secure_body": "right-4711", "scopes": ["org:x"]}
        done(alice.put("/api/resource/credentials/deploy", json=resource))
        delete(alice, "/api/resource/credentials/deploy")
        if is_purged:
            hub.purge(Token("root", frozenset(["admin"])))

        answer = bob.put("/api/resource/credentials/deploy", json={**resource, "secure_body": "bobs"})

        assert (answer.status_code, answer.json()["type"]) == (409, "/problems/conflict")
        assert alice.get("/api/resource/credentials/deploy").status_code == 404
        kept = done(alice.put("/api/resource/credentials/deploy", json=resource))["resource"]
        assert (kept["created_by"], kept["secret"]) == ("alice", "sealed")

    def test_a_goal_tree_likewise(self, alice: Any, bob: Any) -> None:
        done(alice.put("/api/trace/t1/goals", json={"goals": []}))
        assert bob.put("/api/trace/t1/goals", json={"goals": []}).status_code == 409


class TestUpdates:
    """What an update does not say stays."""

    def test_a_second_save_of_a_resource_widens_nothing(self, alice: Any) -> None:
        first: Json = {"title": "Deploy", "body": "how", "secure_body": "right-4711", "content_type": "credential"}
        first |= {"metadata": {"host": "a"}, "scopes": ["user:owner"], "expires_at": "2999-01-01T00:00:00Z"}
        done(alice.put("/api/resource/credentials/deploy", json=first))

        again = alice.put("/api/resource/credentials/deploy", json={"title": "Now"}, headers={"If-Match": '"1"'})

        kept = done(again)["resource"]
        assert kept["title"] == "Now"
        assert {name: kept[name] for name in ("body", "content_type", "metadata", "scopes")} == {
            name: first[name] for name in ("body", "content_type", "metadata", "scopes")
        }
        assert kept["expires_at"] == "2999-01-01T00:00:00Z"
        said = {"title": "t", "body": "", "metadata": {}, "scopes": ["org:x"]}
        kept = done(alice.put("/api/resource/credentials/deploy", json=said, headers={"If-Match": '"2"'}))["resource"]
        assert (kept["body"], kept["metadata"], kept["scopes"]) == ("", {}, ["org:x"])


class TestResults:
    """The rights of the result count, not those of the call."""

    def test_nothing_is_written_into_a_scope_that_is_not_ones_own(self, alice: Any, served: Served) -> None:
        entry = save(alice, scopes=["org:x", "user:owner"])
        path = f"/api/knowledge/{entry['id']}"
        patched = done(alice.patch(path, json={"scopes": ["user:owner"]}, headers={"If-Match": '"1"'}))
        elsewhere = served.client("alice", WRITER, [])

        answer = elsewhere.post(f"/api/operation/{patched['operation_id']}/undo")

        assert answer.status_code == 403
        assert done(alice.get(path))["scopes"] == ["user:owner"]
        headers = {"If-Match": '"1"'}
        other = f"/api/knowledge/{save(alice, scopes=['org:x', 'user:owner'])['id']}"
        done(alice.put("/api/resource/a/b", json={"title": "t", "scopes": ["org:x", "user:owner"]}))
        assert elsewhere.patch(other, json={"content": "changed"}, headers=headers).status_code == 403
        assert elsewhere.put(other, json={"update_score": 5}).status_code == 403
        assert elsewhere.put("/api/resource/a/b", json={"title": "t2"}, headers=headers).status_code == 403
        done(alice.post(f"/api/operation/{patched['operation_id']}/undo"))
        assert done(alice.get(path))["scopes"] == ["org:x", "user:owner"]

    def test_undoing_conflicts_with_later_changes_and_can_be_undone(self, alice: Any) -> None:
        entry = save(alice)
        path = f"/api/knowledge/{entry['id']}"
        first = done(alice.patch(path, json={"content": "Eight."}, headers={"If-Match": '"1"'}))
        done(alice.patch(path, json={"content": "Nine."}, headers={"If-Match": '"2"'}))

        assert alice.post(f"/api/operation/{first['operation_id']}/undo").status_code == 409
        gone = delete(alice, path)
        undone = done(alice.post(f"/api/operation/{gone['operation_id']}/undo"))
        assert done(alice.get(path))["content"] == "Nine."
        done(alice.post(f"/api/operation/{undone['operation_id']}/undo"))
        assert alice.get(path).status_code == 404


class TestCases:
    """What a token says of an entry is for those of its scopes that it may write into."""

    def test_a_token_without_a_scope_writes_no_case_into_it(self, alice: Any, bob: Any, served: Served) -> None:
        both = ["org:x", "user:owner"]
        entry = done(alice.post("/api/knowledge", json={**ENTRY, "scopes": both}))["entry"]
        narrow = served.client("alice", WRITER, [])
        path = f"/api/knowledge/{entry['id']}"

        case = {"task": "a note for me"}
        done(narrow.put(path, json={"add_harmful_case": case, "evolve_feedback": "a wish of mine"}))

        assert [row["case"]["task"] for row in done(narrow.get(f"{path}/feedback"))["results"]] == ["a note for me"]
        assert done(bob.get(f"{path}/feedback"))["results"] == []
        assert done(bob.get(path))["eval"]["harmful_history"] == []
        assert done(bob.get("/api/proposal"))["results"] == []

    def test_what_looks_like_a_key_is_no_id(self, alice: Any) -> None:
        key = "ghp_" + "a1B2" * 9
        for path, body in (("/api/resource/" + key, {"title": "t"}), (f"/api/trace/{key}/goals", {"goals": []})):
            answer = alice.put(path, json=body)
            assert answer.json()["type"] == "/problems/secret-shape"
            assert key not in str(answer.json()["detail"])


class TestVotes:
    """One principal, one vote."""

    def test_the_last_vote_of_a_principal_counts(self, alice: Any, bob: Any) -> None:
        id = save(alice)["id"]
        for _ in range(5):
            vote(bob, id)
        assert votes(alice, id) == (1, 0)
        turned = vote(bob, id, "harmful")
        assert votes(alice, id) == (0, 1)
        done(bob.post(f"/api/operation/{turned['operation_id']}/undo"))
        assert votes(alice, id) == (1, 0)

    def test_an_entry_with_many_votes_is_read_as_fast_as_one_with_few(self, hub: KnowHub, alice: Any) -> None:
        few, many = save(alice)["id"], save(alice)["id"]
        for id, count in ((few, 20), (many, 5_000)):
            lines = [{"id": f"feedback-{id[-12:]}-{n}", "knowledge_id": id, "is_helpful": True} for n in range(count)]
            voters = [{"kind": "feedback", **line, "created_by": f"v{n}"} for n, line in enumerate(lines)]
            assert hub.take_in(LOCAL, voters)["written"] == count

        def took(id: str) -> float:
            times = []
            for _ in range(15):
                began = time.process_time()
                assert votes(alice, id)[0] in (20, 5_000)
                times.append(time.process_time() - began)
            return sorted(times)[7]

        assert took(many) < 2 * took(few) + 0.002

    def test_votes_are_counted_once_over_what_was_merged(self, served: Served, alice: Any, bob: Any) -> None:
        for _ in range(6):  # a fifth of all may go at once
            save(alice, task="other", content=f"{_}")
        ids = [save(alice)["id"] for _ in range(2)]
        for id in ids:
            vote(bob, id)
        curator = served.client("carol", ("read", "write", "curate"), ["org:x"])

        slimmed = done(curator.post("/api/knowledge/slim", json={}))

        assert slimmed["merged"] == 1
        assert [votes(alice, id) for id in ids] == [(1, 0), (1, 0)]

    def test_the_owner_is_what_the_token_says(self, alice: Any, served: Served) -> None:
        assert save(alice, owner="user:ceo")["owner"] == "alice"
        id = save(alice)["id"]
        patched = alice.patch(f"/api/knowledge/{id}", json={"owner": "user:ceo"}, headers={"If-Match": '"1"'})
        assert patched.status_code == 403
        kept = done(alice.put("/api/resource/a/b", json={"title": "t", "owner": "user:ceo"}))["resource"]
        assert kept["owner"] == "alice"
        admin = served.client("root", ("read", "write", "admin"), ["*"])
        assert save(admin, owner="agent:research_agent")["owner"] == "agent:research_agent"


class TestSimilar:
    """What a new entry is similar to is chosen among what its writer sees."""

    def test_what_others_keep_from_a_writer_takes_no_place_of_what_they_see(self, served: Served, bob: Any) -> None:
        hidden = served.client("carol", WRITER, ["org:hidden"])
        task = {"task": "log in to the web shop with selenium"}
        lines = [{**ENTRY, **task, "id": f"knowledge-{n}", "scopes": ["org:hidden"]} for n in range(150)]
        done(hidden.post("/api/import", json={"lines": lines}))
        mine = save(bob, task="log in to the shop with selenium")
        served.hub.search(LOCAL, {"q": "selenium"})  # all of it is indexed by now

        reported = done(bob.post("/api/knowledge", json={**ENTRY, **task}))
        assert [each["id"] for each in reported["similar"]] == [mine["id"]]


class TestJournal:
    """No call reads the log."""

    def test_undoing_what_is_not_there_costs_the_same_however_long_the_log_is(
        self, served: Served, alice: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        saved = done(alice.post("/api/knowledge", json=ENTRY))

        def read_log(*_: object, **__: object) -> Any:
            raise AssertionError("the log was read")

        for name in ("History", "Undo"):
            monkeypatch.setattr(served.hub.ledger.tree, name, read_log)
        assert alice.post("/api/operation/nope/undo").status_code == 404
        assert done(alice.get("/api/operation"))["results"][0]["operation_id"] == saved["operation_id"]
        assert done(alice.get(f"/api/knowledge/{saved['entry']['id']}/history"))["count"] == 1
        done(alice.post(f"/api/operation/{saved['operation_id']}/undo"))

    def test_a_damaged_index_is_made_again(self, hub: KnowHub) -> None:
        made = hub.save(LOCAL, ENTRY)
        hub.catalog.catch_up()
        Following.close(hub.catalog)
        (hub.folder / "indexes" / "state.sqlite").write_bytes(b"nonsense" * 1000)

        hub.undo(LOCAL, made["operation_id"])
        assert hub.list_knowledge(LOCAL)["count"] == 0


class TestKeys:
    """An Idempotency-Key holds for every writing call, refuses another request, and revives nothing."""

    def twice(self, client: httpx.Client, method: str, path: str, version: int = 0, **more: Any) -> list[Any]:
        headers = {"Idempotency-Key": f"{method}{path}"} | ({"If-Match": f'"{version}"'} if version else {})
        return [done(client.request(method, path, headers=headers, **more)) for _ in range(2)]

    def test_each_writing_call_is_done_once(self, served: Served, alice: Any) -> None:
        path = f"/api/knowledge/{(id := save(alice)['id'])}"
        judged = {"knowledge_id": id, "is_helpful": False}
        calls: list[tuple[str, str, int, Json]] = [
            ("PATCH", path, 1, {"json": {"content": "Eight."}}),
            ("PUT", path, 0, {"json": {"add_helpful_case": {}, "update_score": 4}}),
            ("POST", "/api/knowledge", 0, {"json": {**ENTRY, "task": "fry an egg"}}),
            ("POST", "/api/knowledge/batch_update", 0, {"json": {"feedback_list": [judged]}}),
            ("PUT", "/api/resource/a/b", 0, {"json": {"title": "t", "scopes": ["org:x"]}}),
            ("DELETE", "/api/resource/a/b", 1, {}),
            ("PUT", "/api/trace/t/goals", 0, {"json": {"goals": []}}),
            ("DELETE", path, 3, {}),
        ]
        for method, place, version, more in calls:
            first, again = self.twice(alice, method, place, version, **more)
            assert first["operation_id"] == again["operation_id"] != "", (method, place)
        undone = self.twice(alice, "POST", f"/api/operation/{again['operation_id']}/undo")
        assert undone[0] == undone[1]
        assert done(alice.get(path))["content"] == "Eight."

    def test_a_key_is_for_one_call_of_all(self, alice: Any) -> None:
        path = f"/api/knowledge/{(entry := save(alice))['id']}"
        line = {"kind": "resource", "id": "im/port", "title": "t", "scopes": ["org:x"]}
        judged = [{"knowledge_id": entry["id"], "is_helpful": True}]
        calls: list[tuple[str, str, Json]] = [
            ("POST", "/api/knowledge", {**ENTRY, "task": "fry an egg"}),
            ("PUT", path, {"add_helpful_case": {}}),
            ("POST", "/api/knowledge/batch_update", {"feedback_list": judged}),
            ("PUT", "/api/resource/a/b", {"title": "t", "scopes": ["org:x"]}),
            ("POST", "/api/import", {"lines": [line]}),
            ("PUT", "/api/trace/t/goals", {"goals": []}),
        ]
        for number, (method, place, body) in enumerate(calls):
            key = {"Idempotency-Key": f"key-{number}"}
            done(alice.request(method, place, json=body, headers=key))
            for other in calls:
                if other[1] != place:
                    answer = alice.request(*other[:2], json=other[2], headers=key)
                    reported = (answer.status_code, answer.json().get("type"))
                    assert reported == (409, "/problems/key-reused"), (place, other[1], answer.text)

    def test_an_import_that_comes_again_makes_no_deleted_resource_again(self, alice: Any) -> None:
        line = {"kind": "resource", "id": "im/port", "title": "t", "scopes": ["org:x"]}
        body, key = {"lines": [line]}, {"Idempotency-Key": "i"}
        first = done(alice.post("/api/import", json=body, headers=key))
        delete(alice, "/api/resource/im/port")

        assert (first["written"], done(alice.post("/api/import", json=body, headers=key))["written"]) == (1, 0)
        assert alice.get("/api/resource/im/port").status_code == 404

    def test_nothing_deleted_since_is_made_again(self, alice: Any) -> None:
        headers = {"Idempotency-Key": "k"}
        entry = done(alice.post("/api/knowledge", json=ENTRY, headers=headers))["entry"]
        delete(alice, f"/api/knowledge/{entry['id']}")
        line = {**ENTRY, "id": "knowledge-1"}
        report = done(alice.post("/api/import", json={"lines": [line]}, headers={"Idempotency-Key": "i"}))
        [his] = done(alice.get("/api/knowledge"))["results"]
        delete(alice, f"/api/knowledge/{his['id']}")

        assert alice.post("/api/knowledge", json=ENTRY, headers=headers).status_code == 409
        again = done(alice.post("/api/import", json={"lines": [line]}, headers={"Idempotency-Key": "i"}))
        assert (report["written"], again["written"]) == (1, 0)
        assert done(alice.get("/api/knowledge"))["results"] == []

    def test_what_was_done_before_a_purge_is_not_done_again(self, hub: KnowHub, alice: Any) -> None:
        body = {"feedback_list": [{"knowledge_id": save(alice)["id"], "is_helpful": True}]}
        calls: list[tuple[str, Any, Any]] = [("/api/knowledge", ENTRY, {"Idempotency-Key": "k"})]
        calls += [("/api/knowledge/batch_update", body, {"Idempotency-Key": "b"})]
        for path, json, headers in calls:
            done(alice.post(path, json=json, headers=headers))
        hub.purge(Token("root", frozenset(["admin"])))

        for path, json, headers in calls:
            answer = alice.post(path, json=json, headers=headers)
            assert (answer.status_code, answer.json()["type"]) == (409, "/problems/conflict"), answer.text
            assert "purge" in answer.json()["detail"]

    def test_a_token_is_made_once(self, served: Served) -> None:
        admin = served.client("root", ("read", "write", "admin"), ["*"])
        body, headers = {"principal": "dora"}, {"Idempotency-Key": "k"}
        done(admin.post("/api/token", json=body, headers=headers))

        assert admin.post("/api/token", json=body, headers=headers).status_code == 409
        assert len([each for each in served.hub.tokens.all() if each.principal == "dora"]) == 1


class TestBadDays:
    """No one stops the service."""

    def test_a_head_that_does_not_come_ends_its_connection(
        self, served: Served, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("Agent.knowhub.serving.HEAD_S", 0.3)
        for begun in (b"", b"GET / HT", b"\r\n", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET / HT"):
            with socket.create_connection(("127.0.0.1", served.port)) as connection:
                connection.settimeout(10)
                connection.sendall(begun)
                while connection.recv(65_536):  # until the server closes it
                    pass

    def test_a_request_that_takes_longer_than_its_head_may_is_answered(
        self, served: Served, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("Agent.knowhub.serving.HEAD_S", 0.3)
        with socket.create_connection(("127.0.0.1", served.port)) as connection:
            connection.settimeout(10)
            head = f"POST /api/knowledge HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {served.token()}\r\n"
            connection.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 2\r\n\r\n".encode())
            time.sleep(0.8)
            connection.sendall(b"{}")
            assert b" 422 " in connection.recv(65_536)

    def test_a_rate_of_0_is_no_limit(self, hub: KnowHub) -> None:
        with serve(hub, requests_per_second=0.0) as served:
            client = served.client()
            assert {client.get("/api/knowledge").status_code for _ in range(120)} == {200}
