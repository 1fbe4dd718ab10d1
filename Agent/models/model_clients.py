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

The official packages handle connections, authentication and their services' forms of errors. `tenacity` retries, since
neither package has a deadline for a whole call: each attempt may wait the whole time, a service that sends empty lines
while it is busy (DeepSeek) never exceeds a limit from byte to byte, and a Retry-After may be seven weeks. Both read an
error's page to its end and follow redirects; so what is not 200 is read here, within limits, and no redirect is
followed. Looking up a name, connecting and reading a head have no deadline; so each attempt has a thread of its own,
which is abandoned when the time is over.

1. A reply of the schema is asked for; where the service answers 400 or 422, a JSON object; where it does not know that
   either, nothing. What worked is remembered. The schema is in the system text in any case.
2. After 408, 409, 429, 5xx, a broken connection or a body that cannot be read the request is sent again: after
   Retry-After, at least after a time that doubles, and only if that ends before the deadline.
3. The reply is read from a tool's arguments, else from the text: as JSON, as JSON between other words after `</think>`,
   and at last as JSON that `json-repair` can repair. A reply that was cut is not repaired: half a list looks whole.
"""

import contextlib
import datetime
import email.utils
import functools
import importlib
import json
import math
import operator
import os
import queue
import re
import threading
import time
import weakref
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, NoReturn
from urllib.parse import urlsplit

from typing_extensions import override

from ..keyword_tree import InvalidInputError, KeywordTreeError, LLMClient

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

ANSWER_TOKENS = 1024
"""What Anthropic's interface requires: a reply has some 60 tokens, and a reason may be long."""


# Errors: what a caller would do about it. A deadline that passes is a plain `TimeoutError`, as the port asks.


class ModelClientError(KeywordTreeError):
    """Base of what these clients raise on purpose."""


