"""The examples run as they are."""
