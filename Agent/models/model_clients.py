r"""Let a language model answer a tree's questions: `OpenAIChatClient` and `AnthropicChatClient`.

The first speaks to every service with OpenAI's interface (OpenAI, DeepSeek, Kimi, Qwen, vLLM, Ollama), the second to
Anthropic. A call ends in time, with a reply or with a clear error; it is counted, and a budget can stop it. No error,
reply or repr contains a key; a log does only where a service repeats it in a head, which HTTP libraries log.

>>> from keyword_tree import KeywordTree
>>> client = OpenAIChatClient("qwen3:8b", base_url="http://localhost:11434/v1")  # doctest: +SKIP
>>> KeywordTree("memory", client).Search("how do I make bread?")                 # doctest: +SKIP
<SearchResult matched 'baking' by agent_match, 1 round>
>>> client.usage                                                                 # doctest: +SKIP
Usage(calls=1, input_tokens=912, output_tokens=41, cached_tokens=0, cost=None)

What a model says is read as tolerantly as is safe:

>>> read_reply('Sure!\n```json\n{"action": "match", "node_id": 3}\n```\nAnything else?')
{'action': 'match', 'node_id': 3}

Where no argument is given, the environment counts:

    KEYWORD_TREE_MODEL                      the model's name; none is built in, they change too often
    OPENAI_API_KEY, OPENAI_BASE_URL         for `OpenAIChatClient`
    ANTHROPIC_API_KEY, ANTHROPIC_BASE_URL   for `AnthropicChatClient`

Such a key is sent to any address that is called, one given as `base_url` too; `api_key="none"` prevents it. The
official packages read and send further variables: OPENAI_ORG_ID, OPENAI_CUSTOM_HEADERS, ANTHROPIC_CUSTOM_HEADERS.

The official packages handle connections, authentication, retries and Retry-After. What they lack is here: a deadline
for a whole call (each attempt has a time of its own there, and a service that is busy may send blank lines for ever),
bounds for what is read of an answer, a budget, and forms:

1. A reply of the schema is asked for, temperature 0 and no longer than the schema's bounds allow. What a service
   refuses by its name (`max_tokens`, `temperature`, `maxLength`, …) is left out from then on. Where it answers 400,
   406, 415 or 422 all the same, or keeps answering 5xx, the next weaker form is asked for: a JSON object with the
   schema, a JSON object, a text. What worked is remembered. The schema is in the system text in any case.
2. A reply that is cut at that length is asked for once more with room for thinking, which is remembered, too.
3. The reply is read from a tool's arguments, else from the text: as JSON, as JSON between other words after `</think>`,
   and at last as JSON that `json-repair` can repair. A reply that was cut is not repaired: half a list looks whole.
"""

import contextlib
import functools
import importlib
import json
import math
import operator
import os
import queue
import re
import sys
import threading
import time
import weakref
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, NoReturn
from urllib.parse import urlsplit

from typing_extensions import override

from ..base.forks import watch_forks
from ..keyword_tree import HideKeys, InvalidInputError, KeywordTreeError, LLMClient
from .schemas import bounded, most_tokens

__all__ = [
    "AnthropicChatClient",
    "BudgetError",
    "ModelClientError",
    "OpenAIChatClient",
    "Prices",
    "ReplyError",
    "ServiceError",
    "Usage",
    "client_from_environment",
    "read_reply",
]

BODY_LIMIT = 4 * 1024 * 1024
"""Bytes of an answer; a longer one is not read to its end."""

PAGE_LIMIT = 64 * 1024
"""Bytes of what comes with an error; what is read of it is for a sentence."""

KEY_LENGTH = 8
"""Characters that a key has at least. Shorter ones are placeholders (`none`, `EMPTY`), and not hidden in replies."""

REPAIR_LIMIT = 4096
"""Characters that are repaired at most: the time grows with the square of the length, up to a second for this many."""

ROOM, THINKING_ROOM = 128, 4096
"""Tokens of a reply beyond what its schema allows: blanks and a word before it; and of a model that thinks first."""


# Errors: what a caller would do about it. A deadline that passes is a plain `TimeoutError`, as the port asks.


class ModelClientError(KeywordTreeError):
    """Base of what these clients raise on purpose."""


