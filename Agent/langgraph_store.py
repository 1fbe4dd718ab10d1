"""The former path of `adapters.langgraph`, for one release."""

from .adapters import warn_moved
from .adapters.langgraph import *  # noqa: F403

warn_moved(__name__, "adapters.langgraph")
