"""Tests of the context engine: sessions, hand edits, crashes, damage."""
