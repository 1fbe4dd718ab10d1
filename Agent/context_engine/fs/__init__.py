"""The main store: nodes as folders that people can read, and a journal that makes each write whole or nothing.

uri         parsing and owners of URIs, slugs, names of folders
folders     all calls of the operating system; a node's files as one image; symlinks are errors
meta        a node's metadata and edges: reading, writing, checks
journal     .ctx/journal.db: the write-ahead log, the state of each node, the outbox
redo        recovery after a crash or a power cut; merging of edits that were made during a commit
main_store  `Transaction`, and `MainStore`: opening, the lock, checkpoints, walks
context_fs  `History`: log, undo, prune, manual edits; `ContextFS`: nodes; `RelationStore`: edges
"""
