"""What the library knows of extraction, for the engine: the question, its schema, the checks, and the deadline."""

from ...memory.extraction import SCHEMA, Fact, Shown, check_fact, make_question, within

__all__ = ["SCHEMA", "Fact", "Shown", "check_fact", "make_question", "within"]
