"""Tests of the program `keyword-tree`: screens, errors and languages."""
