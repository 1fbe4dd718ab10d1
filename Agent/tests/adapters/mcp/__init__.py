"""Tests of the MCP server: its tools over both generations of the protocol."""
