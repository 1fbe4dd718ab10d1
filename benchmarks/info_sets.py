"""Trees with infos, and what is asked of them: made from freely licensed packages and from the data folder.

Each set is a tree of keywords, what is known about them (infos), and questions whose answer is a keyword. A question
never stands in the tree: it is the heading of a text that became an info, the one-line summary of a manual page whose
text became infos, or one half of what is said of a keyword while the other half became its infos. Keywords of which the
very same is known are all right where one of them is: a manual page lies under each of its names.

    set                        keywords               infos                              questions
    faq, reference, guide      chapters or sections   the texts of their parts           the parts' headings
      (Debian's; en, zh)
    manual (en, zh)            manual pages           paragraphs of the description      the summary
    stdlib                     modules and classes    docstrings but for the first line  the first line
    awesome_python, …_cn       sections               one half of the entries            what the others say
    entries (en, zh)           sections, entries      a half of the entry's sentence     the other half
    clinc150_dev               intents                one half of the questions          the others

``python -m benchmarks.info_sets FOLDER`` fetches the packages with ``apt-get download`` and unpacks them there (nothing
is installed); `KEYWORD_TREE_DOCUMENTS` then names the folder. What is not there is skipped.
"""

from __future__ import annotations

import gzip
import importlib
import inspect
import os
import pkgutil
import random
import re
import subprocess
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import common
from benchmarks.finding_sets import Case, Spec, read_rows, specs_of

PACKAGES = ["debian-faq", "debian-faq-zh-cn", "debian-reference-en", "debian-reference-zh-cn"]
PACKAGES += ["maint-guide", "maint-guide-zh-cn", "manpages-zh", "coreutils", "git-man", "util-linux", "procps"]
PACKAGES += ["findutils", "tar", "systemd", "iproute2", "net-tools", "openssh-client", "gnupg-utils"]

_HEADINGS = {"h1": 1, "h2": 2, "h3": 3, "h4": 4, "h5": 5}
_NUMBER = re.compile(r"^\s*(?:第\s*\d+\s*章\.?|Chapter\s*\d+\.?|(?:[A-Z]|\d+)(?:\.\d+)*\.)\s*")


class InfoSet(NamedTuple):
    """A tree, what is known about its keywords, and what is asked."""

    name: str
    specs: list[Spec]
    infos: list[tuple[str, str]]
    """Keyword id and content."""
    cases: list[Case]


def documents_folder() -> Path:
    """Return the folder of the unpacked packages.

    Raises:
        Skip: `KEYWORD_TREE_DOCUMENTS` does not name it.
    """
    folder = Path(os.environ.get("KEYWORD_TREE_DOCUMENTS", ""))
    if not os.environ.get("KEYWORD_TREE_DOCUMENTS") or not folder.is_dir():
        raise common.Skip("KEYWORD_TREE_DOCUMENTS names no folder (python -m benchmarks.info_sets FOLDER makes one)")
    return folder


def sets() -> Iterator[Callable[[], InfoSet]]:
    """Yield functions that read a set each, or raise `Skip`."""
    yield from (lambda read=read: _accept_twins(read()) for read in _sets())


def _accept_twins(which: InfoSet) -> InfoSet:
    """Return the set with all keywords as right of which the same is known as of a right one, each question once."""
    known: dict[str, list[str]] = defaultdict(list)
    for id, content in which.infos:
        known[id].append(content)
    alike: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for id, contents in known.items():
        alike[tuple(contents)].add(id)
    right: dict[str, frozenset[str]] = defaultdict(frozenset)
    for case in which.cases:
        right[case.query] |= case.gold.union(*(alike[tuple(known[id])] for id in case.gold if id in known))
    return which._replace(cases=[Case(query, "", gold) for query, gold in right.items()])


def _sets() -> Iterator[Callable[[], InfoSet]]:
    faq, guide = "usr/share/doc/debian/FAQ", "usr/share/doc/maint-guide"
    yield lambda: _outline("faq, English", f"{faq}/*.html", 2, ".en.html")
    yield lambda: _outline("faq, Chinese", f"{faq}/zh-cn/*.html", 2)
    yield lambda: _outline("reference, English", "usr/share/debian-reference/*.en.html", 3)
    yield lambda: _outline("reference, Chinese", "usr/share/debian-reference/*.zh-cn.html", 3)
    yield lambda: _outline("guide, English", f"{guide}/html/*.html", 2)
    yield lambda: _outline("guide, Chinese", f"{guide}-zh-cn/html/*.html", 2)
    yield lambda: _manual("manual, English", "usr/share/man/man[18]/*.gz")
    yield lambda: _manual("manual, Chinese", "usr/share/man/zh_CN/man[18]/*.gz")
    yield _stdlib
    yield lambda: _sections("awesome_python")
    yield lambda: _sections("awesome_python_cn")
    yield lambda: _entries("entries, English", "awesome_python")
    yield lambda: _entries("entries, Chinese", "awesome_python_cn")
    yield _questions


