"""The groups: `context` (sessions of agents), `hub` (KnowHub), `shared` (trees on a server), and `mcp`.

`knowhub` and `keyword-tree-mcp` are `hub` and `mcp` as programs of their own. In `context` a URI may be written from
the user's space on: `memories/profile`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..base.language import count_of, say
from ..base.text import clean, plain_of, typed_names
from ..keyword_tree import InvalidInputError
from ..store.addresses import is_address, refuse_address
from .program import Command, Option, command, group, kept
from .screen import line, table
from .session import NOT_FOUND, Session
from .undoing import local_time

if TYPE_CHECKING:
    from ..context_engine import ContextEngineService, RequestContext
    from ..shared_tree import SharedLog

PORT = 8790
PORTS = click.IntRange(1, 65_535)

POSTGRES_VARIABLE = "KEYWORD_TREE_POSTGRES"

HARDLY, BESIDE = 0.005, 0.08
"""Least scores of a session's hits that are shown, and beside the best one; --json has all."""

LOOK_S = 60.0
"""So often a worker that has nothing else to do looks for edits by hand."""

# -- context: sessions of agents as folders ----------------------------------------------------------------------------


def _variable(option: str) -> str:
    return f"CONTEXT_ENGINE_{option.upper()}"


CONTEXT = {
    "account": ("local", "The account; others share nothing with it."),
    "user": ("me", "The user of the memories."),
    "agent": ("cli", "The user's agent."),
    "session": ("", "The session to commit to."),
}
"""Option → its default and its help."""

context = group(
    "context",
    """Store an agent's sessions as folders that people can read.

\b
keyword-tree context --user ada --session monday commit transcript.json
keyword-tree context --user ada search "Does the tea want sugar?"
keyword-tree context search --help""",
    kept("--data", metavar="FOLDER", help="The folder of the sessions.  [env: CONTEXT_ENGINE_DATA; default: memory]"),
    *(
        kept(f"--{name}", metavar="NAME", help=f"{text}  [env: {_variable(name)}; default: {default or 'none'}]")
        for name, (default, text) in CONTEXT.items()
    ),
)

_Answer = tuple[Any, str] | tuple[Any, str, int]
"""For programs and for people, and the exit code where it is not 0."""


def _of_context(
    name: str, *parameters: Option, makes: bool = False, meaning: bool = False
) -> Callable[[Callable[..., _Answer]], Command]:
    """Make a command of a function that is given the engine and the caller, and returns the answer."""

    def make(function: Callable[..., _Answer]) -> Command:
        def run(session: Session, **named: Any) -> int:
            from ..context_engine import ContextEngineService, RequestContext

            def given(option: str, default: str) -> str:
                value = str(session.given.get(option, os.environ.get(_variable(option)) or default))
                if default and not value:  # as of a variable that is not set: it must not become another user's
                    raise InvalidInputError(f"--{option} must not be empty")
                return value

            folder = given("data", "memory")
            refuse_address(folder, "--data")
            if not makes and not Path(folder).is_dir():
                raise InvalidInputError(say("there is no memory in {!r}: name its folder with --data", folder))
            ctx = RequestContext(*(given(option, default) for option, (default, _) in CONTEXT.items()))
            with ContextEngineService(folder, meaning=session.meaning) as engine:
                data, text, *code = function(engine, ctx, **named)
            plain = json.loads(json.dumps(data, default=plain_of)) if session.as_json else None
            session.answer(plain, line(text, keep_lines=True))
            return code[0] if code else 0

        run.__doc__ = function.__doc__
        return command(name, of=context, meaning=meaning)(_with(parameters, run))

    return make


def _with(parameters: tuple[Option, ...], function: Callable[..., Any]) -> Callable[..., Any]:
    for parameter in reversed(parameters):
        function = parameter(function)
    return function


URI = click.argument("uri")
ANY_URI = click.argument("uri", default="")


