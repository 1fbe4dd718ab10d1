"""In asyncio: what goes through `to_thread` leaves the loop free, also where a model thinks."""

import asyncio
import threading
from pathlib import Path
from typing import Any

from typing_extensions import override

from Agent.keyword_tree import KeywordTree, LLMClient

PATIENCE_S = 30.0


class WaitingClient(LLMClient):
    """Thinks until it is let go, and finds nothing."""

    def __init__(self) -> None:
        self.is_asked, self.may_answer = threading.Semaphore(0), threading.Event()

    @override
    def Chat(self, messages: list[dict[str, str]], json_schema: dict[str, Any]) -> dict[str, Any]:
        self.is_asked.release()
        assert self.may_answer.wait(PATIENCE_S), "the loop was held up"
        return {"action": "missing"}


def test_models_that_think_hold_up_neither_the_loop_nor_what_else_is_asked(tmp_path: Path) -> None:
    client = WaitingClient()
    with KeywordTree(str(tmp_path / "memory"), client) as tree:
        tree.CreateKeyword("tea", "root")

        async def run() -> None:
            searches = [asyncio.to_thread(tree.Search, f"something warm, the {number}th") for number in range(4)]
            waiting = asyncio.gather(*searches)
            for _ in range(4):
                assert await asyncio.to_thread(client.is_asked.acquire, timeout=PATIENCE_S)
            assert tree.FindByName("tea")  # from memory, in the loop itself
            made = await asyncio.to_thread(tree.CreateKeyword, "coffee", "root")
            assert [node.id for node in tree.FindByName("coffee")] == [made.id]
            client.may_answer.set()
            assert {found.reason for found in await waiting} == {"agent_missing"}

        asyncio.run(run())


def test_an_operation_in_a_thread_is_one_line_of_the_log(tmp_path: Path) -> None:
    with KeywordTree(str(tmp_path / "memory")) as tree:

        def remember(number: int) -> str:
            with tree.Operation(f"remember {number}") as operation:
                tree.CreateInfo(f"first {number}", "chat")
                tree.CreateInfo(f"second {number}", "chat")
            return operation.id

        async def all_of_them() -> list[str]:
            return await asyncio.gather(*(asyncio.to_thread(remember, number) for number in range(20)))

        ids = asyncio.run(all_of_them())
        reported = {change.operation_id: len(change.after) for change in tree.History(limit=20)}

        assert reported == dict.fromkeys(ids, 2)
        assert not tree.Verify()
