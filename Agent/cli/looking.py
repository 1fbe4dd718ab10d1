"""The commands that find and show the contents of a memory.

From a program, without a console:

>>> from keyword_tree.cli.command_line import main
>>> main(["add", "茶", "--parent", "/", "--alias", "tea"])
added 茶  (undo 2)
0
>>> main(["search", "TEA"])
茶  = tea  (exact name or alias)
0
>>> main(["search", "harbour"])
nothing found  (no keyword fits well enough)
1
"""

import itertools
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from ..base.checks import check_free
from ..base.language import count_of, parts, say
from ..formats.records import ROOT_ID
from ..keyword_tree import Info, KeywordNode, KeywordTree, SearchResult, SearchStatus
from ..store.log_follower import all_infos
from .program import command, program
from .screen import draw_tree, line, shorten, spell_row
from .session import FOUND, NEAR, NOT_FOUND, Session, path_of, spell_keyword, spell_links, spell_places

REASONS = {
    "exact": "exact name or alias",
    "path": "exact path",
    "normalized": "exact but for punctuation and spaces",
    "confirmed": "confirmed query",
    "ranked": "words and meaning are sure of it",
    "empty_query": "empty query",
    "agent_match": "the model chose it",
    "agent_ambiguous": "the model found several that fit",
    "agent_missing": "the model found nothing that fits",
    "unsure": "the model was not sure enough",
    "agent_timeout": "the model gave no answer in time, or in the rounds allowed",
    "agent_failure": "the model could not be reached",
    "invalid_reply": "the model's answer cannot be used",
    "invalid_jump": "the model named an unknown candidate",
    "no_target": "the model named nothing",
    "stale_view": "the tree changed while the model was called",
}
"""The meaning of the codes in `SearchResult.reason`."""

LEXICAL_REASONS = {
    "agent_match": "the words fit it best",
    "agent_ambiguous": "the words fit several",
    "agent_missing": "no keyword fits well enough",
}
"""The meaning of some of the codes where words alone decide."""

NEAREST = 5
"""Keywords named where nothing is found."""

RECALLED = 3
"""Infos shown where no keyword is found."""

LEAST_RECALLED = 0.03
"""Least score of an info that is shown: below it hardly a character is shared with the question."""

VIEWED = 20
"""Infos and keywords that a search of the page finds."""

SENTENCE_SHOWN = 400
"""Characters of a sentence that are shown."""

SMALL = 60
"""A tree of at most this many keywords is drawn whole: it fits a screen or two."""


# Finding


@command("search", "Look", asks=True)
@click.argument("query", nargs=-1, required=True)
@click.option("--context", default="", help="The subject: chooses among keywords of the same name.")
@click.option("--limit", type=click.IntRange(0), default=12, show_default=True, help="Infos shown; 0 for all.")
def search(session: Session, query: tuple[str, ...], context: str, limit: int) -> int:
    """Find the keyword that a name, a path or a question means.

    Exit code 1 where nothing is found.
    """
    text = " ".join(query)
    with session.open(client=session.client()) as tree:
        result = tree.Search(text, context=context)
        is_found = result.status is not SearchStatus.NOT_FOUND
        near = spell_ranked(tree, result.nearest or ([] if is_found else tree.RankCandidates(text, NEAREST)))
        found = [] if is_found else recall(session, tree, text, RECALLED)
        texts = [each for each in found if each["score"] >= NEAR]
        if texts:
            drawn = [line(say("no keyword fits, but these texts do")), *draw_recalled(texts)]
        else:
            drawn = draw_result(session, tree, result, limit, near)
        session.answer({**spell_result(tree, result), "nearest": near, "texts": texts}, *drawn)
    return FOUND if is_found or texts else NOT_FOUND


def spell_result(tree: KeywordTree, result: SearchResult) -> dict[str, Any]:
    """Return a result as JSON has it."""
    return {
        **spell_row(result),
        "node": result.node and spell_keyword(tree, result.node),
        "path": [node.name for node in result.path[1:]],
        "infos": [spell_row(info) for info in result.infos],
        "candidates": spell_places(tree, result.candidates),
        "steps": [vars(step) for step in result.steps],
    }


