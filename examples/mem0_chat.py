"""mem0's chat with memory, on a tree: the program of its documentation, with one import changed.

    python examples/mem0_chat.py [FOLDER]

Its model is a script that repeats the memory which fits best, so that no key is needed. What was learned wrongly is
undone at the end.
"""

import sys
import tempfile

from keyword_tree.adapters.mem0 import Memory  # from mem0 import Memory


def answer(question: str, known: list[str]) -> str:
    """Say what a language model would, given the memories."""
    return f"You told me: {known[0]}" if known and question.endswith(("?", "？")) else "Thank you, I will remember."


def chat_with_memories(memory: Memory, message: str, user_id: str) -> str:
    """Retrieve what is relevant, answer, and remember the conversation."""
    relevant = memory.search(query=message, filters={"user_id": user_id}, top_k=3)
    known = [entry["memory"] for entry in relevant["results"] if entry["role"] == "user"]
    reply = answer(message, known)
    if not message.endswith(("?", "？")):
        memory.add([{"role": "user", "content": message}], user_id=user_id, infer=False)
    return reply


def main(folder: str) -> None:
    """Chat with two users, and take a mistake back."""
    with Memory(path=folder) as memory:
        for user_id, message in (
            ("alex", "My favourite sport is basketball."),
            ("张三", "我对花生过敏。"),
            ("alex", "What is my favourite sport?"),
            ("张三", "我对什么过敏？"),
            ("alex", "My favourite sport is chess."),
        ):
            print(f"{user_id}: {message}\n  → {chat_with_memories(memory, message, user_id)}")
        memory.undo()
        print(f"after undo → {chat_with_memories(memory, 'What is my favourite sport?', 'alex')}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(temporary)
