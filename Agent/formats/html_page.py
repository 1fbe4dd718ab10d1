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
from collections.abc import Callable, Iterable
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

    Cost: holds the ids of all infos, and the infos of one keyword. The page has each keyword and each info once.
    """
    title = "KeywordTree" if view.root.id == ROOT_ID else view.root.name
    owner = _owner_of(Path(view.tree.data_dir).absolute()) if view.root.id == ROOT_ID else ""
    template = _TEMPLATE.read_text(encoding="utf-8")
    head, _, foot = template.partition("@DATA@")
    head = head.replace("@LANGUAGE@", f' lang="{escape(view.language)}"' if view.language else "")
    policy = _policy(template) + ("; connect-src 'self'" if is_live else "")
    out.write(head.replace("@POLICY@", policy).replace("@TITLE@", escape(title)))
    _write_data(view, out, {"title": title, "owner": owner, "exported": int(time.time())}, is_live)
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


def _write_data(view: View, out: TextIO, head: dict[str, Any], is_live: bool) -> None:
    """Write the contents of the page, as JSON.

        {"title": …, "owner": the user whose memory it is, or "", "exported": …,
         "nodes": [[parent's place, name, made, aliases, description, infos, confirmed], …],
         "infos": [[content, source, made], …], "loose": [info's place, …], "made": [[time, by], …],
         "ids": [the id of each node, …, of each info in "loose", …] where a server gives the page, else null}

    The end of a row is left out where it is empty. Infos are named by their place; by [place, relation] where they are
    not PRIMARY. A batch has who made a record and when once.
    """
    numbers, places, made = dict[str, int](), dict[str, int](), dict[tuple[int, str], int]()

    def stamp(record: KeywordNode | Info) -> int:
        return made.setdefault((int(record.created_at), record.created_by), len(made))

    def node_row(node: KeywordNode) -> list[Any]:
        infos: list[Any] = []
        for info in view.infos(node.id):
            place = places.setdefault(info.id, len(places))
            relations = [link.relation for link in view.tree.GetLinks(info.id) if link.keyword_id == node.id]
            infos += [place] if relations in ([], [RelationType.PRIMARY]) else [[place, relations[0].value]]
        parent, numbers[node.id] = numbers.get(node.parent_id or "", 0), len(numbers)
        return [parent, node.name, stamp(node), node.aliases, node.description, infos, node.confirmed]

    def info_row(info: Info | None) -> list[Any]:
        return ["", "", 0] if info is None else [info.content, info.source, stamp(info)]  # deleted in between

    out.write(f'{inert_json(head)[:-1]},"nodes":[\n')
    _write_rows(out, (node_row(node) for _, node in view.walk()))
    # A corrected memory has no keyword, and does not hold.
    unlinked = [info.id for info in view.unlinked() if not memory_fields(info).get("superseded_by")]
    loose = [places.setdefault(id, len(places)) for id in unlinked]
    out.write('],\n"infos":[\n')
    _write_rows(out, (info_row(view.tree.GetInfo(id)) for id in places))
    rest = {"loose": loose, "made": list(made), "ids": [*numbers, *unlinked] if is_live else None}
    out.write("],\n" + inert_json(rest)[1:])


def _write_rows(out: TextIO, rows: Iterable[list[Any]]) -> None:
    for number, row in enumerate(rows):
        while not row[-1] and len(row) > 3:
            row.pop()  # most of a large tree are names alone
        out.write((",\n" if number else "") + inert_json(row))


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
