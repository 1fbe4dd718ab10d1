"""Long-term memory for agents. The tree and all that belongs to it is here; siblings are modules of their own.

Installed, the package is `keyword_tree`: `from keyword_tree import KeywordTree`, which is also the line for the one
file `keyword_tree.py` copied alone. In its repository, and copied beside WeaveAgent.py, the folder is `Agent`. Both
names stand for the same modules, whichever is imported first.
"""

import contextlib
import importlib
import os
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

_OTHER = {"Agent": "keyword_tree", "keyword_tree": "Agent"}.get(__name__, __name__)
_DOCUMENTED = {
    "addresses": "store.addresses",
    "backup": "store.backup",
    "command_line": "cli.command_line",
    "context_engine.commit.candidate_pipeline": "context_engine.commit.commit_coordinator",
    "context_engine.commit.policy_router": "context_engine.commit.policies",
    "context_engine.commit.relation_writer": "context_engine.commit.context_writer",
    "context_engine.core.text": "base.text",
    "context_engine.index.index_projector": "context_engine.index.index_worker",
    "context_engine.index.record_builder": "context_engine.index.index_worker",
    "context_engine.retrieval.assembler": "context_engine.retrieval",
    "context_engine.retrieval.hierarchical_searcher": "context_engine.retrieval",
    "context_engine.retrieval.l0_retriever": "context_engine.retrieval",
    "context_engine.retrieval.memory_read_service": "context_engine.retrieval",
    "context_engine.retrieval.query_planner": "context_engine.retrieval",
    "embeddings": "finding",
    "embeddings.embedder": "finding.embedder",
    "lexical_client": "models.lexical_client",
    "model_clients": "models.model_clients",
    "repair": "store.repair",
    "secrets_in_text": "base.secrets_in_text",
}
"""Public names of modules that stand on a floor: `keyword_tree.repair` is `keyword_tree.store.repair`."""


class _OneModule(MetaPathFinder, Loader):
    """Imports a module under its second name as the very module that the first name has.

    Two modules of one file would have two classes of each name: a tree of the one would be a stranger to the other.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, name = fullname.partition(".")
        if package == _OTHER != __name__:
            # A foreign package of that name stays what it is, but for the one file where that is copied into it.
            mine = sys.modules.get(package) is sys.modules[__name__] if name else _is_this(package)
            if not mine and not (name == "keyword_tree" and _is_same_file(fullname, path)):
                return None
        elif package != __name__ or name not in _DOCUMENTED:
            return None
        return ModuleSpec(fullname, self, is_package=not name)

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = importlib.import_module(_name_of(module.__name__))


def _name_of(fullname: str) -> str:
    name = fullname.partition(".")[2]
    return ".".join(filter(None, (__name__, _DOCUMENTED.get(name, name))))


def _is_this(package: str) -> bool:
    """Tell whether a package's name is free, or stands for this folder or a copy of it."""
    found = PathFinder.find_spec(package)
    if found is None:
        return True
    return any(_is_copy(Path(folder, "keyword_tree.py")) for folder in found.submodule_search_locations or ()) and (
        found.origin is not None and Path(found.origin).read_bytes() == Path(__file__).read_bytes()
    )


def _is_same_file(fullname: str, path: Sequence[str] | None) -> bool:
    found = PathFinder.find_spec(fullname, path)
    return found is not None and found.origin is not None and _is_copy(Path(found.origin))


def _is_copy(file: Path) -> bool:
    mine = Path(__file__).with_name("keyword_tree.py")
    return file.is_file() and (file.samefile(mine) or file.read_bytes() == mine.read_bytes())


sys.meta_path.insert(0, _OneModule())
if (_copied := sys.modules.get(f"{_OTHER}.keyword_tree")) is not None and _is_copy(Path(str(_copied.__file__))):
    # The one file, imported from another package before this one.
    globals()["keyword_tree"] = sys.modules[f"{__name__}.keyword_tree"] = _copied

from .base.keys import hide_keys as _hide_keys  # noqa: E402
from .keyword_tree import *  # noqa: E402, F403  what is public there is public here, and __all__ says what that is
from .keyword_tree import KeywordTree, __all__, __version__  # noqa: E402, F401

KeywordTree._tell_error = staticmethod(_hide_keys)

with contextlib.suppress(ImportError):  # a Python without sqlite3: trees rank plainly, and log that they do
    from .finding.tree import TreeRanker

    KeywordTree.default_ranker = TreeRanker

from .store import addresses as _addresses  # noqa: E402


def _open_shared(address: str, **options: object) -> KeywordTree:
    from .shared_tree.address import open_shared

    return open_shared(address, **options)


for _scheme in ("postgresql", "postgres"):
    _addresses.register_scheme(_scheme, _open_shared)


def open_tree(place: str | os.PathLike[str], *, meaning: Any = True, **options: Any) -> KeywordTree:
    """Open the tree in a folder, or at an address, which needs the extra `[postgres]`.

    Args:
        place: The folder or the address.
        meaning: How to compare by meaning, for the tree and for what is made of it; False: by words alone.
        options: Those of `KeywordTree`. Without `llm_client`, the client that the environment names is asked, and
            where it names none, words and meaning decide.

    Raises:
        InvalidInputError: The address names no tree, or the extra is missing.
    """
    if options.get("llm_client") is None:
        from .models.lexical_client import LexicalLLMClient
        from .models.model_clients import client_from_environment

        options["llm_client"] = client_from_environment() or LexicalLLMClient()
    return _addresses.open_tree(place, meaning=meaning, **options)


def __getattr__(name: str) -> object:
    # Imported when wanted: a program that needs a tree alone does not wait for what stands on it.
    if name in ("AsyncMemoryStore", "MemoryStore"):
        return getattr(importlib.import_module(f"{__name__}.memory"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
