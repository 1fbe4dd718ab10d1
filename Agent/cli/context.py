"""`keyword-tree context`: a context engine at the prompt.

A URI may be written from the user's space on: `memories/profile`.
"""

import dataclasses
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from ..base.language import count_of, say
from ..base.text import one_line
from ..context_engine import ContextEngineService, RequestContext
from ..context_engine.core.config import OWNER_OF
from ..context_engine.fs.uri import join_uri
from ..keyword_tree import InvalidInputError
from ..store.addresses import refuse_address
from .care import local_time
from .program import Command, command, group, kept
from .screen import line
from .session import NOT_FOUND, Session

__all__: list[str] = []

HARDLY, BESIDE = 0.005, 0.08
"""Least scores that are shown, and beside the best one; --json has all."""

LOOK_S = 60.0
"""So often a worker that has nothing else to do looks for edits by hand."""

OPTIONS = {
    "account": ("local", "The account, which shares nothing with others."),
    "user": ("me", "The user that it is about."),
    "agent": ("cli", "The agent that works with the user."),
    "session": ("", "The session that commit adds to."),
}
"""Of the group: its default and its help, by name."""

context = group(
    "context",
    "Serve and share",
    """Store an agent's sessions as folders that people can read.

\b
keyword-tree context --user ada --session monday commit transcript.json
keyword-tree context --user ada search "Does the tea want sugar?"
keyword-tree context search --help""",
    data="The folder of the sessions.  [env: CONTEXT_ENGINE_DATA; default: memory]",
)


def _option(name: str) -> Callable[[click.Command], click.Command]:
    default, text = OPTIONS[name]
    note = f"[env: CONTEXT_ENGINE_{name.upper()}; default: {default or 'none'}]"
    return kept(f"--{name}", metavar="NAME", help=f"{text}  {note}")


for _name in OPTIONS:
    _option(_name)(context)


def _given(session: Session, name: str, default: str) -> str:
    return session.given.get(name) or os.environ.get(f"CONTEXT_ENGINE_{name.upper()}") or default


@contextmanager
def _opened(session: Session, *, makes: bool) -> Iterator[tuple[ContextEngineService, RequestContext]]:
    """Open the engine in the folder; only what stores something makes one."""
    folder = _given(session, "data", "memory")
    refuse_address(folder, "--data")
    if not makes and not Path(folder).is_dir():
        raise InvalidInputError(say("there is no memory in {!r}: name its folder with --data", folder))
    ctx = RequestContext(*(_given(session, name, default) for name, (default, _) in OPTIONS.items()))
    with ContextEngineService(folder) as engine:
        yield engine, ctx


_Answer = tuple[Any, str] | tuple[Any, str, int]
"""For programs and for people, and the exit code where it is not 0."""


def _command(
    name: str, *parameters: Callable[..., Any], makes: bool = False
) -> Callable[[Callable[..., _Answer]], Command]:
    """Make a command of a function that is given the engine and who asks, and returns the answer."""

    def make(function: Callable[..., _Answer]) -> Command:
        def run(session: Session, **named: Any) -> int:
            with _opened(session, makes=makes) as (engine, ctx):
                data, text, *code = function(engine, ctx, **named)
            plain = json.loads(json.dumps(data, default=_plain)) if session.as_json else None
            session.answer(plain, line(text, keep_lines=True))
            return code[0] if code else 0

        run.__doc__ = function.__doc__
        for parameter in reversed(parameters):
            run = parameter(run)
        made = command(name, of=context, data="The folder of the sessions.")(run)
        for option in OPTIONS:
            _option(option)(made)
        return made

    return make


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return str(value)


URI = click.argument("uri")
ANY_URI = click.argument("uri", default="")


def _uri(ctx: RequestContext, text: str) -> str:
    if text.startswith("ctx://"):
        return text
    space = join_uri(ctx.account_id, "users", ctx.user_id)
    return f"{space}/{text.strip('/')}" if text else space


@_command("commit", click.argument("file"), makes=True)
def _commit(engine: ContextEngineService, ctx: RequestContext, file: str) -> _Answer:
    """Commit a session.

    FILE has the messages: a JSON list, or an object a line; - reads the input.
    """
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise InvalidInputError(str(error)) from error
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{file}: no UTF-8: {error}") from error
    result = engine.commit_session(ctx, _read_messages(text))
    memories = [write.uri for write in result.write_results if write.action != "skip"]
    said = say("{}: {} memories, {} new messages", say(result.status), len(memories), result.stats["new"])
    why = f"\n{result.stats['why']}" if result.stats.get("why") else ""
    answer = {"status": result.status, "stats": result.stats, "commit_id": result.commit_id, "memories": memories}
    return answer, said + why


