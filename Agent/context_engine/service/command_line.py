"""`keyword-tree context`: a context engine at the prompt; needs no extra.

    $ keyword-tree context --user ada --session monday commit transcript.json
    committed: 3 memories, 12 new messages
    $ keyword-tree context --user ada search "龙井要加糖吗?"
    $ keyword-tree context --user ada forget memories/preferences/龙井

A URI may be written from the user's space on: `memories/profile`. Exit codes: 0 done, 1 not found (or `verify` found
something), 2 bad use, 3 a store problem.
"""

import argparse
import dataclasses
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ...base.language import Parser, choose_from_environment, count_of, say, say_error
from ...base.text import one_line
from ...store.addresses import is_address
from ..core.config import OWNER_OF
from ..core.errors import ContextEngineError, InvalidInputError, NodeNotFoundError, StoreError
from ..core.objects import RequestContext
from ..fs.uri import join_uri
from .context_engine_service import ContextEngineService

NOT_FOUND, BAD_USE, STORE = 1, 2, 3
_ENVIRONMENT = "CONTEXT_ENGINE_"
_HARDLY, _BESIDE = 0.005, 0.02  # least scores that are shown, and beside the best one; --json has what is under them
_LOOK_S = 60.0  # so often a worker that has nothing else to do looks for edits by hand

Command = Callable[[ContextEngineService, RequestContext, argparse.Namespace], Any]
_COMMANDS: dict[str, tuple[Command, str, tuple[tuple[tuple[str, ...], dict[str, Any]], ...]]] = {}


def _argument(*names: str, **options: Any) -> tuple[tuple[str, ...], dict[str, Any]]:
    return names, options


def _command(name: str, *arguments: tuple[tuple[str, ...], dict[str, Any]]) -> Callable[[Command], Command]:
    def keep(function: Command) -> Command:
        _COMMANDS[name] = (function, one_line(function.__doc__ or ""), arguments)
        return function

    return keep


_URI = _argument("uri", help="a URI, or what follows the user's space: memories/profile")
_ANY_URI = _argument("uri", nargs="?", default="", help="without it, the user's space")


@_command("commit", _argument("file", help="messages: a JSON list, or an object a line; - reads the input"))
def _commit(engine: ContextEngineService, ctx: RequestContext, options: argparse.Namespace) -> Any:
    """Commit a session."""
    try:
        text = sys.stdin.read() if options.file == "-" else Path(options.file).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{options.file}: no UTF-8: {error}") from error
    result = engine.commit_session(ctx, _read_messages(text))
    memories = [write.uri for write in result.write_results if write.action != "skip"]
    said = say("{}: {} memories, {} new messages", say(result.status), len(memories), result.stats["new"])
    why = f"\n{say_error(result.stats['why'])}" if result.stats.get("why") else ""
    answer = {"status": result.status, "stats": result.stats, "commit_id": result.commit_id, "memories": memories}
    return answer, said + why


def _read_messages(text: str) -> list[Any]:
    try:
        read = json.loads(text)
    except ValueError:
        try:
            return [json.loads(line) for line in text.splitlines() if line.strip()]
        except ValueError as error:
            raise InvalidInputError(f"the messages are neither a JSON list nor an object a line: {error}") from error
    if isinstance(read, dict):
        read = read.get("messages", [read])
    if not isinstance(read, list):
        raise InvalidInputError("the messages are no list")
    return read


@_command(
    "remember",
    _argument("text"),
    _argument("--category", default="preferences", choices=tuple(OWNER_OF), help="the kind of memory"),
    _argument("--topic", default="", help="what it is filed under"),
)
def _remember(engine: ContextEngineService, ctx: RequestContext, options: argparse.Namespace) -> Any:
    """Store one statement as a memory."""
    uri = engine.remember(ctx, options.text, options.category, options.topic)
    return {"uri": uri}, uri


