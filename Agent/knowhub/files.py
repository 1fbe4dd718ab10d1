"""Small files that are written whole, tokens and sealed secrets: in a folder, or in a table that machines share.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     files = FolderFiles(folder)
...     files.write("a1", b"text")
...     files.read("a1"), files.names(), files.remove("a1"), files.read("a1")
(b'text', ['a1'], True, None)
"""

import contextlib
import os
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ..keyword_tree import InvalidInputError, StoreError, _Files
from ..store.addresses import is_address, refuse_address
from ..store.backup import make_file
from .records import KnowHubError

if TYPE_CHECKING:
    from ..shared_tree.connections import Pool

FRESH_S = 1.0
"""Seconds for which a row that was read counts as the present one: so soon a token revoked elsewhere is refused."""

PATIENCE_S = 10.0
"""Seconds for which a database that does not answer is asked again."""


class FolderFiles:
    """Files in a folder; safe for many threads and processes.

    Args:
        folder: Made for its owner alone when the first file is written.

    Cost: a write is two syncs, a mark one look at the file.
    """

    is_remote = False
    """Whether a look at one may wait for a network."""

    def __init__(self, folder: str | Path) -> None:
        self.folder, self._path = Path(folder), str(folder)

    def mark(self, name: str) -> object:
        """Return a value that changes with the file; None where there is no file."""
        try:
            status = os.stat(f"{self._path}/{name}")  # in a tenth of the time of a `Path`
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns, status.st_size

    def read(self, name: str) -> bytes | None:
        """Return a file's content, or None."""
        try:
            return (self.folder / name).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes, *, is_first: bool = False) -> None:
        """Write a file, durably, under its name only when it is whole.

        Raises:
            FileExistsError: It was to be the first one of its name, and there is one.
            OSError: The disk refuses it.
        """
        for folder in (self.folder.parent, self.folder):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_new(self.folder / name, data, is_first=is_first)

    def remove(self, name: str, *, wipe: bool = False) -> bool:
        """Delete a file; says whether it was there.  `wipe` overwrites it first, where a disk can do that."""

        def remove(path: Path) -> None:
            if wipe:
                with open(path, "r+b") as file:
                    file.write(secrets.token_bytes(os.fstat(file.fileno()).st_size))
                    file.flush()
                    os.fsync(file.fileno())
            path.unlink()

        return self._change(name, remove)

    def rename(self, name: str, new: str) -> bool:
        """Give a file another name, also on a full disk; says whether it was there."""
        return self._change(name, lambda path: path.replace(self.folder / new))

    def _change(self, name: str, act: Callable[[Path], object]) -> bool:
        try:
            act(self.folder / name)
        except FileNotFoundError:
            return False
        with contextlib.suppress(OSError):
            _Files().SyncFolder(self._path)
        return True

    def names(self) -> list[str]:
        """Return the names of all files, in order."""
        with contextlib.suppress(FileNotFoundError):
            return sorted(os.listdir(self.folder))
        return []

    def made_at(self, name: str) -> float:
        """Return when a file was written, in seconds since the epoch.

        Raises:
            FileNotFoundError: There is no such file.
        """
        return os.stat(self.folder / name).st_mtime

    def is_writable(self) -> bool:
        """Return whether a file could be written now."""
        with contextlib.suppress(OSError):
            status = os.statvfs(self.folder.parent)
            return os.access(self.folder.parent, os.W_OK) and status.f_bavail * status.f_frsize > 16 * 1024 * 1024
        return False


_TABLE = """CREATE TABLE IF NOT EXISTS kt_knowhub_file (
    tree_id text COLLATE "C", kind text COLLATE "C", name text COLLATE "C", data bytea NOT NULL,
    made_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (tree_id, kind, name))"""
_ONE = "tree_id = %s AND kind = %s AND name = %s"