def _read_messages(text: str) -> list[Any]:
    try:
        read = json.loads(text)
    except ValueError:
        try:
            return [json.loads(each) for each in text.splitlines() if each.strip()]
        except ValueError as error:
            raise InvalidInputError(f"the messages are neither a JSON list nor an object a line: {error}") from error
    if isinstance(read, dict):
        read = read.get("messages", [read])
    if not isinstance(read, list):
        raise InvalidInputError("the messages are no list")
    return read


@_command(
    "remember",
    click.argument("text"),
    click.option("--category", default="preferences", type=click.Choice(tuple(OWNER_OF)), help="The kind of memory."),
    click.option("--topic", default="", help="What it is filed under."),
    makes=True,
)
def _remember(engine: ContextEngineService, ctx: RequestContext, text: str, category: str, topic: str) -> _Answer:
    """Store one statement as a memory."""
    uri = engine.remember(ctx, text, category, topic)
    return {"uri": uri}, uri


@_command(
    "search",
    click.argument("query"),
    click.option("--top", type=int, default=5, show_default=True, help="Hits shown, at most."),
    click.option("--budget", type=int, default=1_200, show_default=True, help="Tokens of all that is shown, at most."),
    click.option("--beneath", default="", help="Only this URI and what is under it."),
)
def _search(
    engine: ContextEngineService, ctx: RequestContext, query: str, top: int, budget: int, beneath: str
) -> _Answer:
    """Find what fits a question."""
    target = _uri(ctx, beneath) if beneath else None
    found = engine.search_memory(ctx, query, target, top_k=top, budget_tokens=budget)
    least = max(HARDLY, BESIDE * max((block.score for block in found.blocks), default=0.0))
    fits = [block for block in found.blocks if block.score >= least]
    lines = [f"{block.content_excerpt or block.abstract}\n    {block.uri}  [{block.match_reason}]" for block in fits]
    lines += [say("({} more did not fit)", found.omitted)] if found.omitted else []
    nothing = say("nothing fits for user {!r}, agent {!r}, account {!r}", ctx.user_id, ctx.agent_id, ctx.account_id)
    return found, "\n".join(lines or [nothing]), 0 if fits else NOT_FOUND


@_command(
    "read",
    URI,
    click.option(
        "--level", default="L2", type=click.Choice(("L0", "L1", "L2")), help="One line, an overview, or all of it."
    ),
)
def _read(engine: ContextEngineService, ctx: RequestContext, uri: str, level: str) -> _Answer:
    """Read a node."""
    block = engine.read_memory(ctx, _uri(ctx, uri), level)
    return block, block.content_excerpt or block.overview or block.abstract


@_command("ls", ANY_URI)
def _ls(engine: ContextEngineService, ctx: RequestContext, uri: str) -> _Answer:
    """List the nodes directly under a URI."""
    uri = _uri(ctx, uri)
    if not (found := engine.list_children(ctx, uri)):
        return found, say("nothing is under {}", uri), NOT_FOUND
    return found, "\n".join(f"{each.name}{'/' if each.has_children else ''}" for each in found)


@_command("tree", ANY_URI)
def _tree(engine: ContextEngineService, ctx: RequestContext, uri: str) -> _Answer:
    """Show all nodes under a URI, with a line of each."""
    root = _uri(ctx, uri)
    if not (found := engine.list_children(ctx, root, recursive=True)):
        return found, say("nothing is under {}", root), NOT_FOUND
    depth = root.count("/") + 1
    lines = []
    for each in found:
        said = "" if each.is_dir else f"  {one_line(engine.fs.read_level(ctx, each.uri, 'L0'))[:70]}"
        lines.append(f"{'  ' * (each.uri.count('/') - depth)}{each.name}{said}")
    return found, "\n".join(lines)


@_command("log", click.option("--limit", type=int, default=20, show_default=True, help="Commits shown."))
def _log(engine: ContextEngineService, ctx: RequestContext, limit: int) -> _Answer:
    """List the last commits."""
    rows = engine.fs.log(ctx, limit)
    return rows, "\n".join(
        f"{local_time(row['at'])}  {row['id']}  {_say_name(row['name'])}  {count_of(len(row['uris']), 'node')}"
        for row in rows
    ) or say("there are none")


