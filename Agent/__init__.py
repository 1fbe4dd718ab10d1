"""Long-term memory for agents. The tree and all that belongs to it is here; siblings are modules of their own.

Installed, the package is `keyword_tree`: `from keyword_tree import KeywordTree`, which is also the line for the one
file `keyword_tree.py` copied alone. In its repository the folder is `Agent`, as beside WeaveAgent.py.
"""

import contextlib

from .keyword_tree import *  # noqa: F403  what is public there is public here, and __all__ says what that is
from .keyword_tree import KeywordTree, __all__  # noqa: F401

with contextlib.suppress(ImportError):  # a Python without sqlite3: trees rank plainly, and log that they do
    from .finding.tree import TreeRanker

    KeywordTree.default_ranker = TreeRanker
