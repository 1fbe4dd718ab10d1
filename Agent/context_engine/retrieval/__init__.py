"""From a question to blocks of text that fit a budget.

query_planner         what is asked, by rules
l0_retriever          the first round: names, and abstracts
hierarchical_searcher the second: overviews, passages, messages
assembler             blocks within a budget, each saying why it is there
memory_read_service   one node's level, when it is wanted
"""
