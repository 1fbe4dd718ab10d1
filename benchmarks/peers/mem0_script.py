"""One program for both: mem0ai's `Memory`, and ours; prints what each call came to, as JSON lines.

python mem0_script.py ours FOLDER
python mem0_script.py mem0 FOLDER     # in an environment with mem0ai
"""

import json
import os
import re
import sys
from collections.abc import Callable
from typing import Any

os.environ["MEM0_TELEMETRY"] = "False"


class CountingEmbedder:
    """Counts letters, so that no model is needed."""

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        """Return how often each letter occurs, and something that is never zero."""
        return [0.01, *(float(text.lower().count(letter)) for letter in "abcdefghijklmnopqrstuvwxyz龙井茶")]

    def embed_batch(self, texts: list[str], memory_action: str | None = None) -> list[list[float]]:
        """Do the same for several."""
        return [self.embed(text) for text in texts]


def open_memory(kind: str, folder: str) -> Any:
    """Return the memory of this kind."""
    if kind == "ours":
        from Agent.adapters.mem0 import Memory

        return Memory(path=folder)
    os.environ["MEM0_DIR"] = folder
    from mem0 import Memory as Theirs  # type: ignore[import-not-found]

    config = {
        "vector_store": {"provider": "qdrant", "config": {"path": f"{folder}/qdrant", "embedding_model_dims": 30}},
        "llm": {"provider": "openai", "config": {"api_key": "none"}},
        "embedder": {"provider": "openai", "config": {"api_key": "none"}},
        "history_db_path": f"{folder}/history.db",
    }
    theirs = Theirs.from_config(config)
    theirs.embedding_model = CountingEmbedder()
    return theirs


def shape(value: Any) -> Any:
    """Return a value with what differs from run to run replaced by its form: ids, times, scores."""
    if isinstance(value, dict):
        return {key: "score" if key == "score" and inner is not None else shape(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [shape(inner) for inner in value]
    if isinstance(value, str) and re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", value):
        return "id"
    if isinstance(value, str) and re.match(r"\d{4}-\d\d-\d\dT", value):
        return "time"
    return value


def run(memory: Any) -> list[Any]:
    """Call everything, and return what came of it."""
    results: list[Any] = []

    def call(name: str, *arguments: Any, **named: Any) -> Any:
        try:
            result = getattr(memory, name)(*arguments, **named)
        except Exception as error:
            is_value = isinstance(error, ValueError) or type(error).__name__ == "ValidationError"
            results.append([name, "ValueError" if is_value else type(error).__name__])  # its words are each one's own
            return None
        if name in ("get_all", "search") and isinstance(result, dict):  # neither promises an order of equals
            result = {"results": sorted(result["results"], key=lambda row: str(row["memory"]))}
        results.append([name, shape(result)])
        return result

    one = call("add", "I like green tea 龙井茶", user_id="ada", metadata={"topic": "tea", "cups": 3}, infer=False)
    talk = [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": "my dog is Oliver", "name": "Ada"},
        {"role": "assistant", "content": "a fine name"},
    ]
    call("add", talk, user_id="ada", agent_id="helper", infer=False)
    call("add", {"role": "user", "content": "in Bern"}, user_id=7, run_id="r1", infer=False)
    call("add", [{"role": "user"}, {"role": "user", "content": "kept"}], user_id="ada", infer=False)
    call("add", "old milk", user_id="ada", expiration_date="2020-01-01", infer=False)
    call("add", "stolen", user_id="ada", metadata={"user_id": "eve", "topic": "theft"}, infer=False)
    id = one["results"][0]["id"]

    call("get", id)
    call("get", "00000000-0000-4000-8000-000000000000")
    call("get_all", filters={"user_id": "ada"})
    call("get_all", filters={"user_id": "ada"}, show_expired=True)
    call("get_all", filters={"user_id": " ada ", "agent_id": "helper"})
    call("get_all", filters={"user_id": "7"})
    call("get_all", filters={"user_id": "missing"})
    call("search", "green tea", filters={"user_id": "ada", "topic": "tea"}, threshold=0.0)
    call("search", "龙井茶", filters={"user_id": "ada", "topic": "tea"}, threshold=0.0)
    for condition in (
        {"cups": {"gte": 3}},
        {"cups": {"gt": 3}},
        {"cups": {"lt": 4, "gt": 1}},
        {"topic": {"in": ["tea", "milk"]}},
        {"topic": {"eq": "theft"}},
        {"AND": [{"topic": "tea"}, {"cups": {"lte": 3}}]},
        {"OR": [{"topic": "tea"}, {"topic": "theft"}]},
    ):
        call("search", "tea green stolen", filters={"user_id": "ada", **condition}, threshold=0.0)
    call("history", id)
    call("update", id, text="I like black tea")
    call("update", id, metadata={"topic": "drinks", "user_id": "eve"})
    call("update", id, text="I like any tea", metadata={"cups": 4}, expiration_date="2099-01-01")
    call("get", id)
    call("history", id)
    call("delete", id)
    call("get", id)
    call("history", id)

    call("delete", id)
    call("update", id, text="gone")
    call("update", id)
    call("add", "x", infer=False)
    call("add", "x", user_id=" ", infer=False)
    call("add", "x", user_id="a b", infer=False)
    call("add", 7, user_id="ada", infer=False)
    call("add", "x", user_id="ada", expiration_date="tomorrow", infer=False)
    call("search", "x", filters={})
    call("search", "x", user_id="ada")
    call("search", " ", filters={"user_id": "ada"})
    call("search", 7, filters={"user_id": "ada"})
    call("search", "x", filters={"user_id": "ada"}, threshold=2)
    call("search", "x", filters={"user_id": "ada"}, top_k=-1)
    call("search", "x", filters={"user_id": "ada"}, top_k=1.5)
    call("search", "x", filters={"user_id": "ada", "AND": "no list"})
    call("search", "x", filters={"user_id": "ada", "OR": []})
    call("get_all", filters={"topic": "tea"})
    call("get_all", user_id="ada")
    call("delete_all")
    call("delete_all", user_id="ada", agent_id="helper")
    call("get_all", filters={"user_id": "ada"})
    call("delete_all", user_id="ada")
    call("get_all", filters={"user_id": "ada"})
    call("get_all", filters={"user_id": "7"})
    call("chat", "hello")
    call("reset")
    call("get_all", filters={"user_id": "7"})
    return results


def main(kind: str, folder: str) -> None:
    """Open, run, and print."""
    memory: Any = open_memory(kind, folder)
    write: Callable[[str], int] = sys.stdout.write
    for row in run(memory):
        write(json.dumps(row, ensure_ascii=False, sort_keys=True) + "\n")
    memory.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