class ServiceError(ModelClientError, ConnectionError):
    """The service cannot be reached, refuses, or answers what is no answer: look at address, key and model."""

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        """The HTTP status, where there was one."""


class ReplyError(ModelClientError, ValueError):
    """The model answered, and what it said cannot be read: another model, or another wording, may do better."""


class BudgetError(ModelClientError, RuntimeError):
    """The budget is used up, and nothing more was sent."""


# Counting


class Prices(NamedTuple):
    """What a model costs per million tokens, in any currency."""

    input_per_million: float
    output_per_million: float
    cached_per_million: float | None = None
    """Of input that came from the service's cache; None: as any other input."""

    def cost(self, input_tokens: int, output_tokens: int, cached_tokens: int) -> float:
        """Return what these tokens cost.

        >>> Prices(3.0, 15.0, 0.3).cost(1_000_000, 100_000, 500_000)
        3.15
        """
        cached = self.input_per_million if self.cached_per_million is None else self.cached_per_million
        fresh_tokens = max(0, input_tokens - cached_tokens)
        return (
            fresh_tokens * self.input_per_million + cached_tokens * cached + output_tokens * self.output_per_million
        ) / 1e6


@dataclass(frozen=True)
class Usage:
    """What was used, as far as the service reports it."""

    calls: int = 0
    """Requests that were sent, those that failed and were tried again included."""
    input_tokens: int = 0
    """All tokens of the prompts, cached ones included."""
    output_tokens: int = 0
    """All tokens of the answers, those of a model's hidden thinking included."""
    cached_tokens: int = 0
    """Those of the input that the service took from its cache."""
    cost: float | None = None
    """In the currency of `Prices`; None where none were given. Writing into a cache, which some services charge for,
    counts as any other input."""

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.calls + other.calls,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            None if self.cost is None or other.cost is None else self.cost + other.cost,
        )


# What both clients do


_CUT = ("length", "max_tokens")
"""How the services call it that a reply came to the limit of its length."""


@dataclass
class _Call:
    """A call under way, shared by the thread that waits and the one that sends."""

    deadline: float
    usage: Usage
    status: int = 0  # of the latest answer that was an error

    @property
    def before(self) -> str:
        return f"; before, the service answered {self.status}" if self.status else ""


class _Said(NamedTuple):
    """What a model said, wherever it was in the answer."""

    reply: object
    """A text, or a tool's arguments."""
    refusal: str = ""
    """Why there is none, where the model or its service refused."""
    ended: str = ""
    """Why it ended, in the service's own word."""


