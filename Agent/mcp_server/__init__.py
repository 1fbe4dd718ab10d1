"""The former path of `adapters.mcp`, for one release."""
