"""Where the packages of the extra `[cli]` are missing, its modules have no session to run."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("click") and find_spec("rich") else ["[!_]*.py"]
