"""What the commands of `knowhub` do; the words for them are read by `cli.groups`."""

import asyncio
import contextlib
import gc
import ipaddress
import json
import logging
import os
import re
import shutil
import socket
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from ..base.language import is_chinese, say
from ..keyword_tree import LLMClient
from ..models.model_clients import client_from_environment
from ..store.addresses import open_tree
from ..store.backup import backup as copy_tree
from .calling import CallError, request
from .files import Files, FolderFiles, HubFiles, open_files, sync_folder
from .hub import LOCAL, KnowHub
from .identity import agents_token, agents_token_path, hub_place, own_principal, own_token, token_path
from .prompts import WORDS
from .schemas import RIGHTS, Json, KnowHubError, Scope
from .services.store import Quota
from .tokens import Tokens
from .vault import Vault, key_path

__all__ = [
    "ask",
    "audit",
    "backup",
    "doctor",
    "export",
    "key",
    "make_app",
    "mcp",
    "place_of",
    "purge",
    "restore",
    "serve",
]
__all__ += ["take_in", "token"]

_SETTINGS = "KNOWHUB_SERVE"  # how the workers of one server answer


def make_models(names: Sequence[str]) -> dict[str, LLMClient]:
    """Return clients for models by name, or the one that the environment names."""
    found: dict[str, LLMClient] = {}
    for name in names or [""]:
        client = client_from_environment(**({"model": name} if name else {}))
        if client is not None:
            found[name or client.model] = client
        elif name:
            raise KnowHubError("invalid", f"no service is set up for the model {name!r}: see OPENAI_API_KEY")
    return found


def place_of(data: str | None, log: str | None, *, may_ask: bool = False) -> str | Path:
    """Return where the hub is, which a folder or the address of a log names; None leaves it to the environment.

    With `may_ask` it is "" where the environment names a server, or a token for one, and no hub of this machine.
    """
    local = data or log or os.environ.get("KNOWHUB_DATA") or os.environ.get("KNOWHUB_LOG")
    if may_ask and not local and (os.environ.get("KNOWHUB_URL") or os.environ.get("KNOWHUB_TOKEN")):
        return ""
    return hub_place(data, log)


def _there(place: str | Path) -> str | Path:
    """Return the place of a hub that must be there: a command that only reads makes none."""
    if isinstance(place, Path) and not (place / "tree").is_dir():
        raise KnowHubError("not-found", f"there is no hub in {str(place)!r}: name its folder with --data")
    return place


# Serving


def make_app() -> Any:
    """Return the application of a worker, of the settings in the environment."""
    from .application import create_app
    from .gate import Settings
    from .pages import add_pages
    from .serving import add_mcp

    _log_lines()
    stored = json.loads(os.environ[_SETTINGS])
    shapes = stored["allow_secret_shapes"]
    quota = Quota(stored["quota_entries"], stored["quota_bytes"])
    hub = KnowHub(stored["data"], models=make_models(stored["models"]), allow_secret_shapes=shapes, quota=quota)
    hosts, calls = tuple(stored["hosts"]), stored["quota_calls"]
    settings = Settings(hosts, stored["cors"], stored["rate"], stored["is_secure"], calls_per_minute=calls)
    app = create_app(hub, settings, closes_hub=True)
    add_pages(app)
    with contextlib.suppress(ImportError):  # the extra `[knowhub-mcp]`
        add_mcp(app)
    gc.freeze()  # what a hub holds stays: to look through 30,000 entries for garbage stops everything for 0.2 s
    return app