def _uri(ctx: RequestContext, text: str) -> str:
    if text.startswith("ctx://"):
        return text
    from ..context_engine.fs.uri import join_uri

    space = join_uri(ctx.account_id, "users", ctx.user_id)
    return f"{space}/{text.strip('/')}" if text else space


def _messages(context: click.Context, parameter: click.Parameter, file: Any) -> Any:
    try:
        with file:
            text = file.read()
        try:
            return json.loads(text)
        except ValueError:
            return [json.loads(each) for each in text.splitlines() if each.strip()]
    except ValueError as error:  # of JSON and of UTF-8
        raise click.BadParameter(say("{}: neither a JSON list nor an object a line: {}", file.name, error)) from error


# The file is read before the engine is opened, which makes its folder.
@_of_context("commit", click.argument("file", type=click.File(encoding="utf-8-sig"), callback=_messages), makes=True)
def _commit(engine: ContextEngineService, ctx: RequestContext, file: Any) -> _Answer:
    """Commit a session, or an export of ChatGPT or Claude.

    FILE has the messages: a JSON list, or an object a line; - reads the input. Each conversation of an export is a
    session.
    """
    results = engine.commit_export(ctx, file)
    written = [[write.uri for write in result.write_results if write.action != "skip"] for result in results]
    answers = [
        {"status": result.status, "stats": result.stats, "commit_id": result.commit_id, "memories": memories}
        for result, memories in zip(results, written, strict=True)
    ]
    of = say(results[0].status) if len(results) == 1 else say("{} sessions", len(results))
    fresh = sum(result.stats["new"] for result in results)
    said = say("{}: {}, {}", of, count_of(sum(map(len, written)), "memory"), count_of(fresh, "new message"))
    why = next((result.stats["why"] for result in results if result.stats.get("why")), None)
    return answers if len(results) > 1 else answers[0], f"{said}\n{say(why)}" if why else said


@_of_context(
    "remember",
    click.argument("text"),
    click.option("--category", default="preferences", help="The kind of memory, as profile or events."),
    click.option("--topic", default="", help="Its topic."),
    makes=True,
)
def _remember(engine: ContextEngineService, ctx: RequestContext, text: str, category: str, topic: str) -> _Answer:
    """Store one statement as a memory."""
    uri = engine.remember(ctx, text, category, topic)
    return {"uri": uri}, uri


@_of_context(
    "search",
    click.argument("query"),
    click.option("--top", type=int, default=5, show_default=True, help="Maximum number shown."),
    click.option("--budget", type=int, default=1_200, show_default=True, help="Maximum number of tokens shown."),
    click.option("--beneath", default="", help="Only this URI and those under it."),
    meaning=True,
)
def _search(
    engine: ContextEngineService, ctx: RequestContext, query: str, top: int, budget: int, beneath: str
) -> _Answer:
    """Search for a question."""
    target = _uri(ctx, beneath) if beneath else None
    found = engine.search_memory(ctx, query, target, top_k=top, budget_tokens=budget)
    least = max(HARDLY, BESIDE * max((block.score for block in found.blocks), default=0.0))
    fits = [block for block in found.blocks if block.score >= least]
    lines = [f"{block.content_excerpt or block.abstract}\n    {block.uri}  [{block.match_reason}]" for block in fits]
    lines += [say("({} more did not fit)", found.omitted)] if found.omitted else []
    nothing = say("nothing fits for user {!r}, agent {!r}, account {!r}", ctx.user_id, ctx.agent_id, ctx.account_id)
    note = [say("note: {}", found.note)] if found.note else []
    return found, "\n".join([*(lines or [nothing]), *note]), 0 if fits else NOT_FOUND


LEVEL = click.option(
    "--level", default="L2", type=click.Choice(("L0", "L1", "L2")), help="One line, an overview, or all of it."
)


@_of_context("read", URI, LEVEL)
def _read(engine: ContextEngineService, ctx: RequestContext, uri: str, level: str) -> _Answer:
    """Read a node."""
    block = engine.read_memory(ctx, _uri(ctx, uri), level)
    return block, block.content_excerpt or block.overview or block.abstract