class TableFiles:
    """The same as rows of a table beside a shared tree's log.

    Args:
        pool: Connections to the database.
        tree_id: Whose files.
        kind: `"token"` or `"secret"`.

    Cost: a round trip; a read within a second of another one of the same file none. Statements whose answer is lost are
    sent again, for the pool's `patience`: each of them may be done twice.
    """

    is_remote = True

    def __init__(self, pool: "Pool", tree_id: str, kind: str) -> None:
        self._pool, self._key = pool, (tree_id, kind)
        self._cache: dict[str, tuple[float, bytes | None]] = {}

    @staticmethod
    def prepare(pool: "Pool") -> None:
        """Make the table, where it is not there; a role that may not make any needs no right to."""
        found = _rows(pool, "SELECT to_regclass('kt_knowhub_file')", ())
        if found[0][0] is None:
            with contextlib.suppress(StoreError):  # two who make it at once: one of them is refused, and it is there
                pool.ask(lambda connection: connection.execute(_TABLE))
            _rows(pool, f"SELECT 1 FROM kt_knowhub_file WHERE {_ONE}", ("", "", ""))

    def read(self, name: str) -> bytes | None:
        now = time.monotonic()
        known = self._cache.get(name)
        if known is None or known[0] <= now:
            found = _rows(self._pool, f"SELECT data FROM kt_knowhub_file WHERE {_ONE}", (*self._key, name))
            if len(self._cache) > 10_000:
                self._cache.clear()
            known = self._cache[name] = (now + FRESH_S, bytes(found[0][0]) if found else None)
        return known[1]

    mark = read

    def write(self, name: str, data: bytes, *, is_first: bool = False) -> None:
        kept = "SET data = kt_knowhub_file.data" if is_first else "SET data = excluded.data"
        sql = f"INSERT INTO kt_knowhub_file VALUES (%s, %s, %s, %s) ON CONFLICT (tree_id, kind, name) DO UPDATE {kept}"
        [[there]] = _rows(self._pool, f"{sql} RETURNING data", (*self._key, name, data))
        self._cache.pop(name, None)
        if bytes(there) != data:
            raise FileExistsError(name)

    def remove(self, name: str, *, wipe: bool = False) -> bool:
        gone = _rows(self._pool, f"DELETE FROM kt_knowhub_file WHERE {_ONE} RETURNING 1", (*self._key, name))
        self._cache.pop(name, None)
        return bool(gone)

    def rename(self, name: str, new: str) -> bool:
        sql = f"UPDATE kt_knowhub_file SET name = %s WHERE {_ONE} RETURNING 1"
        gone = _rows(self._pool, sql, (new, *self._key, name))
        self._cache.pop(name, None)
        return bool(gone)

    def names(self) -> list[str]:
        sql = "SELECT name FROM kt_knowhub_file WHERE tree_id = %s AND kind = %s ORDER BY name"
        return [str(row[0]) for row in _rows(self._pool, sql, self._key)]

    def made_at(self, name: str) -> float:
        sql = f"SELECT extract(epoch FROM made_at) FROM kt_knowhub_file WHERE {_ONE}"
        found = _rows(self._pool, sql, (*self._key, name))
        if not found:
            raise FileNotFoundError(name)
        return float(found[0][0])

    def is_writable(self) -> bool:
        with contextlib.suppress(KnowHubError):
            return not _rows(self._pool, "SELECT pg_is_in_recovery()", ())[0][0]
        return False


Files: TypeAlias = FolderFiles | TableFiles


@dataclass(frozen=True)
class HubFiles:
    """Where the parts of a hub are."""

    folder: Path
    """On this machine: of a hub in a folder all of it, else derived files alone."""
    tree: str
    """The folder or the address of the tree."""
    shown: str
    """The part of it that may be shown: no password, no server."""
    name: str
    """That of its folder or tree."""
    tokens: Files
    secrets: Files
    close: Callable[[], None]
    """Closes the connections."""


def open_files(place: str | Path) -> HubFiles:
    """Return where the parts of a hub are, in a folder or at an address.

    Raises:
        InvalidInputError: No path, an address that cannot be used, or its extra `[postgres]` is missing.
    """
    if not is_address(place):
        refuse_address(place, "the place of a hub")
        folder = Path(place).absolute()
        kinds = FolderFiles(folder / "tokens"), FolderFiles(folder / "vault")
        return HubFiles(folder, str(folder / "tree"), str(folder), folder.name, *kinds, lambda: None)
    try:
        from ..shared_tree.address import cache_folder, parse_address
        from ..shared_tree.connections import Pool
        from ..shared_tree.shared_log import SharedLog
    except ImportError as error:
        raise InvalidInputError(str(error)) from error
    address = parse_address(str(place))
    folder = cache_folder(address) / "knowhub"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    pool = Pool(address.dsn, 4, PATIENCE_S, False)
    with _answering(), SharedLog(address.dsn, patience=PATIENCE_S) as log:
        log.prepare()
    TableFiles.prepare(pool)
    tokens, secrets_ = (TableFiles(pool, address.tree_id, kind) for kind in ("token", "secret"))
    return HubFiles(folder, str(place), str(address), address.tree_id, tokens, secrets_, pool.close)


def _rows(pool: "Pool", sql: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    with _answering():
        return pool.fetch(sql, values)


@contextlib.contextmanager
def _answering() -> Iterator[None]:
    """Turn a database's errors into the hub's, which show no address."""
    try:
        yield
    except StoreError as error:
        detail = "the database does not answer, or refuses it: see its log"
        raise KnowHubError("busy", detail, retry_after_s=5.0) from error


def write_new(path: Path, data: bytes, *, is_first: bool = False) -> None:
    """Write a file that only its owner may read, whole and durable, under its name only when it is.

    Raises:
        FileExistsError: It was to be the first one of its name, and there is one.
    """
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
    try:
        with make_file(beside) as file:
            file.write(data)
        if is_first:
            os.link(beside, path)
        else:
            os.replace(beside, path)
    finally:
        with contextlib.suppress(OSError):  # where it was replaced, it has gone
            os.unlink(beside)
    _Files().SyncFolder(str(path.parent))


# A person's own files


def config_folder() -> Path:
    """Return where a person's own files lie: token and master key."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or home_folder() / ".config", "knowhub").absolute()


def home_folder() -> Path:
    """Return a person's home.

    Raises:
        KnowHubError: `invalid`: there is none, and nothing is written to a folder that is called `~`.
    """
    try:
        return Path.home()
    except RuntimeError:
        detail = "there is no home directory: set HOME, or XDG_CONFIG_HOME and XDG_DATA_HOME"
        raise KnowHubError("invalid", detail) from None


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