def _spec(id: str, name: str, parent_id: str = "root") -> Spec:
    return {"id": id, "name": name[:500], "aliases": [], "parent_id": parent_id, "description": ""}


# == Documents ===============================================================================


class _Outline(HTMLParser):
    """Collects headings with the text beneath each."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[tuple[int, str, list[str]]] = []
        self._level = 0
        self._skipped = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        classes = dict(attrs).get("class") or ""
        if self._skipped or classes in ("toc", "navheader", "navfooter", "titlepage-toc"):
            self._skipped += tag not in ("br", "hr", "img", "col", "meta", "link", "input")
        elif tag in _HEADINGS:
            self._level = _HEADINGS[tag]
            self.parts.append((self._level, "", []))

    def handle_endtag(self, tag: str) -> None:
        if self._skipped:
            self._skipped -= 1
        elif tag in _HEADINGS:
            self._level = 0

    def handle_data(self, data: str) -> None:
        if self._skipped or not self.parts:
            return
        level, heading, text = self.parts[-1]
        if self._level:
            self.parts[-1] = level, heading + data, text
        else:
            text.append(data)


def _outline(name: str, pattern: str, keyword_level: int, not_this: str = "\0") -> InfoSet:
    """Return sections as keywords, the texts of their parts as infos, and the parts' headings as questions."""
    specs: list[Spec] = []
    infos: list[tuple[str, str]] = []
    cases: list[Case] = []
    files = sorted(path for path in documents_folder().glob(pattern) if not path.name.endswith(not_this))
    for path in files:
        reader = _Outline()
        reader.feed(path.read_text("utf-8", "replace"))
        above: dict[int, str] = {}
        base = min((level for level, _, _ in reader.parts), default=1)
        for number, (level, heading, text) in enumerate(reader.parts):
            title, depth = " ".join(_NUMBER.sub("", heading).split()), level - base + 2
            content = " ".join("".join(text).split())
            if depth <= keyword_level and title:
                id = f"{path.name}/{number}"
                specs.append(_spec(id, title, above.get(depth - 1, "root")))
                above[depth] = id
                if content:
                    infos.append((id, content))
            elif title and content and above.get(keyword_level):
                infos.append((above[keyword_level], content))
                cases.append(Case(title, "", frozenset([above[keyword_level]])))
    if not cases:
        raise common.Skip(f"{name} is not there")
    return InfoSet(name, specs, infos, cases)


_ROFF_FONT = re.compile(r"\\f(?:\[\w*\]|\(..|.)|\\s[+-]?\d|\\&|\\/|\\,|\\c")
_ROFF_MACRO = re.compile(r"^[.'](?:B|I|BR|RB|IR|RI|BI|IB|SM|Nm|Fl|Ar|Nd)\s+")


def _manual(name: str, pattern: str, limit: int = 800) -> InfoSet:
    """Return manual pages as keywords, their descriptions' paragraphs as infos, and their summaries as questions."""
    specs, infos, cases = [], list[tuple[str, str]](), list[Case]()
    paths = sorted(documents_folder().glob(pattern))
    for path in random.Random(3).sample(paths, min(limit, len(paths))):
        with gzip.open(path, "rt", encoding="utf-8", errors="replace") as page:
            sections = _read_roff(page.read())
        summary = " ".join(" ".join(sections.get("NAME", sections.get("名称", sections.get("名字", [])))).split())
        command, dash, about = summary.replace("–", "-").replace("—", "-").partition(" - ")
        said = sections.get("DESCRIPTION") or sections.get("描述") or sections.get("说明") or []
        paragraphs = [paragraph for paragraph in said if len(paragraph) > 20][:4]
        if dash and about.strip() and paragraphs and command:
            specs.append(_spec(path.name, command.split(",")[0].strip() or path.name))
            infos += [(path.name, paragraph) for paragraph in paragraphs]
            cases.append(Case(about.strip(), "", frozenset([path.name])))
    if len(cases) < 20:
        raise common.Skip(f"{name} is not there")
    return InfoSet(name, specs, infos, cases)


