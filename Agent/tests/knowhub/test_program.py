"""Tests of the command: what a new user and who keeps a house do with it, and that a server really stops."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest

from Agent.base import language
from Agent.base.checks import check_free
from Agent.cli.command_line import hub as main
from Agent.keyword_tree import InvalidInputError
from Agent.knowhub.hub import LOCAL, KnowHub
from Agent.knowhub.tokens import Token, Tokens, own_token

ENTRY = {"task": "boil an egg", "content": "Seven minutes.", "types": ["usecase"]}


@pytest.fixture
def data(tmp_path: Path) -> str:
    return str(tmp_path / "data")


def run(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> str:
    assert main(list(arguments)) == status
    return capsys.readouterr().out


class TestTokens:
    def test_make_list_revoke(self, capsys: pytest.CaptureFixture[str], data: str) -> None:
        text = run(capsys, "token", "make", "--data", data, "--principal", "bot", "--scopes", "team:a，team:b").strip()
        assert text.startswith("kh_")
        listed = run(capsys, "token", "list", "--data", data)
        assert "bot  read,write  team:a,team:b" in listed
        assert text not in listed
        run(capsys, "token", "revoke", listed[:12], "--data", data)
        assert run(capsys, "token", "list", "--data", data).startswith("There is no token yet")
        nowhere = Path(data).parent / "nowhere"
        assert run(capsys, "token", "list", "--data", str(nowhere)).startswith("There is no token yet")
        run(capsys, "token", "login", "--data", str(nowhere), status=2)
        assert not nowhere.exists()
        run(capsys, "token", "revoke", "abc", "--data", data, status=2)
        run(capsys, "token", "make", "--data", data, "--rights", "read,fly", status=2)
        for days in ("-5", "nan", "inf"):
            run(capsys, "token", "make", "--data", data, "--days", days, status=2)

    def test_files_are_for_their_owner_alone(self, capsys: pytest.CaptureFixture[str], data: str) -> None:
        run(capsys, "token", "make", "--data", data)
        [path] = Path(data, "tokens").iterdir()

        assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)

    def test_one_own_token_opens_all_of_ones_hubs_but_not_where_it_was_revoked(self, tmp_path: Path) -> None:
        one, other = Tokens(tmp_path / "one"), Tokens(tmp_path / "other")
        text, made = own_token(one)
        assert own_token(other)[0] == own_token(one)[0] == text
        other.make("bot")
        other.revoke(made.digest)
        assert own_token(other)[0] != text
        assert other.find(text) is None


class TestCarrying:
    def test_export_and_import(self, capsys: pytest.CaptureFixture[str], data: str, tmp_path: Path) -> None:
        with KnowHub(data) as hub:
            hub.save(LOCAL, ENTRY)
        out = tmp_path / "all.jsonl"
        run(capsys, "export", "--data", data, str(out))
        for expected in ("1 written, 0 there already", "0 written, 1 there already"):
            assert expected in run(capsys, "import", "--data", f"{data}2", str(out))
        for text, encoding in (("not json", "ascii"), ('{"task": "煮蛋"}', "gb18030")):
            out.write_text(text, encoding)
            run(capsys, "import", "--data", data, str(out), status=2)
        by_hand = json.dumps(ENTRY) + "\n" + json.dumps({**ENTRY, "task": "煮蛋"}) + "\n"
        out.write_text(by_hand, encoding="utf-8")
        assert run(capsys, "import", str(out), "--data", f"{data}3") == "2 written, 0 there already\n"
        out.write_text(f"{by_hand}7\n\n", encoding="utf-8")
        assert main(["import", "--data", f"{data}3", str(out)]) == 1
        said = capsys.readouterr()
        assert ("0 written, 2 there already" in said.out, "line 3" in said.err) == (True, True)

    def test_speaks_chinese_where_that_is_asked_for(
        self, capsys: pytest.CaptureFixture[str], data: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("KEYWORD_TREE_LANG", "zh")
        try:
            assert "还没有令牌" in run(capsys, "token", "list", "--data", data)
            assert main(["purge", "--data", data]) == 2
            assert capsys.readouterr().err.startswith("错误：执行后，历史和已删除的内容")
            with KnowHub(data) as hub:
                hub.save(LOCAL, ENTRY)
            assert "知识：1\n" in run(capsys, "doctor", "--data", data)
        finally:
            language.choose("en")

    @pytest.mark.parametrize("call", ["hub(['import', '--help'])", "main(['hub', 'import', '--help'])"])
    def test_help_needs_no_extra(self, call: str) -> None:
        code = "import sys; sys.modules['pydantic'] = sys.modules['cryptography'] = None; "
        code += f"from Agent.cli.command_line import hub, main; sys.exit({call})"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

        assert "with task, content and types" in " ".join(done.stdout.split())


class TestBackup:
    def test_while_it_serves_and_back_again(
        self, capsys: pytest.CaptureFixture[str], data: str, tmp_path: Path
    ) -> None:
        copy, again = str(tmp_path / "copy"), str(tmp_path / "again")
        with KnowHub(data) as hub:
            hub.put_resource(LOCAL, "a", {"title": "A", "secure_body": "S3CR3T"})
            text = hub.tokens.make("bot")[0]
            stop = threading.Event()
            written: list[str] = []

            def write() -> None:
                while not stop.is_set():
                    written.append(hub.save(LOCAL, ENTRY)["entry"]["id"])

            writer = threading.Thread(target=write)
            writer.start()
            before = list(written)
            said = run(capsys, "backup", "--data", data, copy)
            stop.set()
            writer.join()
        assert "master.key" in said
        for wrong in (copy, data):
            run(capsys, "backup", "--data", data, wrong, status=2)
        run(capsys, "restore", "--data", data, copy, status=2)
        assert "again" in run(capsys, "restore", "--data", again, copy)
        with KnowHub(again) as back:
            assert back.reveal(LOCAL, "a")["secure_body"] == "S3CR3T"
            assert back.tokens.find(text) is not None
            assert {each["id"] for each in back.export(LOCAL) if each["kind"] == "knowledge"} >= set(before)
            assert back.ledger.tree.Verify() == []

    @pytest.mark.parametrize("wait_s", [0.0, 0.15, 0.3, 0.6])
    def test_a_kill_leaves_nothing_half_made(self, data: str, tmp_path: Path, wait_s: float) -> None:
        with KnowHub(data) as hub:
            hub.take_in(LOCAL, [{**ENTRY, "task": f"t{number}", "content": "x" * 2000} for number in range(500)])
            for number in range(20):
                hub.put_resource(LOCAL, f"a/{number}", {"title": "A", "secure_body": "s"})
        copy = tmp_path / "copy"
        code = "import sys; from Agent.cli.command_line import hub; print('ready', flush=True); hub(sys.argv[1:])"
        command = [sys.executable, "-c", code, "backup", "--data", data, str(copy)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(wait_s)
            process.kill()
        if not copy.exists():  # what was begun is no backup, and does not stand in the way of one
            assert main(["backup", "--data", data, str(copy)]) == 0
        assert main(["restore", "--data", str(tmp_path / "again"), str(copy)]) == 0
        with KnowHub(tmp_path / "again") as back:
            assert back.catalog.counts() == {"knowledge": 500, "resource": 20}
            assert all(back.reveal(LOCAL, f"a/{number}")["secure_body"] == "s" for number in range(20))


class TestAudit:
    def test_lists_who_read_what(self, capsys: pytest.CaptureFixture[str], data: str) -> None:
        with KnowHub(data) as hub:
            hub.put_resource(LOCAL, "cred/a", {"title": "A", "secure_body": "s"})
            assert "No secret" in run(capsys, "audit", "--data", data)
            hub.reveal(LOCAL, "cred/a")
        assert run(capsys, "audit", "--data", data).split()[1:] == ["read", "local", "cred/a"]
        assert json.loads(run(capsys, "audit", "--data", data, "--json"))["resource_id"] == "cred/a"


class TestCare:
    def test_doctor_is_content_with_a_sound_hub(self, capsys: pytest.CaptureFixture[str], data: str) -> None:
        with KnowHub(data) as hub:
            hub.save(LOCAL, ENTRY)
            hub.put_resource(LOCAL, "a", {"title": "A", "secure_body": "hush"})
        assert "all is well" in run(capsys, "doctor", "--data", data)

    def test_doctor_names_the_damage_of_a_log(self, capsys: pytest.CaptureFixture[str], data: str) -> None:
        with KnowHub(data) as hub:
            for n in range(3):
                hub.save(LOCAL, {**ENTRY, "task": f"boil {n}"})
        log = Path(data, "tree", "change_log.jsonl")
        sound = log.read_bytes()
        for damaged in (b"", b"no log", sound[:300] + b"\xff\0odd\n" + sound[309:]):
            log.write_bytes(damaged)
            said = run(capsys, "doctor", "--data", data, status=1)
            assert "! the store is damaged: " in said
            assert "change_log.jsonl" in said
            assert "look with" not in said
            assert "1 problems" in said

    def test_doctor_tells_what_is_wrong(
        self, capsys: pytest.CaptureFixture[str], data: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with KnowHub(data) as hub:
            hub.put_resource(LOCAL, "a", {"title": "A", "secure_body": "hush"})
        Path(data, "tokens").mkdir(mode=0o755)
        Path(data, "tokens", "0" * 64).write_text("{")
        monkeypatch.setenv("KNOWHUB_KEY", "A" * 43 + "=")
        said = run(capsys, "doctor", "--data", data, status=1)

        assert "does not open with the master keys" in said
        assert "holds no token" in said
        assert "chmod 700" in said

    def test_purge_forgets_for_good(self, capsys: pytest.CaptureFixture[str], data: str) -> None:
        with KnowHub(data) as hub:
            kept = hub.save(LOCAL, ENTRY)["entry"]["id"]
            both = {"content": "SENTINEL-PURGED", "tags": {"SENTINEL-PURGED": "SENTINEL-PURGED"}}
            gone, twin = (hub.save(LOCAL, {**ENTRY, **both})["entry"]["id"] for _ in range(2))
            for n in range(3):  # merging takes a fifth at most
                hub.save(LOCAL, {**ENTRY, "task": f"other {n}"})
            case = {"task": "SENTINEL-PURGED", "reason": "SENTINEL-PURGED"}
            for id in (gone, twin):
                hub.update(LOCAL, id, {"add_helpful_case": case, "evolve_feedback": "SENTINEL-PURGED"})
            assert hub.slim(LOCAL)["merged"] == 1
            hub.update(Token("ada", LOCAL.rights, LOCAL.scopes), kept, {"add_helpful_case": {"task": "stays"}})
            hub.delete(LOCAL, gone)
        run(capsys, "purge", "--data", data, status=2)
        run(capsys, "purge", "--data", data, "--yes")
        held = b"".join(path.read_bytes() for path in Path(data).rglob("*") if path.is_file())

        assert b"SENTINEL-PURGED" not in held
        with KnowHub(data) as hub:
            assert hub.get(LOCAL, kept)["content"] == "Seven minutes."
            assert hub.get(LOCAL, kept)["eval"]["helpful"] == 1
            assert hub.list_knowledge(LOCAL)["count"] == 4
            paths = {node.id for node, _ in hub.ledger.tree.GetKeywordsOfInfo(kept)}
            assert len(paths) == 1


class TestServe:
    def test_refuses_to_be_seen_from_outside_without_care(self, capsys: pytest.CaptureFixture[str], data: str) -> None:
        for more in ([], ["--allowed-host", "hub.example"], ["--behind-proxy"]):
            assert main(["serve", "--data", data, "--host", "0.0.0.0", *more]) == 2
        assert "--allowed-host" in capsys.readouterr().err

    def test_a_port_that_is_taken_is_told_before_a_link_is_made(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])
            for number in (port, "0", "99999"):
                assert main(["serve", "--data", str(tmp_path / "hub"), "--port", number]) == 2
        said = capsys.readouterr()
        assert f"127.0.0.1:{port} cannot be had (Address already in use): choose another port\n" in said.err
        assert [f"{number} is not in the range" in said.err for number in (port, 0, 99999)] == [False, True, True]
        assert "login" not in said.out
        with pytest.raises(InvalidInputError, match="no port 70000"):
            check_free("127.0.0.1", 70_000)
        assert not (tmp_path / "hub").exists()

    @pytest.mark.parametrize("workers", [1, 2])
    def test_serves_with_a_token_it_made_and_stops_when_told(self, data: str, workers: int) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        command = [sys.executable, "-m", "Agent.cli.command_line", "hub", "serve", "--data", data, "--port", str(port)]
        process = subprocess.Popen(
            [*command, "--workers", str(workers), "--no-meaning"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[3],
            start_new_session=True,
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            link = re.search(r"(http\S+)", process.stdout.readline())
            assert link is not None
            assert httpx.get(link[1], trust_env=False, timeout=30).status_code == 303  # it listens by then
            token = Path(re.search(r"your token: (\S+)", line)[1]).read_text().strip()  # type: ignore[index]
            url = f"http://127.0.0.1:{port}"
            with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, trust_env=False) as client:
                wait_until_ready(client, process)
                ids = [client.post("/api/knowledge", json=ENTRY).json()["entry"]["id"] for _ in range(3)]
                # Any of the workers knows what another one wrote.
                assert [client.get(f"/api/knowledge/{id}").status_code for id in ids * 4] == [200] * 12
            process.send_signal(signal.SIGTERM)
            process.wait(20)
            said = process.stderr.read() if process.stderr else ""
            assert '"route": "/api/knowledge"' in said
            assert "boil an egg" not in said
            assert "Traceback" not in said
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
        with KnowHub(data) as hub:
            assert hub.list_knowledge(LOCAL)["count"] == 3


def wait_until_ready(client: httpx.Client, process: "subprocess.Popen[str]") -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        try:
            if client.get("/readyz").status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.05)
    raise AssertionError("the server did not become ready")
