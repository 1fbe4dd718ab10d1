"""What a forked process must not take over: locks that another thread of its parent held."""

import os
import weakref
from typing import Any, Protocol


class _Renewable(Protocol):
    def renew_after_fork(self) -> None:
        """Begin with locks of its own."""


_owners: weakref.WeakSet[Any] = weakref.WeakSet()


def watch_forks(owner: _Renewable) -> None:
    """Let `owner.renew_after_fork()` be called in each forked process."""
    _owners.add(owner)


def _renew_all() -> None:
    for owner in list(_owners):
        owner.renew_after_fork()


os.register_at_fork(after_in_child=_renew_all)
