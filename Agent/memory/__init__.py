"""What an agent remembers besides keywords: facts, episodes, patterns and skills, and how they are related.

Optional; the library in `keyword_tree.keyword_tree` knows nothing of it. Read in this order:

    schemas         the records: what was done, what was learned from it, what can be done
    keywords        what a question is about, in English and Chinese, and which states it asks for
    scoring         how well a memory fits, as figures from 0 to 1 that explain themselves
    graph           the interface: entities, their relations and their tags; a graph in memory
    memory_fields   what is in the metadata of infos and keywords: kind, record, sources, what they say of the graph
    graph_rows      the graph of a tree as rows beside the index of words
    memory_rows     rows beside it for filters and scores, and for what supersedes what
    memories        which infos say what is asked for: an index of words (`finding`) that follows the log
    tree_graph      the keywords of a tree as a graph, with all that memories say, and as pages: "what is X"
    extraction      what a model says of a text or a session, as far as its quotes prove it; also the context engine's
    reading         memories are read for the graph: at once, later, or in a thread; and taken back
    retriever       finds memories for a question, through both channels
    eviction        what may be forgotten, and why
    writing         remember, correct, forget, undo
    store           `MemoryStore`, the API
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .eviction import Capacity, HybridEviction, NoEviction, RecallBased, Ttl
    from .retriever import RetrievalStrategy, RetrieverConfig
    from .schemas import EpisodeTrace, ProceduralSkill, SemanticPattern
    from .store import AsyncMemoryStore, MemoryStore

_NAMES = {
    "store": ("AsyncMemoryStore", "MemoryStore"),
    "retriever": ("RetrievalStrategy", "RetrieverConfig"),
    "schemas": ("EpisodeTrace", "ProceduralSkill", "SemanticPattern"),
    "eviction": ("Capacity", "HybridEviction", "NoEviction", "RecallBased", "Ttl"),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = ["AsyncMemoryStore", "Capacity", "EpisodeTrace", "HybridEviction", "MemoryStore", "NoEviction"]
__all__ += ["ProceduralSkill", "RecallBased", "RetrievalStrategy", "RetrieverConfig", "SemanticPattern", "Ttl"]


def __getattr__(name: str) -> Any:
    # Imported when wanted: the console asks the retriever alone, and a prompt waits for what is imported.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULES[name]}", __name__), name)