def _read_roff(page: str) -> dict[str, list[str]]:
    """Return section -> paragraphs, as far as that can be told without typesetting."""
    found: dict[str, list[str]] = defaultdict(list)
    section, lines = "", list[str]()

    def end_paragraph() -> None:
        text = " ".join(" ".join(lines).split())
        if text:
            found[section].append(text)
        lines.clear()

    for line in page.splitlines():
        if line.startswith((".SH", ".Sh")):
            end_paragraph()
            section = line[3:].strip().strip('"').upper()
        elif line.startswith((".PP", ".P", ".LP", ".Pp", ".TP", ".sp", ".IP")):
            end_paragraph()
        else:
            text = _ROFF_FONT.sub("", _ROFF_MACRO.sub("", line)).replace("\\-", "-").replace("\\(aq", "'")
            if not text.startswith((".", "'")):
                lines.append(text.replace('"', ""))
    end_paragraph()
    return found


# == Python's library ========================================================================


def _stdlib() -> InfoSet:
    """Return modules and classes as keywords, docstrings but for their first lines as infos, these as questions."""
    specs: list[Spec] = []
    infos: list[tuple[str, str]] = []
    cases: list[Case] = []
    for module_name in sorted(sys.stdlib_module_names):
        if module_name.startswith("_") or module_name in ("antigravity", "this", "idlelib", "turtledemo", "lib2to3"):
            continue
        if module_name not in sys.builtin_module_names and pkgutil.find_loader(module_name) is None:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                module = importlib.import_module(module_name)
            except Exception:  # what this machine does not have
                continue
        specs.append(_spec(module_name, module_name))
        for name, value in sorted(vars(module).items()):
            if name.startswith("_") or getattr(value, "__module__", None) != module_name:
                continue
            if inspect.isclass(value):
                id = f"{module_name}.{name}"
                specs.append(_spec(id, name, module_name))
                members = [each for key, each in sorted(vars(value).items()) if not key.startswith("_")]
                _take_docs([value, *filter(inspect.isroutine, members)], id, infos, cases)
            elif inspect.isroutine(value):
                _take_docs([value], module_name, infos, cases)
    return InfoSet("stdlib", specs, infos, random.Random(4).sample(cases, min(800, len(cases))))


def _take_docs(values: list[Any], id: str, infos: list[tuple[str, str]], cases: list[Case]) -> None:
    for value in values:
        text = inspect.getdoc(value) if value.__doc__ else None
        first, _, rest = (text or "").partition("\n")
        if len(rest.split()) >= 8 and len(first.split()) >= 3:
            infos.append((id, rest.strip()))
            cases.append(Case(first, "", frozenset([id])))


# == The data folder =========================================================================


def _sections(folder: str) -> InfoSet:
    """Return sections as keywords, one half of their entries as infos, what is said of the others as questions."""
    rows = read_rows(f"{folder}/infos.jsonl")
    gone = {row["id"] for row in rows}
    specs = specs_of(folder, dropped=gone)
    random.Random(7).shuffle(rows)
    known = {spec["id"] for spec in specs}
    rows = [row for row in rows if row["source"] in known]
    half = len(rows) // 2
    infos = [(row["source"], row["content"]) for row in rows[:half]]
    told = (row["content"].partition(" — ")[2] for row in rows[half:])
    cases = [Case(text, "", frozenset([row["source"]])) for text, row in zip(told, rows[half:], strict=True) if text]
    return InfoSet(folder, specs, infos, cases)


def _entries(name: str, folder: str) -> InfoSet:
    """Return entries as keywords without descriptions, the first half of their sentence as info, the second asked."""
    specs = specs_of(folder, described=False)
    infos, cases = [], []
    for row in read_rows(f"{folder}/queries.jsonl"):
        text, id = row["query"], row["gold_ids"][0]
        middle = len(text) // 2
        cut = text.find(" ", middle) if " " in text[middle:] else middle
        if len(text) >= 16:
            infos.append((id, text[:cut].strip()))
            cases.append(Case(text[cut:].strip(), "", frozenset([id])))
    return InfoSet(name, specs, infos, cases)


def _questions() -> InfoSet:
    """Return intents, one half of the questions as infos, the others asked."""
    asked: dict[str, list[str]] = defaultdict(list)
    for row in read_rows("clinc150_dev/queries.jsonl"):
        if row["gold_ids"]:
            asked[row["gold_ids"][0]].append(row["query"])
    infos, cases = [], []
    for id, queries in asked.items():
        random.Random(9).shuffle(queries)
        infos += [(id, query) for query in queries[: len(queries) // 2]]
        cases += [Case(query, "", frozenset([id])) for query in queries[len(queries) // 2 :]]
    return InfoSet("clinc150_dev", specs_of("clinc150_dev"), infos, random.Random(9).sample(cases, 800))


def main() -> None:
    """Fetch the packages."""
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    for package in PACKAGES:
        subprocess.run(["apt-get", "download", "-q", package], cwd=folder, check=False)
    for archive in sorted(folder.glob("*.deb")):
        subprocess.run(["dpkg", "-x", str(archive), str(folder)], check=True)
        archive.unlink()


if __name__ == "__main__":
    main()
