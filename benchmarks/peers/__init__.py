"""Other projects' own tests, run on the adapters; see `__main__`."""
