"""Models that follow a script, and keep what they were sent."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

from typing_extensions import override

from Agent.keyword_tree import LLMClient, StubLLMClient
from Agent.tests.support.threads import PATIENCE_S

View = dict[str, Any]
"""The object in the user's message."""

Step = Callable[[View], Any]


class Model(LLMClient):
    """Answers with what `say` returns for a view; an exception is raised.  Keeps what it was sent."""

    short_list = 0  # it is always asked, about whole views

    def __init__(self, say: Step) -> None:
        self.say = say
        self.sent: list[list[dict[str, str]]] = []
        self.schemas: list[dict[str, Any]] = []
        self._lock = threading.Lock()

    @property
    def views(self) -> list[View]:
        """What was shown, round by round."""
        return [json.loads(messages[-1]["content"]) for messages in self.sent]

    @override
    def Chat(self, messages: list[dict[str, str]], json_schema: dict[str, Any]) -> Any:
        with self._lock:
            self.sent.append(messages)
            self.schemas.append(json_schema)
        reply = self.say(json.loads(messages[-1]["content"]))
        if isinstance(reply, BaseException) or (isinstance(reply, type) and issubclass(reply, BaseException)):
            raise reply
        return reply


class HeldModel(StubLLMClient):
    """Gives one reply, when it may."""

    def __init__(self, reply: Any) -> None:
        super().__init__([reply])
        self.reply = reply
        self.asked = 0
        self.may_answer = threading.Event()

    @override
    def Chat(self, messages: list[dict[str, str]], json_schema: dict[str, Any]) -> Any:
        self.asked += 1
        assert self.may_answer.wait(PATIENCE_S)
        return self.reply


def always(reply: Any) -> Step:
    """Answer with the same each time, or with what a function makes of the view."""
    return lambda view: reply(view) if callable(reply) and not isinstance(reply, type) else reply


def in_turn(*replies: Any) -> Step:
    """Answer with one after the other; a call beyond the last is the test's own mistake, and fails as such."""
    left = list(replies)
    return lambda view: always(left.pop(0))(view)


def by_intent(**replies: Any) -> Step:
    """Answer each intent with its own reply, all others with `missing`."""
    return lambda view: always(replies.get(view["intent"], {"action": "missing"}))(view)


def about(name: str, intent: str, reply: Any) -> Step:
    """Answer one question about one keyword, all others with `missing`."""

    def say(view: View) -> Any:
        return always(reply)(view) if (view["intent"], view["query"]) == (intent, name) else {"action": "missing"}

    return say


def idx(view: View, name: str, path: str = "") -> int:
    """Return where a name stands in a view."""
    return next(
        int(candidate["idx"])
        for candidate in view["candidates"]
        if candidate["name"] == name and candidate["path"].startswith(path)
    )


def match(*names: str, **fields: Any) -> Step:
    """Match the candidates of these names."""
    return lambda view: {"action": "match", "node_ids": [idx(view, name) for name in names], **fields}


def names(view: View) -> list[str]:
    """Return the names that a view shows."""
    return [candidate["name"] for candidate in view["candidates"]]


class Meeting:
    """Lets models think until a third thread has done what it came for."""

    def __init__(self, thinkers: int) -> None:
        self._thinking = threading.Semaphore(0)
        self._thinkers = thinkers
        self._may_answer = threading.Event()

    def think(self) -> None:
        """Wait, as a model that takes its time."""
        self._thinking.release()
        assert self._may_answer.wait(PATIENCE_S), "the model was never let answer"

    def interrupt(self, work: Callable[[], object]) -> None:
        """Do something when all think; they answer then, come what may."""
        try:
            for _ in range(self._thinkers):
                assert self._thinking.acquire(timeout=PATIENCE_S), "too few models think"
            work()
        finally:
            self._may_answer.set()
