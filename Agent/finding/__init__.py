"""The finder: a question → the texts that answer it."""
