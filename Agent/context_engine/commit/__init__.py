"""From a session to folders: first the archive, so that no message is lost; then memories.

archive_builder     the messages of a session as a node, with an abstract and an overview
policies            how each category is written: it adds and supersedes, and never drops; `PolicyRouter` picks one
context_writer      applies plans, and their edges, to the main store
commit_coordinator  `CandidatePipeline`, and the whole commit in two transactions
"""
