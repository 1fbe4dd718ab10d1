"""The main store: nodes as folders that people can read, and a journal that makes each write whole or nothing.

uri             what a URI is, whose it is, and what its folder is called
disk            the one door to the operating system
folders         a node's files as one image; symlinks are errors
journal         .ctx/journal.db: the write-ahead log, what was last written, and the outbox
redo            what a dead process or a power cut left undone
transaction     staging changes, and the five steps of a commit
context_fs      `ContextFS`, what the other packages use
relation_store  `RelationStore`, the edges of a node
"""
