"""A tree as an MCP server: `keyword-tree-mcp FOLDER`, for every host and framework that is an MCP client.

It has the nine tools of the reference memory server, with the same names, arguments and results, and seven of its own.
Read in this order:

    graph_index   the entities, relations and texts of a tree, kept true by following its log
    graph         `MemoryGraph`: what the nine tools do
    ..walking     `TreeWalk`: what the seven tools do
    server        `build_server`: the tools and the resource as MCP has them, with either generation of its SDK; `serve`

The first three need nothing but the library; the server needs the extra `[mcp]`.
"""
