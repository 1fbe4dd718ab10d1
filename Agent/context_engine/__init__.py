"""The context engine: a long-term memory in folders that people can read.

A session is committed, facts worth keeping become nodes, a disposable index finds them, and three levels (L0 a line,
L1 a page, L2 all) decide what reading costs. Nothing said is lost: archive first. Read `service` for the door, then
`commit`, `fs`, `retrieval`, `index`; `core` is what all share, `extraction` finds what is worth keeping, and
`providers` is where models, vectors and the rest of the library come in.
"""

from .core import errors as _errors
from .core import objects as _objects
from .core.errors import *  # noqa: F403  all errors of the engine
from .core.objects import *  # noqa: F403  the vocabulary: all classes that the module defines
from .providers import LLMClientAdapter
from .service import AsyncContextEngineService, ContextEngineService

__all__ = ["AsyncContextEngineService", "ContextEngineService", "LLMClientAdapter"]
for _module in (_errors, _objects):
    _defined = (made for made in vars(_module).values() if isinstance(made, type))
    __all__ += [made.__name__ for made in _defined if made.__module__ == _module.__name__]
