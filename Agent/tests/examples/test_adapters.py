"""The examples of the adapters run as they stand, without a key."""

import subprocess
import sys
from importlib.util import find_spec

import pytest

from Agent.tests.examples.running import ROOT, run


def need(package: str, extra: str) -> None:
    if find_spec(package.partition(".")[0]) is None or find_spec(package) is None:
        pytest.skip(f"the extra [{extra}] is not installed")


def test_a_host_uses_the_mcp_server() -> None:
    need("mcp", "mcp")
    command = [sys.executable, str(ROOT / "examples" / "mcp_host.py")]  # it starts the server, which needs the rest
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", check=True, timeout=60).stdout

    assert "it could be under 饮料 drinks / 茶 tea" in shown
    assert "饮料 drinks / 茶 tea / 红茶 black tea: 红茶用沸水冲泡。" in shown
    assert "after undo: ['红茶用沸水冲泡。']" in shown


def test_a_graph_remembers_across_conversations() -> None:
    need("langgraph.graph", "test")
    shown = run("langgraph_agent.py").stdout

    assert "张三: 我喜欢喝什么茶？\n  → 我喜欢喝龙井茶。" in shown
    assert shown.count("→ My dog is called Oliver.") == 2
    assert "Max" not in shown.split("→ I will remember that.")[-1]


def test_mem0s_chat_runs_with_one_import_changed() -> None:
    shown = run("mem0_chat.py").stdout

    assert "alex: What is my favourite sport?\n  → You told me: My favourite sport is basketball." in shown
    assert "张三: 我对什么过敏？\n  → You told me: 我对花生过敏。" in shown
    assert shown.endswith("after undo → You told me: My favourite sport is basketball.\n")


def test_an_agent_uses_the_tools() -> None:
    need("langchain_core", "langchain")
    shown = run("langchain_tools.py").stdout

    assert "Nothing is known about that." in shown
    assert "new: green tea" in shown
    assert "[people / Ada] Ada drinks her tea without sugar." in shown
    assert shown.endswith("No, Ada drinks it without sugar.\n")
