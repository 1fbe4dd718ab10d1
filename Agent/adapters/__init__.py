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
