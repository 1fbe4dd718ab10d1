"""The main store: nodes as folders that people can read, and a journal that makes each write whole or nothing.

uri             what a URI is, whose it is, and what its folder is called
disk            the one door to the operating system
folders         a node's files as one image; symlinks are errors
journal         .ctx/journal.db: the write-ahead log, what was last written, and the outbox
redo            what a dead process or a power cut left undone
transaction     staging changes, and the five steps of a commit
opening         a store is opened: after a crash, as a clone, with a damaged journal
main_store      `MainStore`: the lock, transactions, checkpoints, where a node lies
context_fs      `ContextFS`, what the other packages use: reading and writing nodes
checks          what callers hand in
history         what commits made of a node, and taking one back
hand_edits      what people changed in the files
relation_store  `RelationStore`, the edges of a node
"""
