"""`KnowHub`, the door: it checks who asks and what they may, then acts. Every other door asks it. See `rooms`.

>>> import tempfile
>>> folder = tempfile.TemporaryDirectory()
>>> hub = KnowHub(folder.name)
>>> made = hub.save(LOCAL, {"task": "Log in with selenium", "content": "Wait at random.", "types": ["tool"]})
>>> found = hub.search(LOCAL, {"q": "selenium login"})
>>> [result["task"] for result in found["results"]], found["routing"], found["reason"]
(['Log in with selenium'], 'recall', 'no_model')
>>> id = found["results"][0]["id"]
>>> from .tokens import Token
>>> bob = Token("bob", frozenset({"read", "write"}), frozenset("*"))
>>> judged = hub.update(bob, id, {"add_helpful_case": {"task": "nightly import", "outcome": "worked"}})
>>> hub.get(LOCAL, id)["eval"]["helpful"]
1
>>> _ = hub.undo(LOCAL, judged["operation_id"])
>>> hub.get(LOCAL, id)["eval"]["helpful"]
0
>>> hub.close(); folder.cleanup()

The first argument of every method is the `Token` of who asks; `LOCAL` is the process itself. What a token does not see
is `not-found`, whatever is asked of it. Bodies are dicts or the models of `schemas`; what comes back is plain JSON.
Errors are `KnowHubError`; nothing was written then, but for `outcome-unknown`.
"""

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

from ..addresses import refuse_address
from ..keyword_tree import LLMClient
from ..memory.memories import Ranker
from .catalog import Catalog
from .ledger import TreeLedger
from .rooms.finding import Finding
from .rooms.operations import Operations
from .rooms.slimming import Slimming
from .rooms.token_keeping import TokenKeeping
from .rooms.traces import Traces
from .rooms.transfer import Transfer
from .routing import (
    Models,
)
from .tokens import LOCAL, Tokens
from .vault import KeyRing, Vault

__all__ = ["LOCAL", "KnowHub"]


class KnowHub(Finding, Slimming, Operations, Traces, TokenKeeping, Transfer):
    """Knowledge, resources and secrets in one folder; a context manager, safe for many threads and processes.

    Args:
        folder: Holds `tree`, `vault`, `tokens` and `indexes`; made for its owner alone.
        llm_client: The model that routes searches and rewrites; None: by words, and said so.
        models: Several, by name; the first is the default.
        ring: The master keys; None finds them when the first secret comes.
        ranker: Another ranking beside the words, as `EmbeddingRanker`.
        clock: Seconds since the epoch.
        allow_secret_shapes: Take knowledge that looks as if it held a key.

    Cost: opening reads all there is, some 0.1 ms for an entry.
    """

    def __init__(
        self,
        folder: str | Path,
        llm_client: LLMClient | None = None,
        *,
        models: Mapping[str, LLMClient] | None = None,
        ring: KeyRing | None = None,
        ranker: Ranker | None = None,
        clock: Callable[[], float] = time.time,
        allow_secret_shapes: bool = False,
    ) -> None:
        refuse_address(folder, "a hub's folder")
        self.folder = Path(folder).absolute()
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if models is None and llm_client is not None:
            models = {str(getattr(llm_client, "model", "") or type(llm_client).__name__): llm_client}
        self._clock = clock
        self._allow_secret_shapes = allow_secret_shapes
        self.models = Models(models)
        self.tokens = Tokens(self.folder / "tokens", clock)
        self.vault = Vault(self.folder / "vault", ring, clock)
        self.ledger = TreeLedger(self.folder / "tree", clock=clock)
        self.catalog = Catalog(self.ledger, self.folder / "indexes" / "knowhub.index", ranker)
        self._is_closed = False
        self._slimming = threading.Lock()
        try:
            self.catalog.open()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Leave the index on disk and close the store.  Closing twice is no error."""
        if not self._is_closed:
            self._is_closed = True
            self.models.close()
            self.catalog.close()
            self.ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
