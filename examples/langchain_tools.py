"""An agent that uses a tree by LangChain's tools: it looks, learns, and looks again.

    python examples/langchain_tools.py [FOLDER]

The model is a script of tool calls, so that no key is needed; with a real one, it is
`model.bind_tools(tools)`.
"""

import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool

from keyword_tree import KeywordTree
from keyword_tree.adapters.langchain import remember_tool, search_tool


def scripted_model() -> Iterator[AIMessage]:
    """Say what a chat model with tools would say, message by message."""
    calls: list[tuple[str, dict[str, Any]]] = [
        ("search_memory", {"query": "Does Ada take sugar in her tea?"}),
        ("remember", {"content": "Ada drinks her tea without sugar.", "keywords": ["Ada", "green tea"]}),
        ("search_memory", {"query": "Does Ada take sugar in her tea?"}),
    ]
    for number, (name, arguments) in enumerate(calls):
        yield AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": str(number), "type": "tool_call"}])
    yield AIMessage("No, Ada drinks it without sugar.")


def run_agent(model: Iterator[AIMessage], tools: list[BaseTool]) -> str:
    """Let the model call tools until it answers."""
    by_name = {tool.name: tool for tool in tools}
    for message in model:
        if not message.tool_calls:
            return str(message.content)
        for call in message.tool_calls:
            result: ToolMessage = by_name[call["name"]].invoke(call)
            print(f"→ {call['name']}({call['args']})\n  {result.content}")
    return ""


def main(folder: str) -> None:
    """Give the agent a small tree, and let it work."""
    with KeywordTree(folder) as tree:
        tree.CreateKeyword("Ada", tree.CreateKeyword("people").id)
        tree.CreateKeyword("tea", tree.CreateKeyword("drinks").id)
        print(run_agent(scripted_model(), [search_tool(tree), remember_tool(tree)]))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(temporary)
