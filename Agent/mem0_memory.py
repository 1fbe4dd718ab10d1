"""The former path of `adapters.mem0`, for one release."""

from .adapters import warn_moved
from .adapters.mem0 import *  # noqa: F403

warn_moved(__name__, "adapters.mem0")