def spell_ranked(tree: KeywordTree, ranked: list[tuple[KeywordNode, float]]) -> list[dict[str, Any]]:
    """Return ids, names and paths of ranked keywords, each with its confidence from 0 to 1."""
    places = spell_places(tree, [node for node, _ in ranked])
    return [{**place, "confidence": confidence} for place, (_, confidence) in zip(places, ranked, strict=True)]


def draw_result(
    session: Session, tree: KeywordTree, result: SearchResult, limit: int, near: list[dict[str, Any]]
) -> list[Text]:
    """Return the lines of a result; where nothing was found, of the nearest keywords."""
    own = LEXICAL_REASONS if session.is_lexical else {}
    why = (say("  ({})", say(own.get(result.reason) or REASONS.get(result.reason, result.reason))), "dim")
    if result.node is not None:
        return draw_keyword(tree, result, limit, why)
    if result.candidates:
        several = [draw_row(place["id"], place["path"]) for place in spell_places(tree, result.candidates)]
        return [line(say("{} fit", count_of(result.candidate_count, "keyword")), why), *several]
    drawn = [line(say("nothing found"), why)]
    if near:
        nearest = [f"{shorten(place['path'], 60)} {place['confidence']:.2f}" for place in near]
        drawn.append(line((say("  nearest: "), "dim"), say(", ").join(nearest)))
    if result.suggested_name:
        parent = path_of(tree, result.suggested_parent_id or ROOT_ID)
        drawn.append(line("  ", *parts("it could be called {}, under {}", result.suggested_name, parent)))
    return drawn


def draw_keyword(tree: KeywordTree, result: SearchResult, limit: int, why: tuple[str, str]) -> list[Text]:
    """Return the lines of the keyword that was found, with its infos."""
    node = result.node
    assert node is not None
    drawn = [line((path_of(tree, node.id), "bold"), label_aliases(node), why)]
    if node.description:
        drawn.append(line(("  " + shorten(node.description), "dim")))
    infos = result.infos[: limit or None]
    if result.excerpt and all(shorten(info.content) != result.excerpt for info in infos):
        drawn.append(line(("  " + result.excerpt, "cyan")))
    drawn += [draw_row(info.id, shorten(info.content), said_by(info)) for info in infos]
    if result.info_count > len(infos):
        of = count_of(result.info_count, "info")
        drawn.append(line(("  " + say("{} in all: {}", of, f"show --infos {node.id}"), "dim")))
    return drawn


def draw_row(id: str, text: str, after: Text | None = None) -> Text:
    """Return a line with an id in front."""
    return line(("  " + id, "dim"), "  " + text).append_text(after or Text())


def said_by(info: Info) -> Text:
    """Return an info's source, and the memory that superseded it."""
    newer, source = successor_of(info), ("  " + info.source, "cyan") if info.source else ""
    return line(source, (say("  superseded by {}", newer) if newer else "", "red"))


def successor_of(info: Info) -> str:
    """Return the memory that took the place of an info; "" where it holds."""
    from ..memory.memory_fields import memory_fields  # the package takes as long to import as the command needs

    newer = memory_fields(info).get("superseded_by")
    return newer if isinstance(newer, str) else ""


@command("ask", "Look", meaning=True)
@click.argument("question", nargs=-1, required=True)
@click.option("--limit", type=click.IntRange(1), default=5, show_default=True, help="Maximum number shown.")
@click.option("--min-score", type=click.FloatRange(0, 1), default=NEAR, show_default=True,
              help="Least score of an answer.")  # fmt: skip
@click.option("--ids", is_flag=True, help="Show ids.")
def ask(session: Session, question: tuple[str, ...], limit: int, min_score: float, ids: bool) -> int:
    r"""Find the sentence of an info that answers a question, and its keyword; `ask` and `recall` are one command.

    It asks no model: any of the words may fit, and the names of the keywords count, too. Where nothing reaches
    --min-score, the nearest are shown as such; exit code 1.

    \b
    keyword-tree ask "who is allergic to peanuts?"
    """
    with session.open() as tree:
        found = recall(session, tree, " ".join(question), limit)
    texts = [each for each in found if each["score"] >= min_score]
    nearest = [] if texts else found
    drawn = [] if texts else [line(say("nothing sure; the nearest:" if found else "nothing found"))]
    session.answer({"texts": texts, "nearest": nearest}, *drawn, *draw_recalled(texts or found, ids))
    return FOUND if texts else NOT_FOUND


