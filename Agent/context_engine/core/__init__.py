"""What all packages of the engine share, and what knows none of them.

objects    the dataclasses that go in and out
errors     the tree of errors
config     limits, levels, names of files, categories and their owners
ports      what may be exchanged: model, embedder, vectors, reranker, graph, and a backend's stores
text       tokens, digests, JSON, folding
"""
