"""Bring another project's files here at a fixed commit, or say why that cannot be."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

FOLDER = ROOT / ".peers"
"""Where fetched files are; nothing of them is committed."""

MIRRORS = "KEYWORD_TREE_PEERS"
"""An environment variable: a folder with mirrors named `owner+name`, instead of GitHub."""


class CannotFetchError(Exception):
    """A peer is not to be had here; the message says why."""


def fetch(repository: str, commit: str, path: str) -> Path:
    """Return a folder with the files of a commit under `path`.

    Args:
        repository: `owner/name` on GitHub.
        commit: its full hash.
        path: a folder of it.

    Raises:
        CannotFetchError: there is no git, no network, or no such commit.
    """
    place = FOLDER / repository.replace("/", "+") / commit[:12]
    if (place / path).is_dir():
        return place / path
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    source = f"https://github.com/{repository}.git"
    mirror = Path(os.environ.get(MIRRORS, os.devnull)) / repository.replace("/", "+")
    if mirror.is_dir():
        source = str(mirror / "repo" if (mirror / "repo").is_dir() else mirror)
    allow = "git -c uploadpack.allowAnySHA1InWant=true upload-pack"
    try:
        run(["git", "init", "--quiet", str(place)], place)
        run(["git", "fetch", "--quiet", "--depth", "1", "--upload-pack", allow, source, commit], place)
        run(["git", "checkout", "--quiet", "FETCH_HEAD", "--", path], place)
    except CannotFetchError:
        shutil.rmtree(place, ignore_errors=True)
        raise
    return place / path


def run(command: Sequence[str], folder: Path, **environment: str) -> str:
    """Run a command to its end and return what it says.

    Raises:
        CannotFetchError: there is no such program, or it fails.
    """
    where = {**os.environ, "GIT_TERMINAL_PROMPT": "0", **environment}
    try:
        done = subprocess.run(command, cwd=folder, env=where, capture_output=True, text=True, check=True, timeout=1800)
    except FileNotFoundError as error:
        raise CannotFetchError(f"there is no {command[0]} here") from error
    except subprocess.TimeoutExpired as error:
        raise CannotFetchError(f"{' '.join(command[:3])} takes more than half an hour") from error
    except subprocess.CalledProcessError as error:
        lines = (error.stderr or error.stdout or "").strip().splitlines()
        raise CannotFetchError(f"{' '.join(command[:3])} fails: {lines[-1] if lines else error.returncode}") from error
    return done.stdout
