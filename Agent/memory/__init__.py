"""What an agent remembers besides keywords: episodes, patterns and skills, and how things hang together.

Optional; the library in `keyword_tree.keyword_tree` knows nothing of it. Read in this order:

    schemas          the records: what was done, what was learned from it, what can be done
    memory_fields    what `MemoryStore` writes of an info; `names`, `messages` what becomes of names and in errors
    keywords         what a question is about, in English and Chinese
    scoring          how well a memory fits, as figures from 0 to 1 that explain themselves
    graph            the port: entities, their relations and their tags
    in_memory_graph  what stands behind it for as long as the process lives
    sayings          what a memory says of the graph, kept with the memory
    tree_graph       the keywords of a tree as a graph, with all that memories say
    own_words        which words of a message are its speaker's own, and what a sentence of them states
    extraction       what a model says of a text or a session, as far as these words say it; also the context engine's
    graph_feed       what remembering, correcting and forgetting do to the graph; `background` the same later
    knowledge        keywords as pages: "what is X"
    log_follower     how what is derived from a tree's log stays true
    memories         which infos say what is asked for: an index of words (`finding`) that follows the log
    relation_words   which relations a question asks for, and of whom a text states them
    retriever        finds memories for a question, through both channels
    eviction         what may be forgotten, and why
    store            `MemoryStore`, the door: remember, recall, correct, forget
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .store import MemoryStore

__all__ = ["MemoryStore"]


def __getattr__(name: str) -> Any:
    # Imported when wanted: the console asks the retriever alone, and a prompt waits for what is imported.
    if name != "MemoryStore":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .store import MemoryStore

    return MemoryStore
