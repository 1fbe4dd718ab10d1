"""The main store: nodes as folders that people can read, and a journal that makes each write whole or nothing.

uri             what a URI is, whose it is, and what its folder is called
folders         the one way to the operating system; a node's files as one image; symlinks are errors
meta            a node's metadata and edges, and what callers may set of them
journal         .ctx/journal.db: the write-ahead log, what was last written, and the outbox
redo            what a dead process or a power cut left undone, and what a hand wrote while a commit ran
main_store      `MainStore`: opening, the lock, checkpoints, where a node lies; `Transaction`: the steps of a commit
history         `History`: what commits made of a node, taking one back, what hands changed
context_fs      `ContextFS`, what the other packages use: nodes, and `RelationStore`, their edges
"""