class ServiceError(ModelClientError, ConnectionError):
    """The service cannot be reached, refuses, or answers what is no answer: look at address, key and model."""

    def __init__(self, message: str, *, status: int | None = None, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.status = status
        """The HTTP status, where there was one."""
        self.retry_after_s = retry_after_s
        """How long the service asks to wait, in seconds; 0 where it does not say."""


class ReplyError(ModelClientError, ValueError):
    """The model answered, and what it said cannot be read: another model, or another wording, may do better."""


class BudgetError(ModelClientError, RuntimeError):
    """The budget is used up, and nothing more was sent; message and `__cause__` name an earlier attempt's failure."""


class _StatusError(Exception):
    """What a service answered instead of 200; raised amid a package's request, which chains its own error to it."""

    def __init__(self, status: int, headers: Mapping[str, str], page: bytes) -> None:
        super().__init__(status)
        self.status, self.headers, self.page = status, headers, page


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


class _Said(NamedTuple):
    """What a model said, wherever it was in the answer."""

    reply: object
    """A text, or a tool's arguments."""
    refusal: str = ""
    """Why there is none, where the model or its service refused."""
    ended: str = ""
    """Why it ended, in the service's own word."""


class _Outcome(NamedTuple):
    """What an attempt ended with."""

    body: object
    failure: Exception | None = None
    """Why there is no body."""
    is_transient: bool = False
    """Whether another attempt may go better."""


class _ChatClient(LLMClient):
    """What both clients do: environment, attempts, deadline, budget, counting, errors."""

    _PACKAGE: ClassVar[str]
    """The official package, and the extra that brings it."""
    _CLASS: ClassVar[str]
    """The package's client."""
    _CALL: ClassVar[str]
    """What of that client calls a model."""
    _ADDRESS: ClassVar[str]
    _MODES: ClassVar[tuple[str, ...]]
    """How the form of the reply can be asked for, the strictest first."""
    # So that one whose making fails can still be shown in a traceback:
    model = ""
    _host = ""
    _usage = Usage()

    def __init__(
        self,
        model: str = "",
        api_key: str = "",
        base_url: str = "",
        *,
        timeout_s: float = 60.0,
        retries: int = 2,
        backoff_s: float = 0.5,
        budget_calls: int | None = None,
        budget_tokens: int | None = None,
        prices: Prices | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        variable = self._PACKAGE.upper()
        self.model = model or os.environ.get("KEYWORD_TREE_MODEL", "")
        if not self.model:
            raise InvalidInputError("no model is named: give `model`, or set KEYWORD_TREE_MODEL")
        address = base_url or os.environ.get(f"{variable}_BASE_URL") or self._ADDRESS
        if "://" not in address and "@" not in address and "?" not in address:
            raise InvalidInputError(f"base_url must begin with http:// or https://: {address[:80]!r}")
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or "?" in address:
            # What is secret in an address would be in the log of every HTTP library.
            raise InvalidInputError("base_url must be an http address without user and password, and without a query")
        self._host = parts.hostname
        self._key = (api_key or os.environ.get(f"{variable}_API_KEY", "")).strip()
        if not self._key and address == self._ADDRESS:
            raise InvalidInputError(f"no key for {self._host}: give `api_key`, or set {variable}_API_KEY")
        if not self._key.isascii() or not self._key.isprintable() or " " in self._key:
            raise InvalidInputError("api_key holds characters that no key has")  # and is not shown
        _check_number("timeout_s", timeout_s)
        if not 0 < timeout_s <= threading.TIMEOUT_MAX:
            raise InvalidInputError(f"timeout_s must be above 0 and at most {threading.TIMEOUT_MAX:g}: {timeout_s}")
        _check_number("retries", retries, is_whole=True)
        _check_number("backoff_s", backoff_s)
        for name, budget in (("budget_calls", budget_calls), ("budget_tokens", budget_tokens)):
            if budget is not None:
                _check_number(name, budget, is_whole=True)
        if prices is not None:
            _check_prices(prices)
        if options is not None and not isinstance(options, Mapping):  # whose values may be secret
            raise InvalidInputError(f"options must be a mapping, and is of type {type(options).__name__}")
        self._timeout_s, self._retries, self._backoff_s = timeout_s, retries, backoff_s
        self._budget_calls, self._budget_tokens = budget_calls, budget_tokens
        self._prices = prices
        self._options = dict(options or {})
        self._mode = 0  # of _MODES; an int is set whole, so threads need no lock for it
        self._nothing = Usage(cost=None if prices is None else 0.0)
        self._usage = self._nothing
        self._latest = threading.local()
        self._package = _import(self._PACKAGE, self._PACKAGE)
        self._tenacity = _import("tenacity", self._PACKAGE)
        _import("json_repair", self._PACKAGE)  # now, and not when the first broken reply comes
        self._address = address
        self._begin()
        _CLIENTS.add(self)

    def _begin(self) -> None:
        """Make what two processes cannot share: a lock and connections."""
        self._lock = threading.Lock()  # guards the sum
        look = functools.partial(_look_at_head, self._latest)  # of which no part is this client: it can be collected
        self._service = getattr(self._package, self._CLASS)(
            api_key=self._key or "none",  # servers of one's own ask for no key, but the packages insist on one
            base_url=self._address,
            max_retries=0,
            http_client=self._package.DefaultHttpxClient(event_hooks={"response": [look]}),
        )
        self._close = weakref.finalize(self, self._service.close)

    def _begin_in_child(self) -> None:
        """Leave lock and connections to the parent, in the child of a fork.

        The lock may be held by a thread that the child does not have. Two processes that read from one connection get
        each other's answers; closing it here could wait for a lock of the parent's, too.
        """
        _LEFT_TO_PARENT.append(self._service)
        self._close.detach()
        self._begin()

    def __repr__(self) -> str:
        usage = self.usage
        tokens = usage.input_tokens + usage.output_tokens
        return f"<{type(self).__name__} {self.model!r} at {self._host}, {usage.calls:,} calls, {tokens:,} tokens>"

    @property
    def usage(self) -> Usage:
        """What all calls so far have used."""
        return self._usage

    @property
    def last_usage(self) -> Usage:
        """What the latest `Chat` of the calling thread used, also if it failed."""
        usage: Usage = getattr(self._latest, "usage", self._nothing)
        return usage

    def close(self) -> None:
        """Close the connections that are kept for further calls; done by itself when the client is collected."""
        self._close()

    @override
    def Chat(self, messages: list[dict[str, str]], json_schema: dict[str, Any]) -> dict[str, Any]:
        """Ask the model.  May be called from any number of threads, and in both processes after a fork.

        Args:
            messages: as `LLMClient.Chat` says.
            json_schema: of the reply; enforced where the service can.

        Returns:
            The reply: an object, of the schema's form only where the service enforces it.

        Raises:
            TimeoutError: `timeout_s` has passed, over all attempts.
            ServiceError: the service cannot be reached, or refuses.
            ReplyError: the model refused, or said what is no JSON object, or was cut before its end.
            BudgetError: the budget is used up, before the first request or before another attempt.

        Cost: one request, and up to `retries` more. Where the service answers 400 or 422, as many again in each weaker
        form, of which OpenAI's interface has two and Anthropic's one; once one has worked, the others are not tried.
        """
        deadline = time.monotonic() + self._timeout_s
        self._latest.usage = self._nothing
        body = self._ask(messages, json_schema, deadline)
        if (error := _at(body, "error")) is not None:
            raise ServiceError(self._clean(f"{self._host} answers with an error: {_words_of(body) or repr(error)}"))
        said = self._find_reply(body)
        if said.refusal:
            raise ReplyError(self._clean(f"the model refused: {said.refusal}"))
        if not said.reply:
            raise ReplyError(self._clean(f"the reply is empty, it ended with {said.ended!r}"))
        reply = read_reply(said.reply, json_schema, is_cut=said.ended in _CUT)
        with contextlib.suppress(RecursionError):
            cleaned: dict[str, Any] = self._hide(reply)
            return cleaned
        raise ReplyError("the reply is nested too deeply")

    def _ask(self, messages: list[dict[str, str]], json_schema: dict[str, Any], deadline: float) -> object:
        """Send the question in the strictest form that the service takes.  Returns the answer's body."""
        mode, before = self._mode, None
        while True:
            try:
                body = self._send(self._build_request(messages, json_schema, self._MODES[mode]), deadline, before)
            except ServiceError as error:
                if error.status not in (400, 422) or mode + 1 == len(self._MODES):
                    raise
                mode, before = mode + 1, error
            else:
                # Remembered only now: a request that is wrong in itself fails in every mode, and shows nothing.
                self._mode = max(self._mode, mode)
                return body

    def _send(self, request: dict[str, Any], deadline: float, before: Exception | None) -> object:
        """Send a request, again where that may help and time allows.  Returns the answer's body."""
        tenacity = self._tenacity
        backoff = tenacity.wait_exponential(self._backoff_s) + tenacity.wait_random(0, self._backoff_s)

        def attempt() -> _Outcome:
            nonlocal before
            self._count_call(before)
            outcome = self._attempt_in_time(request, deadline)
            before = outcome.failure if isinstance(outcome.failure, ServiceError) else before
            return outcome

        # Failures are results here, not exceptions: a traceback would hold the request, and the key.
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_result(lambda outcome: outcome.is_transient),
            wait=lambda state: max(getattr(state.outcome.result().failure, "retry_after_s", 0.0), backoff(state)),
            stop=tenacity.stop_after_attempt(self._retries + 1)
            | tenacity.stop_before_delay(max(0.0, deadline - time.monotonic())),
            retry_error_callback=lambda state: state.outcome.result(),
        )
        body, failure, _ = retrying(attempt)
        if failure is not None:
            raise failure from (before if isinstance(failure, TimeoutError) else None)
        self._count_tokens(*self._find_tokens(body))
        return body

    def _attempt_in_time(self, request: dict[str, Any], deadline: float) -> _Outcome:
        """Send once, as `_attempt` does, in a thread that is left at the deadline, however far it has come."""
        outcomes: queue.SimpleQueue[_Outcome] = queue.SimpleQueue()

        def attempt() -> None:
            self._latest.deadline = deadline  # each thread has its own
            outcomes.put(self._attempt(request, deadline))

        thread = threading.Thread(target=attempt, name="model call", daemon=True)  # none that the program's end awaits
        thread.start()
        with contextlib.suppress(queue.Empty):
            outcome = outcomes.get(timeout=max(0.0, deadline - time.monotonic()))
            thread.join()  # it is at its end, and would keep this client from being collected
            if outcome.failure is None or time.monotonic() < deadline:  # whatever failed later failed for want of time
                return outcome
        return _Outcome(None, TimeoutError(f"{self._host} gave no answer within {self._timeout_s:g} s"))

    def _attempt(self, request: dict[str, Any], deadline: float) -> _Outcome:
        """Send once.  Returns the body, or what went wrong."""
        has_begun = False
        try:
            create = operator.attrgetter(self._CALL)(self._service).with_streaming_response.create
            with create(**request, timeout=max(0.001, deadline - time.monotonic())) as response:
                has_begun = True
                return self._read(response.iter_bytes(), deadline)
        except Exception as error:  # the packages and two generations of HTTP libraries have no common base
            cause = error.__cause__ or error
            if isinstance(cause, _StatusError):
                return _Outcome(None, self._explain(cause), _is_transient(cause.status, cause.headers))
            is_connection = has_begun or isinstance(error, self._package.APIConnectionError)
            what = "the connection broke" if has_begun else "cannot be reached" if is_connection else str(error)
            failure = ServiceError(self._clean(f"{self._host}: {what} ({type(cause).__name__})"))
            return _Outcome(None, failure, is_connection)

    def _read(self, chunks: Iterator[bytes], deadline: float) -> _Outcome:
        """Return as `_attempt` does: an error that was raised here would keep this frame, and the answer in it."""
        body = bytearray()
        for chunk in chunks:
            body += chunk
            if len(body) > BODY_LIMIT:
                return _Outcome(None, ReplyError(f"the answer has more than {BODY_LIMIT:,} bytes"))
            if time.monotonic() >= deadline:
                break  # the caller has left
        try:
            return _Outcome(self._hide(json.loads(body)))
        except (ValueError, RecursionError):
            start = repr(self._hide(body.decode("utf-8", "replace"))[:60])
            text = f"{self._host} answers what is no JSON, is base_url right? It begins with {start}"
            return _Outcome(None, ServiceError(text), is_transient=True)

    def _explain(self, error: _StatusError) -> ServiceError:
        retry_after_s = _retry_after_s(error.headers, time.time())
        text = f"{self._host} answers {error.status}"
        if error.status in (404, 405):  # before what the service says, which may be long
            text += f" (is base_url right? It is {self._address})"
        if words := _words_of(_parse(error.page.decode("utf-8", "replace"))):
            text += f": {words}"
        elif address := error.headers.get("location"):
            text += f", and leads to {address}: is base_url right?"
        if retry_after_s:
            text += f" (to be tried again after {retry_after_s:g} s)"
        return ServiceError(self._clean(text), status=error.status, retry_after_s=retry_after_s)

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
        """Return a message for a person: on one line, printable, not too long, and without the key."""
        text = "".join(char if char.isprintable() else " " for char in self._hide(text))
        return " ".join(text.split())[:300]

    def _count_call(self, before: Exception | None) -> None:
        with self._lock:
            calls, tokens = self._usage.calls, self._usage.input_tokens + self._usage.output_tokens
            for used, budget, unit in ((calls, self._budget_calls, "calls"), (tokens, self._budget_tokens, "tokens")):
                if budget is not None and used >= budget:
                    text = f"the budget of {budget:,} {unit} is used up: {calls:,} calls, {tokens:,} tokens"
                    raise BudgetError(f"{text}; before: {before}" if before else text) from before
            self._add(Usage(calls=1, cost=self._nothing.cost))

    def _count_tokens(self, input_tokens: int, output_tokens: int, cached_tokens: int) -> None:
        cost = None if self._prices is None else self._prices.cost(input_tokens, output_tokens, cached_tokens)
        with self._lock:
            self._add(Usage(0, input_tokens, output_tokens, cached_tokens, cost))

    def _add(self, usage: Usage) -> None:
        self._usage += usage
        self._latest.usage += usage

    @abstractmethod
    def _build_request(self, messages: list[dict[str, str]], json_schema: dict[str, Any], mode: str) -> dict[str, Any]:
        """Return the arguments of a request."""

    @abstractmethod
    def _find_reply(self, body: object) -> _Said:
        """Return what the model said."""

    @abstractmethod
    def _find_tokens(self, body: object) -> tuple[int, int, int]:
        """Return tokens of input, of output, and of cached input."""


_CLIENTS: weakref.WeakSet[_ChatClient] = weakref.WeakSet()
_LEFT_TO_PARENT: list[object] = []
"""What a child must neither use nor close; held, since being collected might close it."""


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: list(map(_ChatClient._begin_in_child, list(_CLIENTS))))


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
        retries: how often a failed request is sent again.
        backoff_s: the least wait before the first retry, in seconds; it doubles each time, and up to the first wait is
            added at random, so that many clients do not come back at once.
        budget_calls: max requests, of all threads together; None: no limit.
        budget_tokens: nothing is sent once this many tokens, input and output, were used; calls under way may exceed
            it. None: no limit.
        prices: of the model; for `Usage.cost`.
        options: further fields of the request, as the service names them: `{"temperature": 0}`.

    Raises:
        InvalidInputError: an argument cannot be used, or key or model are missing.
        ImportError: the package is not installed; the message says how to.
    """

    _PACKAGE, _CLASS, _CALL = "openai", "OpenAI", "chat.completions"
    _ADDRESS = "https://api.openai.com/v1"
    _MODES = ("schema", "object", "text")

    @override
    def _build_request(self, messages: list[dict[str, str]], json_schema: dict[str, Any], mode: str) -> dict[str, Any]:
        request: dict[str, Any] = {"model": self.model, "messages": messages, "extra_body": self._options}
        if mode == "schema":
            form = {"name": "reply", "schema": json_schema, "strict": True}
            request["response_format"] = {"type": "json_schema", "json_schema": form}
        elif mode == "object":
            request["response_format"] = {"type": "json_object"}
        return request

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

    Args, errors and costs are those of `OpenAIChatClient`, with ANTHROPIC_API_KEY and ANTHROPIC_BASE_URL. The length
    of an answer is limited to 1,024 tokens; `options={"max_tokens": 4096}` allows more, which a model that thinks
    before it answers needs. Anthropic caches a prompt only where asked:
    `options={"cache_control": {"type": "ephemeral"}}`.
    """

    _PACKAGE, _CLASS, _CALL = "anthropic", "Anthropic", "messages"
    _ADDRESS = "https://api.anthropic.com"
    _MODES = ("schema", "text")

    @override
    def _build_request(self, messages: list[dict[str, str]], json_schema: dict[str, Any], mode: str) -> dict[str, Any]:
        extra = dict(self._options)
        if mode == "schema":
            form = {"type": "json_schema", "schema": json_schema}
            extra["output_config"] = {**extra.get("output_config", {}), "format": form}
        return {
            "model": self.model,
            "max_tokens": ANSWER_TOKENS,
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
    if not isinstance(prices, Prices):
        raise InvalidInputError(f"prices must be Prices(…): {repr(prices)[:80]}")
    for name, price in prices._asdict().items():
        if price is not None or name != "cached_per_million":
            _check_number(f"prices.{name}", price)


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


def _look_at_head(latest: threading.local, response: Any) -> None:
    """Read what is not 200 within limits, and leave it; called when the head of an answer is there.

    No redirect is followed: this is called before the package could.

    Args:
        latest: has the `deadline` of this thread's call.
        response: of whichever HTTP library the package uses.

    Raises:
        _StatusError: the answer is not 200.
    """
    if response.is_success:
        return
    page = bytearray()
    with contextlib.suppress(Exception):  # a page that breaks off is as good as a whole one
        for chunk in response.iter_bytes():
            page += chunk
            if len(page) > PAGE_LIMIT or time.monotonic() >= latest.deadline:
                break
    raise _StatusError(response.status_code, response.headers, bytes(page))


def _is_transient(status: int, headers: Mapping[str, str]) -> bool:
    advice = headers.get("x-should-retry")  # both services' own header, and goes before the status
    return advice == "true" or (advice != "false" and (status in (408, 409, 429) or status >= 500))


def _retry_after_s(headers: Mapping[str, str], now: float) -> float:
    """Return how long the service asks to wait, in seconds; 0.0 where it does not say, or says nonsense.

    >>> _retry_after_s({"retry-after-ms": "250"}, 0.0), _retry_after_s({"retry-after": "soon"}, 0.0)
    (0.25, 0.0)
    >>> _retry_after_s({"retry-after": "Thu, 01 Jan 1970 00:01:00 GMT"}, 12.0)
    48.0
    """
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):  # milliseconds are the more exact
        with contextlib.suppress(KeyError, ValueError):
            return max(0.0, float(headers[name]) * scale)
    with contextlib.suppress(KeyError, ValueError, OverflowError):
        date = email.utils.parsedate_to_datetime(headers["retry-after"])
        # One of HTTP's three forms of a date names no zone; all of them are in UTC.
        return max(0.0, (date if date.tzinfo else date.replace(tzinfo=datetime.UTC)).timestamp() - now)
    return 0.0


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
