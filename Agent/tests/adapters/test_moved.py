"""Tests that the adapters' former paths work for one release."""

import importlib
import sys

import pytest

MOVED = {
    "Agent.langgraph_store": ("Agent.adapters.langgraph", "KeywordTreeStore", "langgraph"),
    "Agent.langchain_retriever": ("Agent.adapters.langchain", "KeywordTreeRetriever", "langchain_core"),
    "Agent.mem0_memory": ("Agent.adapters.mem0", "Memory", "sys"),
    "Agent.mcp_server.server": ("Agent.adapters.mcp.server", "build_server", "mcp"),
    "Agent.mcp_server.__main__": ("Agent.adapters.mcp.__main__", "main", "sys"),
}


@pytest.mark.parametrize("old", MOVED)
def test_a_former_path_gives_the_same_and_warns(old: str) -> None:
    new, name, needed = MOVED[old]
    pytest.importorskip(needed)
    sys.modules.pop(old, None)
    with pytest.warns(DeprecationWarning, match=r"has moved to adapters\.") as warned:
        module = importlib.import_module(old)

    assert getattr(module, name) is getattr(importlib.import_module(new), name)
    assert len(warned) == 1
