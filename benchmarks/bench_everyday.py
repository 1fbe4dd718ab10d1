"""Small personal trees, without a model: is a new keyword placed rightly, and is a question answered rightly?

What: `everyday/*.txt` holds four trees in English and four in Chinese, of 35 to 48 keywords with facts on them. For
each language there are 100 keywords with the parents that a person would accept, or none; 100 questions with the
keywords that answer them, or none; and 30 questions that have nothing to do with the tree. All were written down before
the first result was looked at, and are not changed by how they fare.

Why: the large sets (`bench_finding.py`) are taxonomies of thousands of names. Who tries the library types a few dozen
everyday words, and sees at once what hangs beneath a wrong one.

How: `CreateKeyword(name)` without a parent and `Search(question)`, through `LexicalLLMClient`; and the same questions
through `MemoryStore.recall`, where what scores below 0.15 counts as nothing, as in the README's recipe.

Every case meets the tree as it stands in the file: in a copy, opened anew, so that no case profits by another. A
keyword that stays at the root has lost nothing, one beneath a wrong parent has to be found and moved: they are counted
apart.

`facts/*.txt` are some dozen facts on people and things each, and questions that they answer, or do not but share a name
or a turn of phrase with ("what is Marta's blood type?"): *seen* ones, by which the rule that doubts such answers was
chosen, and *unseen* ones, written down before it was thought of. Each answer is also asked for where it was never told.

Repeat: ``python -m benchmarks.bench_everyday`` (``--show`` lists what went wrong; ``--only
place,search,recall,facts``).

The files: a section per heading. In the tree a line is a keyword, indented beneath its parent, `= a; b` are its
aliases, and `- ` is a fact on it. Behind `->` stand the right ones, divided by `|`; `/` is the root, or no answer.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from argparse import Namespace
from collections import Counter
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from Agent.keyword_tree import KeywordTree, SearchStatus
from Agent.lexical_client import LexicalLLMClient
from Agent.memory import MemoryStore
from benchmarks import common

RECALLED = 0.15
"""Chosen on these very questions: at 0 all of off-topic Chinese is answered, at 0.3 some right answers are lost."""

FOLDER = Path(__file__).parent / "everyday"
FACTS = Path(__file__).parent / "facts"
LANGUAGES = {"en": "English", "zh": "Chinese"}
ROOT = "/"


class Line(NamedTuple):
    """A keyword of a tree or, where `fact` is true, a fact on the keyword above."""

    level: int
    text: str
    aliases: tuple[str, ...] = ()
    fact: bool = False


class Case(NamedTuple):
    """A new keyword with its right parents, or a question with its right answers."""

    text: str
    right: frozenset[str]


class Everyday(NamedTuple):
    """One file."""

    tree: list[Line]
    place: list[Case]
    ask: list[Case]
    off_topic: list[str]


# == The sets ================================================================================


def read(path: Path) -> Everyday:
    """Return what a file holds.

    Raises:
        ValueError: a case names a keyword that is not in the tree.
    """
    sections: dict[str, list[str]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            sections[line[2:]] = []
        elif line.strip():
            sections[list(sections)[-1]].append(line)
    tree = [_read_line(line) for line in sections["tree"]]
    names = {line.text for line in tree if not line.fact} | {ROOT}
    place, ask = ([_read_case(line, names) for line in sections[name]] for name in ("place", "ask"))
    return Everyday(tree, place, ask, sections["off-topic"])


def _read_line(line: str) -> Line:
    text = line.strip()
    level = (len(line) - len(text)) // 2
    if text.startswith("- "):
        return Line(level, text[2:], fact=True)
    name, _, aliases = text.partition(" = ")
    return Line(level, name, tuple(aliases.split("; ")) if aliases else ())


def _read_case(line: str, names: set[str]) -> Case:
    text, _, right = line.partition(" -> ")
    case = Case(text, frozenset(right.split(" | ")))
    if not case.right <= names:
        raise ValueError(f"{line!r} names what is not in the tree")
    return case


def build(everyday: Everyday, folder: Path, source: str = "own words") -> None:
    """Store a tree in a new folder."""
    with KeywordTree(str(folder)) as tree, tree.Operation("an everyday tree"):
        above = ["root"]
        for line in everyday.tree:
            if line.fact:
                tree.CreateInfo(line.text, source, [above[line.level]])
            else:
                made = tree.CreateKeyword(line.text, above[line.level], list(line.aliases))
                above[line.level + 1 :] = [made.id]


# == Measuring ===============================================================================


class Outcome(NamedTuple):
    """What became of a case, and what was found or where it was placed."""

    counted: str
    got: str


def place(case: Case, stored: Path, copy: Path) -> Outcome:
    """Create the keyword in a copy of the tree and look where it hangs."""
    shutil.copytree(stored, copy)
    with KeywordTree(str(copy), LexicalLLMClient()) as tree:
        parent = tree.GetPath(tree.CreateKeyword(case.text).id)[-2]
        got = ROOT if parent.id == "root" else parent.name
    shutil.rmtree(copy)
    if got in case.right:
        return Outcome("rightly at the root" if got == ROOT else "rightly placed", got)
    return Outcome("left at the root" if got == ROOT else "wrongly placed", got)


def search(case: Case, stored: Path) -> Outcome:
    """Ask the question and look what is found."""
    with KeywordTree(str(stored), LexicalLLMClient()) as tree:
        found = tree.Search(case.text)
    nothing = ROOT in case.right
    if found.status is SearchStatus.NOT_FOUND:
        return Outcome("rightly refused" if nothing else "refused", "nothing")
    names = {node.name for node in found.candidates} or {found.node.name if found.node else ""}
    got = " or ".join(sorted(names))
    if nothing:
        return Outcome("answered, wrongly", got)
    if names & case.right:
        return Outcome("right" if len(names) == 1 else "asked back", got)
    return Outcome("wrong", got)


def recall(case: Case, memory: MemoryStore, about: dict[str, str]) -> Outcome:
    """Recall the one memory that fits best, and look what it is about."""
    found = [one for one in memory.recall(case.text, limit=1) if one.score >= RECALLED]
    nothing = ROOT in case.right
    if not found:
        return Outcome("rightly refused" if nothing else "refused", "nothing")
    got = about[found[0].info.id]
    if nothing:
        return Outcome("answered, wrongly", got)
    return Outcome("right" if got in case.right else "wrong", got)


def ask_facts(path: Path) -> tuple[Counter[str], Counter[str]]:
    """Recall what the facts of a file answer; and the same where the answer was never told."""
    told, untold = Counter[str](), Counter[str]()
    for part in path.read_text(encoding="utf-8").split("# facts\n")[1:]:
        lines, _, asked = part.partition("# questions\n")
        facts = [line.rpartition(" | ") for line in lines.splitlines()]
        cases = [(text, int(right) if right != ROOT else None) for text, _, right in map(_split, asked.splitlines())]
        told += _count_facts(facts, cases, None)
        for text, right in cases:
            if right is not None:
                untold += _count_facts(facts, [(text, None)], right)
    return told, untold


def _split(line: str) -> tuple[str, str, str]:
    return line.rpartition(" -> ")


def _count_facts(
    facts: list[tuple[str, str, str]], cases: list[tuple[str, int | None]], untold: int | None
) -> Counter[str]:
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="keyword-tree-facts-") as folder, MemoryStore(folder) as memory:
        numbers = {
            memory.remember(text, names.split(", ")): number
            for number, (text, _, names) in enumerate(facts)
            if number != untold
        }
        for text, right in cases:
            found = [numbers[one.info.id] for one in memory.recall(text, 3) if one.score >= RECALLED]
            if right is None:
                counts["answered, wrongly" if found else "rightly refused"] += 1
            else:
                counts["right" if found[:1] == [right] else "wrong" if found else "refused"] += 1
    return counts


def remember(everyday: Everyday, memory: MemoryStore) -> dict[str, str]:
    """Store the facts of a tree, each on its keyword, and return what each is about."""
    about: dict[str, str] = {}
    name = ""
    for line in everyday.tree:
        if line.fact:
            about[memory.remember(line.text, [name])] = name
        else:
            name = line.text
    return about


PLACED = ("rightly placed", "rightly at the root", "left at the root", "wrongly placed")
FOUND = ("right", "asked back", "wrong", "refused", "rightly refused", "answered, wrongly")


class Counts:
    """Outcomes by language, and the cases that went wrong."""

    def __init__(self) -> None:
        """Begin with nothing counted."""
        self._counts: dict[str, Counter[str]] = {}
        self.wrong: list[str] = []

    def add(self, language: str, case: Case, outcome: Outcome) -> None:
        """Count one."""
        self._counts.setdefault(LANGUAGES[language], Counter())[outcome.counted] += 1
        if outcome.got not in case.right and outcome.counted not in ("rightly refused", "right", "asked back"):
            self.wrong.append(f"{outcome.counted}: {case.text!r} → {outcome.got} ≠ {' or '.join(sorted(case.right))}")

    def print(self, report: common.Report, caption: str, columns: tuple[str, ...], show: bool) -> None:
        """Print the table, and the cases that went wrong where that is asked for."""
        both: Counter[str] = Counter()
        for counted in self._counts.values():
            both += counted
        rows = [*self._counts.items(), ("both", both)]
        report.table(caption, ["", *columns], [[name, *(counted[one] for one in columns)] for name, counted in rows])
        if show:
            report.line("\n" + "\n".join(self.wrong))


def run(options: Namespace) -> None:
    """Measure all parts that were asked for."""
    report = common.Report("Everyday trees", options, Path(tempfile.gettempdir()))
    placed, found, off_topic, recalled, off_recalled = (Counts() for _ in range(5))
    with tempfile.TemporaryDirectory(prefix="keyword-tree-everyday-") as folder:
        for path in sorted(FOLDER.glob("*.txt")):
            everyday, language, stored = read(path), path.stem[:2], Path(folder, path.stem)
            build(everyday, stored)
            if common.wanted(options, "place"):
                for case in everyday.place:
                    placed.add(language, case, place(case, stored, Path(folder, "copy")))
            if common.wanted(options, "search"):
                for case in everyday.ask:
                    found.add(language, case, search(case, stored))
                for question in everyday.off_topic:
                    case = Case(question, frozenset({ROOT}))
                    off_topic.add(language, case, search(case, stored))
            if common.wanted(options, "recall"):
                with MemoryStore(Path(folder, f"{path.stem}-memories")) as memory:
                    about = remember(everyday, memory)
                    for case in everyday.ask:
                        recalled.add(language, case, recall(case, memory, about))
                    for question in everyday.off_topic:
                        case = Case(question, frozenset({ROOT}))
                        off_recalled.add(language, case, recall(case, memory, about))
    if common.wanted(options, "facts"):
        rows = []
        for path in sorted(FACTS.glob("*.txt")):
            told, untold = ask_facts(path)
            name = f"{path.stem.partition('_')[0]}, {LANGUAGES[path.stem[-2:]]}"
            rows += [[name, *(told[one] for one in FOUND)], [f"{name}: never told", *(untold[one] for one in FOUND)]]
        report.table("Facts on people and things, recalled", ["", *FOUND], rows)
    if common.wanted(options, "place"):
        placed.print(report, "100 new keywords a language, placed without a model", PLACED, options.show)
    if common.wanted(options, "search"):
        found.print(report, "100 questions a language, asked without a model", FOUND, options.show)
        off_topic.print(report, "30 questions off the topic a language", FOUND[-2:], options.show)
    if common.wanted(options, "recall"):
        recalled.print(report, "The same questions, recalled from a MemoryStore", FOUND, options.show)
        off_recalled.print(report, "30 questions off the topic, recalled", FOUND[-2:], options.show)


def main() -> None:
    """Run as a program."""
    parser = common.parser(__doc__)
    parser.add_argument("--show", action="store_true", help="list the cases that went wrong")
    run(parser.parse_args())


if __name__ == "__main__":
    main()
