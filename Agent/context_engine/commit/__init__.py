"""From a session to folders: archive first, so that nothing said can be lost; then what is worth keeping.

archive_builder     what was said, as a node
candidate_pipeline  all extractors, and their candidates made comparable
policies            how each category is written: it adds and supersedes, and never drops; a model may advise
policy_router       which policy, and which node
context_writer      plans, and their edges, into the main store
commit_coordinator  the whole way, in two transactions
"""
