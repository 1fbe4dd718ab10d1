"""What the engine takes from elsewhere, each behind a small interface.

library       folder names and slugs, extraction, relations, secrets, telling words: as the rest of the library has them
llm           `LLMClientAdapter`: any `LLMClient` of the library as an `LLM`
word_index    the words of a space: the library's one finder (`finding.index`)
vector_index  vectors of texts, from `keyword_tree.embeddings`
passages      the passages of a node: what is found, and what is shown of it
"""
