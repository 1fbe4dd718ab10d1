"""Clients of the core's model port: chat services, and the lexical client, which needs no model."""