def serve(
    place: str | Path,
    *,
    host: str,
    port: int,
    workers: int,
    allowed_hosts: Sequence[str],
    tls_cert: str | None,
    tls_key: str | None,
    behind_proxy: bool,
    org: str = "",
    **settings: Any,
) -> int:
    """Serve a hub until it is stopped; `settings` are models, cors, rate and allow_secret_shapes of each worker."""
    import uvicorn

    from .serving import Connection

    is_sealed = allowed_hosts and (tls_cert or behind_proxy)
    if not _is_loopback(host) and not is_sealed:
        needed = "say --allowed-host NAME, and --tls-cert FILE --tls-key FILE or --behind-proxy"
        raise KnowHubError("invalid", f"{host} can be reached from outside: {needed}")
    _check_free(host, port)
    files = open_files(place)
    _check_key(files)
    tokens = Tokens(files.tokens)
    _, mine = own_token(tokens)
    agents_token(tokens)
    if org or not tokens.org:
        tokens.org = _scope_of(org or re.sub(r"[\s,*]+", "-", files.name) or "hub")
    scheme = "https" if tls_cert else "http"
    hosts = [name.lower() for name in ("127.0.0.1", "localhost", "[::1]", *allowed_hosts)]
    stored: Json = {**settings, "data": str(place), "hosts": hosts, "is_secure": bool(tls_cert or behind_proxy)}
    os.environ[_SETTINGS] = json.dumps(stored)
    address = f"{scheme}://{host if ':' not in host else f'[{host}]'}:{port}"
    said = say("KnowHub on {}   data: {}   your token: {}", address, files.shown, token_path())
    if allowed_hosts:  # the address that it listens on may be none that it answers to: 0.0.0.0, say
        name = allowed_hosts[0].lower()
        address = f"https://{name}" if behind_proxy else f"{scheme}://{name}:{port}"

    def announce() -> None:
        """Print the link when it leads somewhere."""
        while True:
            with contextlib.suppress(OSError), socket.create_connection((host, port), 1.0):
                break
            time.sleep(0.05)
        login = f"{address}/login?code={tokens.make_login(mine)}"
        print(f"{said}\n{say('log a browser in, once: {}', login)}")
        print(say("your agents' token: {}   shared by default: {}", agents_token_path(), tokens.org), flush=True)

    threading.Thread(target=announce, daemon=True).start()
    _allow_connections()
    uvicorn.run(
        f"{__package__}.commands:make_app",
        factory=True,
        host=host,
        port=port,
        workers=workers,
        access_log=False,  # it would write down what is searched for
        log_config=None,
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=10,
        ssl_certfile=tls_cert,
        ssl_keyfile=tls_key,
        proxy_headers=behind_proxy,
        http=Connection,
        ws="none",
        lifespan="on",
    )
    return 0


def _scope_of(name: str) -> str:
    """Return the scope of an organisation."""
    scope = f"org:{name.removeprefix('org:')}"
    try:
        return _SCOPE.validate_python(scope)
    except ValueError:
        raise KnowHubError("invalid", f"{name!r} is no name of an organisation: no blanks, commas or *") from None


_SCOPE: TypeAdapter[str] = TypeAdapter(Scope)


def _check_key(files: HubFiles) -> None:
    """Refuse a master key that is not the one of this hub's secrets, before anything is served or sealed."""
    vault = Vault(files.secrets, folder=files.folder)
    if vault.is_used():
        vault.prove()


def _check_free(host: str, port: int) -> None:
    """Refuse a port that is in use, before a link is printed that would lead there."""
    if not 0 < port < 65_536:
        raise KnowHubError("invalid", f"'{port}' is no port")
    try:
        with socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET):
            return
    except OSError as error:
        raise KnowHubError("conflict", f"{host}:{port} cannot be had ({error.strerror}): say another --port") from error


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _log_lines() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    for name in {"keyword_tree.knowhub", __package__, "uvicorn.error"}:  # the first two are one where it is installed
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        logger.setLevel(logging.WARNING if name == "uvicorn.error" else logging.INFO)
        logger.propagate = False