@_of_context("ls", ANY_URI)
def _ls(engine: ContextEngineService, ctx: RequestContext, uri: str) -> _Answer:
    """List the nodes directly under a URI."""
    uri = _uri(ctx, uri)
    if not (found := engine.list_children(ctx, uri)):
        return found, say("nothing is under {}", uri), NOT_FOUND
    return found, "\n".join(f"{each.name}{'/' if each.has_children else ''}" for each in found)


@_of_context("log", click.option("--limit", type=int, default=20, show_default=True, help="Maximum number shown."))
def _log(engine: ContextEngineService, ctx: RequestContext, limit: int) -> _Answer:
    """List the last commits."""
    rows = engine.fs.log(ctx, limit)
    lines = [
        f"{local_time(row['at'])}  {row['id']}  {_say_name(row['name'])}  {count_of(len(row['uris']), 'node')}"
        for row in rows
    ]
    return rows, "\n".join(lines) or say("there are none")


def _say_name(name: str) -> str:
    """Return what a commit is called, in the chosen language."""
    undone = "undo " * name.startswith("undo ")
    return say(undone) + _say_name(name.removeprefix(undone)) if undone else say(name)


@_of_context("history", URI)
def _history(engine: ContextEngineService, ctx: RequestContext, uri: str) -> _Answer:
    """List the commits that changed a node, newest first."""
    rows = engine.history(ctx, _uri(ctx, uri))
    lines = [f"{local_time(each.at)}  {each.commit_id}  {say(each.change)}  {each.author}" for each in rows]
    return rows, "\n".join(lines) or say("there are none")


@_of_context("brief")
def _brief(engine: ContextEngineService, ctx: RequestContext) -> _Answer:
    """Show a beginning for a system prompt: profile, preferences, newest events."""
    found = engine.brief(ctx)
    return found, found.text


@_of_context("undo", click.argument("commit_id"))
def _undo(engine: ContextEngineService, ctx: RequestContext, commit_id: str) -> _Answer:
    """Undo a commit, as `log` names it, as a new commit."""
    undone = engine.undo(ctx, commit_id)
    return {"commit_id": undone}, say("undone by {}", undone)


@_of_context("forget", URI)
def _forget(engine: ContextEngineService, ctx: RequestContext, uri: str) -> _Answer:
    """Erase a memory, and the messages it cites, from every file."""
    result = engine.forget(ctx, _uri(ctx, uri))
    also = "".join("\n" + say("kept, and citing the same: {}", uri) for uri in result.also_cited_by)
    memories, messages = count_of(len(result.uris), "memory"), count_of(len(result.messages), "message")
    return result, say("forgot {} and {}", memories, messages) + also


@_of_context("adopt", ANY_URI)
def _adopt(engine: ContextEngineService, ctx: RequestContext, uri: str) -> _Answer:
    """Commit edits by hand."""
    whole = _uri(ctx, uri)
    adopted = ([whole] if engine.adopt(ctx, whole) else []) if uri else engine.adopt_all(ctx)
    return adopted, "\n".join(adopted) or say("nothing has changed")


@_of_context("worker", click.option("--once", is_flag=True, help="Process due events once, and end."), meaning=True)
def _worker(engine: ContextEngineService, ctx: RequestContext, once: bool) -> _Answer:
    """Process the outbox, and commit edits by hand, until it is stopped."""
    next_look = 0.0
    while True:
        done = engine.work(adopt=once)
        if once:
            counts = done.succeeded, done.retried, done.failed
            return done, say("{} done, {} to be tried again, {} dead", *counts)
        if not done.claimed and time.monotonic() > next_look:  # it reads all of the store
            engine.adopt_all()
            next_look = time.monotonic() + LOOK_S
        time.sleep(0.0 if done.claimed else 1.0)