@_command(
    "search",
    _argument("query"),
    _argument("--top", type=int, default=5, help="hits shown, at most"),
    _argument("--budget", type=int, default=1_200, help="tokens of all that is shown, at most"),
    _argument("--beneath", default="", help="only this URI and what is under it"),
)
def _search(engine: ContextEngineService, ctx: RequestContext, options: argparse.Namespace) -> Any:
    """Find what fits a question."""
    target = _uri(ctx, options.beneath) if options.beneath else None
    found = engine.search_memory(ctx, options.query, target, top_k=options.top, budget_tokens=options.budget)
    least = max(_HARDLY, _BESIDE * max((block.score for block in found.blocks), default=0.0))
    fits = [block for block in found.blocks if block.score >= least]
    lines = [
        f"{block.content_excerpt or block.abstract}\n    {block.uri}  [{_say_reason(block.match_reason)}]"
        for block in fits
    ]
    lines += [say("({} more did not fit)", found.omitted)] if found.omitted else []
    nothing = "nothing fits for user {!r}, agent {!r}, account {!r}"
    lines = lines or [say(nothing, ctx.user_id, ctx.agent_id, ctx.account_id)]
    return found, "\n".join(lines), 0 if fits else NOT_FOUND


@_command(
    "read",
    _URI,
    _argument("--level", default="L2", choices=("L0", "L1", "L2"), help="one line, an overview, or all of it"),
)
def _read(engine: ContextEngineService, ctx: RequestContext, options: argparse.Namespace) -> Any:
    """Read a node."""
    block = engine.read_memory(ctx, _uri(ctx, options.uri), options.level)
    return block, block.content_excerpt or block.overview or block.abstract


@_command("ls", _ANY_URI)
def _ls(engine: ContextEngineService, ctx: RequestContext, options: argparse.Namespace) -> Any:
    """List the nodes directly under a URI."""
    uri = _uri(ctx, options.uri)
    if not (found := engine.list_children(ctx, uri)):
        return found, say("nothing is under {}", uri), NOT_FOUND
    return found, "\n".join(f"{each.name}{'/' if each.has_children else ''}" for each in found)


@_command("tree", _ANY_URI)
def _tree(engine: ContextEngineService, ctx: RequestContext, options: argparse.Namespace) -> Any:
    """Show all nodes under a URI, with a line of each."""
    root = _uri(ctx, options.uri)
    if not (found := engine.list_children(ctx, root, recursive=True)):
        return found, say("nothing is under {}", root), NOT_FOUND
    depth = root.count("/") + 1
    lines = []
    for each in found:
        said = "" if each.is_dir else f"  {one_line(engine.fs.read_level(ctx, each.uri, 'L0'))[:70]}"
        lines.append(f"{'  ' * (each.uri.count('/') - depth)}{each.name}{said}")
    return found, "\n".join(lines)


@_command("log", _argument("--limit", type=int, default=20, help="commits shown"))
def _log(engine: ContextEngineService, ctx: RequestContext, options: argparse.Namespace) -> Any:
    """List the last commits."""
    rows = engine.fs.log(ctx, options.limit)
    return rows, "\n".join(
        f"{_time(row['at'])}  {row['id']}  {_say_name(row['name'])}  {count_of(len(row['uris']), 'node')}"
        for row in rows
    ) or say("there are none")


@_command("show", _URI)
def _show(engine: ContextEngineService, ctx: RequestContext, options: argparse.Namespace) -> Any:
    """Show what commits made of a node."""
    entries = engine.history(ctx, _uri(ctx, options.uri))
    if not entries:
        engine.get_node(ctx, _uri(ctx, options.uri))  # which says where nothing is there
        return entries, say("no commit has changed {}", options.uri), NOT_FOUND
    lines = [
        f"{_time(each.at)}  {each.commit_id}  {say('{} by {}', say(each.change), _say_name(each.name))}"
        for each in entries
    ]
    return entries, "\n".join(lines)


