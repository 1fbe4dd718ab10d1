"""The former path of `adapters.langchain`, for one release."""

from .adapters import warn_moved
from .adapters.langchain import *  # noqa: F403

warn_moved(__name__, "adapters.langchain")
