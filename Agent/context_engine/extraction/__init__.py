"""What of a session is worth keeping: candidates, each with the messages that it is from.

cues        the table of Chinese and English phrases by which something is stated plainly
rules       candidates by these cues, without a model
reading     candidates by a model: one question a chunk, every answer checked
extractors  the four extractors, by rules or by a model
"""
