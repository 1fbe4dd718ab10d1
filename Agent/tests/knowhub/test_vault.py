"""Secrets: the byte search over all that an attacker could read, and every bad day of the vault.

The list that this file goes through: the data folder, backups, logs, answers, errors, prompts, history, operations,
undo, exports, figures, the document of the API, the repr of what holds a secret. (The memory of the browser is in the
tests of the pages: no answer of theirs may be kept, and revealing is a POST.)
"""

import base64
import json
import logging
import os
import shutil
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from Agent.base.secrets_in_text import secret_shape
from Agent.cli.command_line import hub as main
from Agent.keyword_tree import StubLLMClient
from Agent.knowhub.files import write_new
from Agent.knowhub.hub import LOCAL, KnowHub
from Agent.knowhub.records import Json, KnowHubError
from Agent.knowhub.schemas import ResourceIn
from Agent.knowhub.tokens import Token
from Agent.knowhub.vault import KeyRing, Vault, find_ring, key_path
from Agent.tests.knowhub import support
from Agent.tests.knowhub.support import serve
from Agent.tests.shared.own_server import free_port
from Agent.tests.support.threads import in_threads

SECRET = "SENTINEL-密码-hunter2-Zq9x"
RESOURCE = {"title": "A test account", "body": "100 calls a day", "content_type": "credential", "secure_body": SECRET}