@_of_context("status")
def _status(engine: ContextEngineService, ctx: RequestContext) -> _Answer:
    """Show waiting and failed events of the outbox, and reports."""
    found = engine.status()
    unsynced = {"commits that are not in the files yet": found["unsynced"]["commits"]}
    shown = {**found["outbox"], **unsynced, "last commit": found["sequence"]}
    lines = [f"{say(name)}{say(': ')}{value}" for name, value in shown.items()]
    lines += [f"{local_time(each['at'])}  {each['uri']}  {each['text']}" for each in found["reports"]]
    return found, "\n".join(lines)


DAYS = click.FloatRange(0, float("inf"), max_open=True)
YES = click.option("--yes", is_flag=True, help="Do not ask.")


@_of_context("prune", click.option("--days", type=DAYS, required=True, help="Days of history to keep."), YES)
def _prune(engine: ContextEngineService, ctx: RequestContext, days: float, yes: bool) -> _Answer:
    """Drop the history of commits older than some days; the present files stay."""
    if not yes:
        message = say("commits older than {} days can never be undone after this: add --yes", f"{days:g}")
        raise InvalidInputError(message)
    count = engine.prune(time.time() - 86_400 * days)
    return {"commits": count}, say("{} commits cannot be undone any more", count)


@_of_context("verify")
def _verify(engine: ContextEngineService, ctx: RequestContext) -> _Answer:
    """Compare files, journal, index and outbox; change nothing."""
    found = engine.verify()
    return found, "\n".join(found) or say("all agrees"), NOT_FOUND if found else 0


@_of_context("repair")
def _repair(engine: ContextEngineService, ctx: RequestContext) -> _Answer:
    """Rebuild the index, and retry failed events of the outbox."""
    found = engine.repair()
    return found, "\n".join(found) or say("all agrees"), NOT_FOUND if found else 0


# -- hub: knowledge that agents share and judge ------------------------------------------------------------------------

hub = group(
    "hub",
    "Serve knowledge that agents share and judge.",
    kept(
        "--data", metavar="FOLDER", help="The folder of the hub.  [env: KNOWHUB_DATA; default: ~/.local/share/knowhub]"
    ),
    kept(
        "--log",
        metavar="ADDRESS",
        help="Instead: postgresql://host/database#name, for several machines.  [env: KNOWHUB_LOG]",
    ),
)

MODELS = kept("--models", metavar="NAMES", help="Names of models, with commas; the first is the default.")
JUDGE = click.option("--judge", is_flag=True, help="Let a model tell which results of a search answer the query.")


def _of_hub(
    name: str, text: str, *parameters: Option, has_json: bool = False, meaning: bool = False, does: str = ""
) -> None:
    """Make a command of what `knowhub.commands` has under its name, or as `does` says."""

    def run(session: Session, /, **named: Any) -> int:
        from ..knowhub import commands, files  # need the extra, which the help does not

        given = session.given
        place = files.hub_place(given.get("data"), given.get("log"))
        if MODELS in parameters:
            named["models"] = typed_names(given.get("models", ""))
        if has_json:
            named["as_json"] = session.as_json
        if meaning:
            named["meaning"] = bool(session.meaning)
        return int(getattr(commands, does or name)(place, **named) or 0)

    run.__doc__ = text
    command(name, of=hub, has_json=has_json, meaning=meaning)(_with(parameters, run))


