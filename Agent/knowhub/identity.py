"""Where a person's own files lie, and who they are to a hub: its place, the principal, the token."""

import contextlib
import getpass
import os
import re
import subprocess
from pathlib import Path

from ..keyword_tree import InvalidInputError
from ..store.addresses import is_address, refuse_address
from .files import write_new
from .schemas import RIGHTS
from .tokens import Token, Tokens
from .vault import config_folder

__all__ = ["hub_place", "own_principal", "own_token", "token_path"]


def hub_place(given: str | None = None, log: str | None = None) -> str | Path:
    """Return where a hub is: an address (given, or KNOWHUB_LOG), else a folder (given, or KNOWHUB_DATA)."""
    if address := log or ("" if given else os.environ.get("KNOWHUB_LOG")):
        if not is_address(address):
            raise InvalidInputError("--log must be the address of a tree: postgresql://host/database#name")
        return address
    if place := given or os.environ.get("KNOWHUB_DATA"):
        refuse_address(place, "the data folder")
        return Path(place)
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share", "knowhub")


def own_principal() -> str:
    """Return who one is: the e-mail address that git knows, else the name one is logged in by."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        said = subprocess.run(["git", "config", "user.email"], capture_output=True, text=True, timeout=5, check=False)
        name = said.stdout.strip()
        if name and not any(char.isspace() for char in name) and len(name) <= 100:
            return name
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "owner"


def token_path() -> Path:
    """Return where a person's own token lies."""
    return config_folder() / "token"


def own_token(tokens: Tokens) -> tuple[str, Token]:
    """Return a person's own token for a hub.

    A hub that has no token yet takes the one that the person has already, for another hub, say; where it knows others
    but not that one (it was revoked), a new one is made.
    """
    text = ""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        text = token_path().read_text(encoding="ascii").strip()
        found = tokens.find(text)
        if found is not None:
            return text, found
    if not re.fullmatch(r"kh_[A-Za-z0-9_-]{43}", text) or tokens.all():
        text = ""
    made = tokens.make(own_principal(), RIGHTS, ["*"], text=text)
    if not text:
        token_path().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_new(token_path(), made[0].encode() + b"\n")
    return made
