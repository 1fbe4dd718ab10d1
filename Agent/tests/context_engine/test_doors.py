"""Tests of the other doors: asyncio, and the command line."""

import asyncio
import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from Agent.cli.command_line import main
from Agent.context_engine import AsyncContextEngineService, RequestContext

ADA = RequestContext("acme", "ada", "helper", "s1")


class TestAsync:
    def test_commits_and_searches_many_at_a_time(self, tmp_path: Path) -> None:
        async def run() -> list[str]:
            async with AsyncContextEngineService(tmp_path) as engine:
                said = [[{"role": "user", "content": f"I love band{number}."}] for number in range(8)]
                sessions = [RequestContext("acme", "ada", "helper", f"s{number}") for number in range(8)]
                await asyncio.gather(*map(engine.commit_session, sessions, said))
                found = await asyncio.gather(*(engine.search_memory(ADA, f"band{n}", top_k=1) for n in range(8)))
                return [each.blocks[0].content_excerpt for each in found]

        assert asyncio.run(run()) == [f"I love band{number}." for number in range(8)]


class TestCommandLine:
    @pytest.fixture
    def run(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
        def call(*words: str, code: int = 0) -> str:
            options = ["--data", str(tmp_path / "m"), "--user", "ada", "--session", "s1"]
            assert main(["context", *options, *words]) == code
            captured = capsys.readouterr()
            return captured.out or captured.err

        return call

    def test_says_in_chinese_why_nothing_was_derived(
        self, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("KEYWORD_TREE_LANG", "zh")
        file = tmp_path / "said.json"
        file.write_text(json.dumps([{"role": "user", "content": "我喜欢龙井。"}]), encoding="utf-8")

        assert run("commit", str(file)).split("\n")[1] == "没有模型，不提取记忆；说过的话都在存档里"
        assert run("commit", str(file)).split("\n")[1] == "会话存档里已经都有了"
        assert "：对应“龙井”（m1、" in run("search", "龙井")

    @pytest.mark.parametrize("form", ["chatgpt", "claude"])
    def test_takes_an_export_with_a_session_for_each_conversation(self, run: Any, tmp_path: Path, form: str) -> None:
        said = {"guitar": ["My guitar teacher is Mr. Okafor."], "cat": ["My cat needs her pills at eight.", "Noted."]}
        exported: list[dict[str, Any]] = []
        for name, texts in said.items():
            if form == "claude":
                turns = [{"uuid": f"{name}{n}", "sender": "human", "text": text} for n, text in enumerate(texts)]
                exported.append({"uuid": name, "name": "A chat", "chat_messages": turns})
                continue
            nodes: dict[str, Any] = {"root": {"id": "root", "message": None, "parent": None, "children": ["0"]}}
            for n, text in enumerate(texts):
                content = {"content_type": "text", "parts": [text]}
                message: dict[str, Any] = {"id": str(n), "author": {"role": "user"}, "content": content}
                nodes[str(n)] = {"id": str(n), "message": message, "parent": str(n - 1) if n else "root"}
            exported.append({"id": name, "title": "A chat", "current_node": "0", "mapping": nodes})
        file = tmp_path / "conversations.json"
        file.write_text(json.dumps(exported), encoding="utf-8")

        assert run("commit", str(file)).startswith("2 sessions: 0 memories, 3 new messages")
        assert run("commit", str(file)).startswith("2 sessions: 0 memories, 0 new messages")
        assert "/sessions/guitar/" in run("search", "who teaches me guitar?")
        assert "/sessions/cat/" in run("search", "when does the cat need her pills?")
        assert len(json.loads(run("--json", "commit", str(file)))) == 2
        file.write_text(json.dumps(exported[0]), encoding="utf-8-sig")
        assert run("commit", str(file)).startswith("archived: 0 memories, 1 new message\n")
        assert run("ls", "sessions/s1").startswith("0001-")
        more = [{"id": "bad", "messages": [5]}, {"id": "good", "messages": [{"role": "user", "content": "I bake."}]}]
        file.write_text(json.dumps(more), encoding="utf-8")
        assert "1 of 2 conversations are committed; refused: 'bad': message 0" in run("commit", str(file), code=2)
        assert run("ls", "sessions/good").startswith("0001-")

    def test_says_that_the_index_cannot_be_used(self, run: Any, tmp_path: Path) -> None:
        run("remember", "I play the cello.")
        index = tmp_path / "m/.ctx/index"
        shutil.rmtree(index)
        index.write_text("no folder", encoding="utf-8")

        assert "the index cannot be used" in run("search", "cello", code=2)

    def test_goes_through_a_day(self, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        file = tmp_path / "said.json"
        file.write_text(json.dumps([{"role": "user", "content": "My name is Ada. 我喜欢龙井。"}]), encoding="utf-8")
        assert run("commit", str(file)).startswith("archived: 0 memories, 1 new message\n")
        monkeypatch.setattr("sys.stdin", io.StringIO('{"role": "user", "content": "I hate noise."}\n'))
        assert run("commit", "-").startswith("archived")
        assert "我喜欢龙井。" in run("search", "龙井")
        run("remember", "Ada hates noise.", "--topic", "noise")
        run("remember", "我喜欢龙井。", "--topic", "龙井")
        assert run("remember", "lives_in: Rome", "--category", "profile").strip().endswith("/profile")
        assert "lives_in: Rome" in run("read", "memories/profile")
        assert run("ls", "memories/preferences").split() == ["noise", "龙井"]
        said = run("ls", "memories/没有", code=1)
        assert said == "nothing is under ctx://local/users/ada/memories/没有\n"
        last = json.loads(run("--json", "log"))[0]["id"]
        assert "undone by" in run("undo", last)
        assert "no node" in run("read", "memories/profile", code=1)
        assert "nothing has changed" in run("adopt")
        assert "forgot 1 memory and 0 messages" in run("forget", "memories/preferences/noise")
        assert "done" in run("worker", "--once")
        assert "dead: 0" in run("status").splitlines()
        assert run("verify").strip() == "all agrees"
        assert run("repair").strip() == "all agrees"

    def test_shows_no_hit_that_says_next_to_nothing_of_the_question(self, run: Any) -> None:
        for text in ("我对花生过敏，点菜的时候请帮我避开。", "妈妈的生日是六月三号。", "我订一张周五去上海的火车票。"):
            run("remember", text, "--category", "events")
        assert len(json.loads(run("--json", "search", "花生"))["blocks"]) > 1
        assert run("search", "花生").splitlines()[::2] == ["我对花生过敏，点菜的时候请帮我避开。"]

    def test_tells_what_is_wrong_and_ends_with_its_code(self, run: Any, tmp_path: Path) -> None:
        assert "no memory" in run("search", "x", code=2)
        assert "--user must not be empty" in run("--user", "", "remember", "tea", code=2)
        run("remember", "tea", "--topic", "tea")
        run("search", "nothing", code=1)
        assert "no node" in run("read", "memories/nothing", code=1)
        assert "is not of user" in run("read", "ctx://local/users/bob/x", code=2)
        assert "AccessDeniedError" in json.loads(run("--json", "read", "ctx://local/users/bob/x", code=2))["error"]
        assert run("commit", str(tmp_path / "nothing.json"), code=2)
        run("nonsense", code=2)
        (tmp_path / "bad.json").write_text("{]", encoding="utf-8")
        said = run("--data", str(tmp_path / "new"), "commit", str(tmp_path / "bad.json"), code=2)
        assert "neither a JSON list" in said
        assert not (tmp_path / "new").exists()
