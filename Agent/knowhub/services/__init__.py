"""The functions of a hub, one subject a file; `hub.KnowHub` inherits them all.

store        what all use                          finding        the search
entries      knowledge itself                      judging        feedback, rewriting and proposals
resources    public bodies and sealed secrets      slimming       merging what says the same
transfer     export and import                     keeping        operations and undo, goals, tokens, groups
"""
