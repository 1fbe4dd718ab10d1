"""Tests of trees on PostgreSQL, on a server of their own; they skip where none is installed."""
