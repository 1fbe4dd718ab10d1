"""In asyncio: what goes through `to_thread` leaves the loop free, also where a model thinks."""

import asyncio
import threading
from pathlib import Path
from typing import Any

from Agent.keyword_tree import KeywordTree
from Agent.tests.support.models import Model, View
from Agent.tests.support.threads import PATIENCE_S


def test_models_that_think_hold_up_neither_the_loop_nor_what_else_is_asked(tmp_path: Path) -> None:
    is_asked, may_answer = threading.Semaphore(0), threading.Event()

    def think(_: View) -> dict[str, Any]:
        is_asked.release()
        assert may_answer.wait(PATIENCE_S), "the loop was held up"
        return {"action": "missing"}

    with KeywordTree(str(tmp_path / "memory"), Model(think)) as tree:
        tree.CreateKeyword("tea", "root")

        async def run() -> None:
            searches = [asyncio.to_thread(tree.Search, f"something warm, the {number}th") for number in range(4)]
            waiting = asyncio.gather(*searches)
            for _ in range(4):
                assert await asyncio.to_thread(is_asked.acquire, timeout=PATIENCE_S)
            assert tree.FindByName("tea")  # from memory, in the loop itself
            made = await asyncio.to_thread(tree.CreateKeyword, "coffee", "root")
            assert [node.id for node in tree.FindByName("coffee")] == [made.id]
            may_answer.set()
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
