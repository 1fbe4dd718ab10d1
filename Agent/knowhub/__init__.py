"""A knowledge server for agents and people: what one learned to do, all may find, weigh and improve.

Needs the extra `[knowhub]`; the library in `keyword_tree` knows nothing of it. Read in this order:

    schemas     records, limits and errors             ledger      records in a KeywordTree; following: what is derived
    catalog     who sees what, counters, full text     tokens      callers and their rights
    vault       secrets, sealed outside of the tree    files       where tokens and secrets are: a folder, or PostgreSQL
    routing     the search in two stages               evolving    rewriting and merging, with guards
    services    what a hub does, a subject each        hub         `KnowHub`, the API in process
    gate, server, answers, application, serving        REST        pages, templates           for people
    mcp_server  for other agents' hosts                program, commands, identity            the command `knowhub`
    tools, calling, goals, goal_tool, prompts, skills  the agent's side
"""
