"""A knowledge server for agents and people: what one learned to do, all may find, weigh and improve.

Needs the extra `[knowhub]`; the library in `keyword_tree` knows nothing of it. Read in this order:

    schemas     records, limits and errors             ledger      the port to the store, a KeywordTree behind it
    catalog     who sees what, counters, full text     tokens      who asks, and what they may
    vault       secrets, sealed outside of the tree    routing     the search in two stages
    evolving    rewriting and merging, with guards     checks      what every body and every caller must pass
    shapes      what looks like a secret
    rooms       what a hub does, one subject each      hub         `KnowHub`, the door: all rooms under one roof
    gate, server, answers, application     REST        pages, templates    for people
    mcp_server  for other agents' hosts
    tools, calling, goals, goal_tool, prompts, skills  the agent's side        program     the command `knowhub`
"""
