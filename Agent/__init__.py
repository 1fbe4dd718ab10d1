"""Long-term memory for agents: `Agent.keyword_tree` is the library, its siblings are optional."""
