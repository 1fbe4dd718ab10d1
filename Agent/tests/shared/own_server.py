"""A PostgreSQL of one's own, in a temporary folder, on loopback: for tests, demos and trying things out.

Not for keeping anything: the folder goes with it.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import pwd
import re
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Self

__all__ = ["OwnServer", "choose_owner", "find_programs", "free_port"]

_PLACES = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin", "/usr/local/pgsql/bin")
_START_S = 60
_SETTINGS = {
    "listen_addresses": "'127.0.0.1'",
    "unix_socket_directories": "''",
    "max_connections": "200",
    "shared_buffers": "'64MB'",
    "wal_level": "replica",
    "max_wal_senders": "4",
    "wal_keep_size": "'128MB'",
    "max_wal_size": "'512MB'",
    "logging_collector": "off",
    "jit": "off",
}


def find_programs() -> Path | None:
    """Return the folder with `initdb` and its like, the newest one; None where PostgreSQL is not installed."""
    found = [Path(path).resolve().parent for path in [shutil.which("initdb")] if path]
    for pattern in _PLACES:
        found += sorted(Path("/").glob(f"{pattern[1:]}/initdb"), key=_version, reverse=True)
    folders = [path if path.is_dir() else path.parent for path in found]
    return next((folder for folder in folders if (folder / "pg_ctl").exists()), None)


def _version(path: Path) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d+", str(path))]


class OwnServer:
    """A server that is there as long as the block; `standby` makes another one that follows it.

    Attributes:
        dsn: how to reach it, with the password of its only role.
        folder: where its data is.
        port: on 127.0.0.1.
    """

    def __init__(self, settings: dict[str, str] | None = None, *, folder: Path | None = None) -> None:
        """Start one.

        Args:
            settings: more lines of postgresql.conf, as they stand there.
            folder: where to make its folder; the temporary one by default, which may lie in memory.

        Raises:
            FileNotFoundError: PostgreSQL is not installed.
            RuntimeError: it does not start; the message ends with its log.
        """
        programs = find_programs()
        if programs is None:
            raise FileNotFoundError("PostgreSQL is not installed (no initdb): apt-get install postgresql, or the like")
        self._programs = programs
        self._runs_as = choose_owner()
        self._home = Path(tempfile.mkdtemp(prefix="kt-postgres-", dir=folder))
        self._primary: OwnServer | None = None
        self.password = secrets.token_hex(16)
        self.folder = self._home / "data"
        self.port = free_port()
        try:
            self._prepare()
            self._make({**_SETTINGS, **(settings or {})})
            self.start()
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> None:
        if os.geteuid() == 0:
            shutil.chown(self._home, self._runs_as)

    def _make(self, settings: dict[str, str]) -> None:
        secret = self._home / "password"
        secret.write_text(self.password)
        if os.geteuid() == 0:
            shutil.chown(secret, self._runs_as)
        arguments = ["--username=kt", "--auth=scram-sha-256", f"--pwfile={secret}", "--encoding=UTF8", "--locale=C"]
        self._run("initdb", "-D", str(self.folder), "--no-sync", *arguments)
        secret.unlink()
        self.configure(settings)
        with (self.folder / "pg_hba.conf").open("a") as file:
            file.write("host replication kt 127.0.0.1/32 scram-sha-256\n")

    @property
    def dsn(self) -> str:
        """How to reach it."""
        return f"host=127.0.0.1 port={self.port} user=kt password={self.password} dbname=postgres"

    def configure(self, settings: dict[str, str]) -> None:
        """Add lines to postgresql.conf; what came last counts.  `reload` or `restart` makes them known."""
        with (self.folder / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = {value}\n" for name, value in settings.items())

    def start(self) -> None:
        """Start it, and wait until it answers."""
        log = self._home / "log"
        arguments = ["-l", str(log), "-o", f"-p {self.port}", "-t", str(_START_S), "-w"]
        try:
            self._run("pg_ctl", "-D", str(self.folder), *arguments, "start")
        except RuntimeError as error:
            said = log.read_text()[-2000:] if log.exists() else ""
            raise RuntimeError(f"{error}\n{said}") from None

    def stop(self, mode: str = "fast") -> None:
        """Stop it: `smart` waits for clients, `fast` ends their sessions, `immediate` is a crash."""
        self._run("pg_ctl", "-D", str(self.folder), "-m", mode, "-w", "stop")

    def restart(self, mode: str = "fast") -> None:
        """Stop and start it."""
        self.stop(mode)
        self.start()

    def reload(self) -> None:
        """Let it read its settings again."""
        self._run("pg_ctl", "-D", str(self.folder), "reload")

    def standby(self, name: str = "standby", settings: dict[str, str] | None = None) -> OwnServer:
        """Return a server that follows this one; make it synchronous by `synchronous_standby_names`."""
        made = object.__new__(OwnServer)
        made._programs, made._runs_as, made._primary, made.password = self._programs, self._runs_as, self, self.password
        made._home = Path(tempfile.mkdtemp(prefix="kt-postgres-", dir=self._home.parent))
        made.folder, made.port = made._home / "data", free_port()
        try:
            made._prepare()
            source = f"{self.dsn.partition(' dbname')[0]} application_name={name}"
            made._run("pg_basebackup", "-D", str(made.folder), "-d", source, "-X", "stream", "-R", "-c", "fast", "-N")
            made.configure({"primary_conninfo": f"'{source}'", "hot_standby": "on", **(settings or {})})
            made.start()
        except BaseException:
            made.close()
            raise
        return made

    def promote(self) -> None:
        """Make a standby take writes."""
        self._run("pg_ctl", "-D", str(self.folder), "-w", "promote")

    def is_running(self) -> bool:
        """Tell whether it is."""
        status = [*self._command("pg_ctl"), "-D", str(self.folder), "status"]
        return subprocess.run(status, **self._how()).returncode == 0

    def close(self) -> None:
        """Stop it and remove its folder; twice is no error."""
        if (self.folder / "postmaster.pid").exists():
            with contextlib.suppress(RuntimeError):
                self.stop("immediate")
        for _ in range(10):  # a process that is just ending may still write
            shutil.rmtree(self._home, ignore_errors=True)
            if not self._home.exists():
                break
            time.sleep(0.1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _command(self, program: str) -> list[str]:
        return [str(self._programs / program)]

    def _how(self) -> dict[str, Any]:
        how: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL}
        if os.geteuid() == 0:
            how |= {"user": self._runs_as, "group": pwd.getpwnam(self._runs_as).pw_gid, "extra_groups": []}
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        return how | {"cwd": self._home, "env": {**environment, "LC_ALL": "C"}}

    def _run(self, program: str, *arguments: str) -> None:
        # What it starts keeps the descriptors: a pipe would never end.
        with tempfile.TemporaryFile() as said:
            how = {**self._how(), "stdout": said, "start_new_session": True}
            code = subprocess.run([*self._command(program), *arguments], **how).returncode
            said.seek(0)
            if code:
                raise RuntimeError(f"{program} failed: {said.read().decode(errors='replace').strip()[-2000:]}")


def choose_owner() -> str:
    """Return who runs the server, since PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return getpass.getuser()
    known = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in known else "nobody"


def free_port() -> int:
    """Return a port of 127.0.0.1 that no process listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
