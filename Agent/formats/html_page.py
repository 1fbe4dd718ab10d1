r"""One HTML page with the whole tree in it: to be opened from a disk, kept, or sent to somebody.

It asks nothing of a network (its own policy forbids it), follows the reader's light or dark, speaks English or Chinese,
opens branches when they are clicked, and searches names, aliases, descriptions and infos. The data stands in it as JSON
in which no character can end the script, and the page shows it as text only.

>>> import io, tempfile
>>> from Agent.keyword_tree import KeywordTree
>>> from Agent.formats.records import View
>>> with tempfile.TemporaryDirectory() as folder, KeywordTree(folder) as tree:
...     _ = tree.CreateKeyword("</script><b>食物", "root")
...     out = io.StringIO()
...     write(View(tree), out)
>>> [line for line in out.getvalue().splitlines() if "食物" in line]
['[0,"\\u003c/script\\u003e\\u003cb\\u003e食物"]],']
"""

import base64
import hashlib
import re
from html import escape
from pathlib import Path
from typing import Any, TextIO

from Agent.formats.records import ROOT_ID, View, inert_json
from Agent.keyword_tree import Info, KeywordNode

_TEMPLATE = Path(__file__).with_name("page.html")


def write(view: View, out: TextIO) -> None:
    """Write the page.

    Cost: holds the ids of all infos; the page has each keyword and each info once.
    """
    title = "KeywordTree" if view.root.id == ROOT_ID else view.root.name
    template = _TEMPLATE.read_text(encoding="utf-8")
    head, _, foot = template.partition("@DATA@")
    out.write(head.replace("@POLICY@", _policy(template)).replace("@TITLE@", escape(title)))
    _write_data(view, title, out)
    out.write(foot)


def _write_data(view: View, title: str, out: TextIO) -> None:
    places: dict[str, int] = {}  # of each info, in the order of its first keyword
    path: list[int] = []
    top = 0 if view.root.id == ROOT_ID else 1
    out.write(f'{{"title":{inert_json(title)},"nodes":[\n')
    for number, (depth, node) in enumerate(view.walk()):
        del path[depth - top :]
        infos = [places.setdefault(info.id, len(places)) for info in view.infos(node.id)]
        out.write((",\n" if number else "") + inert_json(_node_row(path[-1] if path else 0, node, infos)))
        path.append(number)
    out.write('],\n"infos":[\n')
    for number, id in enumerate(places):
        out.write((",\n" if number else "") + inert_json(_info_row(view.info(id))))
    out.write("]}")


def _node_row(parent: int, node: KeywordNode, infos: list[int]) -> list[Any]:
    row = [parent, node.name, node.aliases, node.description, infos]
    while not row[-1] and len(row) > 2:
        row.pop()  # most of a large tree are names alone
    return row


def _info_row(info: Info | None) -> list[Any]:
    """Return what is shown of an info; one that was deleted meanwhile is empty."""
    return ["", "", 0] if info is None else [info.content, info.source, int(info.created_at)]


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
