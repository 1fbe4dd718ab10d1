r"""One HTML page with the whole tree in it: to be opened from a disk, kept, or sent to others.

It asks nothing of a network (its own policy forbids it), follows the reader's light or dark, speaks English or Chinese,
opens on the newest infos and says whose memory it is, opens branches when they are clicked, and searches names,
aliases, descriptions and infos. Each keyword and each info shows who made it and when. The data is in it as JSON in
which no character can end the script, and the page shows it as text only.

>>> import io, tempfile
>>> from keyword_tree import KeywordTree
>>> from keyword_tree.formats.view import View
>>> with tempfile.TemporaryDirectory() as folder, KeywordTree(folder) as tree:
...     _ = tree.CreateKeyword("</script><b>食物", "root")
...     out = io.StringIO()
...     write(View(tree), out)
>>> [line for line in out.getvalue().splitlines() if "食物" in line]
['[0,"\\u003c/script\\u003e\\u003cb\\u003e食物",1]],']
"""

import base64
import hashlib
import json
import re
import time
from collections.abc import Callable
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import StringIO
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import parse_qs, unquote, urlsplit

from typing_extensions import override

from ..keyword_tree import Info, KeywordNode, KeywordTree, RelationType
from ..memory.memory_fields import memory_fields
from .records import ROOT_ID, inert_json
from .view import View

_TEMPLATE = Path(__file__).with_name("page.html")


def write(view: View, out: TextIO, is_live: bool = False) -> None:
    """Write the page.

    Args:
        view: its contents.
        out: where it goes.
        is_live: whether a server gives it, which answers `search?q=…` with `[{"id": keyword's, "excerpt"}, …]`, best
            first; else the page searches by itself.

    Cost: holds the ids of all infos. The page has each keyword and each info once.
    """
    title = "KeywordTree" if view.root.id == ROOT_ID else view.root.name
    owner = _owner_of(Path(view.tree.data_dir).absolute()) if view.root.id == ROOT_ID else ""
    template = _TEMPLATE.read_text(encoding="utf-8")
    head, _, foot = template.partition("@DATA@")
    head = head.replace("@LANGUAGE@", f' lang="{escape(view.language)}"' if view.language else "")
    policy = _policy(template) + ("; connect-src 'self'" if is_live else "")
    out.write(head.replace("@POLICY@", policy).replace("@TITLE@", escape(title)))
    _Data(view, out).write(title, owner, is_live)
    out.write(foot)


def _owner_of(folder: Path) -> str:
    """Return the user whose memory a folder is, as `MemoryStore` lays it out; "" where it says none."""
    user = next((part for part in reversed(folder.parts) if part.startswith("user=")), "")
    return unquote(user.removeprefix("user="))


def make_server(
    tree: KeywordTree, find: Callable[[str], list[dict[str, str]]], port: int = 0, language: str = ""
) -> ThreadingHTTPServer:
    """Return a server of 127.0.0.1 that gives the page of a tree as it is at each request; the caller lets it serve.

    Args:
        tree: the tree that is shown; it is only read.
        find: answers a search, see `write`.
        port: 0 takes a free one.
        language: of the page's own words, "en" or "zh"; "" is that of the reader's browser.

    Raises:
        OSError: the port is taken.
    """

    class Handler(BaseHTTPRequestHandler):
        @override
        def log_message(self, format: str, *args: Any) -> None:
            """Write nothing: questions stay private."""

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            # A page from elsewhere could ask under a name of its own that leads here.
            if self.headers.get("Host") not in [f"{name}:{server.server_port}" for name in ("127.0.0.1", "localhost")]:
                self.send_error(HTTPStatus.MISDIRECTED_REQUEST)
            elif url.path == "/search":
                self._send("application/json", json.dumps(find(parse_qs(url.query).get("q", [""])[0])))
            elif url.path == "/":
                page = StringIO()
                write(View(tree, language=language), page, is_live=True)
                self._send("text/html", page.getvalue())
            else:
                self.send_error(HTTPStatus.NOT_FOUND)

        def _send(self, kind: str, text: str) -> None:
            body = text.encode()
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    return server


class _Data:
    """The contents of the page, as JSON.

        {"title": …, "owner": the user whose memory it is, or "", "exported": …,
         "nodes": [[parent's place, name, made, aliases, description, infos, confirmed], …],
         "infos": [[content, source, made], …], "loose": [info's place, …], "made": [[time, by], …],
         "ids": [the id of each node, …, of each info in "loose", …] where a server gives the page, else null}

    The end of a row is left out where it is empty. Infos are named by their place; by [place, relation] where they are
    not PRIMARY.
    """

    def __init__(self, view: View, out: TextIO) -> None:
        self._view = view
        self._out = out
        self._places: dict[str, int] = {}  # of each info, in the order of its first keyword
        self._relations: dict[tuple[str, str], str] = {}  # all but PRIMARY
        self._made: dict[tuple[int, str], int] = {}

    def write(self, title: str, owner: str, is_live: bool) -> None:
        path: list[int] = []
        ids: list[str] = []
        top = 0 if self._view.root.id == ROOT_ID else 1
        self._out.write(
            f'{{"title":{inert_json(title)},"owner":{inert_json(owner)},"exported":{int(time.time())},"nodes":[\n'
        )
        for number, (depth, node) in enumerate(self._view.walk()):
            del path[depth - top :]
            self._write_row(number, self._node_row(path[-1] if path else 0, node))
            path.append(number)
            ids.append(node.id)
        # A corrected memory has no keyword, and does not hold.
        unlinked = [info.id for info in self._view.unlinked() if not memory_fields(info).get("superseded_by")]
        loose = [self._place(id) for id in unlinked]
        self._out.write('],\n"infos":[\n')
        for number, id in enumerate(self._places):
            self._write_row(number, self._info_row(self._view.tree.GetInfo(id)))
        rest = {"loose": loose, "made": list(self._made), "ids": [*ids, *unlinked] if is_live else None}
        self._out.write("],\n" + inert_json(rest)[1:])

    def _write_row(self, number: int, row: list[Any]) -> None:
        while not row[-1] and len(row) > 3:
            row.pop()  # most of a large tree are names alone
        self._out.write((",\n" if number else "") + inert_json(row))

    def _node_row(self, parent: int, node: KeywordNode) -> list[Any]:
        infos: list[Any] = []
        for info in self._view.infos(node.id):
            place = self._place(info.id)
            relation = self._relations.get((info.id, node.id))
            infos.append([place, relation] if relation else place)
        return [parent, node.name, self._stamp(node), node.aliases, node.description, infos, node.confirmed]

    def _place(self, id: str) -> int:
        if id not in self._places:
            self._places[id] = len(self._places)
            for link in self._view.tree.GetLinks(id):
                if link.relation is not RelationType.PRIMARY:
                    self._relations[id, link.keyword_id] = link.relation.value
        return self._places[id]

    def _info_row(self, info: Info | None) -> list[Any]:
        """Return the row of an info; one that was deleted in between is empty."""
        if info is None:
            return ["", "", 0]
        return [info.content, info.source, self._stamp(info)]

    def _stamp(self, record: KeywordNode | Info) -> int:
        """Return the place of who made a record and when: a batch has it once."""
        return self._made.setdefault((int(record.created_at), record.created_by), len(self._made))


def _policy(template: str) -> str:
    """Return a policy under which the page's own style and script run, and nothing is loaded or sent."""
    style, script = (
        re.findall(pattern, template, re.DOTALL)[0] for pattern in (r"<style>(.*?)</style>", r"<script>(.*?)</script>")
    )
    return (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode()}"
