"""A LangGraph agent that remembers across conversations, with a tree as its store.

    pip install langgraph
    python examples/langgraph_agent.py [FOLDER]

The graph has one node, which looks into the store, answers, and puts away what it learned. Its model is a script, so
that no key is needed; what the store does is the same with a real one. At the end a wrong memory is undone.
"""

import sys
import tempfile
from typing import TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph
from langgraph.store.base import BaseStore

from keyword_tree.adapters.langgraph import KeywordTreeStore


class State(TypedDict):
    """What a turn begins and ends with."""

    said: str
    answer: str


def model(said: str, known: list[str]) -> tuple[str, str]:
    """Answer as a language model would; return the answer, and what is worth remembering ("" for nothing)."""
    if said.endswith(("?", "？")):
        return (known[0] if known else "I do not know."), ""
    return "I will remember that.", said


def answer(state: State, config: RunnableConfig, *, store: BaseStore) -> State:
    """Look into the store, ask the model, and put away what it wants to keep."""
    namespace = ("memories", config["configurable"]["user_id"])
    found = store.search(namespace, query=state["said"], limit=3)
    reply, learned = model(state["said"], [item.value["text"] for item in found if item.score])
    if learned:
        store.put(namespace, f"memory-{hash(learned) % 10_000:04}", {"text": learned})
    return {"said": state["said"], "answer": reply}


def main(folder: str) -> None:
    """Talk with two users, in two conversations, and take a mistake back."""
    with KeywordTreeStore.from_folder(folder) as store:
        graph = StateGraph(State)
        graph.add_node("answer", answer)
        graph.add_edge(START, "answer")
        graph.add_edge("answer", END)
        agent = graph.compile(store=store)

        def say(user: str, text: str) -> None:
            turn = agent.invoke({"said": text, "answer": ""}, {"configurable": {"user_id": user}})
            print(f"{user}: {text}\n  → {turn['answer']}")

        say("张三", "我喜欢喝龙井茶。")
        say("Ada", "My dog is called Oliver.")
        say("张三", "我喜欢喝什么茶？")
        say("Ada", "What is my dog called?")

        say("Ada", "My dog is called Max.")
        (mistake,) = store.tree.History(limit=1)
        store.tree.Undo(mistake.operation_id)
        print("(the last memory is undone)")
        say("Ada", "What is my dog called?")
        print(store.tree)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(temporary)
