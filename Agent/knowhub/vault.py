"""Secrets: sealed files beside the tree, whose log keeps everything and so must never see one.

>>> import tempfile
>>> from pathlib import Path
>>> with tempfile.TemporaryDirectory() as folder:
...     vault = Vault(Path(folder, "vault"), KeyRing.make())
...     reference = vault.seal("credentials/website_a", "SecurePass123")
...     opened = vault.open(reference, "credentials/website_a")
...     opened, b"SecurePass123" in Path(folder, "vault", reference).read_bytes(), vault.destroy(reference)
('SecurePass123', False, True)

A file is a JSON line: `key` (which master key wraps), `nonce` and `wrapped` (the file's own data key), `nonce2` and
`sealed` (the text under it). Both are AES-256-GCM; reference and resource id are authenticated, so a file that is
renamed, or named by another resource, does not open. Master keys never lie in the data folder.
"""

import base64
import binascii
import contextlib
import fcntl
import hashlib
import json
import os
import re
import secrets
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from .files import Files, FolderFiles, config_folder, write_new
from .records import KnowHubError

ORPHAN_S = 3600
"""Seconds after which a sealed file that no resource names is destroyed: its operation was never written."""

_REFERENCE = re.compile(r"[0-9a-f]{32}").fullmatch
_HEAD = b"knowhub-vault-1\0"
_KNOWN = "0" * 32
"""The file of a known text, sealed with the first secret: what opens it is the hub's key."""


def _locked(detail: str) -> KnowHubError:
    return KnowHubError("vault-locked", detail)


# Master keys


def key_path() -> Path:
    """Return where the master keys lie."""
    return Path(os.environ.get("KNOWHUB_KEY_FILE") or config_folder() / "master.key")


class KeyRing(dict[str, bytes]):
    """Master keys by their names: the first one seals, each opens what it sealed.

    Args:
        keys: Of 32 bytes each, the newest first.
    """

    def __init__(self, keys: Collection[bytes]) -> None:
        if not keys or any(len(key) != 32 for key in keys):
            raise _locked("a master key has 32 bytes, written in base64, one a line")
        super().__init__({hashlib.sha256(b"knowhub master key\0" + key).hexdigest()[:16]: key for key in keys})

    def __repr__(self) -> str:
        return f"<KeyRing {len(self)} keys>"

    @classmethod
    def make(cls) -> "KeyRing":
        """Return a ring with one new key."""
        return cls([secrets.token_bytes(32)])

    @classmethod
    def parse(cls, text: str) -> "KeyRing":
        """Return the ring that a text holds: keys in base64, between blanks or commas."""
        try:
            keys = [base64.b64decode(word, altchars=b"-_", validate=True) for word in re.split(r"[\s,]+", text) if word]
        except (binascii.Error, ValueError):
            raise _locked("a master key has 32 bytes, written in base64, one a line") from None
        return cls(keys)

    def to_text(self) -> str:
        """Return what `parse` reads."""
        return "".join(base64.urlsafe_b64encode(key).decode() + "\n" for key in self.values())

    def newest(self) -> tuple[str, bytes]:
        """Return the key that seals, and its name."""
        return next(iter(self.items()))


def find_ring(data_folder: Path, *, may_make: bool) -> KeyRing:
    """Return the ring that the environment names, or that lies in the file of the keys.

    Args:
        data_folder: Where no key may be: a copy of it would have both.
        may_make: Make the file where there is none.

    Raises:
        KnowHubError: `vault-locked`: no key, no form, others can read it, or it lies in the data folder.
    """
    if text := os.environ.get("KNOWHUB_KEY"):
        return KeyRing.parse(text)
    path = key_path()
    if path.resolve().is_relative_to(data_folder.resolve()):
        raise _locked("the master key must not lie in the data folder")
    for _ in range(2):
        try:
            if path.stat().st_mode & 0o077:
                raise _locked("others can read the file of the master key: chmod 600")
            return KeyRing.parse(path.read_text(encoding="ascii"))
        except FileNotFoundError:
            if not may_make:
                raise _locked("there are secrets, but no master key: bring back its file, or set KNOWHUB_KEY") from None
            with contextlib.suppress(FileExistsError):  # another process was quicker: its own is read
                keep_ring(KeyRing.make(), path, is_first=True)
        except (OSError, UnicodeDecodeError):
            break
    raise _locked("the file of the master key cannot be read")


def keep_ring(ring: KeyRing, path: Path | None = None, *, is_first: bool = False) -> None:
    """Write a ring to its file, for its owner alone.

    Raises:
        FileExistsError: It was to be the first one, and there is one.
        KnowHubError: `vault-locked`: it cannot be written.
    """
    path = path or key_path()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_new(path, ring.to_text().encode(), is_first=is_first)
    except FileExistsError:
        raise
    except OSError as error:
        raise _locked("the file of the master key cannot be written") from error


