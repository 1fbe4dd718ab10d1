"""What the library knows of relations by their words, for the engine."""

from ...memory.relation_words import ONE_AT_A_TIME, asked_relations, relation_of, subjects_of, words_of

__all__ = ["ONE_AT_A_TIME", "asked_relations", "relation_of", "subjects_of", "words_of"]
