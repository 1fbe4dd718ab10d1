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

Replies are read as tolerantly as is safe:

>>> read_reply('Sure!\n```json\n{"action": "match", "node_id": 3}\n```\nAnything else?')
{'action': 'match', 'node_id': 3}

Where no argument is given, the environment counts:

    KEYWORD_TREE_MODEL                      the model's name; none is built in, they change too often
    OPENAI_API_KEY, OPENAI_BASE_URL         for `OpenAIChatClient`
    ANTHROPIC_API_KEY, ANTHROPIC_BASE_URL   for `AnthropicChatClient`

Such a key is sent to any address that is called, one given as `base_url` too; `api_key="none"` prevents it. The
official packages read and send further variables: OPENAI_ORG_ID, OPENAI_CUSTOM_HEADERS, ANTHROPIC_CUSTOM_HEADERS.

The official packages handle connections, authentication, retries, Retry-After and the time of an attempt. What they
lack is here: a deadline for a whole call, a budget, and forms:

1. A reply of the schema is asked for, temperature 0 and no longer than the schema's bounds allow. What a service
   refuses by its name (`max_tokens`, `temperature`, `maxLength`, …) is left out from then on. Where it answers 4xx all
   the same (but for the key, payment, rights and rate), or keeps answering 5xx, the next weaker form is asked for: a
   JSON object with the schema, a JSON object, a text. What worked is remembered, after 5xx for ten minutes. The schema
   is in the system text in any case.
2. A reply that is cut at that length is asked for once more with room for thinking, which is remembered, too.
3. The reply is read from the text: as JSON, as JSON between other words after `</think>`, and at last as JSON that
   `json-repair` can repair. A reply that was cut is not repaired: half a list looks whole.
"""

import contextlib
import contextvars
import importlib
import json
import math
import operator
import os
import re
import threading
import time
import weakref
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from dataclasses import astuple, dataclass
from typing import Any, ClassVar, NamedTuple, TypeAlias, TypeVar
from urllib.parse import urlsplit

from typing_extensions import override

from ..base.checks import check_count, shorten
from ..base.forks import watch_forks
from ..base.keys import hide_keys
from ..keyword_tree import InvalidInputError, KeywordTreeError, LLMClient

__all__ = ["AnthropicChatClient", "BudgetError", "ModelClientError", "OpenAIChatClient", "Prices", "ReplyError"]
__all__ += ["ServiceError", "Usage", "client_from_environment", "read_reply"]

KEY_LENGTH = 8
"""Characters that a key has at least. Shorter ones are placeholders (`none`, `EMPTY`), and not hidden in replies."""

REPAIR_LIMIT = 4096
"""Characters that are repaired at most: the time grows with the square of the length, up to a second for this many."""

ITEMS, CHARACTERS = 16, 400
"""Bounds of lists and texts that have none: a small model under a grammar does not stop by itself."""

LONGEST = 4096
"""Tokens of a reply; services refuse to promise more."""

ROOM, THINKING_ROOM = 128, 4096
"""Tokens of a reply besides those of its schema: blanks and a word before it; and of a model that thinks first."""

FORM_REST_S = 600.0
"""Seconds after which a form that failed is asked for again: a service that fails now and then is not refusing it."""

_NUMBER, _KEY, _CHARACTER = 8, 4, 3  # tokens of a small model that knows no Chinese: each byte is one
_OPTIONAL = ("max_tokens", "max_completion_tokens", "temperature", "maxLength", "maxItems")
_OF_THE_CALLER = (401, 402, 403, 407, 408, 429)  # no other form helps: key, payment, rights, proxy, time, rate
_CUT = ("length", "max_tokens")  # how the services call it that a reply came to the limit of its length

_T = TypeVar("_T")
_Messages: TypeAlias = list[dict[str, str]]


# Errors: what a caller would do about it. A deadline that passes is a plain `TimeoutError`, as the port asks.


class ModelClientError(KeywordTreeError):
    """Base of the errors of these clients."""


class ServiceError(ModelClientError, ConnectionError):
    """The service cannot be reached, refuses, or answers with nothing usable: check address, key and model."""

    def __init__(self, message: str, *, status: int = 0) -> None:
        super().__init__(message)
        self.status = status
        """The HTTP status, 0 where there was none."""


class ReplyError(ModelClientError, ValueError):
    """The model answered, and its reply cannot be read: another model, or another wording, may do better."""


class BudgetError(ModelClientError, RuntimeError):
    """The budget is used up, and nothing more was sent."""


# Counting


class Prices(NamedTuple):
    """The price of a model per million tokens, in any currency."""

    input_per_million: float
    output_per_million: float
    cached_per_million: float | None = None
    """Of input that came from the service's cache; None: as any other input."""

    def cost(self, input_tokens: int, output_tokens: int, cached_tokens: int) -> float:
        """Return the price of these tokens.

        >>> Prices(3.0, 15.0, 0.3).cost(1_000_000, 100_000, 500_000)
        3.15
        """
        cached = self.input_per_million if self.cached_per_million is None else self.cached_per_million
        fresh = max(0, input_tokens - cached_tokens) * self.input_per_million
        return (fresh + cached_tokens * cached + output_tokens * self.output_per_million) / 1e6


