"""An agent's memories: facts, episodes, patterns and skills, and their relations.

Optional; the library in `keyword_tree.keyword_tree` knows nothing of it. Read in this order:

    schemas         the records: episodes, patterns, skills
    keywords        the subject of a question, in English and Chinese, and the states that it asks for
    scoring         scores from 0 to 1, with an explanation
    graph           the interface: entities, their relations and their tags; a graph in memory
    memory_fields   the metadata of infos and keywords: kind, record, sources, statements for the graph
    graph_rows      the graph of a tree as rows beside the index of words
    memory_rows     rows beside it for filters, scores and supersession
    memories        an index of infos (`finding`) that follows the log
    tree_graph      the keywords of a tree as a graph, with the statements of memories, and as pages
    extraction      a model's reading of a text or a session, as far as its quotes prove it; also the context engine's
    reading         memories are read for the graph, at once or later, and removed from it
    retriever       finds memories for a question, through both channels
    eviction        policies of forgetting
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
