"""The former path of `adapters.mcp.server`, for one release."""

from ..adapters import warn_moved
from ..adapters.mcp.server import *  # noqa: F403

warn_moved(__name__, "adapters.mcp.server")
