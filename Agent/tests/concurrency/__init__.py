"""Threads, tasks and processes that use one store at the same time."""