@dataclass(frozen=True)
class Usage:
    """The tokens of a call, as far as the service reports them."""

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
        pairs = zip(astuple(self), astuple(other), strict=True)
        sums: list[Any] = [None if None in pair else sum(pair) for pair in pairs]
        return Usage(*sums)


@dataclass
class _Call:
    """A call under way, shared by the thread that waits and the one that sends."""

    deadline: float
    usage: Usage


def within(seconds: float, call: Callable[[], _T]) -> _T:
    """Return the result of a call, in time. A late call is left to a thread that is not waited for.

    >>> within(5.0, lambda: 7)
    7

    Raises:
        TimeoutError: It did not return within `seconds`.
        Exception: The error of the call.
    """
    answer: Future[_T] = Future()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            answer.set_result(context.run(call))
        except BaseException as error:  # it is raised in the caller's thread
            answer.set_exception(error)

    threading.Thread(target=run, name="KeywordTree model call", daemon=True).start()
    try:
        return answer.result(max(0.0, seconds))
    except TimeoutError:
        if answer.done():  # of the call itself
            raise
        raise TimeoutError(f"the model did not answer within {seconds:g} seconds") from None
    finally:
        for variable, value in context.items():  # what a client counted for its caller, `last_usage`
            if variable.get(None) is not value:
                variable.set(value)


def check_time(what: str, seconds: object) -> None:
    """Refuse a value that is no time to wait, in seconds."""
    if not isinstance(seconds, (int, float)) or not 0 < seconds <= threading.TIMEOUT_MAX:
        raise InvalidInputError(f"{what} must be seconds above 0 and finite, not {shorten(seconds)}")