_of_hub(
    "serve",
    "Serve REST, web pages and MCP.",
    click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on."),
    click.option("--port", type=PORTS, default=PORT, show_default=True, help="The port to listen on."),
    click.option(
        "--workers", type=click.IntRange(1), default=1, help="Processes; one with threads is the fastest for writes."
    ),
    click.option("--allowed-host", "allowed_hosts", multiple=True, help="A host name under which it is reached."),
    click.option("--tls-cert", type=click.Path(exists=True, dir_okay=False), help="The TLS certificate, a PEM file."),
    click.option("--tls-key", type=click.Path(exists=True, dir_okay=False), help="The certificate's key, a PEM file."),
    click.option("--behind-proxy", is_flag=True, help="A proxy in front terminates TLS."),
    click.option("--cors", default="", help="The one origin whose scripts may call it."),
    click.option(
        "--rate", type=float, default=50.0, show_default=True, help="Requests a second for one token; 0 is no limit."
    ),
    click.option("--quota-entries", type=int, default=0, help="Entries and resources of one principal; 0 is no limit."),
    click.option("--quota-bytes", type=int, default=0, help="Bytes of their texts; 0 is no limit."),
    click.option("--quota-calls", type=float, default=0.0, help="Calls of one principal a minute; 0 is no limit."),
    click.option("--org", metavar="NAME", default="", help="The hub's organisation; by default the folder's name."),
    click.option("--openid-issuer", default="", help="An OpenID provider for the log-in of browsers."),
    click.option(
        "--openid-client", default="", help="The hub's client name there.  [env of the secret: KNOWHUB_OPENID_SECRET]"
    ),
    click.option("--allow-secret-shapes", is_flag=True, help="Take knowledge that looks like a key."),
    MODELS,
    JUDGE,
    meaning=True,
)
_of_hub(
    "token",
    "Make, list or revoke tokens; log a browser in.",
    click.argument("action", type=click.Choice(("make", "list", "revoke", "login")), default="make"),
    click.argument("id", default=""),
    click.option("--principal", default="", help="Its principal; by default your git e-mail address."),
    click.option("--rights", default="read,write", show_default=True, help="read,write,curate,secrets,admin"),
    click.option("--scopes", help="Scopes besides its own, with commas; * is all; by default the hub's organisation."),
    click.option("--days", type=float, default=0.0, help="Days of validity; 0 is for ever."),
    click.option("--port", type=int, default=PORT, help="For login: the port of the server."),
    has_json=True,
)
_of_hub(
    "group",
    "Show the groups, or say who is in one and what they see by it.",
    click.argument("id", default=""),
    click.option("--members", help="Principals, with commas; an empty list deletes the group."),
    click.option("--scopes", help="Scopes granted to them, with commas."),
    has_json=True,
)
_of_hub(
    "key",
    "Rotate the vault's master key.",
    click.argument("action", type=click.Choice(("rotate", "path"))),
    click.option("--drop-old", is_flag=True, help="Forget the old keys: older backups and unrotated hubs stay closed."),
)
_of_hub(
    "import",
    "Read JSON lines in: those of an export, or any with task, content and types.\n\nFILE - is the input.",
    click.argument("file", type=click.File("rb")),
    has_json=True,
    does="take_in",
)
_of_hub("export", "Write all as JSON lines, no secrets.", click.argument("file", default="-"))
_of_hub("doctor", "Look whether all is well.")
_of_hub("backup", "Copy a hub into a new folder, also while it serves.", click.argument("folder"))
_of_hub("restore", "Make a hub of a copy, where there is none.", click.argument("folder"))
_of_hub(
    "audit",
    "Say who read which secret, and who was refused.",
    click.option("--limit", type=click.IntRange(1, 200), default=20, help="Maximum number shown."),
    has_json=True,
)
_of_hub("purge", "Erase history and deleted entries for good.", YES)
_of_hub("mcp", "Serve MCP on stdin and stdout.", MODELS, JUDGE, meaning=True)


# -- shared: trees on a PostgreSQL server ------------------------------------------------------------------------------

shared = group(
    "shared",
    """Look after trees on a PostgreSQL server.

A password belongs into ~/.pgpass: others see the words of a command.""",
    kept("--data", metavar="ADDRESS", help="The tree, instead of --dsn: postgresql://host/database#tree."),
    kept("--dsn", help=f"The server, as libpq reads it.  [env: {POSTGRES_VARIABLE}]"),
    kept("--patience", type=float, help="Seconds of retries.  [default: 10]"),
    kept("--pooled", is_flag=True, help="The server is behind a transaction pooler."),
)


@contextmanager
def _server(session: Session, dsn: str | None = None) -> Iterator[SharedLog]:
    from ..shared_tree import SharedLog

    given = session.given
    named = str(given.get("data", "")).rpartition("#")[0]
    server = dsn or named or given.get("dsn") or os.environ.get(POSTGRES_VARIABLE, "")
    with SharedLog(server, patience=given.get("patience", 10.0), pooled=bool(given.get("pooled"))) as log:
        yield log


