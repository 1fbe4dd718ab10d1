"""Where a person's own files lie, and who they are to a hub: its place, the principal, the token."""

import contextlib
import getpass
import os
import re
import subprocess
from collections.abc import Collection
from pathlib import Path

from ..keyword_tree import InvalidInputError
from ..store.addresses import is_address, refuse_address
from .files import write_new
from .schemas import RIGHTS
from .tokens import AGENTS, Token, Tokens
from .vault import config_folder, home_folder

__all__ = ["agents_token", "agents_token_path", "hub_place", "own_principal", "own_token", "token_path"]


def hub_place(given: str | None = None, log: str | None = None) -> str | Path:
    """Return where a hub is: an address (given, or KNOWHUB_LOG), else a folder (given, or KNOWHUB_DATA)."""
    if address := log or ("" if given else os.environ.get("KNOWHUB_LOG")):
        if not is_address(address):
            raise InvalidInputError("--log must be the address of a tree: postgresql://host/database#name")
        return address
    if place := given or os.environ.get("KNOWHUB_DATA"):
        refuse_address(place, "the data folder")
        return Path(place).absolute()
    return Path(os.environ.get("XDG_DATA_HOME") or home_folder() / ".local" / "share", "knowhub").absolute()


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


def agents_token_path() -> Path:
    """Return where the token of a person's agents lies."""
    return config_folder() / "agents-token"


def own_token(tokens: Tokens) -> tuple[str, Token]:
    """Return a person's own token for a hub; it may do all."""
    return _token_at(tokens, token_path(), own_principal(), RIGHTS)


def agents_token(tokens: Tokens) -> tuple[str, Token]:
    """Return the token of a person's agents for a hub: another principal, so that their votes on one's entries count.

    They see what the person sees, and may do all but make tokens, and export or import all.
    """
    rights = [right for right in RIGHTS if right != "admin"]
    return _token_at(tokens, agents_token_path(), f"{AGENTS}{own_principal()}"[:100], rights)


def _token_at(tokens: Tokens, path: Path, principal: str, rights: Collection[str]) -> tuple[str, Token]:
    """Return the token that a file holds; a hub that never had one takes it, any other that does not know it a new one.

    So one file opens all of a person's hubs, and what was revoked stays so.
    """
    text = ""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        text = path.read_text(encoding="ascii").strip()
        found = tokens.find(text)
        if found is not None:
            return text, found
    if not re.fullmatch(r"kh_[A-Za-z0-9_-]{43}", text) or not tokens.is_new(principal, text):
        text = ""
    made = tokens.make(principal, rights, ["*"], text=text)
    if not text:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_new(path, made[0].encode() + b"\n")
    return made
