"""What the engine takes from elsewhere, each behind a small interface.

names         folders and slugs, as the rest of the library makes them
llm           `LLMClientAdapter`: any `LLMClient` of the library as an `LLM`
word_index    words on disk: sqlite3's FTS5, ranked as `memory.fulltext` ranks
vector_index  vectors of texts, from `keyword_tree.embeddings`
name_tree     a `KeywordTree` of the nodes, for a model's descent
"""
