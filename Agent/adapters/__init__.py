"""A tree with the interfaces of other libraries; each needs its extra, and says so.

    mcp          an MCP server: `keyword-tree-mcp FOLDER`
    langgraph    `KeywordTreeStore`, a LangGraph store
    langchain    `KeywordTreeRetriever` and two tools for LangChain
    mem0         `Memory`, with mem0's calls

and what several of them are made of:

    walking        a model walks a tree by itself: what MCP's and LangChain's tools do
    operations     a change is tried again where another process has written first, and undone
    filters        filters are compiled, and values compared and copied as JSON has them
    item_ranking   items are ranked by words and similarity
    items          items in memory follow the log; their list is kept for the next process
"""
