"""The sets of `bench_finding`: what is searched, what is asked, and what answers it.

A set is units (keywords with names, a parent, a description and infos; or memories, which are a text alone) and cases
(a question with the ids of its answers, or a new name with its parent). A question never stands in the set: it is the
heading or summary of a text that became an info, or one half of what is said of a keyword whose other half became its
infos. No case is kept whose answer cannot be distinguished from another: keywords of which the very same is known are
all right.

    everyday (en, zh)        100 facts, 80 questions of which 20 have no answer; written before any result was seen
    everyday (en2, …, zh4)   as many others; of them even questions alone chose the score
    everyday (en5, zh5)      100 questions: 33 in other words than the fact, 47 ordinary, 20 without answer
    probes (en, zh)          60 questions: 22 in other words, 10 about another person, 10 about another thing, 8 for a
                             number or a date that is not there, 10 behind chat, 4 of these without answer
    shop (zh)                40 questions of a bookshop, 10 without answer; every second one was held back
    tree … (en, zh)          eight small personal trees, with questions, and new keywords to be placed
    awesome_python, …_cn     entries by their descriptions; with infos: sections by half of their entries
    wordnet_food             words by their definitions
    clinc150_dev             intents by questions; also behind two sentences of chat; with confirmed queries
    admin_cn4                43,118 places in China by their short names
    place …                  the held-out keywords of these trees, by name and description
    handbook (en, zh)        sections of the Debian handbook by the headings of their parts
    pages (en, zh)           manual pages of sections 2 to 7 by their summaries
    stdlib                   Python's modules and classes by the first lines of docstrings

The last three are made from freely licensed packages: ``python -m benchmarks.finding_sets FOLDER`` fetches and unpacks
them there (`apt-get download`, nothing is installed), and `KEYWORD_TREE_DOCUMENTS` names the folder. What is not there
is skipped.
"""

from __future__ import annotations

import gzip
import importlib
import inspect
import json
import os
import random
import re
import subprocess
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import common

EVERYDAY = Path(__file__).parent / "everyday"
PACKAGES = ["debian-handbook", "manpages-zh", "manpages-dev", "manpages"]
CHAT = ("I have been thinking about this for a while. My phone nearly died on the way here.", "刚吃完饭。今天有点累。")


class Unit(NamedTuple):
    """What is found: a keyword, or a memory (which has no name)."""

    id: str
    names: Sequence[str] = ()
    parent_id: str = "root"
    description: str = ""
    infos: Sequence[str] = ()


class Case(NamedTuple):
    """A question or a new name, and the ids that are right; none: nothing answers it."""

    query: str
    gold: frozenset[str]
    description: str = ""


class Set(NamedTuple):
    """One set; parents stand before their children."""

    name: str
    units: list[Unit]
    cases: list[Case]
    is_placing: bool = False
    is_memory: bool = False
    is_large: bool = False
    """Too large to be embedded in an hour."""

    def half(self, half: str, limit: int) -> list[Case]:
        """Return every second case that has an answer, at most so many, always the same ones."""
        cases = [case for case in self.cases if case.gold]
        cases = cases if half == "all" else cases[half == "odd" :: 2]
        return cases if len(cases) <= limit else random.Random(1).sample(cases, limit)

    @property
    def is_chinese(self) -> bool:
        """Whether it is asked in Chinese."""
        return any("\u4e00" <= char <= "\u9fff" for char in self.cases[0].query)


def sets() -> Iterator[Callable[[], Set]]:
    """Yield functions that read a set each, or raise `Skip`."""
    for facts in ("en", "zh", "en2", "zh2", "en3", "zh3", "en4", "zh4", "en5", "zh5"):
        yield lambda facts=facts: _everyday(facts)  # type: ignore[misc]  # the default binds it now
    for language in ("en", "zh"):
        yield lambda language=language: _everyday(f"probes_{language}")._replace(name=f"probes, {language}")  # type: ignore[misc]
    yield lambda: _everyday("shop_zh")._replace(name="shop, zh")
    for path in sorted(EVERYDAY.glob("*_*.txt")):
        if not path.stem.startswith("facts"):
            yield lambda path=path: everyday_tree(path)[0]  # type: ignore[misc]
    for name in ("awesome_python", "awesome_python_cn"):
        yield lambda name=name: _queries(name, described=False)  # type: ignore[misc]
        yield lambda name=name: _sections(name)  # type: ignore[misc]
    yield lambda: _queries("wordnet_food", "definition_en", described=False)
    yield lambda: _queries("clinc150_dev")
    yield lambda: behind_chat(_queries("clinc150_dev"))
    yield lambda: _queries("admin_cn4", "short_name")._replace(is_large=True)
    for name in ("awesome_python", "awesome_python_cn", "wordnet_food"):
        yield lambda name=name: _holdout(name)  # type: ignore[misc]
    for language, folder in (("en", "en-US"), ("zh", "zh-CN")):
        yield lambda language=language, folder=folder: _handbook(language, folder)  # type: ignore[misc]
    yield lambda: _pages("en", "usr/share/man/man[2-7]/*.gz")
    yield lambda: _pages("zh", "usr/share/man/zh_CN/man[2-7]/*.gz")
    yield _stdlib


