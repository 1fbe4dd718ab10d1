"""Where the packages of the extra `[embeddings]` are missing, its modules have no session to run."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("numpy") else ["[!_]*.py"]
