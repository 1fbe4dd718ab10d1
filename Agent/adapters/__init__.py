"""A tree with the interfaces of other libraries; each needs its extra, and says so.

    mcp          an MCP server: `keyword-tree-mcp FOLDER`
    langgraph    `KeywordTreeStore`, a LangGraph store
    langchain    `KeywordTreeRetriever` and two tools for LangChain
    mem0         `Memory`, with mem0's calls

and what several of them are made of:

    walking        a model walks a tree by itself: what MCP's and LangChain's tools do
    operations     an operation is tried again where another process has written first, and the last one is undone
    filters        what an interface calls a filter is compiled
    item_ranking   items are ranked by words and similarity
    json_values    values are compared and copied as JSON has them
"""

import warnings

__all__ = ["warn_moved"]


def warn_moved(old: str, new: str) -> None:
    """Warn who imports a module by the path that it had before."""
    warnings.warn(
        f"{old} has moved to {new}; the old name goes with the next release", DeprecationWarning, stacklevel=3
    )