def import_extra(name: str, extra: str) -> Any:
    """Return an optional package.  Not at the top: one client must not need the other's."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        missing = name.partition(".")[0]
        raise ImportError(f"{missing} is not installed: pip install '.[{extra}]' in its repository") from error


# The base of both clients


class _ChatClient(LLMClient):
    """The base of both clients: environment, forms, deadline, budget, counting, errors."""

    lean = True
    candidate_fields = ("aliases",)
    _PACKAGE: ClassVar[str]
    """The official package, and the extra that brings it."""
    _CLASS: ClassVar[str]
    """The package's client."""
    _CALL: ClassVar[str]
    """The method of that client that calls a model."""
    _ADDRESS: ClassVar[str]
    _FORMS: ClassVar[tuple[str, ...]]
    """How the form of the reply can be asked for, the strictest first."""
    model = _host = ""  # so that one whose making fails can still be shown in a traceback, and collected
    _service: Any = None
    usage = Usage()
    """The usage of all calls so far."""

    def __init__(
        self,
        model: str = "",
        api_key: str = "",
        base_url: str = "",
        *,
        timeout_s: float = 60.0,
        retries: int = 2,
        budget_calls: int | None = None,
        prices: Prices | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        variable = self._PACKAGE.upper()
        self.model = model or os.environ.get("KEYWORD_TREE_MODEL", "")
        if not self.model:
            raise InvalidInputError("no model is named: give `model`, or set KEYWORD_TREE_MODEL")
        self._address = base_url or os.environ.get(f"{variable}_BASE_URL") or self._ADDRESS
        self._host = _host_of(self._address)
        self._key = (api_key or os.environ.get(f"{variable}_API_KEY", "")).strip()
        if not self._key and self._address == self._ADDRESS:
            raise InvalidInputError(f"no key for {self._host}: give `api_key`, or set {variable}_API_KEY")
        if not self._key.isascii() or not self._key.isprintable() or " " in self._key:
            raise InvalidInputError("api_key holds characters that no key has")  # and is not shown
        check_time("timeout_s", timeout_s)
        for name, number in (("retries", retries), ("budget_calls", budget_calls)):
            if number is not None:
                check_count(name, number, 0)
        if not isinstance(prices, Prices | None):
            raise InvalidInputError(f"prices must be Prices(…), not {shorten(prices)}")
        if not isinstance(options, Mapping | None):  # whose values may be secret
            raise InvalidInputError(f"options must be a mapping, and is of type {type(options).__name__}")
        self._timeout_s, self._retries, self._prices = timeout_s, retries, prices
        self._budget = math.inf if budget_calls is None else budget_calls
        self._options = dict(options or {})
        self._form, self._form_until = 0, math.inf
        self._left_out: frozenset[str] = frozenset()  # names that the service refused
        self._room = ROOM
        self.usage = self._nothing = Usage(cost=None if prices is None else 0.0)
        self._last: contextvars.ContextVar[_Call] = contextvars.ContextVar("last call")
        import_extra("json_repair", self._PACKAGE)  # now, and not when the first broken reply comes
        self.renew_after_fork()
        watch_forks(self)

    def renew_after_fork(self) -> None:
        """Make a lock and connections: two processes that share them would read each other's answers."""
        self._lock = threading.Lock()  # guards the sum
        package, here = import_extra(self._PACKAGE, self._PACKAGE), weakref.proxy(self)  # so that it can be collected
        hooks = {"request": [lambda _: here._count_call()]}
        http = package.DefaultHttpxClient(event_hooks=hooks, follow_redirects=False)
        self._service = getattr(package, self._CLASS)(
            api_key=self._key or "none",  # servers of one's own ask for no key, but the packages insist on one
            base_url=self._address,
            timeout=self._timeout_s,
            http_client=http,
        )

    def __repr__(self) -> str:
        tokens = self.usage.input_tokens + self.usage.output_tokens
        return f"<{type(self).__name__} {self.model!r} at {self._host}, {self.usage.calls:,} calls, {tokens:,} tokens>"

    @property
    def last_usage(self) -> Usage:
        """The usage of the latest `Chat` of this thread, or of one whose context it took over, also if it failed."""
        call = self._last.get(None)
        return self._nothing if call is None else call.usage

    def close(self) -> None:
        """Close the connections that are kept for further calls; done by itself when the client is collected."""
        if self._service is not None:
            self._service.close()

    __del__ = close

    @override
    def Chat(self, messages: _Messages, json_schema: dict[str, Any]) -> dict[str, Any]:
        """Ask the model.  May be called from any number of threads, and in both processes after a fork.

        Args:
            messages: as `LLMClient.Chat` says.
            json_schema: of the reply; enforced where the service can. Lists and texts without bounds get some.

        Returns:
            The reply: an object, of the schema's form only where the service enforces it.

        Raises:
            TimeoutError: `timeout_s` has passed, over all attempts.
            ServiceError: the service cannot be reached, or refuses.
            ReplyError: the model refused, or its reply is no JSON object, or was cut before its end.
            BudgetError: the budget is used up, before the first request or before another attempt.

        Cost: one request, and up to `retries` more. Where the service refuses a form, one for each weaker one; once
        one has worked, the others are not tried.
        """
        self._last.set(_Call(time.monotonic() + self._timeout_s, self._nothing))
        return within(self._timeout_s, lambda: self._answer(messages, json_schema))

    def _answer(self, messages: _Messages, json_schema: dict[str, Any]) -> dict[str, Any]:
        while True:
            room = self._room
            said, ended = self._find_reply(self._ask(messages, json_schema))
            try:
                if not said:
                    raise ReplyError(f"the reply is empty, it ended with {ended!r}")
                return read_reply(said, json_schema, is_cut=ended in _CUT)
            except ReplyError:
                if ended not in _CUT or room == THINKING_ROOM:
                    raise
            self._room = THINKING_ROOM

    def _ask(self, messages: _Messages, json_schema: dict[str, Any]) -> object:
        """Send the question in the strictest form that the service takes.  Returns the answer's body."""
        schema, most = limits_of(json_schema)
        form = first = self._form if time.monotonic() < self._form_until else 0
        rest_s = 0.0  # for how long the forms before are not asked for
        while True:
            parts, retries = _without(schema, self._left_out), self._retries if form == first else 0
            body = self._send(self._build_request(messages, parts, most + self._room, self._FORMS[form]), retries)
            if not isinstance(body, Exception):
                if rest_s:  # only now: a request that is wrong in itself fails in every form, and shows nothing
                    self._form, self._form_until = form, time.monotonic() + rest_s
                return body
            status = getattr(body, "status", 0)
            is_refused = 400 <= status < 500 and status not in _OF_THE_CALLER
            named = [name for name in _OPTIONAL if name in str(body) and name not in self._left_out]
            if is_refused and named:
                self._left_out |= {named[0]}
            elif (is_refused or status >= 500) and form + 1 < len(self._FORMS):
                form += 1
                rest_s = math.inf if is_refused else max(rest_s, FORM_REST_S)
            else:
                raise body

    def _send(self, request: dict[str, Any], retries: int) -> object:
        """Send.  Returns the body, or the error: raised here, its traceback would hold the key."""
        try:
            call = operator.attrgetter(self._CALL)(self._service.with_options(max_retries=retries))
            text = call.with_raw_response.create(**request).http_response.text
            body = json.loads(text.replace(self._key, "[key]") if len(self._key) >= KEY_LENGTH else text)
        except Exception as error:  # the packages and two generations of HTTP libraries have no common base
            cause = error.__cause__ or error
            if isinstance(cause, BudgetError):
                return BudgetError(str(cause))
            if "Timeout" in type(cause).__name__:  # of the package, of its HTTP library, or ours
                return TimeoutError(f"{self._host} gave no answer within {self._timeout_s:g} s")
            status = getattr(error, "status_code", 0)
            hint = f"; is base_url {self._address} right?" if status < 400 or status in (404, 405) else ""
            return ServiceError(self._clean(f"{self._host}: {error} ({type(cause).__name__}){hint}"), status=status)
        wrong = _at(body, "error")
        if not wrong:  # some gateways write an empty one
            tokens = self._find_tokens(body)
            with self._lock:
                self._add(Usage(0, *tokens, None if self._prices is None else self._prices.cost(*tokens)))
            return body
        status = _at(wrong, "code")  # a gateway may answer 200 for a service that did not
        words = self._clean(f"{self._host} answers with an error: {wrong}")
        return ServiceError(words, status=status if type(status) is int else 0)

    def _clean(self, text: str) -> str:
        """Return a message for a person: on one line, printable, not too long, and without keys."""
        text = "".join(char if char.isprintable() else " " for char in hide_keys(text, self))
        return " ".join(text.split())[:300]

    def _count_call(self) -> None:
        """Count a request before it is sent, or refuse it: by the budget, or since its caller waits no more."""
        if time.monotonic() >= self._last.get().deadline:
            raise TimeoutError("too late")
        with self._lock:
            if self.usage.calls >= self._budget:
                raise BudgetError(f"the budget of {self._budget:,} calls is used up")
            self._add(Usage(calls=1, cost=self._nothing.cost))

    def _add(self, usage: Usage) -> None:
        """Add to the sum and to the call under way; the lock is held."""
        self.usage += usage
        self._last.get().usage += usage

    @abstractmethod
    def _build_request(self, messages: _Messages, schema: dict[str, Any], most: int, form: str) -> dict[str, Any]:
        """Return the arguments of a request for a reply of a limited number of tokens."""

    @abstractmethod
    def _find_reply(self, body: object) -> tuple[str, str]:
        """Return the model's text and why it ended, in the service's own word; raise where it refused."""

    @abstractmethod
    def _find_tokens(self, body: object) -> tuple[int, int, int]:
        """Return tokens of input, of output, and of cached input."""


class OpenAIChatClient(_ChatClient):
    """A client for every service with OpenAI's chat interface, over the official `openai` package.

    Args:
        model: the model's name; "" takes it from KEYWORD_TREE_MODEL.
        api_key: "" takes it from OPENAI_API_KEY, whatever `base_url` is; not needed with a server of one's own.
        base_url: "" takes it from OPENAI_BASE_URL, else it is OpenAI's. Others: `https://api.deepseek.com`,
            `https://api.moonshot.cn/v1`, `https://dashscope.aliyuncs.com/compatible-mode/v1`,
            `http://localhost:11434/v1` (Ollama), `http://localhost:8000/v1` (vLLM).
        timeout_s: for a whole `Chat`, all attempts and waits together, in seconds; `Chat` ends by then. A
            thread that still waits for an answer goes on until it fails; its tokens do not count.
        retries: how often a failed request is sent again, by the package's rules.
        budget_calls: max requests, of all threads together; None: no limit.
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
    def _build_request(self, messages: _Messages, schema: dict[str, Any], most: int, form: str) -> dict[str, Any]:
        limit = "max_completion_tokens" if "max_tokens" in self._left_out else "max_tokens"
        request: dict[str, Any] = {"model": self.model, "messages": messages, "temperature": 0, limit: most}
        request = {name: value for name, value in request.items() if name not in self._left_out}
        if form == "schema":
            is_strict = set(schema.get("required", ())) == set(schema.get("properties", ()))
            wanted = {"name": "reply", "schema": schema, "strict": is_strict}
            request["response_format"] = {"type": "json_schema", "json_schema": wanted}
        elif form != "text":
            request["response_format"] = {"type": "json_object", **({"schema": schema} if "schema" in form else {})}
        return {**request, "extra_body": self._options}

    @override
    def _find_reply(self, body: object) -> tuple[str, str]:
        choice = _at(body, "choices", 0)
        ended = str(_at(choice, "finish_reason"))
        refusal = _at(choice, "message", "refusal") or (ended == "content_filter" and "its service's filter was hit")
        if refusal:
            raise ReplyError(self._clean(f"the model refused: {refusal}"))
        return _join(_at(choice, "message", "content")), ended

    @override
    def _find_tokens(self, body: object) -> tuple[int, int, int]:
        usage = _at(body, "usage")
        cached = _at(usage, "prompt_tokens_details", "cached_tokens")
        others = _at(usage, "prompt_cache_hit_tokens"), _at(usage, "cached_tokens")  # DeepSeek's name, and Kimi's
        most = max(map(_count, (cached, *others)))
        return _count(_at(usage, "prompt_tokens")), _count(_at(usage, "completion_tokens")), most


class AnthropicChatClient(_ChatClient):
    """A client for Anthropic's models, over the official `anthropic` package.

    Args, errors and costs are those of `OpenAIChatClient`, with ANTHROPIC_API_KEY and ANTHROPIC_BASE_URL. Anthropic
    caches a prompt only where asked: `options={"cache_control": {"type": "ephemeral"}}`.
    """

    _PACKAGE, _CLASS, _CALL = "anthropic", "Anthropic", "messages"
    _ADDRESS = "https://api.anthropic.com"
    _FORMS = ("schema", "text")

    @override
    def _build_request(self, messages: _Messages, schema: dict[str, Any], most: int, form: str) -> dict[str, Any]:
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
    def _find_reply(self, body: object) -> tuple[str, str]:
        ended = str(_at(body, "stop_reason"))
        if ended == "refusal":
            raise ReplyError(self._clean(f"the model refused: {_at(body, 'stop_details', 'explanation')}"))
        return _join(_at(body, "content")), ended

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


def _host_of(address: str) -> str:
    """Return the host of an address; one with a secret in it would be in the log of every HTTP library."""
    parts = urlsplit(address)
    if "@" in address or "?" in address:
        raise InvalidInputError("base_url must be an http address without user and password, and without a query")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidInputError(f"base_url must begin with http:// or https://: {hide_keys(address[:80])!r}")
    return parts.hostname


# Reading a service's reply: any field may be missing, or of another type than it should be


def _at(value: object, *keys: str | int) -> Any:
    """Return the value at a path in JSON, None where there is none."""
    for key in keys:
        try:
            value = value[key]  # type: ignore[index]  # a value of another type raises
        except (LookupError, TypeError):
            return None
    return value


def _count(value: object) -> int:
    return value if type(value) is int and 0 < value < 1_000_000_000 else 0  # more is no count, and may be no float


def _join(content: object) -> str:
    """Return a text that may come in parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(text for part in parts if isinstance(text := _at(part, "text"), str))


# Bounds of a schema


def limits_of(json_schema: Any) -> tuple[dict[str, Any], int]:
    """Return a schema in which every list and text ends, and how many tokens its longest reply has, roughly.

    Raises:
        InvalidInputError: it is no JSON schema.
    """
    try:
        schema: dict[str, Any] = bounded({**json_schema})
        return schema, most_tokens(schema)
    except (AttributeError, RecursionError, TypeError, ValueError) as error:
        raise InvalidInputError(f"no JSON schema: {shorten(json_schema)} ({error})") from error


def bounded(schema: Any) -> Any:
    """Return a schema in which every list and every text ends.

    >>> bounded({"type": "array", "items": {"type": "string"}})
    {'maxItems': 16, 'type': 'array', 'items': {'maxLength': 400, 'type': 'string'}}
    """
    return json.loads(json.dumps(schema), object_hook=_with_bounds)


def _with_bounds(part: dict[str, Any]) -> dict[str, Any]:
    kind, bounds = part.get("type") or "", dict[str, int]()
    if "array" in kind:
        bounds["maxItems"] = max(ITEMS, part.get("minItems", 0))
    if "string" in kind and not {"enum", "const"} & part.keys():
        bounds["maxLength"] = max(CHARACTERS, part.get("minLength", 0))
    return {**bounds, **part}


def most_tokens(schema: Any) -> int:
    """Return how many tokens the longest reply of a schema has, roughly, at most `LONGEST`.

    >>> most_tokens({"type": "array", "items": {"type": "integer"}, "maxItems": 5})
    40
    """
    if not isinstance(schema, dict):
        return _NUMBER
    most = [_NUMBER, *(len(str(value)) + 2 for value in (*schema.get("enum", ()), schema.get("const", "")))]
    most += [most_tokens(each) for name in ("anyOf", "oneOf", "allOf") for each in schema.get(name, ())]
    if "maxLength" in schema:
        most.append(_CHARACTER * schema["maxLength"] + 2)
    if "maxItems" in schema:
        most.append(schema["maxItems"] * most_tokens(schema.get("items")))
    parts = schema.get("properties", {})
    most.append(sum(_KEY + len(name) // 3 + most_tokens(part) for name, part in parts.items()))
    return min(max(most), LONGEST)


def _without(schema: Any, names: Collection[str]) -> Any:
    """Return a schema without some of its words."""

    def drop(part: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in part.items() if name not in names}

    return json.loads(json.dumps(schema), object_hook=drop)


# Reading a model's text


def read_reply(said: str, json_schema: Mapping[str, Any] | None = None, *, is_cut: bool = False) -> dict[str, Any]:
    """Return the JSON object in a model's reply.

    Of several objects the last one that has a field of the schema counts; one that is wrapped in another is unwrapped.
    Text before `</think>` does not count. A number at the very end of a text that breaks off may be half of one, and
    is not taken.

    Args:
        said: the text.
        json_schema: what the reply should look like; only the names of its fields are used.
        is_cut: whether the model was stopped before its end; what is not whole is then refused, and not repaired.

    Raises:
        ReplyError: there is no JSON object, not even a broken one.

    Cost: grows with the length of a text; what is repaired has at most `REPAIR_LIMIT` characters.

    >>> read_reply("I would say: the second one.")
    Traceback (most recent call last):
    Agent.models.model_clients.ReplyError: the reply is no JSON object: 'I would say: the second one.'
    """
    known = frozenset(_at(json_schema, "properties") or ())
    thought, _, answer = said.rpartition("</think>")
    text = answer if "{" in answer or "｛" in answer else thought
    inner = text[text.find("{") : text.rfind("}") + 1]
    # First as it is: a whole reply may have `</think>` in one of its texts.
    ways: list[tuple[Callable[[str], object], str]] = [(json.loads, said), (json.loads, inner), (_repaired, text)]
    for read, part in ways[:2] if is_cut else ways:
        with contextlib.suppress(ValueError, RecursionError):
            objects = [each for each in _unwrapped(read(part)) if isinstance(each, dict)]
            if objects:
                return next((each for each in reversed(objects) if known & each.keys()), objects[-1])
    what = "is cut" if is_cut else "is no JSON object"
    raise ReplyError(f"the reply {what}: {said[:80]!r}{'…' if len(said) > 80 else ''}")


def _unwrapped(value: object) -> list[object]:
    """Return the items of a list, and those of an object before it."""
    if isinstance(value, dict):
        return [*value.values(), value]
    return [inner for each in value for inner in _unwrapped(each)] if isinstance(value, list) else []


def _repaired(text: str) -> object:
    """Return the repaired form of broken JSON between other words."""
    text = text.translate(_WIDE)
    if "{" not in text or len(text) > REPAIR_LIMIT:
        raise ValueError("nothing to repair, or too much")
    made: object = import_extra("json_repair", "openai").loads(_CUT_NUMBER.sub("null", text.rstrip()))
    return made


_WIDE = str.maketrans("｛｝［］：，", "{}[]:,")  # as Chinese punctuation has them
_CUT_NUMBER = re.compile(r"(?<![-+.\d])[-+.\d]+([eE][-+]?\d*)?$")
