"""What all packages of the engine share, and what knows none of them.

objects    the dataclasses that go in and out; the ports: model, embedder, vectors, reranker, graph
errors     the tree of errors, and checks of arguments
config     limits, levels, names of files, categories and their owners
messages   messages of all common formats, read into one; repeated messages
entries    lists of entries, which people can read and edit
"""