@command("setup", of=shared)
def _setup(session: Session) -> None:
    """Make the tables."""
    with _server(session) as log:
        log.setup()
    session.answer({"setup": True}, line(say("the tables are there")))


@command("list", of=shared)
def _list(session: Session) -> None:
    """List the trees: name, last operation, bytes."""
    with _server(session) as log:
        trees = [
            {"tree": name, "last_operation": log.last_operation(name), "size_bytes": log.size_bytes(name)}
            for name in log.trees()
        ]
    rows = [[str(value) for value in tree.values()] for tree in trees]
    session.answer(trees, *[table(rows)] * bool(rows))


@command("keep", of=shared)
@click.option("--vectors-in-memory", default=1_000_000, show_default=True, help="Of more pgvector finds the nearest.")
@click.argument("trees", nargs=-1, metavar="[TREE]...")
def _keep(session: Session, trees: tuple[str, ...], vectors_in_memory: int) -> None:
    """Write the states that are due, of all trees where none is named: for cron."""
    with _server(session) as log:
        written = {name: log.keep(name, vectors_in_memory=vectors_in_memory) for name in trees or log.trees()}
    rows = [(name, say("state written") if is_kept else say("not due")) for name, is_kept in written.items()]
    session.answer(written, *[table(rows)] * bool(rows))


@command("copy", of=shared)
@click.option("--out", is_flag=True, help="From a tree into a folder.")
@click.argument("source")
@click.argument("target")
def _copy(session: Session, out: bool, source: str, target: str) -> None:
    """Make a tree of a folder, or with --out a folder of a tree.

    A tree may be a whole address, postgresql://host/database#tree; tables that are not there are made then.
    """
    if not out and is_address(target):
        from ..shared_tree.address import parse_address

        address = parse_address(target)
        with _server(session, address.dsn) as log:
            log.prepare()
            seq = log.copy_in(source, address.tree_id)
    else:
        with _server(session) as log:
            seq = (log.copy_out if out else log.copy_in)(source, target)
    session.answer({"seq": seq}, line(say("copied up to operation {}", seq)))


@command("remove", of=shared)
@click.argument("tree")
def _remove(session: Session, tree: str) -> None:
    """Take a tree away for good."""
    if sys.stdin.isatty():
        click.confirm(say("{} will be gone for ever. Go on?", clean(tree)), abort=True, err=True)
    with _server(session) as log:
        log.remove(tree)
    session.answer({"removed": tree}, line(say("removed {}", tree)))


# -- mcp: the memory for MCP hosts -------------------------------------------------------------------------------------


@command("mcp", "Serve and share", meaning=True, has_json=False)
@click.argument("folder", required=False, type=click.Path(file_okay=False))
@click.option("--http", metavar="PORT", type=PORTS,
              help="Serve on this port of 127.0.0.1, not on stdin.")  # fmt: skip
@click.option("--judge", is_flag=True, help="Let a model tell which facts `recall` returns answer the question.")
def mcp(session: Session, folder: str | None, http: int | None, judge: bool) -> None:
    r"""Serve the memory to MCP hosts, on stdin and stdout or over HTTP.

    FOLDER may be the address of a tree on a server; without it, --data says where the memory is.

    \b
    keyword-tree mcp --data memory
    keyword-tree mcp --data memory --http 8000
    """
    from ..adapters.mcp.server import serve

    if folder is not None:
        session.given["data"] = folder
    elif not session.named:  # a host starts it in any folder
        raise click.UsageError(say("name the FOLDER of the memory"))
    session.refuse_nothing(makes=True)
    client = session.client() if judge else None
    if session.is_lexical:
        raise click.UsageError(say("--judge needs a model: set KEYWORD_TREE_MODEL and a service's key or address"))
    serve(session.data, http, client, session.meaning)