@_command("undo", _argument("commit_id", nargs="?", default="", help="as `log` shows it"))
def _undo(engine: ContextEngineService, ctx: RequestContext, options: argparse.Namespace) -> Any:
    """Undo a commit, as a new commit."""
    if not options.commit_id:
        raise InvalidInputError("undo needs the id of a commit: `keyword-tree context log` lists them")
    undone = engine.undo(ctx, options.commit_id)
    return {"commit_id": undone}, say("undone by {}", undone)


@_command("mv", _argument("from_uri"), _argument("to_uri"))
def _mv(engine: ContextEngineService, ctx: RequestContext, options: argparse.Namespace) -> Any:
    """Move a node to another URI."""
    to = _uri(ctx, options.to_uri)
    engine.move_node(ctx, _uri(ctx, options.from_uri), to)
    return {"uri": to}, to


@_command(
    "forget",
    _URI,
    _argument(
        "--sources", default="remove", choices=("remove", "keep"), help="what becomes of the messages that it cites"
    ),
)
def _forget(engine: ContextEngineService, ctx: RequestContext, options: argparse.Namespace) -> Any:
    """Erase a memory, and the messages it cites, from every file."""
    result = engine.forget(ctx, _uri(ctx, options.uri), options.sources)
    also = "".join("\n" + say("kept, and citing the same: {}", uri) for uri in result.also_cited_by)
    return result, say("forgot {} memories and {} messages", len(result.uris), len(result.messages)) + also


@_command("adopt", _ANY_URI)
def _adopt(engine: ContextEngineService, ctx: RequestContext, options: argparse.Namespace) -> Any:
    """Commit what was edited by hand."""
    uri = _uri(ctx, options.uri)
    adopted = ([uri] if engine.adopt(ctx, uri) else []) if options.uri else engine.adopt_all(ctx)
    return adopted, "\n".join(adopted) or say("nothing has changed")


@_command("worker", _argument("--once", action="store_true", help="work off what is due, and end"))
def _worker(engine: ContextEngineService, ctx: RequestContext, options: argparse.Namespace) -> Any:
    """Process the outbox, and commit what was edited by hand, until it is stopped."""
    next_look = 0.0
    while True:
        done = engine.work(adopt=options.once)
        if options.once:
            counts = done.succeeded, done.retried, done.failed
            return done, say("{} done, {} to be tried again, {} dead", *counts)
        if not done.claimed and time.monotonic() > next_look:  # it reads all of the store
            engine.adopt_all()
            next_look = time.monotonic() + _LOOK_S
        time.sleep(0.0 if done.claimed else 1.0)


@_command("status")
def _status(engine: ContextEngineService, ctx: RequestContext, options: argparse.Namespace) -> Any:
    """Show what waits in the outbox, what has failed, and what was reported."""
    found = engine.status()
    shown = {
        **found["outbox"],
        "commits that are not in the files yet": found["unsynced"]["commits"],
        "last commit": found["sequence"],
    }
    lines = [f"{say(name)}{say(': ')}{value}" for name, value in shown.items()]
    lines += [f"{_time(each['at'])}  {each['uri']}  {say_error(each['text'])}" for each in found["reports"]]
    lines += map(say_error, found["index"])
    return found, "\n".join(lines + [say("the store can only be read")] * found["readonly"])


@_command(
    "prune",
    _argument("--days", type=float, required=True, help="how much history stays"),
    _argument("--yes", action="store_true", help="do not ask"),
)
def _prune(engine: ContextEngineService, ctx: RequestContext, options: argparse.Namespace) -> Any:
    """Drop the history of commits older than some days; what is now stays."""
    if not 0 <= options.days < float("inf"):
        raise InvalidInputError(f"days must be a number not below 0: {options.days}")
    if not options.yes:
        raise InvalidInputError(f"commits older than {options.days:g} days can never be undone after this: add --yes")
    count = engine.prune(time.time() - 86_400 * options.days)
    return {"commits": count}, say("{} commits cannot be undone any more", count)


