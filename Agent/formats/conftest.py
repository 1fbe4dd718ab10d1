"""Where the packages of the extra `[formats]` are missing, their modules have no session to run."""

from importlib.util import find_spec

collect_ignore = [
    module
    for package, module in (("markdown_it", "markdown_outline.py"), ("yaml", "obsidian_notes.py"))
    if find_spec(package) is None
]