program.add_command(ask, "recall")  # as agents call it


def recall(session: Session, tree: KeywordTree, query: str, limit: int) -> list[dict[str, Any]]:
    """Return the infos that fit best, as JSON has them, each with the sentence that fits and its score from 0 to 1."""
    from ..memory.retriever import MemoryRetriever  # few commands need it, and a prompt waits for what is imported

    index = Path(tree.data_dir, "indexes", "memories.db")  # the one that a `MemoryStore` of this folder keeps
    retriever = MemoryRetriever(tree, index_path=index)
    with session.waiting(say("looking; new facts are read first …")):
        found = retriever.retrieve(query, limit)
    retriever.index.close()
    return [
        {**spell_row(one.info), "path": one.path, "sentence": one.passage.strip(), "score": round(one.score, 3)}
        for one in found
        if one.score >= LEAST_RECALLED
    ]


def draw_recalled(texts: list[dict[str, Any]], ids: bool = False) -> list[Text]:
    """Return the sentences, each with score, keyword and source, and with the info's id where that is wanted."""
    return [
        line(
            (f"{text['score']:.2f}" + (f"  {text['id']}" if ids else ""), "dim"),
            ("  " + " / ".join(text["path"]) if text["path"] else "", "cyan"),
            f"  {shorten(text['sentence'], SENTENCE_SHOWN)}",
            (f"  {text['source']}" if text["source"] else "", "dim"),
        )
        for text in texts
    ]


# Showing


@command("view", "Look", meaning=True)
@click.option("--port", type=click.IntRange(0, 65_535), default=8765, show_default=True, help="The port of 127.0.0.1.")
def view(session: Session, port: int) -> None:
    """Serve the memory as a page on this machine, until Ctrl-C; its search finds as `ask` does."""
    from ..formats.html_page import make_server  # imported here: it takes as long as most commands

    with session.open() as tree:
        check_free("127.0.0.1", port)
        with make_server(tree, partial(find_places, session, tree), port, session.given.get("lang", "")) as server:
            address = f"http://127.0.0.1:{server.server_port}/"
            session.answer({"address": address}, line(say("the memory is at {} (Ctrl-C ends it)", address)))
            sys.stdout.flush()
            with suppress(KeyboardInterrupt):
                server.serve_forever()


def find_places(session: Session, tree: KeywordTree, question: str) -> list[dict[str, str]]:
    """Return the infos that answer a question, by their first keyword or themselves; then keywords that it names."""
    places = []
    for text in recall(session, tree, question, VIEWED) if question.strip() else ():
        keywords = tree.GetKeywordsOfInfo(text["id"], 0, 1)
        places.append({"id": keywords[0][0].id if keywords else text["id"], "excerpt": text["sentence"]})
    shown = {place["id"] for place in places}
    named = [node.id for node, confidence in tree.RankCandidates(question, VIEWED) if confidence >= NEAR]
    return [*places, *({"id": id, "excerpt": ""} for id in named if id not in shown)]


@command("show", "Look")
@click.argument("keyword", default="/")
@click.option(
    "--depth", type=click.IntRange(0), help="Levels drawn; 0 for all.  [default: all of a small tree, else 2]"
)
@click.option("--limit", type=click.IntRange(0), default=20, show_default=True,
              help="Children of a keyword, and infos; 0 for all.")  # fmt: skip
