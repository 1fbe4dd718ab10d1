"""A knowledge server for agents and people: what one learned to do, all may find, weigh and improve.

Needs the extra `[knowhub]`; the library in `keyword_tree` knows nothing of it. Read in this order:

    records     records, times, errors                 schemas     what may be said, and its limits
    ledger      records in a KeywordTree               catalog     what is derived: votes, sight, full text
    tokens      callers and their rights               vault       secrets, sealed outside of the tree
    files       where tokens and secrets are: a folder, or PostgreSQL
    routing     the models                             evolving    guards of rewriting and merging
    services    what a hub does, a subject each        hub         `KnowHub`, the API in process
    gate, server, answers, application                 REST        pages, templates           for people
    mcp_server  for other agents' hosts                serving, commands    the command `knowhub`
    tools, calling, goal_tool, prompts, skills         the agent's side
"""
