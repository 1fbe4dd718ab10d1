"""What the engine takes from elsewhere, each behind a small interface.

library       folder names and slugs, secrets, telling words, a model's client: as the rest of the library has them
word_index    the words of a space: the library's one finder (`finding.index`), and the passages of a node
vector_index  vectors of texts, from `finding.vectors`, or in a `VectorIndex`
"""
