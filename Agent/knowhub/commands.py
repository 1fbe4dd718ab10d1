"""The commands of `knowhub`, each under its name; their arguments are read by `cli.groups`."""

import contextlib
import json
import os
import re
import shutil
import socket
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from ..base.checks import check_free
from ..base.language import say
from ..base.text import typed_names
from ..store.addresses import open_tree
from ..store.backup import backup as copy_tree
from ..store.backup import new_folder
from .files import FolderFiles, HubFiles, open_files
from .hub import LOCAL, KnowHub
from .records import RIGHTS, Json, KnowHubError
from .routing import make_models
from .schemas import is_plain
from .services.keeping import told_token
from .tokens import Tokens, agents_token, agents_token_path, own_principal, own_token, token_path
from .vault import Vault, key_path


def _there(place: str | Path) -> str | Path:
    """Return the place of a hub that must be there: a command that only reads makes none."""
    if isinstance(place, Path) and not (place / "tree").is_dir():
        raise KnowHubError("not-found", say("there is no hub in {!r}: name its folder with --data", str(place)))
    return place


# Serving


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
) -> None:
    """Serve a hub until it is stopped; `settings` are models, cors, rate and allow_secret_shapes of each worker."""
    import uvicorn

    from .serving import SETTINGS, Connection

    is_sealed = allowed_hosts and (tls_cert or behind_proxy)
    if host not in ("127.0.0.1", "localhost", "::1") and not is_sealed:
        needed = "say --allowed-host NAME, and --tls-cert FILE --tls-key FILE or --behind-proxy"
        raise KnowHubError("invalid", f"{host} can be reached from outside: {needed}")
    check_free(host, port)  # before a link is printed that would lead there
    files = open_files(place)
    _check_key(files)
    tokens = Tokens(files.tokens)
    _, mine = own_token(tokens)
    agents_token(tokens)
    if org or not tokens.org:
        tokens.org = _scope_of(org or re.sub(r"[\s,*]+", "-", files.name) or "hub")
    scheme = "https" if tls_cert else "http"
    hosts = ["127.0.0.1", "localhost", "[::1]", *map(str.lower, allowed_hosts)]
    stored: Json = {**settings, "data": str(place), "hosts": hosts, "is_secure": bool(tls_cert or behind_proxy)}
    os.environ[SETTINGS] = json.dumps(stored)
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
        print(f"{said}\n{say('log a browser in, once, within ten minutes: {}', login)}")
        print(say("your agents' token: {}   shared by default: {}", agents_token_path(), tokens.org), flush=True)

    threading.Thread(target=announce, daemon=True).start()
    _allow_connections()
    uvicorn.run(
        f"{__package__}.serving:make_app",
        factory=True,
        host=host,
        port=port,
        workers=workers,
        access_log=False,  # it would write down questions
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


def _scope_of(name: str) -> str:
    """Return the scope of an organisation."""
    scope = f"org:{name.removeprefix('org:')}"
    if len(scope) > 200 or not is_plain(scope) or re.search(r"[\s,*]", scope):
        raise KnowHubError("invalid", f"{name!r} is no name of an organisation: no blanks, commas or *")
    return scope


def _check_key(files: HubFiles) -> None:
    """Refuse a master key that is not the one of this hub's secrets, before anything is served or sealed."""
    if files.secrets.names():
        Vault(files.secrets, folder=files.folder).prove()


def _allow_connections() -> None:
    """Ask for as many open files as may be had: a connection is one."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, 65_536) if hard != resource.RLIM_INFINITY else 65_536
    if soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


# The other commands


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
    as_json: bool = False,
) -> None:
    """Make, list or revoke tokens, or log a browser in."""
    tokens = Tokens(open_files(_there(place) if action == "login" else place).tokens)
    if action == "list":
        value = [told_token(one) for one in tokens.all()]
        names = [(each["principal"], ",".join(each["rights"]), ",".join(each["scopes"]) or "-") for each in value]
        lines = [f"{each['id'][:12]}  {'  '.join(said)}" for each, said in zip(value, names, strict=True)]
        none = say("There is no token yet: `knowhub token make` makes one, and so does `knowhub serve`.")
        harmed = [f"{name[:12]}  {say('damaged: this file holds no token')}" for name in tokens.damaged()]
        _answer(value, "\n".join([*(lines or [none]), *harmed]), as_json)
    elif action == "revoke":
        found = [one for one in tokens.all() if id and one.digest.startswith(id)]
        if len(found) != 1:
            detail = say("{} tokens begin with {!r}: see `knowhub token list`", len(found), id)
            raise KnowHubError("not-found", detail)
        tokens.revoke(found[0].digest)
        _answer({"revoked": found[0].principal}, say("revoked: {}", found[0].principal), as_json)
    elif action == "login":
        address = f"http://127.0.0.1:{port}/login?code={tokens.make_login(own_token(tokens)[1])}"
        _answer({"address": address}, address, as_json)
    else:
        named = typed_names(rights)
        if not set(named) <= set(RIGHTS):
            raise KnowHubError("invalid", f"rights are {', '.join(RIGHTS)}")
        if not 0 <= days < float("inf"):
            raise KnowHubError("invalid", f"days must be a number not below 0: {days}")
        until = time.time() + days * 86_400 if days else None
        chosen = [*filter(None, [tokens.org])] if scopes is None else typed_names(scopes, [tokens.org])
        text, made = tokens.make(principal or own_principal(), named, chosen, until)
        _answer({**told_token(made), "token": text}, text, as_json)


def _answer(value: Any, said: str, as_json: bool) -> None:
    """Print a result for programs, or for people."""
    if as_json or said:
        print(json.dumps(value, ensure_ascii=False) if as_json else said)


def group(place: str | Path, *, id: str, as_json: bool = False, **given: str | None) -> None:
    """Show the groups, or say who is in one (`members`) and what they see by it (`scopes`): the other stays."""
    said = {name: typed_names(text) for name, text in given.items() if text is not None}
    with KnowHub(_there(place)) as hub:
        there = hub.tokens.groups()
        if said:
            hub.put_group(LOCAL, id, {"members": [], "scopes": [], **there.get(id, {}), **said})
        elif id and id not in there:
            raise KnowHubError("not-found", say("there is no group {!r}: --members makes one", id))
        found = [each for each in hub.list_groups(LOCAL)["results"] if id in ("", each["id"])]
    lines = (f"{each['id']}: {','.join(each['members'])}  {','.join(each['scopes']) or '-'}" for each in found)
    _answer(found, "\n".join(lines), as_json)


def key(place: str | Path, *, action: str, drop_old: bool) -> None:
    """Rotate the master keys, or say where they are."""
    is_given = bool(os.environ.get("KNOWHUB_KEY"))
    where = "KNOWHUB_KEY" if is_given else key_path()
    if action == "path":
        print(where)
        return
    with KnowHub(_there(place)) as hub:
        if is_given and len(hub.vault.ring()) < 2:
            detail = "the key stands in KNOWHUB_KEY: put a new one before it there, and rotate again"
            raise KnowHubError("invalid", detail)
        count = hub.vault.rotate(drop_old=drop_old)
    print(say("{} secrets are wrapped by the first key of {}", count, where))
    if is_given:
        print(say("The old keys still open old backups and other hubs; take them out of KNOWHUB_KEY."))
    elif not drop_old:
        print(say("The old keys still open old backups and other hubs; --drop-old takes them away."))


def take_in(place: str | Path, *, file: BinaryIO, as_json: bool) -> int:
    """Read an export, or lines written by hand."""
    with KnowHub(place) as hub:
        report = hub.take_in(LOCAL, _lines(file))
    if as_json:
        print(json.dumps(report, ensure_ascii=False))
    else:
        print(say("{} written, {} there already", report["written"], report["skipped"]))
        for error in report["errors"]:
            print(say("line {}: {}", error["line"], error["detail"]), file=sys.stderr)
    return 1 if report["errors"] else 0


def _lines(source: Iterable[bytes]) -> Iterator[Json]:
    for number, line in enumerate(source, 1):
        if line.strip():
            try:
                yield json.loads(line)
            except (ValueError, RecursionError):
                raise KnowHubError("invalid", f"line {number} is no JSON in UTF-8") from None


def export(place: str | Path, *, file: str = "-") -> None:
    """Write all as JSON lines."""
    with KnowHub(_there(place)) as hub, contextlib.ExitStack() as stack:
        out: Any = sys.stdout
        if file != "-":
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            out = stack.enter_context(open(descriptor, "w", encoding="utf-8"))
        out.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in hub.export(LOCAL))


def audit(place: str | Path, *, limit: int, as_json: bool) -> None:
    """Print who read which secret, and who was refused, the newest first."""
    with KnowHub(_there(place)) as hub:
        found = hub.accesses(LOCAL, {"limit": limit})["results"]
    for each in found:
        shown = each["timestamp"], each["outcome"], each["principal"], each["resource_id"]
        print(json.dumps(each, ensure_ascii=False) if as_json else "  ".join(shown))
    if not found and not as_json:
        print(say("No secret was read in the last 90 days."))


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
    """Print the contents of a hub; return its problems."""
    with KnowHub(place) as hub:
        problems = [*hub.ledger.tree.recovery, *hub.ledger.tree.Verify()]
        problems += hub.vault.problems()
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


def backup(place: str | Path, *, folder: str) -> None:
    """Copy a hub into a new folder, also while it serves."""
    _copy(open_files(_there(place)), Path(folder))
    print(say("The copy is in {}. The vault's key is not in it: keep {} elsewhere.", folder, key_path()))


def restore(place: str | Path, *, folder: str) -> None:
    """Make a hub of a copy, in a folder where there is none."""
    if not isinstance(place, Path):
        raise KnowHubError("invalid", "a copy becomes a hub in a folder: name it with --data")
    _copy(open_files(_there(Path(folder))), place)
    _check_key(open_files(place))
    print(say("The hub is in {}.", place))


def _copy(source: HubFiles, folder: Path) -> None:
    with open_tree(source.tree) as tree, new_folder(folder) as target:
        copy_tree(tree, target / "tree")
        # After the tree: its secrets are there, but for one that was destroyed since, and that stays so.
        for kind, copied in ((source.secrets, "vault"), (source.tokens, "tokens")):
            for name in kind.names():
                if not name.startswith(".") and (data := kind.read(name)) is not None:
                    FolderFiles(target / copied).write(name, data)


def purge(place: str | Path, *, yes: bool) -> None:
    """Forget history and what was deleted."""
    if not yes:
        raise KnowHubError("invalid", say("it forgets all history and what was deleted, for good: say --yes"))
    with KnowHub(_there(place)) as hub:
        hub.purge(LOCAL)
    for indexes in (hub.folder / "indexes", hub.folder / "tree" / "indexes"):
        shutil.rmtree(indexes, ignore_errors=True)
    print(say("What was deleted is gone; snapshots, if there are any, still hold it."))


def mcp(place: str | Path, *, models: Sequence[str], judge: bool = False, meaning: bool = True) -> None:
    """Serve one host on stdin and stdout."""
    from .mcp_server import serve_stdio

    _check_key(open_files(place))
    with KnowHub(place, models=make_models(models), judge=judge, meaning=meaning) as hub:
        _, token = own_token(hub.tokens)
        serve_stdio(hub, token)
