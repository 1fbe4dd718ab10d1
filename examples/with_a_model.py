"""Let a language model think for a tree: a service with OpenAI's or Anthropic's interface, or a file, by variables.

Install it: `python -m venv .venv` and `.venv/bin/python -m pip install '.[openai]'`, or anthropic, or gguf. Run it:
`KEYWORD_TREE_MODEL=… OPENAI_API_KEY=… .venv/bin/python examples/with_a_model.py`; without them it says what to set.
"""

import os
import tempfile

from keyword_tree import KeywordTree, LLMClient
from keyword_tree.models.local_client import LocalLLMClient
from keyword_tree.models.model_clients import client_from_environment

HELP = """{}, so there is no model to ask. Set the model's name and one of the services:

    export KEYWORD_TREE_MODEL=…      as the service calls it

    export OPENAI_API_KEY=…          OpenAI itself
    export OPENAI_BASE_URL=…         another service, with its key in OPENAI_API_KEY: https://api.deepseek.com,
                                     https://api.moonshot.cn/v1, https://dashscope.aliyuncs.com/compatible-mode/v1;
                                     or a server of your own, which needs no key: http://localhost:11434/v1 (Ollama),
                                     http://localhost:8000/v1 (vLLM)

    export ANTHROPIC_API_KEY=…       Anthropic

or a model in a file: export KEYWORD_TREE_MODEL=….gguf. And install what speaks to it: pip install '.[openai]',
'.[anthropic]' or '.[gguf]', in this project's folder."""


def say_what_is_missing() -> str:
    """Return what to set; half of it may be there."""
    if os.environ.get("KEYWORD_TREE_MODEL"):
        return HELP.format("A model is named, but no service")
    services = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL")
    is_half = any(os.environ.get(name) for name in services)
    return HELP.format("A service is named, but no model" if is_half else "No model is set")


def reason_of_latest(tree: KeywordTree) -> str:
    """Return how asking the model ended: a keyword that it could not place is created under the root all the same."""
    agent_io = tree.History(limit=1)[0].agent_io
    return str(agent_io["reason"]) if agent_io else "no model was asked"


def make_client() -> LLMClient | None:
    """Return a client of the model that the environment names."""
    model = os.environ.get("KEYWORD_TREE_MODEL", "")
    if model.endswith(".gguf"):
        return LocalLLMClient(model)
    return client_from_environment(budget_calls=30)  # so that nothing can get dear


def main() -> None:
    """Let the model choose a place, link a sentence, and find it again."""
    client = make_client()
    if client is None:
        print(say_what_is_missing())
        return
    with tempfile.TemporaryDirectory() as folder, KeywordTree(folder, client) as tree:
        tree.BatchCreateKeywords(
            [
                {"id": "coding", "name": "编程", "aliases": ["programming"], "parent_id": "root"},
                {"id": "python", "name": "Python", "parent_id": "coding", "description": "a language 编程语言"},
                {"id": "travel", "name": "旅行", "aliases": ["travel"], "parent_id": "root"},
                {"id": "food", "name": "饮食", "aliases": ["food"], "parent_id": "root"},
                {"id": "tea", "name": "茶", "aliases": ["tea"], "parent_id": "food"},
            ]
        )
        gardens = tree.CreateKeyword("苏州园林", description="旅行的地方，用户想去")
        place = " / ".join(node.name for node in tree.GetPath(gardens.id)[1:])
        print(f"苏州园林 is at {place} ({reason_of_latest(tree)})")

        liking = tree.CreateInfo("喜欢喝龙井茶，不加糖。", auto_link=True)
        names = [node.name for node, _ in tree.GetKeywordsOfInfo(liking.id)]
        print(f"{liking.content!r} is linked to {names} ({reason_of_latest(tree)})")

        for query in ("用户喜欢喝什么茶", "which language do I write programs in?", "weather on Mars"):
            found = tree.Search(query)
            path = " / ".join(node.name for node in found.path[1:]) or found.status.value
            why = found.steps[-1].reason if found.steps else found.reason
            print(f"{query!r}: {path} (round {found.rounds}: {why})")
    print(f"{client!r} used {getattr(client, 'usage', 'nothing that it counts')}")


if __name__ == "__main__":
    main()
