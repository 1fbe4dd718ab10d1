"""Tests of memories: what is kept, found, forgotten and extracted."""