def forms(secret: str) -> dict[str, bytes]:
    """Return the ways in which a secret could stand somewhere."""
    raw = secret.encode()
    found = {"plain": raw, "escaped": json.dumps(secret)[1:-1].encode(), "url": quote(secret).encode()}
    found |= {"hex": raw.hex().encode(), "HEX": raw.hex().upper().encode(), "utf-16": secret.encode("utf-16-le")}
    for shift in range(3):  # base64 of something with the secret in it depends on what stands before
        for name, alphabet in (("base64", None), ("base64url", b"-_")):
            text = base64.b64encode(b"\0" * shift + raw, alphabet)
            found[f"{name}+{shift}"] = text[4 if shift else 0 : len(text) // 4 * 4 - 4]
    return found


def search(data: bytes, secret: str = SECRET) -> list[str]:
    return [name for name, form in forms(secret).items() if form in data]


def search_folder(folder: Path, secret: str = SECRET) -> list[tuple[str, str]]:
    return [
        (path.name, name) for path in folder.rglob("*") if path.is_file() for name in search(path.read_bytes(), secret)
    ]


def refused(code: str, call: Any, *args: Any, **kwargs: Any) -> KnowHubError:
    error = support.refused(code, call, *args, **kwargs)
    assert search(error.detail.encode()) == []
    return error


class TestByteSearch:
    def test_the_search_itself_finds_every_form(self) -> None:
        for name, form in forms(SECRET).items():
            assert name in search(b"xx" + form + b"yy")
        assert "base64+1" in search(base64.b64encode(b"?" + SECRET.encode() + b"after"))
        assert search(b"nothing here") == []

    def test_a_secret_stands_nowhere(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG)
        model = StubLLMClient(
            [{"chosen": [0]}, {"content": "Use the account, kindly."}, {"same": False, "task": "", "content": ""}]
        )
        said: list[bytes] = []
        with KnowHub(tmp_path / "hub", models={"m": model}) as hub, serve(hub) as running:
            client = running.client()
            client.event_hooks["response"].append(
                lambda answer: said.append(answer.read() + str(answer.headers).encode())
            )
            put = client.put("/api/resource/credentials/website_a", json=RESOURCE)
            entry = {"task": "log in to website_a", "content": "Use the account.", "types": ["tool"]}
            entry["resource_ids"] = ["credentials/website_a"]
            id = client.post("/api/knowledge", json=entry).json()["entry"]["id"]
            client.post("/api/knowledge", json={**entry, "content": "Use the account!"})
            client.get("/api/knowledge/search", params={"q": "log in"})
            client.put(f"/api/knowledge/{id}", json={"evolve_feedback": "be kind"})
            client.post("/api/knowledge/slim", json={})
            changed = client.put("/api/resource/credentials/website_a", json=RESOURCE, headers={"If-Match": '"1"'})
            paths = ["knowledge", f"knowledge/{id}", f"knowledge/{id}/history", "resource", "export", "operation"]
            for path in [*paths, "proposal"]:
                client.get(f"/api/{path}")
            client.get("/api/resource/credentials/website_a")
            client.post(f"/api/operation/{changed.json()['operation_id']}/undo")
            client.get("/openapi.json")
            client.get("/metrics")
            wrongs: list[Json] = [{"title": 1}, {"content_type": SECRET}, {"scopes": SECRET}, {SECRET: SECRET}]
            for wrong in [*wrongs, {"secure_body": [SECRET]}]:
                assert client.put("/api/resource/wrong", json={**RESOURCE, **wrong}).status_code == 422
            client.put("/api/resource/wrong", content=json.dumps(RESOURCE).encode()[:-5])
            client.put("/api/resource/credentials/website_a", json=RESOURCE, headers={"If-Match": '"1"'})
            client.put("/api/resource/credentials/website_a", json={**RESOURCE, "secure_body": SECRET * 9000})
            hub.history(LOCAL, "resource/credentials/website_a")
            said += [json.dumps(hub.history(LOCAL, "resource/credentials/website_a")).encode()]
            said += [repr(each).encode() for each in (ResourceIn.model_validate(RESOURCE), hub.vault, hub.vault.ring())]
            hub.ledger.tree.Snapshot(copy=True)
            client.event_hooks["response"].clear()
            reference = str(hub.ledger.read("resource/credentials/website_a").fields["secret_ref"])  # type: ignore[union-attr]
            assert reference not in put.text
            sealed = hub.vault.exists(reference)
        prompts = json.dumps(model.calls, ensure_ascii=False, default=str).encode()
        logs = caplog.text.encode()

        assert len(said) > 20
        assert len(model.calls) == 3
        assert [name for each in said for name in search(each)] == []
        assert (search(prompts), search(logs)) == ([], [])
        assert search_folder(tmp_path) == []
        # Undo does not bring a secret back, so nothing of it is left but what is sealed.
        assert not sealed

    def test_what_was_destroyed_is_opened_by_no_key(self, hub: KnowHub, tmp_path: Path) -> None:
        hub.put_resource(LOCAL, "a", RESOURCE)
        [reference] = hub.vault.references()
        sealed = (hub.folder / "vault" / reference).read_bytes()
        before = json.loads(sealed)
        hub.delete_resource(LOCAL, "a")

        assert hub.vault.references() == []
        assert search_folder(tmp_path) == []
        for name in ("sealed", "wrapped"):  # not even the bytes that a key could open
            assert [
                path for path in tmp_path.rglob("*") if path.is_file() and before[name].encode() in path.read_bytes()
            ] == []


class TestReveal:
    def test_needs_the_right_and_to_see_the_resource(self, hub: KnowHub) -> None:
        writer = Token("ada", frozenset({"read", "write"}), frozenset({"team:a"}))
        keeper = Token("bob", frozenset({"read", "secrets"}), frozenset({"team:a"}))
        stranger = Token("eve", frozenset({"read", "secrets"}), frozenset({"team:e"}))
        hub.put_resource(writer, "a/b", {**RESOURCE, "scopes": ["team:a"]})

        refused("forbidden", hub.reveal, writer, "a/b")
        refused("not-found", hub.reveal, stranger, "a/b")
        assert hub.reveal(keeper, "a/b") == {"id": "a/b", "secure_body": SECRET}

    def test_is_logged_without_the_secret(self, hub: KnowHub, caplog: pytest.LogCaptureFixture) -> None:
        hub.put_resource(LOCAL, "a", RESOURCE)
        with caplog.at_level(logging.INFO):
            hub.reveal(LOCAL, "a")

        assert "resource/a by local" in caplog.text
        assert search(caplog.text.encode()) == []

    def test_what_has_none_is_not_found(self, hub: KnowHub) -> None:
        hub.put_resource(LOCAL, "a", {"title": "A"})

        refused("not-found", hub.reveal, LOCAL, "a")
        assert hub.get_resource(LOCAL, "a")["secret"] == "none"

    @pytest.mark.parametrize("where", ["top", "metadata"])
    def test_ends_when_it_expires_and_a_purge_destroys_it(self, tmp_path: Path, where: str) -> None:
        now = [1_800_000_000.0]
        until = {"expires_at": "2027-01-15T09:00:00Z"}  # an hour later
        with KnowHub(tmp_path / "hub", clock=lambda: now[0]) as hub:
            hub.put_resource(LOCAL, "a", {**RESOURCE, **(until if where == "top" else {"metadata": until})})
            assert hub.get_resource(LOCAL, "a")["secret"] == "sealed"
            now[0] += 3600
            assert hub.get_resource(LOCAL, "a")["secret"] == "expired"
            refused("gone", hub.reveal, LOCAL, "a")
            hub.sweep()
            assert len(hub.vault.references()) == 1
            now[0] += 365 * 86_400
            hub.sweep()
            assert len(hub.vault.references()) == 1  # a clock that is a year ahead destroys nothing
            hub.purge(LOCAL)
            assert hub.vault.references() == []
            assert hub.get_resource(LOCAL, "a")["secret"] == "destroyed"
            refused("gone", hub.reveal, LOCAL, "a")

    @pytest.mark.parametrize("end", ["soon", -1, float(10**15), True, [], {"at": 1}])
    def test_an_end_that_cannot_be_read_is_refused(self, hub: KnowHub, end: Any) -> None:
        refused("invalid", hub.put_resource, LOCAL, "a", {**RESOURCE, "metadata": {"expires_at": end}})

    def test_an_end_in_seconds_counts_as_cookies_have_it(self, hub: KnowHub) -> None:
        hub.put_resource(LOCAL, "a", {**RESOURCE, "metadata": {"expires_at": 1}})

        assert hub.get_resource(LOCAL, "a")["secret"] == "expired"
        refused("gone", hub.reveal, LOCAL, "a")


class TestReplacing:
    def test_the_old_one_goes(self, hub: KnowHub) -> None:
        hub.put_resource(LOCAL, "a", RESOURCE)
        [old] = hub.vault.references()
        hub.put_resource(LOCAL, "a", {**RESOURCE, "secure_body": "new"}, 1)

        assert hub.vault.references() != [old]
        assert len(hub.vault.references()) == 1
        assert hub.reveal(LOCAL, "a")["secure_body"] == "new"
        hub.put_resource(LOCAL, "a", {"title": "without", "secure_body": ""}, 2)
        assert hub.vault.references() == []

    def test_it_stays_where_nothing_is_said_of_it_and_ends_when_it_would(self, hub: KnowHub) -> None:
        hub.put_resource(LOCAL, "a", {**RESOURCE, "expires_at": "2099-01-01T00:00:00Z"})
        first = hub.put_resource(LOCAL, "a", {"title": "renamed"}, 1, key="k")
        assert hub.put_resource(LOCAL, "a", {"title": "renamed"}, 1, key="k") == first
        assert hub.reveal(LOCAL, "a")["secure_body"] == SECRET
        assert hub.get_resource(LOCAL, "a")["expires_at"] == "2099-01-01T00:00:00Z"

        hub.put_resource(LOCAL, "a", {"title": "renamed", "secure_body": None}, 2)
        assert (hub.get_resource(LOCAL, "a")["secret"], hub.vault.references()) == ("none", [])

    def test_a_curator_shows_anothers_to_nobody_else(self, hub: KnowHub) -> None:
        ada = Token("ada", frozenset({"read", "write"}), frozenset({"team:a"}))
        curator = Token("carl", frozenset({"read", "write", "curate"}), frozenset({"team:a", "team:b"}))
        hub.put_resource(ada, "a", {**RESOURCE, "scopes": ["team:a"]})
        wider = {"title": "t", "scopes": ["team:a", "team:b"]}
        refused("forbidden", hub.put_resource, curator, "a", wider, 1)

        assert hub.put_resource(curator, "a", {**wider, "scopes": ["team:a"]}, 1)["resource"]["secret"] == "sealed"
        assert hub.put_resource(curator, "a", {**wider, "secure_body": ""}, 2)["resource"]["secret"] == "none"

    def test_undo_brings_back_the_body_alone(self, hub: KnowHub) -> None:
        hub.put_resource(LOCAL, "a", RESOURCE)
        done = hub.delete_resource(LOCAL, "a")
        hub.undo(LOCAL, done["operation_id"])
        found = hub.get_resource(LOCAL, "a")

        assert (found["body"], found["secret"]) == ("100 calls a day", "destroyed")
        refused("gone", hub.reveal, LOCAL, "a")

    def test_undoing_the_making_destroys(self, hub: KnowHub) -> None:
        made = hub.put_resource(LOCAL, "a", RESOURCE)
        hub.undo(LOCAL, made["operation_id"])

        assert hub.vault.references() == []

    def test_of_two_at_once_one_wins_and_leaves_nothing_of_the_other(self, hub: KnowHub) -> None:
        hub.put_resource(LOCAL, "a", RESOURCE)
        outcomes: list[str] = []

        def put(secret: str) -> None:
            try:
                hub.put_resource(LOCAL, "a", {**RESOURCE, "secure_body": secret}, 1)
                outcomes.append(secret)
            except KnowHubError as error:
                outcomes.append(error.code)

        in_threads(put, [f"secret {number}" for number in range(6)])

        assert sorted(outcomes)[:5] == ["changed"] * 5
        assert len(hub.vault.references()) == 1
        assert hub.reveal(LOCAL, "a")["secure_body"] in outcomes

    def test_the_same_call_once_more_is_no_conflict(self, hub: KnowHub) -> None:
        first, again = (hub.put_resource(LOCAL, "a", RESOURCE, key="k") for _ in range(2))
        assert first == again
        refused("key-reused", hub.put_resource, LOCAL, "a", {**RESOURCE, "secure_body": "other"}, key="k")
        refused("version-needed", hub.put_resource, LOCAL, "a", RESOURCE, key="another")

    def test_a_taken_id_says_no_more_than_that(self, hub: KnowHub) -> None:
        ada, eve = (Token(name, frozenset({"read", "write", "secrets"})) for name in ("ada", "eve"))
        hub.put_resource(ada, "a", RESOURCE)
        error = refused("conflict", hub.put_resource, eve, "a", {"title": "mine"})

        assert error.detail == "the id is in use"
        refused("not-found", hub.get_resource, eve, "a")
        refused("not-found", hub.delete_resource, eve, "a")

    @pytest.mark.parametrize(
        "id", ["", ".", "..", "a/../b", "a//b", "/a", "a/", "a b", "ä", "a/b/c/d/e/f/g/h/i", "x" * 201]
    )
    def test_refuses_what_is_no_id(self, hub: KnowHub, id: str) -> None:
        refused("invalid", hub.put_resource, LOCAL, id, {"title": "t"})


class TestKilledBetween:
    def test_a_sealed_file_that_nobody_names_goes_after_an_hour(
        self, hub: KnowHub, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        hub.put_resource(LOCAL, "kept", RESOURCE)
        [kept] = hub.vault.references()
        orphan = hub.vault.seal("resource/never", SECRET)  # and here the process is killed
        hub.sweep()
        assert hub.vault.exists(orphan)
        path = hub.folder / "vault" / orphan
        (hub.folder / "vault" / ".half.new").write_bytes(b"{")
        for each in (path, path.with_name(kept), path.with_name(".half.new")):
            os.utime(each, (1, 1))
        hub.sweep()
        assert hub.vault.exists(orphan)  # the file's own time may be a wrong clock's
        later = time.monotonic() + 3601
        monkeypatch.setattr("Agent.knowhub.vault.time.monotonic", lambda: later)
        hub.sweep()

        assert hub.vault.references() == [kept]
        assert sorted(os.listdir(path.parent)) == ["0" * 32, kept]

    def test_killed_before_the_old_one_went(self, hub: KnowHub, monkeypatch: pytest.MonkeyPatch) -> None:
        hub.put_resource(LOCAL, "a", RESOURCE)
        [old] = hub.vault.references()
        with monkeypatch.context() as patch:
            patch.setattr(hub.vault, "destroy", lambda _: False)
            hub.put_resource(LOCAL, "a", {**RESOURCE, "secure_body": "new"}, 1)
        os.utime(hub.folder / "vault" / old, (1, 1))
        hub.purge(LOCAL)

        assert not hub.vault.exists(old)
        assert hub.reveal(LOCAL, "a")["secure_body"] == "new"


class TestMasterKey:
    def test_is_made_for_its_owner_alone_and_outside_of_the_data(self, hub: KnowHub) -> None:
        hub.put_resource(LOCAL, "a", RESOURCE)

        assert key_path().stat().st_mode & 0o777 == 0o600
        assert not key_path().is_relative_to(hub.folder)
        assert (hub.folder / "vault").stat().st_mode & 0o777 == 0o700

    def test_a_lost_one_is_told_and_nothing_is_destroyed(self, hub: KnowHub, tmp_path: Path) -> None:
        hub.put_resource(LOCAL, "a", RESOURCE)
        kept = key_path().read_bytes()
        key_path().unlink()
        hub.close()
        with KnowHub(tmp_path / "hub") as again:
            assert "bring back its file" in refused("vault-locked", again.reveal, LOCAL, "a").detail
            refused("vault-locked", again.put_resource, LOCAL, "b", RESOURCE)
            assert not key_path().exists()
            assert again.get_resource(LOCAL, "a")["secret"] == "sealed"
            key_path().write_bytes(kept)
            key_path().chmod(0o600)
            assert again.reveal(LOCAL, "a")["secure_body"] == SECRET

    def test_a_wrong_one_is_told_and_nothing_is_destroyed(self, hub: KnowHub, monkeypatch: pytest.MonkeyPatch) -> None:
        hub.put_resource(LOCAL, "a", RESOURCE)
        monkeypatch.setenv("KNOWHUB_KEY", KeyRing.make().to_text())
        assert "no master key at hand" in refused("vault-locked", hub.reveal, LOCAL, "a").detail
        monkeypatch.delenv("KNOWHUB_KEY")

        assert hub.reveal(LOCAL, "a")["secure_body"] == SECRET

    def test_one_that_others_can_read_is_refused(self, tmp_path: Path) -> None:
        find_ring(tmp_path / "data", may_make=True)
        key_path().chmod(0o640)

        assert "chmod 600" in refused("vault-locked", find_ring, tmp_path / "data", may_make=True).detail

    def test_one_in_the_data_folder_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("KNOWHUB_KEY_FILE", str(tmp_path / "data" / "keys" / "master"))

        refused("vault-locked", find_ring, tmp_path / "data", may_make=True)
        assert not (tmp_path / "data").exists()

    @pytest.mark.parametrize("text", ["", "short", "!" * 44, "AAAA", "\xff"])
    def test_nonsense_is_no_key(self, tmp_path: Path, text: str) -> None:
        key_path().parent.mkdir(parents=True)
        key_path().write_text(text, encoding="latin-1")
        key_path().chmod(0o600)

        refused("vault-locked", find_ring, tmp_path, may_make=True)

    def test_rotating_wraps_all_anew_and_the_old_key_opens_no_more(self, tmp_path: Path) -> None:
        ring = KeyRing.make()
        vault = Vault(tmp_path / "vault", ring)
        references = [vault.seal(f"r/{number}", f"{SECRET}{number}") for number in range(3)]
        newer = KeyRing([os.urandom(32), *ring.values()])
        rotating = Vault(tmp_path / "vault", newer)
        assert [rotating.rotate(), rotating.rotate()] == [3, 0]
        only = Vault(tmp_path / "vault", KeyRing([newer.newest()[1]]))

        assert [only.open(each, f"r/{number}") for number, each in enumerate(references)] == [
            f"{SECRET}{number}" for number in range(3)
        ]
        refused("vault-locked", Vault(tmp_path / "vault", ring).open, references[0], "r/0")
        assert KeyRing.parse(newer.to_text()).to_text() == newer.to_text()

    def test_the_command_rotates_beside_a_hub_that_goes_on(
        self, hub: KnowHub, capsys: pytest.CaptureFixture[str]
    ) -> None:
        hub.put_resource(LOCAL, "a", RESOURCE)
        assert main(["key", "rotate", "--data", str(hub.folder), "--drop-old"]) == 0
        assert "1 secrets" in capsys.readouterr().out

        assert len(hub.vault.ring()) == 1
        assert hub.reveal(LOCAL, "a")["secure_body"] == SECRET
        hub.put_resource(LOCAL, "b", RESOURCE)
        assert Vault(hub.folder / "vault").problems() == []

    def test_what_is_sealed_while_keys_are_dropped_opens(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        vault, sealing = Vault(tmp_path / "hub" / "vault"), threading.Event()
        vault.seal("r/1", SECRET)
        sealed: list[str] = []

        def write_late(path: Path, data: bytes, **more: Any) -> None:
            if threading.current_thread() is late:
                sealing.set()
                time.sleep(0.3)  # it has its key, and has not written
            write_new(path, data, **more)

        monkeypatch.setattr("Agent.knowhub.files.write_new", write_late)
        late = threading.Thread(target=lambda: sealed.append(vault.seal("r/2", SECRET)))
        late.start()
        sealing.wait()
        Vault(tmp_path / "hub" / "vault").rotate(drop_old=True)
        late.join()

        assert Vault(tmp_path / "hub" / "vault").open(sealed[0], "r/2") == SECRET

    def test_of_two_first_keys_one_stays(self, tmp_path: Path) -> None:
        for number in range(20):
            folder, sealed = tmp_path / f"hub {number}" / "vault", list[str]()
            key_path().unlink(missing_ok=True)
            vaults = [Vault(folder) for _ in range(4)]
            in_threads(lambda vault, into=sealed: into.append(vault.seal("r", SECRET)), vaults)  # type: ignore[misc]

            assert [Vault(folder).open(reference, "r") for reference in sealed] == [SECRET] * 4

    def test_keys_in_the_environment_rotate_there(
        self, hub: KnowHub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        ring = KeyRing.make()
        monkeypatch.setenv("KNOWHUB_KEY", ring.to_text())
        hub.put_resource(LOCAL, "a", RESOURCE)
        assert main(["key", "rotate", "--data", str(hub.folder)]) == 2
        newer = KeyRing([os.urandom(32), *ring.values()])
        monkeypatch.setenv("KNOWHUB_KEY", newer.to_text())
        assert main(["key", "rotate", "--data", str(hub.folder)]) == 0
        assert "1 secrets are wrapped by the first key of KNOWHUB_KEY" in capsys.readouterr().out

        monkeypatch.setenv("KNOWHUB_KEY", KeyRing([newer.newest()[1]]).to_text())
        assert hub.reveal(LOCAL, "a")["secure_body"] == SECRET
        assert not key_path().exists()

    def test_a_copied_folder_is_of_no_use(self, hub: KnowHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        hub.put_resource(LOCAL, "a", RESOURCE)
        shutil.copytree(hub.folder, tmp_path / "stolen")
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "thief"))
        with KnowHub(tmp_path / "stolen") as stolen:
            refused("vault-locked", stolen.reveal, LOCAL, "a")


class TestTampering:
    def test_a_file_of_another_name_or_for_another_resource_does_not_open(self, tmp_path: Path) -> None:
        vault = Vault(tmp_path, KeyRing.make())
        first, second = vault.seal("resource/a", SECRET), vault.seal("resource/b", "other")
        refused("vault-locked", vault.open, first, "resource/b")
        shutil.copy(tmp_path / first, tmp_path / second)
        refused("vault-locked", vault.open, second, "resource/b")
        refused("vault-locked", vault.open, second, "resource/a")

    def test_a_changed_byte_is_noticed(self, tmp_path: Path) -> None:
        vault = Vault(tmp_path, KeyRing.make())
        reference = vault.seal("resource/a", SECRET)
        held: Json = json.loads((tmp_path / reference).read_bytes())
        for name in ("sealed", "wrapped", "nonce", "nonce2", "key"):
            changed = {**held, name: ("B" if held[name][0] == "A" else "A") + held[name][1:]}
            (tmp_path / reference).write_text(json.dumps(changed))
            refused("vault-locked", vault.open, reference, "resource/a")
        for damage in (b"", b"[]", b"{}", b"\xff", b'{"key": 1}'):
            (tmp_path / reference).write_bytes(damage)
            refused("vault-locked", vault.open, reference, "resource/a")
            assert vault.problems() != []

    def test_a_reference_is_no_path(self, tmp_path: Path) -> None:
        (tmp_path / "vault").mkdir()
        (tmp_path / "mine").write_text("x")
        vault = Vault(tmp_path / "vault", KeyRing.make())

        assert (vault.open("../mine", "a"), vault.exists("../mine"), vault.destroy("../mine")) == (None, False, False)
        assert (tmp_path / "mine").exists()


class TestShapes:
    @pytest.mark.parametrize(
        "text",
        [
            "-----BEGIN OPENSSH " + "PRIVATE KEY-----",
            "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxMjM0In0." + "c2lnbmF0dXJl",
            "sk-" + "proj-" + "a1" * 15, "ghp_" + "a1B2" * 9, "AKIA" + "ABCDEFGHIJKLMNOP", "xoxb-" + "1234567890-abc",
            "AIza" + "a1B2c" * 7, "kh_" + "a1B2" * 11, "glpat-" + "a1B2c" * 4, "hf_" + "a1B2c" * 7,
        ],
    )  # fmt: skip
    def test_known_ones_are_noticed_anywhere(self, hub: KnowHub, text: str) -> None:
        assert secret_shape(f"use: {text}, quickly")
        body = {"task": "t", "content": f"use {text}", "types": ["tool"]}
        problem = refused("secret-shape", hub.save, LOCAL, body)
        assert ("resource_save" in problem.detail, text in problem.detail) == (True, False)
        refused("secret-shape", hub.put_resource, LOCAL, "a", {"title": "t", "body": text})
        id = hub.save(LOCAL, {**body, "content": "c"})["entry"]["id"]
        refused("secret-shape", hub.patch, LOCAL, id, {"content": text})
        refused("secret-shape", hub.update, LOCAL, id, {"add_helpful_case": {"outcome": text}})
        refused("secret-shape", hub.update, LOCAL, id, {"evolve_feedback": text})
        batch = {"feedback_list": [{"knowledge_id": id, "is_helpful": True, "case": {"reason": text}}], "atomic": False}
        assert not hub.batch_update(LOCAL, batch)["results"][0]["ok"]

    @pytest.mark.parametrize(
        "field",
        [
            {"task": "KEY"}, {"tags": {"KEY": "x"}}, {"tags": {"x": "KEY"}}, {"owner": "KEY"}, {"message_id": "KEY"},
            {"source": {"urls": ["https://example.com/?token=KEY"]}}, {"source": {"name": "KEY"}},
            {"source": {"agent_id": "KEY"}}, {"source": {"submitted_by": "KEY"}}, {"source": {"message_id": "KEY"}},
            {"scopes": ["KEY"]},
        ],
    )  # fmt: skip
    def test_in_whichever_field(self, hub: KnowHub, tmp_path: Path, field: Json) -> None:
        key = "ghp_" + "a1B2" * 9
        more = json.loads(json.dumps(field).replace("KEY", key))
        body = {"task": "t", "content": "c", "types": ["tool"], **more}
        refused("secret-shape", hub.save, LOCAL, body)
        report = hub.take_in(LOCAL, [{"id": "knowledge-1", **body}])
        assert (report["written"], len(report["errors"])) == (0, 1)
        for resource in (
            {"title": key},
            {"title": "t", "metadata": {key: 1}},
            {"title": "t", "metadata": {"a": [key]}},
        ):
            refused("secret-shape", hub.put_resource, LOCAL, "a", resource)
        refused("secret-shape", hub.put_goals, LOCAL, "t", {"goals": [{"id": "g", "knowledge": [{key: 1}]}]})

        assert search_folder(tmp_path, key) == []

    @pytest.mark.parametrize("text", ["sk-short", "the key is {{secret:credentials/a}}", "BEGIN PUBLIC KEY", "a.b.c"])
    def test_others_are_not(self, text: str) -> None:
        assert secret_shape(text) == ""

    def test_a_model_cannot_bring_one_in(self, tmp_path: Path) -> None:
        key = "sk-" + "ant-" + "a1" * 20
        with KnowHub(tmp_path / "hub", StubLLMClient([{"content": f"Seven minutes, {key}"}])) as hub:
            id = hub.save(
                LOCAL, {"task": "t", "content": "Seven minutes, or eight, or nine, or ten", "types": ["tool"]}
            )
            answer = hub.update(LOCAL, id["entry"]["id"], {"evolve_feedback": "shorter"})

            assert answer["evolution"]["state"] == "queued"
            assert search_folder(tmp_path, key) == []


class TestWrongKey:
    def test_is_refused_at_start(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        right, wrong = KeyRing.make().to_text(), KeyRing.make().to_text()
        monkeypatch.setenv("KNOWHUB_KEY", right)
        with KnowHub(tmp_path / "hub") as hub:
            hub.put_resource(LOCAL, "a", RESOURCE)
        monkeypatch.setenv("KNOWHUB_KEY", wrong)

        assert main(["serve", "--data", str(tmp_path / "hub"), "--port", str(free_port())]) == 2
        assert "did not seal" in capsys.readouterr().err
        with KnowHub(tmp_path / "hub") as hub:
            refused("vault-locked", hub.put_resource, LOCAL, "b", RESOURCE)  # nothing is sealed by two keys
        monkeypatch.setenv("KNOWHUB_KEY", wrong + right)  # a new one before the old one
        with KnowHub(tmp_path / "hub") as hub:
            assert hub.reveal(LOCAL, "a")["secure_body"] == SECRET
            assert hub.vault.rotate() == 1
        monkeypatch.setenv("KNOWHUB_KEY", wrong)
        with KnowHub(tmp_path / "hub") as hub:
            assert hub.reveal(LOCAL, "a")["secure_body"] == SECRET