class _ChatClient(LLMClient):
    """What both clients do: environment, forms, deadline, budget, counting, errors."""

    lean = True
    candidate_fields = ("aliases",)
    _PACKAGE: ClassVar[str]
    """The official package, and the extra that brings it."""
    _CLASS: ClassVar[str]
    """The package's client."""
    _CALL: ClassVar[str]
    """What of that client calls a model."""
    _ADDRESS: ClassVar[str]
    _FORMS: ClassVar[tuple[str, ...]]
    """How the form of the reply can be asked for, the strictest first."""
    # So that one whose making fails can still be shown in a traceback:
    model = ""
    _host = ""
    usage = Usage()
    """What all calls so far have used."""

    def __init__(
        self,
        model: str = "",
        api_key: str = "",
        base_url: str = "",
        *,
        timeout_s: float = 60.0,
        retries: int = 2,
        budget_calls: int | None = None,
        budget_tokens: int | None = None,
        prices: Prices | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        variable = self._PACKAGE.upper()
        self.model = model or os.environ.get("KEYWORD_TREE_MODEL", "")
        if not self.model:
            raise InvalidInputError("no model is named: give `model`, or set KEYWORD_TREE_MODEL")
        self._address = base_url or os.environ.get(f"{variable}_BASE_URL") or self._ADDRESS
        self._host = _host_of(self._address)
        if not self._host:  # what is secret in an address would be in the log of every HTTP library
            raise InvalidInputError("base_url must be an http address without user and password, and without a query")
        self._key = (api_key or os.environ.get(f"{variable}_API_KEY", "")).strip()
        if not self._key and self._address == self._ADDRESS:
            raise InvalidInputError(f"no key for {self._host}: give `api_key`, or set {variable}_API_KEY")
        if not self._key.isascii() or not self._key.isprintable() or " " in self._key:
            raise InvalidInputError("api_key holds characters that no key has")  # and is not shown
        _check_number("timeout_s", timeout_s)
        if not 0 < timeout_s <= threading.TIMEOUT_MAX:
            raise InvalidInputError(f"timeout_s must be above 0 and at most {threading.TIMEOUT_MAX:g}: {timeout_s}")
        for name, number in (("retries", retries), ("budget_calls", budget_calls), ("budget_tokens", budget_tokens)):
            if number is not None:
                _check_number(name, number, is_whole=True)
        _check_prices(prices)
        if options is not None and not isinstance(options, Mapping):  # whose values may be secret
            raise InvalidInputError(f"options must be a mapping, and is of type {type(options).__name__}")
        self._timeout_s, self._retries, self._prices = timeout_s, retries, prices
        self._budget = budget_calls, budget_tokens
        self._options = dict(options or {})
        self._strikes = [0] * len(self._FORMS)  # two, and a form is not asked for any more
        self._left_out: frozenset[str] = frozenset()  # names that the service refused
        self._room = ROOM
        self.usage = self._nothing = Usage(cost=None if prices is None else 0.0)
        self._latest = threading.local()  # has the call that a thread makes, or sends for another
        self._last: ContextVar[_Call | None] = ContextVar("last call", default=None)
        self._package = _import(self._PACKAGE, self._PACKAGE)
        _import("json_repair", self._PACKAGE)  # now, and not when the first broken reply comes
        self._begin()
        watch_forks(self)

    def _begin(self) -> None:
        """Make what two processes cannot share: a lock and connections."""
        self._lock = threading.Lock()  # guards the sum
        client = weakref.ref(self)  # so that it can be collected

        def count(_: Any) -> None:
            if (here := client()) is not None:
                here._count_call()

        look = functools.partial(_read_within_limits, self._latest)
        self._service = getattr(self._package, self._CLASS)(
            api_key=self._key or "none",  # servers of one's own ask for no key, but the packages insist on one
            base_url=self._address,
            http_client=self._package.DefaultHttpxClient(
                event_hooks={"request": [count], "response": [look]}, follow_redirects=False
            ),
        )
        self._close = weakref.finalize(self, self._service.close)

    def renew_after_fork(self) -> None:
        """Leave lock and connections to the parent, in the child of a fork.

        The lock may be held by a thread that the child does not have. Two processes that read from one connection get
        each other's answers; closing it here could wait for a lock of the parent's, too.
        """
        _LEFT_TO_PARENT.append(self._service)
        self._close.detach()
        self._begin()

    def __repr__(self) -> str:
        tokens = self.usage.input_tokens + self.usage.output_tokens
        return f"<{type(self).__name__} {self.model!r} at {self._host}, {self.usage.calls:,} calls, {tokens:,} tokens>"

    @property
    def last_usage(self) -> Usage:
        """What the latest `Chat` of this thread used, or of one whose context it took over, also if it failed."""
        call = self._last.get()
        return self._nothing if call is None else call.usage

    def close(self) -> None:
        """Close the connections that are kept for further calls; done by itself when the client is collected."""
        self._close()

    @override
    def Chat(self, messages: list[dict[str, str]], json_schema: dict[str, Any]) -> dict[str, Any]:
        """Ask the model.  May be called from any number of threads, and in both processes after a fork.

        Args:
            messages: as `LLMClient.Chat` says.
            json_schema: of the reply; enforced where the service can. Lists and texts without bounds get some.

        Returns:
            The reply: an object, of the schema's form only where the service enforces it.

        Raises:
            TimeoutError: `timeout_s` has passed, over all attempts.
            ServiceError: the service cannot be reached, or refuses.
            ReplyError: the model refused, or said what is no JSON object, or was cut before its end.
            BudgetError: the budget is used up, before the first request or before another attempt.

        Cost: one request, and up to `retries` more. Where the service refuses a form, one for each weaker one; once
        one has worked, the others are not tried.
        """
        deadline = time.monotonic() + self._timeout_s
        self._latest.call = _Call(deadline, self._nothing)
        self._last.set(self._latest.call)
        schema = bounded(json_schema)
        room = self._room
        said = self._find_reply(self._ask(messages, schema, deadline))
        if said.ended in _CUT and room == ROOM:
            with contextlib.suppress(ReplyError):  # it may be whole all the same
                return self._read(said, json_schema)
            self._room = THINKING_ROOM
            said = self._find_reply(self._ask(messages, schema, deadline))
        return self._read(said, json_schema)

    def _read(self, said: _Said, json_schema: dict[str, Any]) -> dict[str, Any]:
        if said.refusal:
            raise ReplyError(self._clean(f"the model refused: {said.refusal}"))
        if not said.reply:
            raise ReplyError(self._clean(f"the reply is empty, it ended with {said.ended!r}"))
        reply = read_reply(said.reply, json_schema, is_cut=said.ended in _CUT)
        with contextlib.suppress(RecursionError):
            cleaned: dict[str, Any] = self._hide(reply)
            return cleaned
        raise ReplyError("the reply is nested too deeply")

    def _ask(self, messages: list[dict[str, str]], schema: dict[str, Any], deadline: float) -> object:
        """Send the question in the strictest form that the service takes.  Returns the answer's body."""
        refused = list[tuple[int, int]]()
        form = next((at for at, strikes in enumerate(self._strikes) if strikes < 2), len(self._FORMS) - 1)
        while True:
            parts = _without(schema, self._left_out)
            request = self._build_request(messages, parts, most_tokens(schema) + self._room, self._FORMS[form])
            retries = 0 if self._strikes[form] or any(strikes == 1 for _, strikes in refused) else self._retries
            try:
                body = self._send(request, deadline, retries)
            except ServiceError as error:
                status = error.status or 0
                if status < 500 and status not in (400, 406, 415, 422):
                    raise
                if status < 500 and (named := self._refused_part(str(error))):
                    self._left_out |= {named}
                    continue
                if form + 1 == len(self._FORMS):
                    raise
                refused.append((form, 1 if status >= 500 else 2))  # once 5xx is no proof: services fail now and then
                form += 1
            else:
                # Remembered only now: a request that is wrong in itself fails in every form, and shows nothing.
                for at, strikes in refused:
                    self._strikes[at] += strikes
                return body

    def _refused_part(self, words: str) -> str:
        """Return what of a request a service refuses by its name, where it can be left out."""
        return next((name for name in _OPTIONAL if name in words and name not in self._left_out), "")

    def _send(self, request: dict[str, Any], deadline: float, retries: int) -> object:
        """Send a request in a thread that is left at the deadline, however far it has come.  Returns the body."""
        outcomes: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._count_call(0)  # before a thread is made for nothing
        call: _Call = self._latest.call

        def attempt() -> None:
            self._latest.call = call
            outcomes.put(self._attempt(request, deadline, retries))

        thread = threading.Thread(target=attempt, name="model call", daemon=True)  # none that the program's end awaits
        thread.start()
        with contextlib.suppress(queue.Empty):
            outcome = outcomes.get(timeout=max(0.0, deadline - time.monotonic()))
            thread.join()  # it is at its end, and would keep this client from being collected
            if not isinstance(outcome, Exception):
                self._count_tokens(*self._find_tokens(outcome))
                return outcome
            if isinstance(outcome, BudgetError) or time.monotonic() < deadline:  # else it failed for want of time
                raise outcome
        raise TimeoutError(f"{self._host} gave no answer within {self._timeout_s:g} s{call.before}")

    def _attempt(self, request: dict[str, Any], deadline: float, retries: int) -> object:
        """Send.  Returns the body, or what went wrong: raised here, its traceback would hold the key."""
        service = self._service.with_options(max_retries=retries, timeout=max(0.001, deadline - time.monotonic()))
        try:
            response = operator.attrgetter(self._CALL)(service).with_raw_response.create(**request)
            said = response.text if isinstance(response.text, str) else response.text()
        except Exception as error:  # the packages and two generations of HTTP libraries have no common base
            for one in (error, error.__cause__):
                if isinstance(one, BudgetError):
                    return BudgetError(str(one))
            status = getattr(error, "status_code", None)
            if isinstance(status, int):
                return ServiceError(self._explain(status, error), status=status)
            name = type(error.__cause__ or error).__name__
            what = "cannot be reached" if isinstance(error, self._package.APIConnectionError) else str(error)
            return ServiceError(self._clean(f"{self._host}: {what} ({name})"))
        try:
            body = self._hide(json.loads(said))
            if (wrong := _at(body, "error")) is None:
                return body
            return ServiceError(self._clean(f"{self._host} answers with an error: {_words_of(body) or repr(wrong)}"))
        except (ValueError, RecursionError):
            start = repr(self._hide(said)[:60])
            if len(said) >= BODY_LIMIT:
                return ReplyError(f"the answer has more than {BODY_LIMIT:,} bytes")
            return ServiceError(f"{self._host} answers what is no JSON, is base_url right? It begins with {start}")

    def _explain(self, status: int, error: Any) -> str:
        text = f"{self._host} answers {status}"
        if status in (404, 405):  # before what the service says, which may be long
            text += f" (is base_url right? It is {self._address})"
        if words := _words_of(error.body):
            text += f": {words}"
        elif address := error.response.headers.get("location"):
            text += f", and leads to {address}: is base_url right?"
        return self._clean(text)

    def _hide(self, value: Any) -> Any:
        r"""Return JSON without the key, which some services repeat: it must not reach the tree's log.

        Not in the bytes of an answer: there it may be written otherwise (`\/`), and what is no text may look like it.
        """
        if isinstance(value, str):
            return value.replace(self._key, "[key]") if len(self._key) >= KEY_LENGTH else value
        if isinstance(value, dict):
            return {self._hide(name): self._hide(item) for name, item in value.items()}
        return [self._hide(item) for item in value] if isinstance(value, list) else value

    def _clean(self, text: str) -> str:
        """Return a message for a person: on one line, printable, not too long, and without keys."""
        text = "".join(char if char.isprintable() else " " for char in self._hide(text))
        return " ".join(HideKeys(text).split())[:300]

    def _count_call(self, calls: int = 1) -> None:
        with self._lock:
            used = self.usage.calls, self.usage.input_tokens + self.usage.output_tokens
            for count, budget, unit in zip(used, self._budget, ("calls", "tokens"), strict=True):
                if budget is not None and count >= budget:
                    text = f"the budget of {budget:,} {unit} is used up: {used[0]:,} calls, {used[1]:,} tokens"
                    raise BudgetError(text + self._latest.call.before)
            if calls:
                self._add(Usage(calls=calls, cost=self._nothing.cost))

    def _count_tokens(self, input_tokens: int, output_tokens: int, cached_tokens: int) -> None:
        cost = None if self._prices is None else self._prices.cost(input_tokens, output_tokens, cached_tokens)
        with self._lock:
            self._add(Usage(0, input_tokens, output_tokens, cached_tokens, cost))

    def _add(self, usage: Usage) -> None:
        self.usage += usage
        self._latest.call.usage += usage

    @abstractmethod
    def _build_request(
        self, messages: list[dict[str, str]], schema: dict[str, Any], most: int, form: str
    ) -> dict[str, Any]:
        """Return the arguments of a request for a reply of at most so many tokens."""

    @abstractmethod
    def _find_reply(self, body: object) -> _Said:
        """Return what the model said."""

    @abstractmethod
    def _find_tokens(self, body: object) -> tuple[int, int, int]:
        """Return tokens of input, of output, and of cached input."""


_OPTIONAL = ("max_tokens", "max_completion_tokens", "temperature", "maxLength", "maxItems")
"""What is left out of a request to a service that refuses it by this name."""
_LEFT_TO_PARENT: list[object] = []
"""What a child must neither use nor close; held, since being collected might close it."""


class OpenAIChatClient(_ChatClient):
    """A client for every service with OpenAI's chat interface, over the official `openai` package.

    Args:
        model: the model's name; "" takes it from KEYWORD_TREE_MODEL.
        api_key: "" takes it from OPENAI_API_KEY, whatever `base_url` is; not needed with a server of one's own.
        base_url: "" takes it from OPENAI_BASE_URL, else it is OpenAI's. Others: `https://api.deepseek.com`,
            `https://api.moonshot.cn/v1`, `https://dashscope.aliyuncs.com/compatible-mode/v1`,
            `http://localhost:11434/v1` (Ollama), `http://localhost:8000/v1` (vLLM).
        timeout_s: for a whole `Chat`, all attempts and waits together, in seconds; `Chat` ends by then. A
            thread that still waits for a name, a connection or a head goes on until it fails; its tokens do not count.
        retries: how often a failed request is sent again, by the package's rules.
        budget_calls: max requests, of all threads together; None: no limit.
        budget_tokens: nothing is sent once this many tokens, input and output, were used; calls under way may exceed
            it. None: no limit.
        prices: of the model; for `Usage.cost`.
        options: further fields of the request, as the service names them, such as `{"temperature": 0.5}`; they go
            before what is sent by itself, temperature 0 and `max_tokens`.

    Raises:
        InvalidInputError: an argument cannot be used, or key or model are missing.
        ImportError: the package is not installed; the message says how to.
    """

    _PACKAGE, _CLASS, _CALL = "openai", "OpenAI", "chat.completions"
    _ADDRESS = "https://api.openai.com/v1"
    _FORMS = ("schema", "object with schema", "object", "text")

    @override
    def _build_request(
        self, messages: list[dict[str, str]], schema: dict[str, Any], most: int, form: str
    ) -> dict[str, Any]:
        limit = "max_completion_tokens" if "max_tokens" in self._left_out else "max_tokens"
        sent = {"temperature": 0, limit: most}
        if not {"max_tokens", "max_completion_tokens"}.isdisjoint(self._options):
            del sent[limit]
        request: dict[str, Any] = {"model": self.model, "messages": messages}
        request |= {name: value for name, value in sent.items() if name not in self._left_out}
        if form == "schema":
            is_strict = set(schema.get("required", ())) == set(schema.get("properties", ()))
            wanted = {"name": "reply", "schema": schema, "strict": is_strict}
            request["response_format"] = {"type": "json_schema", "json_schema": wanted}
        elif form != "text":
            request["response_format"] = {"type": "json_object", **({"schema": schema} if "schema" in form else {})}
        return {**request, "extra_body": self._options}

    @override
    def _find_reply(self, body: object) -> _Said:
        choice = _at(body, "choices", 0)
        message, ended = _at(choice, "message"), str(_at(choice, "finish_reason"))
        refusal = _at(message, "refusal") or (ended == "content_filter" and "its service's filter was hit")
        # Arguments first: beside them, the text holds only what leads to them. Older servers call them a function.
        arguments = _at(message, "tool_calls", 0, "function", "arguments") or _at(message, "function_call", "arguments")
        return _Said(arguments or _join(_at(message, "content")), str(refusal or ""), ended)

    @override
    def _find_tokens(self, body: object) -> tuple[int, int, int]:
        usage = _at(body, "usage")
        cached = _at(usage, "prompt_tokens_details", "cached_tokens")
        others = _at(usage, "prompt_cache_hit_tokens"), _at(usage, "cached_tokens")  # DeepSeek's name, and Kimi's
        return (
            _count(_at(usage, "prompt_tokens")),
            _count(_at(usage, "completion_tokens")),
            _count(cached) or max(map(_count, others)),
        )


class AnthropicChatClient(_ChatClient):
    """A client for Anthropic's models, over the official `anthropic` package.

    Args, errors and costs are those of `OpenAIChatClient`, with ANTHROPIC_API_KEY and ANTHROPIC_BASE_URL. Anthropic
    caches a prompt only where asked: `options={"cache_control": {"type": "ephemeral"}}`.
    """

    _PACKAGE, _CLASS, _CALL = "anthropic", "Anthropic", "messages"
    _ADDRESS = "https://api.anthropic.com"
    _FORMS = ("schema", "text")

    @override
    def _build_request(
        self, messages: list[dict[str, str]], schema: dict[str, Any], most: int, form: str
    ) -> dict[str, Any]:
        extra = {**({} if "temperature" in self._left_out else {"temperature": 0}), **self._options}
        if form == "schema":
            wanted = {"type": "json_schema", "schema": schema}
            extra["output_config"] = {**extra.get("output_config", {}), "format": wanted}
        return {
            "model": self.model,
            "max_tokens": most,
            "system": "\n\n".join(message["content"] for message in messages if message["role"] == "system"),
            "messages": [message for message in messages if message["role"] != "system"],
            "extra_body": extra,
        }

    @override
    def _find_reply(self, body: object) -> _Said:
        content, ended = _at(body, "content"), str(_at(body, "stop_reason"))
        blocks = content if isinstance(content, list) else []
        inputs = [_at(block, "input") for block in blocks if _at(block, "type") == "tool_use"]
        refusal = str(_at(body, "stop_details", "explanation") or "no reason given") if ended == "refusal" else ""
        return _Said((inputs and inputs[0]) or _join(content), refusal, ended)

    @override
    def _find_tokens(self, body: object) -> tuple[int, int, int]:
        usage = _at(body, "usage")
        cached = _count(_at(usage, "cache_read_input_tokens"))
        written = _count(_at(usage, "cache_creation_input_tokens"))
        return _count(_at(usage, "input_tokens")) + cached + written, _count(_at(usage, "output_tokens")), cached


def client_from_environment(**arguments: Any) -> OpenAIChatClient | AnthropicChatClient | None:
    """Return the client that arguments and environment name, or None if there is none to be made of the environment.

    A client needs a model, and a key or an address. Half of it in the environment names none: a key is often set there
    for other programs. Where both services could be meant, a model whose name begins with `claude` is Anthropic's.

    Args:
        arguments: as for `OpenAIChatClient`; each goes before what the environment says.

    Raises:
        InvalidInputError: an argument cannot be used, or names one half, and the other is nowhere; it says which.
        ImportError: the package is not installed.
    """
    model = str(arguments.get("model") or os.environ.get("KEYWORD_TREE_MODEL", ""))
    is_address_given = bool(arguments.get("api_key") or arguments.get("base_url"))
    openai, anthropic = (
        bool(os.environ.get(f"{name}_API_KEY") or os.environ.get(f"{name}_BASE_URL"))
        for name in ("OPENAI", "ANTHROPIC")
    )
    if not (arguments.get("model") or is_address_given) and not (model and (openai or anthropic)):
        return None
    is_either = is_address_given or openai == anthropic
    is_claude = model.startswith("claude") if is_either else anthropic
    return AnthropicChatClient(**arguments) if is_claude else OpenAIChatClient(**arguments)


def _check_number(name: str, value: object, *, is_whole: bool = False) -> None:
    kinds = int if is_whole else (int, float)
    if not isinstance(value, kinds) or isinstance(value, bool) or not 0 <= value < math.inf:
        number = "a whole number" if is_whole else "a finite number"
        raise InvalidInputError(f"{name} must be {number}, not below 0: {repr(value)[:80]}")


def _check_prices(prices: object) -> None:
    if prices is None:
        return
    if not isinstance(prices, Prices):
        raise InvalidInputError(f"prices must be Prices(…): {repr(prices)[:80]}")
    for name, price in prices._asdict().items():
        if price is not None or name != "cached_per_million":
            _check_number(f"prices.{name}", price)


def _host_of(address: str) -> str:
    if "://" not in address and "@" not in address and "?" not in address:
        raise InvalidInputError(f"base_url must begin with http:// or https://: {address[:80]!r}")
    parts = urlsplit(address)
    is_plain = parts.scheme in ("http", "https") and "@" not in parts.netloc and "?" not in address
    return parts.hostname or "" if is_plain else ""


def _import(name: str, extra: str) -> Any:
    """Return an optional package.  Not at the top: one client must not need the other's."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"{name} is not installed: pip install '.[{extra}]' in its repository") from error


# Reading what a service answers: any field may be missing, or of another type than it should be


def _at(value: object, *keys: str | int) -> Any:
    """Return the value at a path in JSON, None where there is none."""
    for key in keys:
        is_item = isinstance(value, list) and isinstance(key, int) and len(value) > key
        if not is_item and not (isinstance(value, dict) and key in value):
            return None
        value = value[key]  # type: ignore[index]  # a list or a dict, as was just seen
    return value


def _count(value: object) -> int:
    return value if type(value) is int and 0 < value < 1_000_000_000 else 0  # more is no count, and may be no float


def _join(content: object) -> str:
    """Return a text that may come in parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(part["text"] for part in parts if isinstance(_at(part, "text"), str))


def _words_of(body: object) -> str:
    """Return what a service says about an error, in whichever of the usual places."""
    found = (_at(body, *path) for path in (("message",), ("error", "message"), ("error",), ("detail",)))
    return next((words for words in found if isinstance(words, str)), "")


def _read_within_limits(latest: threading.local, response: Any) -> None:
    """Read an answer here, since the packages read one to its end, which may never come.

    Args:
        latest: has this thread's `call`.
        response: of whichever HTTP library the package uses; it goes on with what was read.
    """
    if not response.is_success:
        latest.call.status = response.status_code
    limit = BODY_LIMIT if response.is_success else PAGE_LIMIT
    content = bytearray()
    with contextlib.nullcontext() if response.is_success else contextlib.suppress(Exception):  # half a page is enough
        for chunk in response.stream:
            content += chunk
            if len(content) >= limit or time.monotonic() >= latest.call.deadline:
                break
    response.stream.close()
    response.stream = sys.modules[type(response).__module__.partition(".")[0]].ByteStream(bytes(content))


def _without(part: Any, names: frozenset[str]) -> Any:
    """Return a schema without some of its words."""
    if isinstance(part, list):
        return [_without(each, names) for each in part]
    if not names or not isinstance(part, dict):
        return part
    return {name: _without(value, names) for name, value in part.items() if name not in names}


# Reading what a model says


def read_reply(said: object, json_schema: Mapping[str, Any] | None = None, *, is_cut: bool = False) -> dict[str, Any]:
    """Return the JSON object in a model's reply.

    Of several objects the last one that has a field of the schema counts; one that is wrapped, as a tool's arguments
    are, is unwrapped. Text before `</think>` does not count. A number at the very end of a text that breaks off may be
    half of one, and is not taken.

    Args:
        said: a text, or a tool's arguments.
        json_schema: what the reply should look like; only the names of its fields are used.
        is_cut: whether the model was stopped before its end; what is not whole is then refused, and not repaired.

    Raises:
        ReplyError: there is no JSON object, not even a broken one.

    Cost: grows with the length of a text; what is repaired has at most `REPAIR_LIMIT` characters.

    >>> read_reply("I would say: the second one.")
    Traceback (most recent call last):
    Agent.models.model_clients.ReplyError: the reply is no JSON object: 'I would say: the second one.'
    """
    properties = _at(json_schema, "properties")
    known = frozenset(properties if isinstance(properties, dict) else ())
    text = said if isinstance(said, str) else ""
    found = _choose([_parse(text) if text else said], known)
    if found is None:
        # Only now: a whole reply may have the word in one of its texts.
        found = _choose(list(_objects_in(text.rpartition("</think>")[2], repairs=not is_cut)), known)
    if found is None:
        _refuse(said, "is cut" if is_cut else "is no JSON object")
    return found


def _refuse(said: object, what: str) -> NoReturn:
    shown = said if isinstance(said, str) else repr(said)
    raise ReplyError(f"the reply {what}: {shown[:80]!r}{'…' if len(shown) > 80 else ''}")


def _choose(values: list[object], known: frozenset[str]) -> dict[str, Any] | None:
    """Return the last object that has a known field, else the last object."""
    flat = [item for value in values for item in (value if isinstance(value, list) else [value])]
    objects = [item for item in flat if isinstance(item, dict)]
    inner = [_parse(item) if isinstance(item, str) else item for value in objects for item in value.values()]
    for candidates in (objects, [item for item in inner if isinstance(item, dict)]):
        fitting = [item for item in candidates if known & item.keys()]
        if fitting:
            return fitting[-1]
    return objects[-1] if objects else None


def _parse(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _objects_in(text: str, *, repairs: bool) -> Iterator[object]:
    """Yield the JSON objects in a text, one after another; what follows a broken one is repaired with it.

    A broken one is not skipped: an object inside it is a part of the reply, and must not be taken for all of it.
    Not each brace is tried: to fail costs time that grows with the text before it.
    """
    decoder = json.JSONDecoder()
    end = 0
    while begin := _OBJECT_BEGINS.search(text, end):
        start = begin.start()
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            if repairs and len(text) - start <= REPAIR_LIMIT:
                yield _repaired(text[start:])
            return
        yield value


_OBJECT_BEGINS = re.compile(r"""\{\s*("[^"]*"|'[^']*'|\w+)\s*:""")
_CUT_NUMBER = re.compile(r"[-+.\d]+([eE][-+]?\d*)?$")


def _repaired(text: str) -> object:
    """Return what can be made of broken JSON."""
    try:
        return _import("json_repair", "openai").loads(_CUT_NUMBER.sub("null", text.rstrip()))
    except (ValueError, RecursionError):
        return None