@click.option("--infos", is_flag=True, help="Show the infos of the keywords, too.")
@click.option("--ids", is_flag=True, help="Show ids.")
@click.option("--unlinked", is_flag=True, help="List the infos without a keyword instead.")
def show(session: Session, keyword: str, depth: int | None, limit: int, infos: bool, ids: bool, unlinked: bool) -> None:
    """Show the tree, or one info in full."""
    with session.open() as tree:
        is_empty = keyword == "/" and not session.as_json and not tree.GetChildren(ROOT_ID, 0, 1)
        if unlinked or (is_empty and has_unlinked(tree)):
            show_unlinked(session, tree, limit)
            return
        info = session.find_info(tree, keyword)
        if info is not None:
            show_info(session, tree, info)
            return
        start = session.find(tree, keyword)
        if depth is None:
            is_small = len(list(itertools.islice(walk(tree, start, 0, SMALL), SMALL + 1))) <= SMALL
            depth = 0 if is_small else 2
        if session.as_json:
            session.answer(list(spell_tree(tree, start, depth, limit, infos)))
            return
        drawn = draw_tree(label_tree(tree, start, depth, limit, infos, ids))
        session.screen.print(drawn, no_wrap=True, overflow="ellipsis")
        if start.id == ROOT_ID and has_unlinked(tree):
            session.screen.print(line((say("some infos are on no keyword: show --unlinked"), "dim")))


def has_unlinked(tree: KeywordTree) -> bool:
    """Tell whether infos that hold are on no keyword, as facts of a memory may be."""
    return any(not successor_of(info) for info in all_infos(tree, unlinked=True))


def show_unlinked(session: Session, tree: KeywordTree, limit: int) -> None:
    """Draw the infos without a keyword."""
    count = tree.TreeMetrics()["unlinked_infos"]
    infos = list(itertools.islice(all_infos(tree, unlinked=True), limit or None))
    drawn = [draw_row(info.id, shorten(info.content), said_by(info)) for info in infos]
    if count > len(infos):
        drawn.append(line((say("… {:,} more", count - len(infos)), "dim")))
    value = {"info_count": count, "infos": [spell_row(info) for info in infos]}
    session.answer(value, *(drawn or [line(say("every info has a keyword"))]))


def show_info(session: Session, tree: KeywordTree, info: Info) -> None:
    """Draw one info in full."""
    linked = spell_links(tree, info.id)
    drawn = [line(info.content, keep_lines=True), *filter(None, [said_by(info)])]
    for place in linked:
        relation = place["relation"].lower()
        drawn.append(line((say("  on "), "dim"), place["path"], ("  " + say(relation), "dim")))
    session.answer({**spell_row(info), "keywords": linked}, *drawn)


def walk(tree: KeywordTree, start: KeywordNode, depth: int, limit: int) -> Iterator[tuple[int, KeywordNode, int]]:
    """Yield (depth, keyword, children that are not among what follows), each before what is under it."""
    waiting = [(0, start)]
    while waiting:
        level, node = waiting.pop()
        is_open = not depth or level < depth
        children = tree.GetChildren(node.id, 0, limit or sys.maxsize) if is_open else []
        yield level, node, len(node.children) - len(children)
        waiting += [(level + 1, child) for child in reversed(children)]


def spell_tree(tree: KeywordTree, start: KeywordNode, depth: int, limit: int, infos: bool) -> Iterator[dict[str, Any]]:
    """Yield the keywords as JSON has them, parents first."""
    for _, node, hidden in walk(tree, start, depth, limit):
        row = {**spell_row(node), "child_count": len(node.children), "children_left_out": hidden}
        if infos:
            row["infos"] = [spell_row(info) for info in tree.GetInfosOfKeyword(node.id, size=limit or sys.maxsize)]
        yield row


def label_tree(
    tree: KeywordTree, start: KeywordNode, depth: int, limit: int, infos: bool, ids: bool
) -> Iterator[tuple[int, Text]]:
    """Yield what `draw_tree` draws: depth and label."""
    for level, node, hidden in walk(tree, start, depth, limit):
        name = (path_of(tree, node.id), "bold") if level == 0 else node.name
        yield level, line(
            name,
            label_aliases(node),
            (f"  {node.id}" if ids else "", "dim"),
            (say("  ({:,} more below)", hidden) if hidden else "", "dim"),
            ("  " + shorten(node.description) if node.description else "", "dim italic"),
        )
        for info in tree.GetInfosOfKeyword(node.id, size=limit or sys.maxsize) if infos else ():
            label = line(("• ", "green"), shorten(info.content)).append_text(said_by(info))
            yield level + 1, label.append(f"  {info.id}" if ids else "", "dim")


def label_aliases(node: KeywordNode) -> tuple[str, str]:
    """Return the aliases as they follow a name."""
    return (f"  = {say(', ').join(node.aliases)}" if node.aliases else "", "dim")
