"""What comes of a model's reply, whatever it is: chosen, refused by a reason, never an exception."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from Agent.adapters.mem0 import Memory
from Agent.base.keys import hide_keys
from Agent.context_engine.providers import LLMClientAdapter
from Agent.keyword_tree import KeywordTree, LLMClient
from Agent.knowhub.hub import LOCAL, KnowHub
from Agent.memory.extraction import read_graph
from Agent.models.judge import judge
from Agent.models.model_clients import read_reply

NAMES = ("饮食", "Anna", "7", "Tom")
MATCHED = [
    '{"action": "match", "targets": "1"}',
    '{"action": "match", "targets": ["１"]}',
    '{"action": "match", "targets": [1.0]}',
    '{"action": "match", "targets": ["Anna"]}',
    '{"action": "match", "targets": ["1 Anna"]}',
    '{"action": "Match ", "targets": [1, 1]}',
    '{"action": "missing", "action": "match", "targets": [3], "targets": [1]}',
    '{"action": "match", "targets": [], "node_id": 1, "reason": null}',
    '{"action": "match", "targets": [1], "confidence": NaN}',
    '{"action": "match", "targets": [1], "confidence": "high"}',
    '{"action": "match", "targets": [1], "reason": "\\ud83d"}',
    '```json\n{"action": "match", "targets": [1]}\n```',
    '<think>{"action": "match", "targets": [0]}</think>{"action": "match", "targets": [1]}',
    '<think>0? {"action": "missing"}\n{"action": "match", "targets": [1]}</think>',
    '{"action": "match", "targets": [1]} I chose the second, {ok}.',
    '\ufeff<|im_start|>{"action": "match", "targets": [1]}<|im_end|>',
    '{"reply": {"action": "match", "targets": [1]}}',
    "｛“action”：“match”，“targets”：［1］｝",
    '{"action"："match"，"targets"：[1]，}',
]
REFUSED = [
    (json.dumps({"action": "match", "targets": [*range(100_000)]}), "invalid_reply"),
    ('{"action": "match", "targets": [[1]]}', "invalid_reply"),
    ('{"action": "match", "targets": {"idx": 1}}', "invalid_reply"),
    ('{"action": "match", "targets": [{"idx": "1", "name": "Tom"}]}', "invalid_reply"),
    ('{"action": "match", "targets": [' + "[" * 50_000 + "]" * 50_000 + "]}", "agent_failure"),
    ('{"action": "match", "targets": [' + "9" * 5_000 + "]}", "agent_failure"),
    ('{"action": "match", "targets": [NaN]}', "invalid_reply"),
    ('{"action": "match", "targets": [1e400]}', "invalid_reply"),
    ('{"action": "match", "targets": [null]}', "invalid_reply"),
    ('{"action": "match", "targets": [true]}', "invalid_reply"),
    ('{"action": "match", "targets": [-1]}', "invalid_reply"),
    ('{"action": "match", "targets": [1, 99]}', "invalid_reply"),
    ('{"action": "match", "targets": ["7"]}', "invalid_reply"),  # a number, though a name is written so
    ('{"action": "match", "targets": ["Ann"]}', "invalid_reply"),
    ('{"action": "match", "targets": ["\\ud83d"]}', "invalid_reply"),
    ('{"action": "match", "targets": null}', "no_target"),
    ('{"action": "match", "targets": [1], "confidence": 0.1}', "unsure"),
    ('{"action": "匹配", "targets": [1]}', "invalid_reply"),
    ('{"action": null, "targets": [1]}', "invalid_reply"),
    ('{"action": "match", "targets": [1], "reason": 7}', "invalid_reply"),
    ('{"action": "missing", "suggest_name": "\\ud83d\\u0000"}', "agent_missing"),
    ('{"action": "match", "targets": [1]}\n{"action": "missing", "targets": []}', "agent_missing"),
    ("[]", "agent_failure"),
    ("null", "agent_failure"),
    ("the second one", "agent_failure"),
]


class Saying(LLMClient):
    """A model that says one thing, read as the clients of services read it."""

    def __init__(self, said: str) -> None:
        self.said = said

    @override
    def Chat(self, messages: list[dict[str, str]], json_schema: dict[str, Any]) -> dict[str, Any]:
        return read_reply(self.said, json_schema)


class Failing(LLMClient):
    """A model whose client quotes what it was asked with, in its error."""

    def __init__(self, words: str, api_key: str = "") -> None:
        self.words, self.api_key, self.headers = words, "", {"X-API-Key": api_key}

    @override
    def Chat(self, messages: list[dict[str, str]], json_schema: dict[str, Any]) -> dict[str, Any]:
        try:
            raise ValueError(self.words)
        except ValueError as error:
            raise RuntimeError(f"request failed: {error}") from error


def found_in(folder: Path, client: LLMClient) -> Any:
    with KeywordTree(str(folder), client) as tree:
        for name in NAMES:
            tree.BatchCreateKeywords([{"name": name, "parent_id": "root"}])
        return tree.Search("something warm to drink")


class TestReplies:
    @pytest.mark.parametrize("said", MATCHED)
    def test_that_can_be_read_choose(self, said: str, tmp_path: Path) -> None:
        pytest.importorskip("json_repair")
        found = found_in(tmp_path, Saying(said))

        assert (found.reason, found.node and found.node.name) == ("agent_match", "Anna")

    @pytest.mark.parametrize(("said", "reason"), REFUSED)
    def test_that_cannot_be_read_choose_nothing(self, said: str, reason: str, tmp_path: Path) -> None:
        found = found_in(tmp_path, Saying(said))

        assert (found.reason, found.node) == (reason, None)

    @pytest.mark.parametrize("said", [*MATCHED, *(said for said, _ in REFUSED)])
    def test_break_neither_a_judge_nor_a_reader(self, said: str) -> None:
        texts = [("a", "Tom cooks."), ("b", "Anna sings."), ("c", "x")]
        kept = judge(Saying(said), "who sings?", texts)

        assert kept == [id for id, _ in texts if id in kept]
        with pytest.raises(ValueError, match="the reply"):
            read_graph(Saying(said), "Anna sings in Rome.")


KEYS = ("sk-proj-Zx9Qw8Er7Ty6", "hunter2", "correcthorsebattery", "QWxhZGRpbjpvcGVuIHNlc2FtZQ==", "a1b2c3.GhIjKlMnOp")
QUOTED = [
    "https://api.example/v1?api_key={}&x=1",
    "https://ann:{}@proxy.example",
    "{{'Authorization': 'Bearer {}'}}",
    "Headers([('authorization', 'Bearer {}')])",
    "[(b'x-api-key', b'{}')]",
    "b'Proxy-Authorization: Basic {}'",
    "{{'api_key': SecretStr('{}')}}",
    "OPENAI_API_KEY={}",
    "Incorrect API key provided: {}.",
    "Cookie: session={}",
    "client_secret={}",
    "API密钥“{}”无效",
    "令牌错误：{}",
    "https://api.example/v1/models?sig={}&key=none",
    '{{"error": {{"message": "Invalid key", "api_key": "{}"}}}}',
    '{{\\"password\\": \\"{}\\"}}',
]
SHORTENED = [
    "Incorrect API key provided: sk-abcdef******3456",
    "401 {'detail': 'gsk_abcdef0123456789abcdefghij is unknown'}",
    "api_key='abcdef123456'",
    "{'x-api-key': 'abcdef-without-digits'}",
    "cannot reach https://ann:abcdef@proxy.example:8080",
    "AKIAabcdef1234567890",
    "the token abcdef123456 has expired",
]
# Where no sign joins them, only what is no plain word can be known as a key.
BESIDE = [
    "{} is not a valid API key",
    "'{}' is no valid key.",
    "{}: invalid api key",
    "{} was rejected as a token",
    "no account for token {}",
    "API key {} is unknown",
    "The secret that was given, {}, is wrong",
    "OPENAI_API_KEY is set to {}",
    "“{}”不是有效的密钥",
    "{} 是无效的令牌",
    "密钥{}无效",
    "您的密码是{}",
]


class TestKeys:
    @pytest.mark.parametrize("quoted", QUOTED)
    def test_of_any_form_are_hidden(self, quoted: str) -> None:
        for key in KEYS:
            assert key not in hide_keys(quoted.format(key))

    @pytest.mark.parametrize("quoted", BESIDE)
    def test_before_and_after_their_word_are_hidden(self, quoted: str) -> None:
        for key in ("sk-abc123", *KEYS, "9f86d081884c7d65", "3f2a9c1b-4d5e-6f70-8a9b-0c1d2e3f4a5b"):
            assert key not in hide_keys(quoted.format(key))

    @pytest.mark.parametrize(
        "said",
        [
            "max_tokens must be below 4096",
            "token limit exceeded: 8192 tokens",
            "API key invalid",
            "the token expired",
            "the key 'query' is missing",
            "unexpected token at position 17",
            "no model qwen2.5-coder-1.5b at https://localhost:11434/v1",
            "密钥无效",
            "'query' is not a valid key",
            "Token error: invalid request",
            "request 3f2a9c1b-4d5e-6f70-8a9b-0c1d2e3f4a5b failed",
            "cannot open qwen2_5-1_5b-instruct-q4_k_m.gguf",
            "model claude-3-5-sonnet-20241022 has no key",
            "file snapshot-20261129T014500Z.tar.gz: key error in row 17 of facts_zh3.txt",
            "the token limit of gpt4all is 8192",
            "模型在处理第3个问题时没有在规定的时间之内给出任何可以使用的回答请稍后再试",
            "没有提供密钥，请设置环境变量 OPENAI_API_KEY",
            "basic authentication is not supported",
        ],
    )
    def test_what_is_none_stays(self, said: str) -> None:
        assert hide_keys(said) == said

    @pytest.mark.parametrize("key", ["correct horse battery", "密钥甲乙丙丁", "3f2a9c1b-4d5e-6f70-8a9b-0c1d2e3f4a5b"])
    def test_that_a_client_or_the_environment_holds_are_hidden_whatever_they_look_like(
        self, key: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        error = Failing(f"AuthenticationError: request {key} failed", key)
        with pytest.raises(RuntimeError) as caught:
            error.Chat([], {})

        assert hide_keys(caught.value, error).endswith("request … failed")
        assert hide_keys(caught.value, LLMClientAdapter(error)).startswith("RuntimeError: ")
        assert key not in hide_keys(caught.value, LLMClientAdapter(error))
        assert key in hide_keys(caught.value)
        monkeypatch.setenv("SOME_SERVICE_TOKEN", key)
        assert key not in hide_keys(caught.value)

    def test_an_error_that_cannot_be_shown_is_none_of_its_own(self) -> None:
        class Unprintable(Exception):  # noqa: N818
            @override
            def __str__(self) -> str:
                raise KeyError(KEYS[0])

        assert hide_keys(Unprintable()) == "Unprintable: it cannot be shown (KeyError)"
        assert judge(Failing("\ud83d"), "who?", [("a", "Anna sings.")]) == ["a"]
        assert hide_keys(ValueError("\ud83d")) == "ValueError: ?"

    @pytest.mark.parametrize(
        ("said", "key", "held"),
        [
            *((quoted.format(KEYS[1]), KEYS[1], KEYS[1]) for quoted in [*QUOTED, "{}"]),
            *((said, "abcdef", "") for said in SHORTENED),
        ],
    )
    def test_are_in_no_log_result_or_file(
        self, said: str, key: str, held: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        client = Failing(said, held)
        found = found_in(tmp_path, client)
        kept = judge(client, "who sings?", [("a", "Anna sings.")])

        assert (found.reason, kept) == ("agent_failure", ["a"])
        assert key not in repr(vars(found)) + caplog.text
        assert key.encode() not in b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())

    def test_are_in_nothing_where_a_client_fails_before_it_is_asked(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        class Hesitating(Failing):
            @override
            def Silent(self) -> str:
                raise RuntimeError(self.words)

        client = Hesitating(f"api_key={KEYS[0]}")
        with Memory(path=str(tmp_path / "memory"), llm_client=client) as memory:
            kept = memory.add("I like tea", user_id="u")["results"]
        with KnowHub(tmp_path / "hub", models={"m": client}, judge=True, meaning=False) as hub:
            hub.save(LOCAL, {"task": "make tea", "content": "Boil water first.", "types": ["tool"]})
            found = hub.search(LOCAL, {"q": "make tea"})["results"]

        assert judge(client, "who sings?", [("a", "Anna sings.")]) == ["a"]
        assert [len(kept), len(found)] == [1, 1]
        assert KEYS[0] not in caplog.text