@_command("verify")
def _verify(engine: ContextEngineService, ctx: RequestContext, options: argparse.Namespace) -> Any:
    """Compare files, journal, index and outbox; change nothing."""
    return _say_disagreements(engine.verify())


@_command("repair")
def _repair(engine: ContextEngineService, ctx: RequestContext, options: argparse.Namespace) -> Any:
    """Rebuild the index, and retry what has failed in the outbox."""
    return _say_disagreements(engine.repair())


def _say_disagreements(found: list[str]) -> Any:
    return found, "\n".join(map(say_error, found)) or say("all agrees"), NOT_FOUND if found else 0


def _uri(ctx: RequestContext, text: str) -> str:
    if text.startswith("ctx://"):
        return text
    space = join_uri(ctx.account_id, "users", ctx.user_id)
    return f"{space}/{text.strip('/')}" if text else space


def _say_reason(reason: str) -> str:
    return say("; ").join(map(say_error, reason.split("; ")))


def _say_name(name: str) -> str:
    """Return what a commit is called, in the chosen language."""
    undone = "undo " * name.startswith("undo ")
    return say(undone) + _say_name(name.removeprefix(undone)) if undone else say(name)


def _time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def make_parser() -> argparse.ArgumentParser:
    """Return what reads the command's words."""
    made = Parser("keyword-tree context", description="Sessions as folders that people can read.")
    for name, default, text in (
        ("data", "memory", "the folder of the sessions"),
        ("account", "local", "the account, which shares nothing with others"),
        ("user", "me", "the user that it is about"),
        ("agent", "cli", "the agent that works with the user"),
        ("session", "", "the session that commit adds to"),
    ):
        variable = f"{_ENVIRONMENT}{name.upper()}"
        shown = f"{text}  [env: {variable}; default: {default or 'none'}]"
        made.add_argument(f"--{name}", default=os.environ.get(variable) or default, help=shown)
    made.add_argument("--json", action="store_true", help="answer in JSON, for programs")
    commands = made.add_subparsers(dest="command", required=True, metavar="command")
    for name, (_, summary, arguments) in _COMMANDS.items():
        parser = commands.add_parser(name, help=summary, description=summary)
        for names, options in arguments:
            parser.add_argument(*names, **options)
    return made


def run(options: argparse.Namespace) -> int:
    """Run one command whose words were read, and return its exit code; errors are the caller's."""
    ctx = RequestContext(options.account, options.user, options.agent, options.session)
    if is_address(options.data):
        raise InvalidInputError("--data must be a folder, and cannot be the address of a server")
    if options.command not in ("commit", "remember") and not Path(options.data).is_dir():
        raise InvalidInputError(f"there is no memory in {options.data!r}: name its folder with --data")
    with ContextEngineService(options.data) as engine:
        answer = _COMMANDS[options.command][0](engine, ctx, options)
    data, text, code = (*answer, 0) if len(answer) == 2 else answer
    print(json.dumps(data, ensure_ascii=False, default=_plain) if options.json else text)
    return int(code)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, and return its exit code."""
    choose_from_environment()
    try:
        options = make_parser().parse_args(arguments)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else BAD_USE
    try:
        return run(options)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 0
    except (ContextEngineError, OSError, ImportError) as error:
        failure = {"error": type(error).__name__, "message": say_error(str(error))}
        text = say("Error: ") + failure["message"]
        print(json.dumps(failure, ensure_ascii=False) if options.json else text, file=sys.stderr)
        is_store = isinstance(error, StoreError) or (
            isinstance(error, OSError) and not isinstance(error, (ContextEngineError, FileNotFoundError))
        )
        return NOT_FOUND if isinstance(error, NodeNotFoundError) else STORE if is_store else BAD_USE


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return str(value)
