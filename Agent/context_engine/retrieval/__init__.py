"""From a question to blocks of text that fit a budget.

searcher   from a question to hits: planned, then names and abstracts, then overviews, passages and messages
assembler  blocks within a budget, each saying why it is there; one node's level, when it is wanted
"""
