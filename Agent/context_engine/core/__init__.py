"""What all packages of the engine share, and what knows none of them.

objects    the dataclasses that go in and out
errors     the tree of errors
config     limits, levels, names of files, categories and their owners
ports      what may be exchanged: model, embedder, vectors, reranker, graph, and a backend's stores
messages   messages in every shape of the field, as one
entries    lists of entries, which people can read and edit
checks     checks of arguments
forks      what begins again in a forked process
text       tokens, digests, JSON, folding
"""