# The vault


class Vault:
    """Sealed texts in a folder; safe for many threads and processes.

    Args:
        files: Hold one each; or their folder.
        ring: The master keys; None finds them when they are first needed, see `find_ring`.
        clock: Seconds since the epoch.
        folder: The hub's own, where no master key may lie; None is that of the files' folder.

    Cost: sealing is two syncs; opening a read and two decryptions, some 50 µs.
    """

    def __init__(
        self,
        files: Files | Path,
        ring: KeyRing | None = None,
        clock: Callable[[], float] = time.time,
        folder: Path | None = None,
    ) -> None:
        self._files = FolderFiles(files) if isinstance(files, Path) else files
        self._folder = folder or (files.parent if isinstance(files, Path) else Path())
        self._given = ring
        self._found: tuple[object, KeyRing] | None = None  # where the keys came from, as it was then
        self._clock = clock
        self._unnamed: dict[str, float] = {}  # since when, by a monotonic clock
        self._proved: KeyRing | None = None

    def ring(self) -> KeyRing:
        """Return the master keys.

        Raises:
            KnowHubError: `vault-locked`, with the reason.
        """
        if self._given is not None:
            return self._given
        mark, found = _mark_of_keys(), self._found
        if found is None or mark not in (found[0], None):  # another process may have rotated them
            found = self._found = mark, find_ring(self._folder, may_make=not self.references())
        return found[1]

    @contextlib.contextmanager
    def _keys_held(self, *, alone: bool = False) -> Iterator[None]:
        """Keep the master keys as they are within the block, for all hubs that use their file; or be alone with them.

        Else what is sealed while they are rotated could be sealed by a key that is being dropped.
        """
        folder = self._folder if self._given is not None or os.environ.get("KNOWHUB_KEY") else key_path().parent
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
            yield
        finally:
            os.close(descriptor)

    def prove(self) -> None:
        """Check that the master keys are those of this vault.

        Raises:
            KnowHubError: `vault-locked`: they do not open what was sealed here.
        """
        ring = self.ring()
        if self._proved is ring:
            return
        self._proved = ring
        try:
            if self._read(_KNOWN) is None:
                for reference in self.references()[:1]:  # of an older version: no known text yet
                    held = self._read(reference)
                    if held is not None:
                        self._unwrap(held, _bind(reference, str(held.get("for"))))
                with contextlib.suppress(FileExistsError):
                    self.seal(_KNOWN, _KNOWN, known=_KNOWN)
            self.open(_KNOWN, _KNOWN)
        except KnowHubError as error:
            self._proved = None
            if error.code == "disk-full":
                raise
            raise _locked("this master key did not seal the secrets of this hub: bring back the one that did") from None

    def seal(self, resource_id: str, text: str, *, known: str = "") -> str:
        """Write a secret, durably, and return its reference; `known` is one that is given."""
        reference, data_key = known or secrets.token_hex(16), secrets.token_bytes(32)
        bound = _bind(reference, resource_id)
        nonce, nonce2 = secrets.token_bytes(12), secrets.token_bytes(12)
        sealed = AESGCM(data_key).encrypt(nonce2, text.encode(), bound)
        try:
            with self._keys_held():
                self.prove()
                name, master = self.ring().newest()
                held = {"key": name, "nonce": _b64(nonce), "nonce2": _b64(nonce2), "for": resource_id}
                held |= {"wrapped": _b64(AESGCM(master).encrypt(nonce, data_key, bound)), "sealed": _b64(sealed)}
                self._files.write(reference, json.dumps(held).encode() + b"\n", is_first=bool(known))
        except FileExistsError:  # the known text: another process was quicker
            raise
        except OSError as error:
            raise KnowHubError("disk-full", "the disk refuses the secret; nothing was changed") from error
        return reference

    def open(self, reference: str, resource_id: str) -> str | None:
        """Return a secret; None where it was destroyed.

        Raises:
            KnowHubError: `vault-locked`: no key opens it, or it was tampered with.
        """
        held = self._read(reference)
        if held is None:
            return None
        bound = _bind(reference, resource_id)
        return _decrypt(self._unwrap(held, bound), held, "nonce2", "sealed", bound).decode()

    def exists(self, reference: str) -> bool:
        """Return whether a secret is still there."""
        return bool(_REFERENCE(reference)) and self._files.mark(reference) is not None

    def destroy(self, reference: str) -> bool:
        """Overwrite and unlink a secret; says whether it was there.

        On a disk that moves what it writes, and in a database's log and backups, the old bytes may stay: they are of
        use only with the master key, so for old backups rotate, and destroy the old key.
        """
        return bool(_REFERENCE(reference)) and self._files.remove(reference, wipe=True)

    def references(self) -> list[str]:
        """Return the references of all secrets."""
        return [name for name in self._files.names() if _REFERENCE(name) and name != _KNOWN]

    def sweep(self, named: Collection[str], *, is_purge: bool = False) -> None:
        """Destroy what no resource has named for an hour, and unfinished files likewise.

        The hour is that of a clock that cannot be set, since this process saw the file; of a purge, that of the file.
        """
        now = time.monotonic()
        self._unnamed = {name: self._unnamed.get(name, now) for name in self._files.names() if name not in named}
        for name, since in self._unnamed.items():
            with contextlib.suppress(OSError):
                age = self._clock() - self._files.made_at(name) if is_purge else now - since
                if age >= ORPHAN_S and name != _KNOWN and (_REFERENCE(name) or name.endswith(".new")):
                    self._files.remove(name, wipe=True)

    def rotate(self, *, drop_old: bool = False) -> int:
        """Make a new master key, wrap all data keys by it, and return how many.

        Keys that stand in KNOWHUB_KEY are not made here: there the first one wraps, and its owner drops the old.

        Args:
            drop_old: Forget the old keys. Whatever else they sealed opens no more: old backups, and other hubs that
                use the same file.

        Raises:
            KnowHubError: `vault-locked`: one of them does not open. Those before it are rotated; run it again.
        """
        with self._keys_held(alone=True):
            ring, is_ours = self.ring(), self._given is None and not os.environ.get("KNOWHUB_KEY")
            if is_ours:
                ring = KeyRing([secrets.token_bytes(32), *ring.values()])
                keep_ring(ring)  # first the key, then what it wraps: a kill between loses nothing
            count = self._rewrap(ring)
            if drop_old and is_ours:
                keep_ring(KeyRing([ring.newest()[1]]))
        return count

    def _rewrap(self, ring: KeyRing) -> int:
        name, master = ring.newest()
        count = 0
        for reference in (_KNOWN, *self.references()):
            held = self._read(reference)
            if held is None or held.get("key") == name:
                continue
            bound, nonce = _bind(reference, str(held.get("for"))), secrets.token_bytes(12)
            wrapped = AESGCM(master).encrypt(nonce, self._unwrap(held, bound), bound)
            held |= {"key": name, "nonce": _b64(nonce), "wrapped": _b64(wrapped)}
            self._files.write(reference, json.dumps(held).encode() + b"\n")
            count += reference != _KNOWN
        return count

    def problems(self) -> list[str]:
        """Return what does not open, in sentences without a secret."""
        said = []
        for reference in self.references():
            try:
                self.open(reference, str((self._read(reference) or {}).get("for")))
            except KnowHubError as error:
                said.append(f"vault/{reference} does not open with the master keys at hand: {error.detail}")
        return said

    def _unwrap(self, held: dict[str, str], bound: bytes) -> bytes:
        master = self.ring().get(str(held.get("key")))
        if master is None:
            raise _locked("no master key at hand opens this secret: bring back the one that sealed it")
        return _decrypt(master, held, "nonce", "wrapped", bound)

    def _read(self, reference: str) -> dict[str, str] | None:
        if not _REFERENCE(reference):
            return None
        try:
            data = self._files.read(reference)
            if data is None:
                return None
            held = json.loads(data)
        except (OSError, ValueError):
            held = None
        if not isinstance(held, dict):
            raise _locked(f"the sealed file {reference} is damaged")
        return held


def _mark_of_keys() -> object:
    """Return what changes when the master keys do; None where their file is not there."""
    if text := os.environ.get("KNOWHUB_KEY"):
        return text
    return FolderFiles(key_path().parent).mark(key_path().name)


def _bind(reference: str, resource_id: str) -> bytes:
    return _HEAD + reference.encode() + b"\0" + resource_id.encode()


def _decrypt(key: bytes, held: dict[str, str], nonce: str, name: str, bound: bytes) -> bytes:
    """Return a part of a sealed file, in the clear."""
    try:
        salt, sealed = (base64.b64decode(held[part], validate=True) for part in (nonce, name))
        return AESGCM(key).decrypt(salt, sealed, bound)
    except (InvalidTag, KeyError, ValueError, TypeError):
        detail = f"the secret of {held.get('for')} does not open: it was changed, or belongs elsewhere"
        raise _locked(detail) from None


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()