def _accept_twins(which: Set) -> Set:
    """Return the set with all units as right of which the same is known as of a right one, each question once."""
    known = {unit.id: (unit.description, *unit.infos) for unit in which.units}
    alike: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for id, texts in known.items():
        alike[texts].add(id)
    right: dict[str, frozenset[str]] = defaultdict(frozenset)
    for case in which.cases:
        right[case.query] |= case.gold.union(*(alike[known[id]] for id in case.gold))
    return which._replace(cases=[Case(query, gold) for query, gold in right.items()])


# == Facts of everyday life ==================================================================


def _everyday(which: str) -> Set:
    facts, questions = (EVERYDAY / f"facts_{which}.txt").read_text(encoding="utf-8").split("# questions\n")
    units = [Unit(id, infos=[text]) for line in facts.splitlines() if " | " in line for id, text in [line.split(" | ")]]
    cases = []
    for line in questions.splitlines():
        query, _, gold = line.partition(" -> ")
        cases.append(Case(query, frozenset(gold.split(", ")) - {"-"}))
    return Set(f"everyday, {which}", units, cases, is_memory=True)


def everyday_tree(path: Path) -> tuple[Set, list[Case]]:
    """Return a small personal tree with its questions, and new keywords with the parents that a person would accept."""
    sections: dict[str, list[str]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            sections[line[2:]] = []
        elif line.strip():
            sections[list(sections)[-1]].append(line)
    units, above = dict[str, Unit](), ["root"]
    for line in sections["tree"]:
        text, level = line.strip(), (len(line) - len(line.lstrip())) // 2
        if text.startswith("- "):
            units[above[level]] = units[above[level]]._replace(infos=[*units[above[level]].infos, text[2:]])
        else:
            name, _, aliases = text.partition(" = ")
            units[name] = Unit(name, [name, *(aliases.split("; ") if aliases else [])], above[level])
            above[level + 1 :] = [name]
    cases = [
        [Case(query, frozenset(gold.split(" | "))) for query, _, gold in (line.partition(" -> ") for line in lines)]
        for lines in (sections["ask"], sections["place"])
    ]
    asked = [case._replace(gold=case.gold - {"/"}) for case in cases[0]]
    asked += [Case(query, frozenset()) for query in sections["off-topic"]]
    return Set(f"tree {path.stem}", list(units.values()), asked), cases[1]


# == The data folder =========================================================================


def rows_of(name: str) -> list[dict[str, Any]]:
    """Return the rows of a file in the data folder.

    Raises:
        Skip: it is not there.
    """
    path = common.data_folder() / name
    if not path.is_file():
        raise common.Skip(f"{name} is not there")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def tree_of(folder: str, dropped: Iterable[str] = (), described: bool = True) -> list[Unit]:
    """Return a tree's keywords, parents first; what is under a dropped one moves up."""
    rows = {row["id"]: row for row in rows_of(f"{folder}/tree.jsonl")}
    gone, made = set(dropped), dict[str, Unit]()

    def make(row: dict[str, Any]) -> None:
        parent = row["parent_id"]
        while parent in gone:
            parent = rows[parent]["parent_id"]
        if parent in rows and parent not in made:
            make(rows[parent])
        names = list(dict.fromkeys([row["name"] or "?", *filter(str.strip, row["aliases"])]))
        text = row["description"] if described else ""
        made[row["id"]] = Unit(row["id"], names, parent if parent in rows else "root", text)

    for id, row in rows.items():
        if id not in gone and id not in made:
            make(row)
    return list(made.values())


def _queries(folder: str, kind: str = "", described: bool = True) -> Set:
    rows = [row for row in rows_of(f"{folder}/queries.jsonl") if not kind or row["kind"] == kind]
    cases = [Case(row["query"], frozenset(row["gold_ids"])) for row in rows]
    random.Random(2).shuffle(cases)
    return Set(folder, tree_of(folder, described=described), cases)


def behind_chat(which: Set) -> Set:
    """Return the same questions behind two sentences that ask nothing."""
    cases = [case._replace(query=f"{CHAT[which.is_chinese]} {case.query}?") for case in which.cases if case.gold]
    return which._replace(name=f"{which.name}, behind chat", cases=cases)


def confirmed(count: int) -> Set:
    """Return the intents with so many confirmed queries each, asked by ten others."""
    which, taken = _queries("clinc150_dev"), defaultdict[str, list[str]](list)
    for case in which.cases:
        for id in case.gold:
            taken[id].append(case.query)
    # A tree indexes confirmed queries as it does a description.
    units = [unit._replace(description="\n".join(taken[unit.id][10 : 10 + count])) for unit in which.units]
    cases = [Case(query, frozenset([id])) for id, queries in taken.items() for query in queries[:10]]
    random.Random(2).shuffle(cases)
    return Set(f"clinc150_dev, {count} confirmed queries each", units, cases)


def _holdout(folder: str) -> Set:
    rows = rows_of(f"{folder}/holdout.jsonl")
    cases = [Case(row["name"], frozenset(row["gold_parent_ids"]), row["description"]) for row in rows]
    return Set(f"place {folder}", tree_of(folder, [row["id"] for row in rows]), cases, is_placing=True)


def _sections(folder: str) -> Set:
    rows = rows_of(f"{folder}/infos.jsonl")
    units = tree_of(folder, [row["id"] for row in rows])
    random.Random(7).shuffle(rows)
    known = {unit.id for unit in units}
    rows = [row for row in rows if row["source"] in known]
    half, infos = len(rows) // 2, defaultdict[str, list[str]](list)
    for row in rows[:half]:
        infos[row["source"]].append(row["content"])
    cases = [
        Case(text, frozenset([row["source"]])) for row in rows[half:] if (text := row["content"].partition(" — ")[2])
    ]
    return Set(f"{folder}, infos", [unit._replace(infos=infos[unit.id]) for unit in units], cases)


# == Documents ===============================================================================


def _documents() -> Path:
    folder = Path(os.environ.get("KEYWORD_TREE_DOCUMENTS", ""))
    if not os.environ.get("KEYWORD_TREE_DOCUMENTS") or not folder.is_dir():
        raise common.Skip("KEYWORD_TREE_DOCUMENTS names no folder (python -m benchmarks.finding_sets FOLDER makes one)")
    return folder


class _Outline(HTMLParser):
    """Collects headings with the text under each."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[tuple[int, str, list[str]]] = []
        self._level = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if re.fullmatch("h[1-5]", tag) and dict(attrs).get("class") == "title":
            self._level = int(tag[1])
            self.parts.append((self._level, "", []))

    def handle_endtag(self, tag: str) -> None:
        if re.fullmatch("h[1-5]", tag):
            self._level = 0

    def handle_data(self, data: str) -> None:
        if self.parts:
            level, heading, text = self.parts[-1]
            if self._level:
                self.parts[-1] = level, heading + data, text
            else:
                text.append(data)


_NUMBER = re.compile(r"^\s*(?:第\s*\S+\s*章|Chapter\s*\d+\.?|(?:[A-Z]|\d+)(?:\.\d+)*\.?)\s*")


def _handbook(language: str, folder: str) -> Set:
    """Return sections as keywords, the texts of their parts as infos, and the parts' headings as questions."""
    units, infos, cases = list[Unit](), defaultdict[str, list[str]](list), list[Case]()
    for path in sorted((_documents() / f"usr/share/doc/debian-handbook/html/{folder}").glob("sect.*.html")):
        reader = _Outline()
        reader.feed(path.read_text("utf-8", "replace"))
        for number, (_, heading, lines) in enumerate(reader.parts):
            title, text = " ".join(_NUMBER.sub("", heading).split()), " ".join("".join(lines).split())
            if not number:
                units.append(Unit(path.name, [title[:500]]))
            elif title and text:
                cases.append(Case(title, frozenset([path.name])))
            infos[path.name] += [text] if text else []
    if not units:
        raise common.Skip(f"the handbook ({language}) is not there")
    return _accept_twins(Set(f"handbook, {language}", [unit._replace(infos=infos[unit.id]) for unit in units], cases))


_FONT = re.compile(r"\\f(?:\[\w*\]|\(..|.)|\\s[+-]?\d|\\&|\\/|\\,|\\c")
_MACRO = re.compile(r"^[.'](?:B|I|BR|RB|IR|RI|BI|IB|SM|Nm|Fl|Ar|Nd)\s+")
_PARAGRAPH = (".PP", ".P", ".LP", ".Pp", ".TP", ".sp", ".IP")


def _pages(language: str, pattern: str, limit: int = 300) -> Set:
    """Return manual pages as keywords, their descriptions' paragraphs as infos, and their summaries as questions."""
    units, cases = [], []
    paths = sorted(_documents().glob(pattern))
    for path in random.Random(3).sample(paths, min(limit, len(paths))):
        with gzip.open(path, "rt", encoding="utf-8", errors="replace") as page:
            sections = _read_roff(page.read())
        summary = " ".join(" ".join(sections.get("NAME", sections.get("名称", sections.get("名字", [])))).split())
        command, dash, about = re.sub("[–—]", "-", summary).partition(" - ")
        said = sections.get("DESCRIPTION") or sections.get("描述") or sections.get("说明") or []
        paragraphs = [paragraph for paragraph in said if len(paragraph) > 20][:4]
        is_in_language = language == "en" or re.search("[\u4e00-\u9fff]", about)
        if dash and len(about) > 5 and paragraphs and command and is_in_language:
            units.append(Unit(path.name, [command.split(",")[0].strip()[:500] or path.name], infos=paragraphs))
            cases.append(Case(about.strip(), frozenset([path.name])))
    if len(cases) < 20:
        raise common.Skip(f"manual pages ({language}) are not there")
    return _accept_twins(Set(f"pages, {language}", units, cases))


def _read_roff(page: str) -> dict[str, list[str]]:
    """Return section → paragraphs, as far as that is visible without typesetting."""
    found: dict[str, list[str]] = defaultdict(list)
    section, lines = "", list[str]()
    for line in [*page.splitlines(), ".SH END"]:
        if line.startswith((".SH", ".Sh", *_PARAGRAPH)):
            text = " ".join(" ".join(lines).split())
            found[section] += [text] if text else []
            lines.clear()
            section = line[3:].strip().strip('"').upper() if line.startswith((".SH", ".Sh")) else section
        else:
            text = _FONT.sub("", _MACRO.sub("", line)).replace("\\-", "-").replace("\\(aq", "'")
            lines += [] if text.startswith((".", "'")) else [text.replace('"', "")]
    return found


_NOT_READ = {"antigravity", "this", "idlelib", "turtledemo", "lib2to3", "tkinter", "turtle"}


def _stdlib(limit: int = 60) -> Set:
    """Return modules and classes as keywords, docstrings but for their first lines as infos, these as questions."""
    docs = defaultdict[str, list[tuple[str, str]]](list)
    parents: dict[str, str] = {}
    names = [name for name in sys.stdlib_module_names if not name.startswith("_") and name not in _NOT_READ]
    for module_name in random.Random(4).sample(sorted(names), limit):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                module = importlib.import_module(module_name)
            except Exception:  # what this machine does not have
                continue
        parents[module_name] = "root"
        for name, value in sorted(vars(module).items()):
            if name.startswith("_") or getattr(value, "__module__", None) != module_name:
                continue
            id = module_name
            if inspect.isclass(value):
                id = f"{module_name}.{name}"
                parents[id] = module_name
                members = [each for key, each in sorted(vars(value).items()) if not key.startswith("_")]
                docs[id] += _docs_of([value, *filter(inspect.isroutine, members)])
            elif inspect.isroutine(value):
                docs[id] += _docs_of([value])
    units = [Unit(id, [id.rpartition(".")[2]], up, infos=[rest for _, rest in docs[id]]) for id, up in parents.items()]
    cases = [Case(first, frozenset([id])) for id, parts in docs.items() for first, _ in parts]
    random.Random(4).shuffle(cases)
    return _accept_twins(Set("stdlib", units, cases))


def _docs_of(values: Iterable[Any]) -> Iterator[tuple[str, str]]:
    for value in values:
        first, _, rest = ((inspect.getdoc(value) if value.__doc__ else None) or "").partition("\n")
        if len(rest.split()) >= 8 and len(first.split()) >= 3:
            yield first, rest.strip()


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
