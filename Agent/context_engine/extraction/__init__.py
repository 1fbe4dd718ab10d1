"""What of a session is worth keeping: candidates, each with the messages that it is from.

extractors  the four extractors, which a model fills, and the tools that were used, counted
"""