def _allow_connections() -> None:
    """Ask for as many open files as may be had: a connection is one."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, 65_536) if hard != resource.RLIM_INFINITY else 65_536
    if soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


# The other commands


def ask(place: str | Path, *, question: str, top_k: int, models: Sequence[str], as_json: bool) -> int:
    """Search a hub of this machine, or with the place "" the server of the environment; print what was found."""
    query, is_empty = {"q": question, "top_k": top_k, "min_score": 1}, False
    began = time.perf_counter()
    if not place:
        try:
            found = asyncio.run(request("GET", "/api/knowledge/search", params=query))
        except CallError as error:
            raise KnowHubError("invalid", str(error)) from None
    else:
        with KnowHub(_there(place), models=make_models(models)) as hub:
            began = time.perf_counter()
            found = hub.search(LOCAL, query)
            is_empty = not hub.catalog.counts().get("knowledge")
    took_ms = (time.perf_counter() - began) * 1000
    if as_json:
        print(json.dumps(found, ensure_ascii=False))
    else:
        _show(found, took_ms)
        if is_empty:
            print(say("The hub is empty: `knowhub import FILE` reads knowledge in."))
    return 0 if found["results"] else 1


def _show(found: Mapping[str, Any], took_ms: float) -> None:
    for result in found["results"]:
        judged = result["eval"]
        print(result["task"])
        counts = judged["score"], judged["helpful"], judged["harmful"]
        print("  " + say("score {}, helpful {}, harmful {}, {}", *counts, result["id"]))
        for line in result["content"].strip().splitlines()[:6]:
            print(f"  {_printable(line)[:110]}")
        print()
    words = WORDS["zh" if is_chinese() else "en"]
    why = say(" ({})", words[found["reason"]]) if found["reason"] else ""
    if found["results"]:
        how = words[found["routing"]] + why
        print(say("{} of {} entries, {}, {:.1f} ms", found["count"], found["eligible"], how, took_ms))
    else:
        print(say("nothing found in {} entries{}, {:.1f} ms", found["eligible"], why, took_ms))
        if found["hidden"]:
            print(say("{} entries that you may not see", found["hidden"]))


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)


def token(
    place: str | Path,
    *,
    action: str = "make",
    id: str = "",
    principal: str = "",
    rights: str = "read,write",
    scopes: str | None = None,
    days: float = 0.0,
    port: int = 0,
) -> int:
    """Make, list or revoke tokens, or log a browser in."""
    tokens = Tokens(open_files(place).tokens)
    if action == "list":
        found = tokens.all()
        for one in found:
            seen = ",".join(sorted(one.scopes)) or "-"
            print(f"{one.digest[:12]}  {one.principal}  {','.join(sorted(one.rights))}  {seen}")
        if not found:
            print(say("There is no token yet: `knowhub token make` makes one, and so does `knowhub serve`."))
        for name in tokens.damaged():
            print(f"{name[:12]}  {say('damaged: this file holds no token')}")
    elif action == "revoke":
        found = [one for one in tokens.all() if id and one.digest.startswith(id)]
        if len(found) != 1:
            detail = f"{len(found)} tokens begin with {id!r}: see `knowhub token list`"
            raise KnowHubError("not-found", detail)
        tokens.revoke(found[0].digest)
        print(say("revoked: {}", found[0].principal))
    elif action == "login":
        print(f"http://127.0.0.1:{port}/login?code={tokens.make_login(own_token(tokens)[1])}")
    else:
        named = [name for name in rights.split(",") if name]
        if not set(named) <= set(RIGHTS):
            raise KnowHubError("invalid", f"rights are {', '.join(RIGHTS)}")
        if not 0 <= days < float("inf"):
            raise KnowHubError("invalid", f"days must be a number not below 0: {days}")
        until = time.time() + days * 86_400 if days else None
        chosen = [scope for scope in (tokens.org if scopes is None else scopes).split(",") if scope]
        print(tokens.make(principal or own_principal(), named, chosen, until)[0])
    return 0


def key(place: str | Path, *, action: str, drop_old: bool) -> int:
    """Rotate the master keys, or say where they are."""
    if action == "path":
        print("KNOWHUB_KEY" if os.environ.get("KNOWHUB_KEY") else key_path())
        return 0
    is_given = bool(os.environ.get("KNOWHUB_KEY"))
    with KnowHub(_there(place)) as hub:
        if is_given and len(hub.vault.ring()) < 2:
            detail = "the key stands in KNOWHUB_KEY: put a new one before it there, and rotate again"
            raise KnowHubError("invalid", detail)
        count = hub.vault.rotate(drop_old=drop_old)
    if is_given:
        print(say("{} secrets are wrapped by the first key of KNOWHUB_KEY", count))
        print(say("The old keys still open old backups and other hubs; take them out of KNOWHUB_KEY."))
        return 0
    print(say("{} secrets are wrapped by a new key in {}", count, key_path()))
    if not drop_old:
        print(say("The old keys still open old backups and other hubs; --drop-old takes them away."))
    return 0


def take_in(place: str | Path, *, file: str, as_json: bool) -> int:
    """Read an export, or lines written by hand."""
    with KnowHub(place) as hub, contextlib.ExitStack() as stack:
        source: Any = sys.stdin
        if file != "-":
            source = stack.enter_context(open(file, encoding="utf-8-sig"))
        report = hub.take_in(LOCAL, _lines(source))
    if as_json:
        print(json.dumps(report, ensure_ascii=False))
        return 1 if report["errors"] else 0
    print(say("{} written, {} there already", report["written"], report["skipped"]))
    for error in report["errors"]:
        print(say("line {}: {}", error["line"], error["detail"]), file=sys.stderr)
    return 1 if report["errors"] else 0


def _lines(source: Iterable[str]) -> Iterator[Json]:
    for number, line in enumerate(source, 1):
        if line.strip():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                raise KnowHubError("invalid", f"line {number} is no JSON") from None
            yield row if isinstance(row, dict) else {"kind": "no object"}


def export(place: str | Path, *, file: str = "-") -> int:
    """Write all as JSON lines."""
    with KnowHub(_there(place)) as hub, contextlib.ExitStack() as stack:
        out: Any = sys.stdout
        if file != "-":
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            out = stack.enter_context(open(descriptor, "w", encoding="utf-8"))
        for line in hub.export(LOCAL):
            out.write(json.dumps(line, ensure_ascii=False) + "\n")
    return 0


def audit(place: str | Path, *, limit: int, as_json: bool) -> int:
    """Print who read which secret, and who was refused, the newest first."""
    with KnowHub(_there(place)) as hub:
        found = hub.accesses(LOCAL, {"limit": limit})["results"]
    for each in found:
        shown = each["timestamp"], each["outcome"], each["principal"], each["resource_id"]
        print(json.dumps(each, ensure_ascii=False) if as_json else "  ".join(shown))
    if not found and not as_json:
        print(say("No secret was read in the last 90 days."))
    return 0


def doctor(place: str | Path) -> int:
    """Print what a hub holds and what is wrong."""
    try:
        problems = _look(_there(place))
    except KnowHubError as error:
        if error.code != "store-damaged":
            raise
        problems = [f"the store is damaged: {error.__cause__}"]
    for said in problems:
        print(f"! {said}")
    print(say("{} problems", len(problems)) if problems else say("all is well"))
    return 1 if problems else 0


def _look(place: str | Path) -> list[str]:
    """Print what a hub holds; return what is wrong."""
    with KnowHub(place) as hub:
        problems = [*hub.ledger.tree.recovery, *hub.ledger.tree.Verify()]
        if hub.vault.references():
            try:
                hub.vault.ring()
                problems += hub.vault.problems()
            except KnowHubError as error:
                problems.append(f"vault: {error.detail}")
        problems += [f"tokens/{name} holds no token" for name in hub.tokens.damaged()]
        problems += [f"{id} is called like a record of a hub and is none" for id in hub.ledger.odd_ids()]
        for path in (hub.folder, hub.folder / "tokens", hub.folder / "vault"):
            if path.exists() and path.stat().st_mode & 0o077:
                problems.append(f"others can read {path}: chmod 700")
        counts = hub.catalog.counts()
        sealed, named = set(hub.vault.references()), hub.catalog.secret_references()
        orphans = len(sealed - named)
        print("  ".join(f"{say(kind)}{say(': ')}{count}" for kind, count in sorted(counts.items())) or say("empty"))
        held = len(sealed & named), orphans, len(hub.tokens.all())
        print(say("secrets: {}, without an owner: {}, tokens: {}", *held))
    return problems


def backup(place: str | Path, *, folder: str) -> int:
    """Copy a hub into a new folder, also while it serves."""
    files = open_files(_there(place))
    with open_tree(files.tree) as tree, _whole(Path(folder)) as target:
        copy_tree(tree, target / "tree")
        # After the tree: what it names is there, but for a secret that was destroyed since, and that stays so.
        for name, kind in (("vault", files.secrets), ("tokens", files.tokens)):
            _copy_files(kind, FolderFiles(target / name))
    print(say("The copy is in {}. The vault's key is not in it: keep {} elsewhere.", folder, key_path()))
    return 0


def restore(place: str | Path, *, folder: str) -> int:
    """Make a hub of a copy, in a folder where there is none."""
    source = open_files(_there(Path(folder)))
    if not isinstance(place, Path):
        raise KnowHubError("invalid", "a copy becomes a hub in a folder: name it with --data")
    with open_tree(source.tree) as tree, _whole(place) as target:
        copy_tree(tree, target / "tree")
        for name, kind in (("vault", source.secrets), ("tokens", source.tokens)):
            _copy_files(kind, FolderFiles(target / name))
    _check_key(open_files(place))
    print(say("The hub is in {}.", place))
    return 0


@contextlib.contextmanager
def _whole(folder: Path) -> Iterator[Path]:
    """Give a folder beside the one that is meant, which gets its name when it is whole: a kill leaves no half."""
    target, unfinished = folder.absolute(), Path(f"{folder.absolute()}.unfinished")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise KnowHubError("conflict", f"it needs a new or an empty folder: {str(folder)!r}")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(0o700, parents=True)
    yield unfinished
    unfinished.replace(target)
    sync_folder(target.parent)


def _copy_files(source: Files, target: FolderFiles) -> None:
    for name in source.names():
        if not name.startswith(".") and (data := source.read(name)) is not None:
            target.write(name, data)


def purge(place: str | Path, *, yes: bool) -> int:
    """Forget history and what was deleted."""
    if not yes:
        raise KnowHubError("invalid", "it forgets all history and what was deleted, for good: say --yes")
    with KnowHub(_there(place)) as hub:
        hub.purge(LOCAL)
    for indexes in (hub.folder / "indexes", hub.folder / "tree" / "indexes"):
        shutil.rmtree(indexes, ignore_errors=True)
    print(say("What was deleted is gone; snapshots, if there are any, still hold it."))
    return 0


def mcp(place: str | Path, *, models: Sequence[str]) -> int:
    """Serve one host on stdin and stdout."""
    from .mcp_server import serve_stdio

    _check_key(open_files(place))
    with KnowHub(place, models=make_models(models)) as hub:
        _, token = own_token(hub.tokens)
        serve_stdio(hub, token)
    return 0
