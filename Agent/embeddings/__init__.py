"""Find by meaning, too: an optional ranking by embeddings beside the library's ranking by words.

Needs the extra `[embeddings]`; the library in `keyword_tree.keyword_tree` knows nothing of it. Read in this order:

    embedder    the port, texts → vectors, and who stands behind it: a service, a local model
    vectors     vectors of texts, in memory to be compared and on disk to be there again
    worker      the thread in which that is done, so that no search waits without end
    scripts     whether a model knows a script, asked of the model itself
    recall      `EmbeddingTree`: a tree that ranks by words and by meaning
    ranker      the same for what a memory says, behind the port of `keyword_tree.memory.retriever`
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .embedder import FastEmbedEmbedder, LocalEmbedder, OpenAIEmbedder, SentenceTransformersEmbedder
    from .recall import EmbeddingTree

__all__ = ["EmbeddingTree", "FastEmbedEmbedder", "LocalEmbedder", "OpenAIEmbedder", "SentenceTransformersEmbedder"]


def __getattr__(name: str) -> Any:
    """Import a door when it is first asked for: the rest of the package does not need numpy."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "recall" if name == "EmbeddingTree" else "embedder"
    return getattr(import_module(f".{module}", __name__), name)
