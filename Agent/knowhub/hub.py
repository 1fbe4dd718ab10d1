"""`KnowHub`, the service itself: it checks who calls and what they may, then acts. REST, pages, tools and MCP call it.

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

The first argument of every method is the caller's `Token`; `LOCAL` is the process itself. What a token does not see
is `not-found`, whatever is asked of it. Bodies are dicts or the models of `schemas`; what comes back is plain JSON.
Errors are `KnowHubError`, `ClosedError` after `close`; nothing was written then, but for `outcome-unknown`.
"""

import contextlib

from .services.finding import Finding
from .services.keeping import Keeping, Operations
from .services.slimming import Slimming
from .services.transfer import Transfer
from .tokens import LOCAL

__all__ = ["LOCAL", "KnowHub"]


class KnowHub(Transfer, Finding, Slimming, Operations, Keeping, contextlib.AbstractContextManager["KnowHub"]):
    """Knowledge, resources and secrets in one place; a context manager, safe for many threads and processes.

    Args:
        place: A folder, which holds `tree`, `vault`, `tokens` and `indexes` and is made for its owner alone; or an
            address (`postgresql://db/agents#hub`), which several machines may serve at once: all of that is there, and
            only indexes in a folder of this machine.
        llm_client: The model that routes searches and rewrites; None: by words, and said so.
        models: Several, by name; the first is the default.
        judge: Return only those of the best 8 that answer the query, by the default model's judgement.
        ring: The master keys; None finds them when the first secret comes.
        meaning: How to compare by meaning, see `finding.index.Index`; False: by words alone.
        clock: Seconds since the epoch.
        allow_secret_shapes: Take knowledge that looks as if it held a key.
        quota: Limits of one principal.

    Raises:
        InvalidInputError: An address that cannot be used, or its extra `[postgres]` is missing.

    Cost: opening reads all there is, some 0.1 ms for an entry.
    """

    def close(self) -> None:
        """Leave the index on disk and close the store.  Closing twice is no error."""
        self.is_closed = True
        self._opened.close()

    def __exit__(self, *exc_info: object) -> None:
        self.close()
