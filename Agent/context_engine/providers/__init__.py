"""What the engine takes from elsewhere, each behind a small interface.

names         folders and slugs, as the rest of the library makes them
llm           `LLMClientAdapter`: any `LLMClient` of the library as an `LLM`
word_index    the words of a space: the library's one finder (`finding.index`)
vector_index  vectors of texts, from `keyword_tree.embeddings`
relations     which relations words name, from `memory.relation_words`
"""