@_command("show", URI)
def _show(engine: ContextEngineService, ctx: RequestContext, uri: str) -> _Answer:
    """Show what commits made of a node."""
    entries = engine.history(ctx, _uri(ctx, uri))
    if not entries:
        engine.get_node(ctx, _uri(ctx, uri))  # which says where nothing is there
        return entries, say("no commit has changed {}", uri), NOT_FOUND
    lines = [
        f"{local_time(each.at)}  {each.commit_id}  {say('{} by {}', say(each.change), _say_name(each.name))}"
        for each in entries
    ]
    return entries, "\n".join(lines)


def _say_name(name: str) -> str:
    """Return what a commit is called, in the chosen language."""
    undone = "undo " * name.startswith("undo ")
    return say(undone) + _say_name(name.removeprefix(undone)) if undone else say(name)


@_command("undo", click.argument("commit_id"))
def _undo(engine: ContextEngineService, ctx: RequestContext, commit_id: str) -> _Answer:
    """Undo a commit, as `log` names it, as a new commit."""
    undone = engine.undo(ctx, commit_id)
    return {"commit_id": undone}, say("undone by {}", undone)


@_command("mv", click.argument("from_uri"), click.argument("to_uri"))
def _mv(engine: ContextEngineService, ctx: RequestContext, from_uri: str, to_uri: str) -> _Answer:
    """Move a node to another URI."""
    to = _uri(ctx, to_uri)
    engine.move_node(ctx, _uri(ctx, from_uri), to)
    return {"uri": to}, to


@_command(
    "forget",
    URI,
    click.option(
        "--sources",
        default="remove",
        type=click.Choice(("remove", "keep")),
        help="What becomes of the messages that it cites.",
    ),
)
def _forget(engine: ContextEngineService, ctx: RequestContext, uri: str, sources: str) -> _Answer:
    """Erase a memory, and the messages it cites, from every file."""
    result = engine.forget(ctx, _uri(ctx, uri), sources)
    also = "".join("\n" + say("kept, and citing the same: {}", uri) for uri in result.also_cited_by)
    return result, say("forgot {} memories and {} messages", len(result.uris), len(result.messages)) + also


@_command("adopt", ANY_URI)
def _adopt(engine: ContextEngineService, ctx: RequestContext, uri: str) -> _Answer:
    """Commit what was edited by hand."""
    whole = _uri(ctx, uri)
    adopted = ([whole] if engine.adopt(ctx, whole) else []) if uri else engine.adopt_all(ctx)
    return adopted, "\n".join(adopted) or say("nothing has changed")


@_command("worker", click.option("--once", is_flag=True, help="Work off what is due, and end."))
def _worker(engine: ContextEngineService, ctx: RequestContext, once: bool) -> _Answer:
    """Process the outbox, and commit what was edited by hand, until it is stopped."""
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


@_command("status")
def _status(engine: ContextEngineService, ctx: RequestContext) -> _Answer:
    """Show what waits in the outbox, what has failed, and what was reported."""
    found = engine.status()
    shown = {
        **found["outbox"],
        "commits that are not in the files yet": found["unsynced"]["commits"],
        "last commit": found["sequence"],
    }
    lines = [f"{say(name)}{say(': ')}{value}" for name, value in shown.items()]
    lines += [f"{local_time(each['at'])}  {each['uri']}  {each['text']}" for each in found["reports"]]
    lines += found["index"]
    return found, "\n".join(lines + [say("the store can only be read")] * found["readonly"])


@_command(
    "prune",
    click.option("--days", type=click.FloatRange(0, float("inf"), max_open=True), required=True,
                 help="How much history stays."),
    click.option("--yes", is_flag=True, help="Do not ask."),
)  # fmt: skip
def _prune(engine: ContextEngineService, ctx: RequestContext, days: float, yes: bool) -> _Answer:
    """Drop the history of commits older than some days; what is now stays."""
    if not yes:
        message = say("commits older than {} days can never be undone after this: add --yes", f"{days:g}")
        raise InvalidInputError(message)
    count = engine.prune(time.time() - 86_400 * days)
    return {"commits": count}, say("{} commits cannot be undone any more", count)


@_command("verify")
def _verify(engine: ContextEngineService, ctx: RequestContext) -> _Answer:
    """Compare files, journal, index and outbox; change nothing."""
    return _say_disagreements(engine.verify())


@_command("repair")
def _repair(engine: ContextEngineService, ctx: RequestContext) -> _Answer:
    """Rebuild the index, and retry what has failed in the outbox."""
    return _say_disagreements(engine.repair())


def _say_disagreements(found: list[str]) -> _Answer:
    return found, "\n".join(found) or say("all agrees"), NOT_FOUND if found else 0
