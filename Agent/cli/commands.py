r"""The commands that write, find, show and correct what a memory holds.

From a program, without a console:

>>> from keyword_tree.cli.command_line import main
>>> main(["add", "茶", "--parent", "/", "--alias", "tea"])
added 茶  (undo 2)
0
>>> main(["search", "TEA"])
茶  = tea  (exact name or alias)
0
>>> main(["search", "harbour", "--names-only"])
nothing found  (no exact match, and no model was called)
  search --in-texts looks through the infos
1
"""

import itertools
import re
import sys
from collections.abc import Iterator
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from ..base.language import count_of, parts, say
from ..base.text import fold_case, split_sentences
from ..keyword_tree import (
    Info,
    InfoKeywordLink,
    InvalidInputError,
    KeywordNode,
    KeywordTree,
    NotFoundError,
    RelationType,
    SearchResult,
    SearchStatus,
)
from ..store.log_follower import all_infos
from .program import command
from .screen import clean, draw_tree, line, shorten, spell_row, table
from .session import (
    FOUND,
    KEYWORD,
    NOT_FOUND,
    ROOT_ID,
    Session,
    UnknownNameError,
    Watcher,
    path_of,
    spell_keyword,
    spell_places,
)

__all__ = ["REASONS"]

REASONS = {
    "exact": "exact name or alias",
    "path": "exact path",
    "normalized": "exact but for punctuation and spaces",
    "confirmed": "confirmed query",
    "ranked": "words and meaning are sure of it",
    "empty_query": "empty query",
    "exact_miss_llm_disabled": "no exact match, and no model was called",
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
"""What the codes in `SearchResult.reason` say."""

LEXICAL_REASONS = {
    "agent_match": "the words fit it best",
    "agent_ambiguous": "the words fit several",
    "agent_missing": "no keyword fits well enough",
}
"""What some of the codes say where words alone decide."""

NEAREST = 5
"""Keywords named where nothing is found."""

RECALLED = 3
"""Infos shown where no keyword is found."""

LEAST_RECALLED = 0.03
"""Score of an info that is shown: what shares hardly a character with the question is no answer to it."""

SENTENCE_SHOWN = 400
"""Characters of a sentence that are shown."""

ONE_LINE = 48
"""Columns of a sentence that is shown beside the path and the source of its info."""

SMALL = 60
"""A tree of at most this many keywords is drawn whole: it fits a screen or two."""


def read_content(content: str) -> str:
    """Return a content, from standard input where it is `-`: unchanged, line ends and all."""
    if content != "-":
        return content
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInputError(say("standard input is not UTF-8: {}", error)) from error


# Writing


@command("add", "Write", asks=True)
@click.argument("name")
@click.option(
    "--parent", type=KEYWORD, help="Its parent; without it the model, or words alone where none is set up, choose."
)
@click.option("--alias", "aliases", multiple=True, help="Another name; may be given several times.")
@click.option("--description", default="", help="What it means.")
def add(session: Session, name: str, parent: str | None, aliases: tuple[str, ...], description: str) -> None:
    r"""Create a keyword.

    Without --parent a NAME with a slash is a path, of which what is missing is created, too.

    \b
    keyword-tree add 编程 --parent / --alias programming
    keyword-tree add Python --parent 编程
    keyword-tree add 编程/Python/asyncio
    """
    above, slash, last = name.rpartition("/") if parent is None else ("", "", name)
    client = None if parent is not None or slash else session.client()
    with session.open(makes=True, client=client) as tree:
        with tree.Operation("create_keyword") as operation:
            parent_id = None if parent is None else session.find(tree, parent, may_add=True).id
            others = tree.FindByName(name)
            if slash and not others:
                name, parent_id = last.strip(), find_or_make(session, tree, above)
                others = [node for node in tree.FindByName(name) if node.parent_id == parent_id]
            if others and parent is None:
                there = path_of(tree, others[0].id)
                raise InvalidInputError(say("{} is there already: --parent creates another one", there))
            node = tree.CreateKeyword(name, parent_id, list(aliases), description)
        value = {"keyword": spell_keyword(tree, node)}
        is_left = parent_id is None and node.parent_id == ROOT_ID and len(tree) > 1
        text = "added {}, at the top: no keyword fits it" if is_left else "added {}"
        session.report(tree, operation.id, value, text, path_of(tree, node.id), note=say_others(tree, others))


def say_others(tree: KeywordTree, others: list[KeywordNode]) -> str:
    """Return where else a name is; "" where it is nowhere else."""
    places = say(", ").join(path_of(tree, node.id) for node in others)
    return say("another one of this name is at {}", places) if others else ""


def find_or_make(session: Session, tree: KeywordTree, path: str) -> str:
    """Return the id of a keyword; where there is none, that of the one at the end of a new path from the root."""
    if not path.strip("/"):
        return ROOT_ID
    try:
        return session.find(tree, path).id
    except UnknownNameError:
        return tree.Ensure(path.strip("/")).id


@command("info", "Write", asks=True)
@click.argument("content", required=False)
@click.option(
    "--to", "names", type=KEYWORD, multiple=True, help="The keyword it belongs to; may be given several times."
)
@click.option("--source", help="Where it is from.")
@click.option(
    "--auto/--no-auto", default=None, help="Let the model, or words alone, choose keywords (the default without --to)."
)
@click.option("--change", metavar="ID", help="Change this info instead; its keywords stay.")
def info(
    session: Session,
    content: str | None,
    names: tuple[str, ...],
    source: str | None,
    auto: bool | None,
    change: str | None,
) -> None:
    r"""Store an info and link it to keywords.

    \b
    keyword-tree info "PEP 703 makes the GIL optional." --to Python --source peps.python.org
    keyword-tree info - --to Python < notes.txt
    """
    if change is not None:
        if names or auto:
            raise click.UsageError(say("--change leaves the keywords as they are: use link"))
        patch = {} if content is None else {"content": read_content(content)}
        patch |= {} if source is None else {"source": source}
        if not patch:
            raise click.UsageError(say("say what to change: a CONTENT or --source"))
        with session.open() as tree:
            with tree.Operation("update_info") as operation:
                stored = tree.UpdateInfo(change, patch)
            session.report(tree, operation.id, {"info": spell_row(stored)}, "changed {}", shorten(stored.content, 60))
        return
    if content is None:
        raise click.UsageError("Missing argument 'CONTENT'.")
    if not content.strip():
        raise InvalidInputError(f"content must not be empty or blank: {content!r}")
    auto = not names if auto is None else auto
    # A keyword that is named is there already, and so is its memory.
    with session.open(makes=not names, client=session.client() if auto else None) as tree:
        ids = [session.find(tree, name, may_add=True).id for name in names]
        with tree.Operation("create_info") as operation:
            stored = tree.CreateInfo(read_content(content), source or "", ids, auto)
        links = [node for node, _ in tree.GetKeywordsOfInfo(stored.id)]
        on = say(", ").join(path_of(tree, node.id) for node in links)
        value = {"info": spell_row(stored), "keywords": spell_places(tree, links)}
        if links:
            session.report(tree, operation.id, value, "stored {} on {}", stored.id, on)
        else:
            said = "stored {0} on no keyword: keyword-tree link {0} KEYWORD"
            session.report(tree, operation.id, value, said, stored.id)


@command("remember", "Write")
@click.argument("content")
@click.option(
    "--keyword", "names", multiple=True, help="A keyword or path that it belongs to; what is missing is made."
)
@click.option("--source", default="", help="Where it is from.")
def remember(session: Session, content: str, names: tuple[str, ...], source: str) -> None:
    r"""Store a fact, and the keywords that it names, as an agent's memory does.

    \b
    keyword-tree remember "Ada lives in Rome." --keyword people/Ada --source "chat, 3 May"
    keyword-tree recall "where does Ada live?"
    """
    text = read_content(content)
    if not text.strip():
        raise InvalidInputError(f"content must not be empty or blank: {content!r}")
    with session.open(makes=True) as tree:
        with tree.Operation("remember") as operation:
            ids = [find_or_make(session, tree, name) for name in names]
            stored = tree.CreateInfo(text, source, ids)
        value = {"info": spell_row(stored), "keywords": spell_places(tree, [tree.GetPath(id)[-1] for id in ids])}
        session.report(tree, operation.id, value, "remembered {}", shorten(stored.content, 60))


@command("link", "Write")
@click.argument("info_id", metavar="INFO")
@click.argument("keyword", type=KEYWORD)
@click.option(
    "--relation",
    type=click.Choice([relation.value.lower() for relation in RelationType], case_sensitive=False),
    default="primary",
    show_default=True,
    help="How it belongs.",
)
@click.option("--remove", is_flag=True, help="Unlink the info from the keyword instead.")
def link(session: Session, info_id: str, keyword: str, relation: str, remove: bool) -> None:
    """Link an info to another keyword."""
    with session.open() as tree:
        node = session.find(tree, keyword)
        if tree.GetInfo(info_id) is None:
            raise NotFoundError("info", info_id)
        with tree.Operation("unlink_info" if remove else "link_info") as operation:
            if remove:
                tree.UnlinkInfo(info_id, node.id)
            else:
                tree.LinkInfo(info_id, node.id, RelationType(relation.upper()))
        links = [
            {"relation": relation.value, **place}
            for of, relation in tree.GetKeywordsOfInfo(info_id)
            for place in spell_places(tree, [of])
        ]
        said = "unlinked from {}" if remove else "linked to {}"
        session.report(tree, operation.id, {"info_id": info_id, "keywords": links}, said, path_of(tree, node.id))


# Looking


@command("search", "Look", asks=True)
@click.argument("query", nargs=-1, required=True)
@click.option("--context", default="", help="What it is about: chooses among keywords of the same name.")
@click.option("--names-only", is_flag=True, help="Ask no model: names, aliases and paths alone.")
@click.option("--explain", is_flag=True, help="Show each round with the model: what it saw, chose and said.")
@click.option("--in-texts", is_flag=True, help="Look for these words in the texts of infos instead.")
@click.option(
    "--limit", type=click.IntRange(0), default=12, show_default=True, help="Infos and names shown; 0 for all."
)
def search(
    session: Session, query: tuple[str, ...], context: str, names_only: bool, explain: bool, in_texts: bool, limit: int
) -> int:
    """Find the keyword that a name, a path or a question means.

    Exit code 1 where nothing is found.
    """
    if in_texts:
        if names_only or explain or context:
            raise click.UsageError(say("--in-texts calls no model: only --limit goes with it"))
        with session.open() as tree:
            return search_texts(session, tree, " ".join(query), limit)
    watcher = Watcher(session.client())
    with session.open(client=watcher) as tree:
        result = tree.Search(" ".join(query), not names_only, context)
        is_found = result.status is not SearchStatus.NOT_FOUND
        near = spell_ranked(tree, result.nearest or ([] if is_found else tree.RankCandidates(" ".join(query), NEAREST)))
        texts = [] if is_found or names_only else recall(session, tree, " ".join(query), RECALLED)
        if session.as_json:
            value = spell_result(tree, result, watcher if explain else None)
            session.answer({**value, "nearest": near, "texts": texts})
        else:
            if explain:
                show_rounds(session, result, watcher, limit)
            if texts:
                session.screen.print(line(say("no keyword fits, but these texts do")), draw_recalled(texts))
            else:
                show_result(session, tree, result, limit, near)
    return FOUND if is_found or texts else NOT_FOUND


@command("ask", "Look", meaning=True)
@click.argument("question", nargs=-1, required=True)
@click.option("--limit", type=click.IntRange(1), default=5, show_default=True, help="Sentences shown.")
def ask(session: Session, question: tuple[str, ...], limit: int) -> int:
    r"""Find the sentence of an info that answers a question, and its keyword.

    It asks no model: any of the words may fit, and the names of the keywords count, too. Exit code 1 where none fits.

    \b
    keyword-tree ask "who is allergic to peanuts?"
    """
    return answer(session, " ".join(question), limit)


@command("recall", "Look", meaning=True)
@click.argument("question", nargs=-1, required=True)
@click.option("--limit", type=click.IntRange(1), default=5, show_default=True, help="Sentences shown.")
def recall_facts(session: Session, question: tuple[str, ...], limit: int) -> int:
    """Find what was remembered and answers a question: `ask` by another name."""
    return answer(session, " ".join(question), limit)


def answer(session: Session, question: str, limit: int) -> int:
    """Answer a question with the sentences of infos that fit it best."""
    with session.open() as tree:
        texts = recall(session, tree, question, limit)
        session.answer({"texts": texts}, draw_recalled(texts) if texts else line(say("nothing found")))
    return FOUND if texts else NOT_FOUND


def recall(session: Session, tree: KeywordTree, query: str, limit: int) -> list[dict[str, Any]]:
    """Return the infos that fit best, as JSON has them, each with the sentence that fits and its score from 0 to 1."""
    from ..memory.retriever import MemoryRetriever  # few commands need it, and a prompt waits for what is imported

    index = session.folder / "indexes" / "memories.db"  # the one that a `MemoryStore` of this folder keeps
    retriever = MemoryRetriever(tree, index_path=index, meaning=session.meaning)
    found = retriever.retrieve(query, limit)
    retriever.index.close()
    return [
        {
            **spell_row(one.info),
            "path": one.path,
            "sentence": sentence_of(one.passage, query),
            "score": round(one.score, 3),
        }
        for one in found
        if one.score >= LEAST_RECALLED
    ]


def sentence_of(passage: str, query: str) -> str:
    """Return the sentence of a passage that has most in common with a query: in words, or in pairs of characters."""
    wanted = pairs_of(query)
    return max(split_sentences(passage), key=lambda one: len(pairs_of(one) & wanted), default=passage.strip())


def pairs_of(text: str) -> set[str]:
    """Return the pairs of neighbouring letters: words share them whatever their ending, and Chinese has no spaces."""
    words = re.findall(r"\w+", fold_case(text))
    return {word[place : place + 2] for word in words for place in range(max(1, len(word) - 1))}


def draw_recalled(texts: list[dict[str, Any]]) -> RenderableType:
    """Return the sentences, each with score, keyword and source; long ones in full on lines of their own."""
    rows = [
        (
            line((f"{text['score']:.2f}", "dim")),
            line((" / ".join(text["path"]) or say("no keyword"), "cyan")),
            line(shorten(text["sentence"], SENTENCE_SHOWN)),
            line((text["source"], "dim")),
        )
        for text in texts
    ]
    if all(sentence.cell_len <= ONE_LINE for _, _, sentence, _ in rows):
        return table(rows)
    drawn: list[RenderableType] = []
    for score, where, sentence, source in rows:
        drawn.append(score.append("  ").append_text(where).append("  ").append_text(source))
        drawn.append(Padding(Text(sentence.plain), (0, 0, 0, 2)))
    return Group(*drawn)


def search_texts(session: Session, tree: KeywordTree, query: str, limit: int) -> int:
    """Answer with the infos that hold every word, and their keywords."""
    words = fold_case(query).split()
    found: list[Info] = []
    count = 0
    for info in all_infos(tree):
        text = fold_case(f"{info.content}\n{info.source}")
        if all(word in text for word in words):
            count += 1
            if not limit or len(found) < limit:
                found.append(info)
    rows = [{**spell_row(info), "keywords": spell_places(tree, keywords_of(tree, info))} for info in found]
    drawn: list[RenderableType] = [line(say("nothing found"))]
    if found:
        cells = [
            (Text(clean(info.id), "dim"), Text(clean(spell_paths(tree, info)), "cyan"), excerpt(info.content, words))
            for info in found
        ]
        drawn = [line(say("{} with these words", count_of(count, "info"))), table(cells)]
    session.answer({"info_count": count, "infos": rows}, *drawn)
    return FOUND if found else NOT_FOUND


def keywords_of(tree: KeywordTree, info: Info) -> list[KeywordNode]:
    """Return the keywords of an info."""
    return [node for node, _ in tree.GetKeywordsOfInfo(info.id)]


def spell_paths(tree: KeywordTree, info: Info) -> str:
    """Return the paths of an info's keywords."""
    paths = say(", ").join(path_of(tree, node.id) for node in keywords_of(tree, info))
    return superseded_by(info) or paths or say("no keyword")


def excerpt(text: str, words: list[str]) -> str:
    """Return the line of a text that holds the first of some words, from shortly before it on."""
    for one in text.splitlines():
        if (place := fold_case(one).find(words[0])) >= 0:
            start = place - 30 if place > 60 else 0
            return ("… " if start else "") + shorten(one[start:])
    return shorten(text)


def spell_result(tree: KeywordTree, result: SearchResult, watcher: Watcher | None) -> dict[str, Any]:
    """Return a result as JSON has it, with the views where they are wanted."""
    value: dict[str, Any] = {
        **spell_row(result),
        "node": result.node and spell_keyword(tree, result.node),
        "path": [node.name for node in result.path[1:]],
        "infos": [spell_row(info) for info in result.infos],
        "candidates": spell_places(tree, result.candidates),
        "rounds": result.rounds,
        "steps": [vars(step) for step in result.steps],
    }
    if watcher is not None:
        value["views"] = watcher.rounds
    return value


def spell_ranked(tree: KeywordTree, ranked: list[tuple[KeywordNode, float]]) -> list[dict[str, Any]]:
    """Return ids, names and paths of ranked keywords, each with its confidence from 0 to 1."""
    places = spell_places(tree, [node for node, _ in ranked])
    return [{**place, "confidence": confidence} for place, (_, confidence) in zip(places, ranked, strict=True)]


def show_result(
    session: Session, tree: KeywordTree, result: SearchResult, limit: int, near: list[dict[str, Any]]
) -> None:
    """Draw what was found; where nothing was, what is near."""
    print_line = session.screen.print
    own = LEXICAL_REASONS if session.is_lexical else {}
    why = say(own.get(result.reason) or REASONS.get(result.reason, result.reason))
    if result.node is not None:
        aliases = f"  = {say(', ').join(result.node.aliases)}" if result.node.aliases else ""
        print_line(line((path_of(tree, result.node.id), "bold"), aliases, (say("  ({})", why), "dim")))
        if result.node.description:
            print_line(line(("  " + shorten(result.node.description), "dim")))
        infos = result.infos[: limit or None]
        if result.excerpt and all(shorten(info.content) != result.excerpt for info in infos):
            print_line(line(("  " + clean(result.excerpt), "cyan")))
        if infos:
            print_line(table([(line(("  " + info.id, "dim")), shorten(info.content), said_by(info)) for info in infos]))
        if result.info_count > min(len(result.infos), limit or result.info_count):
            print_line(
                line(
                    (
                        "  "
                        + say("{} in all: {}", count_of(result.info_count, "info"), f"show --infos {result.node.id}"),
                        "dim",
                    )
                )
            )
    elif result.candidates:
        print_line(line(say("{} fit", count_of(result.candidate_count, "keyword")), (say("  ({})", why), "dim")))
        places = spell_places(tree, result.candidates[: limit or None])
        print_line(table([(Text(clean(place["id"]), "dim"), place["path"]) for place in places]))
    else:
        print_line(line(say("nothing found"), (say("  ({})", why), "dim")))
        if near:
            nearest = [f"{shorten(place['path'], 60)} {place['confidence']:.2f}" for place in near]
            print_line(line((say("  nearest: "), "dim"), say(", ").join(nearest)))
        print_line(line((say("  search --in-texts looks through the infos"), "dim")))
        if result.suggested_name and not session.is_lexical:
            parent = path_of(tree, result.suggested_parent_id or ROOT_ID)
            print_line(line("  ", *parts("it could be called {}, under {}", result.suggested_name, parent)))


@command("rank", "Look")
@click.argument("query", nargs=-1, required=True)
@click.option("--limit", type=click.IntRange(1), default=10, show_default=True, help="Keywords shown.")
def rank(session: Session, query: tuple[str, ...], limit: int) -> int:
    """List the keywords that fit a text best by words alone, each with a confidence.

    It goes from 0 to 1; where the first is below 0.3, nothing fits well. Exit code 1 where no word fits at all.
    """
    with session.open() as tree:
        rows = spell_ranked(tree, tree.RankCandidates(" ".join(query), limit))
        cells = [(f"{row['confidence']:.2f}", line((row["id"], "dim")), row["path"]) for row in rows]
        drawn = (
            table(cells, (say("confidence"), "id", say("keyword")), numbers=(0,))
            if rows
            else line(say("nothing found"))
        )
        session.answer({"candidates": rows}, drawn)
    return FOUND if rows else NOT_FOUND


def said_by(info: Info) -> Text:
    """Return an info's source, and what a memory was superseded by."""
    return line(
        (info.source, "cyan"), "  " if info.source and superseded_by(info) else "", (superseded_by(info), "red")
    )


def superseded_by(info: Info) -> str:
    """Return that another memory took the place of an info; nothing where it holds."""
    from ..memory.memory_fields import memory_fields  # the package takes as long to import as the command needs

    newer = memory_fields(info).get("superseded_by")
    return say("superseded by {}", newer) if isinstance(newer, str) else ""


def show_rounds(session: Session, result: SearchResult, watcher: Watcher, limit: int) -> None:
    """Draw each round: the view with what was chosen, the action and its reason."""
    screen = session.screen
    for number, (shown, step) in enumerate(zip(watcher.rounds, result.steps, strict=False), 1):
        above = " / ".join(shown["path"]) or say("the top")
        screen.print(line((say("Round {}", number), "bold"), say("  under {}, {} names shown", above, step.shown)))
        reply = shown["reply"] if isinstance(shown["reply"], dict) else {}
        named = [reply.get("node_id"), reply.get("node_ids"), reply.get("candidate_ids")]
        chosen = [idx for some in named for idx in (some if isinstance(some, list) else [some])]
        rows = [
            (
                Text("→" if is_chosen else "", "green"),
                str(entry["idx"]),
                entry["name"],
                Text(clean(entry["path"]), "dim"),
            )
            for place, entry in enumerate(shown["candidates"])
            if (is_chosen := entry["idx"] in chosen) or not limit or place < limit
        ]
        screen.print(table(rows, numbers=(1,)))
        if len(rows) < step.shown:
            screen.print(line(("   " + say("… {:,} more", step.shown - len(rows)), "dim")))
        tokens = say("  {:,} + {:,} tokens", step.input_tokens, step.output_tokens) if step.input_tokens else ""
        screen.print(line(("   " + say(step.action), "cyan"), f"{say(': ')}{step.reason}", (tokens, "dim")))
    if not result.steps:
        screen.print(line((say("No model was asked."), "dim")))


@command("show", "Look")
@click.argument("keyword", type=KEYWORD, default="/")
@click.option(
    "--depth", type=click.IntRange(0), help="Levels drawn; 0 for all.  [default: all of a small tree, else 2]"
)
@click.option(
    "--limit",
    type=click.IntRange(0),
    default=20,
    show_default=True,
    help="Children of a keyword, and infos; 0 for all.",
)
@click.option("--infos", is_flag=True, help="Show the infos of the keywords, too.")
@click.option("--ids", is_flag=True, help="Show ids.")
@click.option("--unlinked", is_flag=True, help="List the infos without a keyword instead.")
def show(session: Session, keyword: str, depth: int | None, limit: int, infos: bool, ids: bool, unlinked: bool) -> None:
    """Show the tree, or one info in full."""
    with session.open() as tree:
        if unlinked:
            show_unlinked(session, tree, limit)
            return
        info = session.find_info(tree, keyword)
        if info is not None:
            show_info(session, tree, info)
            return
        start = session.find(tree, keyword)
        if depth is None:
            depth = 0 if is_small(tree, start) else 2
        if session.as_json:
            session.answer(list(spell_tree(tree, start, depth, limit, infos)))
            return
        session.screen.print(
            draw_tree(label_tree(tree, start, depth, limit, infos, ids)), no_wrap=True, overflow="ellipsis"
        )


def show_unlinked(session: Session, tree: KeywordTree, limit: int) -> None:
    """Draw the infos without a keyword."""
    count = tree.TreeMetrics()["unlinked_infos"]
    infos = list(itertools.islice(all_infos(tree, unlinked=True), limit or None))
    rows = [(Text(clean(info.id), "dim"), shorten(info.content), said_by(info)) for info in infos]
    rest = [line((say("… {:,} more", count - len(infos)), "dim"))] if count > len(infos) else []
    drawn = [table(rows), *rest] if rows else [line(say("every info has a keyword"))]
    session.answer({"info_count": count, "infos": [spell_row(info) for info in infos]}, *drawn)


def show_info(session: Session, tree: KeywordTree, info: Info) -> None:
    """Draw one info in full."""
    links = tree.GetKeywordsOfInfo(info.id)
    value = {
        **spell_row(info),
        "keywords": [{**spell_places(tree, [node])[0], "relation": how.value} for node, how in links],
    }
    drawn = [
        line((say("  on "), "dim"), path_of(tree, node.id), (f"  {how.value.lower()}", "dim")) for node, how in links
    ]
    source = [line((say("from "), "dim"), (info.source, "cyan"))] if info.source else []
    newer = [line((superseded_by(info), "red"))] if superseded_by(info) else []
    session.answer(value, line(info.content, keep_lines=True), *newer, *source, *drawn)


def walk(tree: KeywordTree, start: KeywordNode, depth: int, limit: int) -> Iterator[tuple[int, KeywordNode, int]]:
    """Yield (depth, keyword, children that are not among what follows), each before what is under it."""
    waiting = [(0, start)]
    while waiting:
        level, node = waiting.pop()
        is_open = not depth or level < depth
        children = tree.GetChildren(node.id, 0, limit) if limit else tree.GetChildren(node.id)
        yield level, node, len(node.children) - (len(children) if is_open else 0)
        if is_open:
            waiting += [(level + 1, child) for child in reversed(children)]


def is_small(tree: KeywordTree, start: KeywordNode) -> bool:
    """Tell whether a keyword and all under it can be drawn whole."""
    return len(list(itertools.islice(walk(tree, start, 0, SMALL), SMALL + 1))) <= SMALL


def spell_tree(tree: KeywordTree, start: KeywordNode, depth: int, limit: int, infos: bool) -> Iterator[dict[str, Any]]:
    """Yield the keywords as JSON has them, parents first."""
    for _, node, hidden in walk(tree, start, depth, limit):
        row = {**spell_row(node), "child_count": len(node.children), "children_left_out": hidden}
        if infos:
            row["infos"] = [spell_row(info) for info in some_infos(tree, node, limit)]
        yield row


def some_infos(tree: KeywordTree, node: KeywordNode, limit: int) -> list[Info]:
    """Return the first infos of a keyword, all where the limit is 0."""
    return tree.GetInfosOfKeyword(node.id, size=limit or sys.maxsize)


def label_tree(
    tree: KeywordTree, start: KeywordNode, depth: int, limit: int, infos: bool, ids: bool
) -> Iterator[tuple[int, Text]]:
    """Yield what `draw_tree` draws: depth and label, and for children that are left out how many these are."""
    more: list[tuple[int, int]] = []  # what follows the last child of a keyword: its depth, and the number
    for level, node, hidden in walk(tree, start, depth, limit):
        while more and more[-1][0] > level:
            yield label_rest(*more.pop())
        is_open = not depth or level < depth
        aliases = (f"  = {say(', ').join(node.aliases)}", "dim") if node.aliases else ""
        below = (say("  ({:,} below)", hidden), "dim") if hidden and not is_open else ""
        description = ("  " + shorten(node.description), "dim italic") if node.description else ""
        name = path_of(tree, node.id) if level == 0 else node.name
        yield (
            level,
            line(
                (name, "bold" if level < 1 else ""), aliases, (f"  {node.id}" if ids else "", "dim"), below, description
            ),
        )
        for info in some_infos(tree, node, limit) if infos else ():
            source = ("  " + info.source, "cyan") if info.source else ""
            yield (
                level + 1,
                line(("• ", "green"), shorten(info.content), source, (f"  {info.id}" if ids else "", "dim")),
            )
        if hidden and is_open:
            more.append((level + 1, hidden))
    while more:
        yield label_rest(*more.pop())


def label_rest(level: int, count: int) -> tuple[int, Text]:
    """Return the line for children that are left out."""
    return level, line((say("… {:,} more", count), "dim"))


# Correcting


@command("rename", "Correct")
@click.argument("keyword", type=KEYWORD)
@click.argument("name", required=False)
@click.option("--description", help="What it means; empty to say nothing.")
def rename(session: Session, keyword: str, name: str | None, description: str | None) -> None:
    """Change a keyword's name or description."""
    patch = {key: value for key, value in (("name", name), ("description", description)) if value is not None}
    if not patch:
        raise click.UsageError(say("say what to change: a NAME or --description"))
    with session.open() as tree:
        node = session.find(tree, keyword)
        with tree.Operation("update_keyword") as operation:
            renamed = tree.UpdateKeyword(node.id, patch, node.version)
        said = ("renamed {} to {}", node.name, renamed.name) if name is not None else ("described {}", node.name)
        others = [one for one in tree.FindByName(renamed.name) if one.id != node.id] if name is not None else []
        value, note = {"keyword": spell_keyword(tree, renamed)}, say_others(tree, others)
        session.report(tree, operation.id, value, *said, note=note)


@command("alias", "Correct")
@click.argument("keyword", type=KEYWORD)
@click.argument("aliases", metavar="ALIAS...", nargs=-1, required=True)
@click.option("--remove", is_flag=True, help="Remove these aliases instead.")
def alias(session: Session, keyword: str, aliases: tuple[str, ...], remove: bool) -> None:
    """Add aliases to a keyword."""
    with session.open() as tree:
        node = session.find(tree, keyword)
        with tree.Operation("remove_alias" if remove else "add_alias") as operation:
            for one in aliases:
                node = (tree.RemoveAlias if remove else tree.AddAlias)(node.id, one)
        said = (
            ("{} has the aliases {}", node.name, say(", ").join(node.aliases))
            if node.aliases
            else ("{} has no alias", node.name)
        )
        session.report(tree, operation.id, {"keyword": spell_keyword(tree, node)}, *said)


@command("confirm", "Correct")
@click.argument("query")
@click.argument("keyword", type=KEYWORD)
def confirm(session: Session, query: str, keyword: str) -> None:
    r"""Store that a query means a keyword.

    The same QUERY is answered at once from then on, and similar ones rank better.

    \b
    keyword-tree confirm "the green stuff from Hangzhou" 饮食/龙井茶
    """
    with session.open() as tree:
        node = session.find(tree, keyword)
        with tree.Operation("confirm") as operation:
            node = tree.Confirm(query, node.id)
        session.report(
            tree, operation.id, {"keyword": spell_keyword(tree, node)}, "{} means {}", query, path_of(tree, node.id)
        )


@command("move", "Correct")
@click.argument("keyword", type=KEYWORD)
@click.argument("parent", type=KEYWORD)
def move(session: Session, keyword: str, parent: str) -> None:
    """Move a keyword, with all under it, to another parent."""
    with session.open() as tree:
        node, above = session.find(tree, keyword), session.find(tree, parent)
        with tree.Operation("move_keyword") as operation:
            moved = tree.MoveKeyword(node.id, above.id)
        value = {"keyword": spell_keyword(tree, moved)}
        session.report(tree, operation.id, value, "moved {} to {}", node.name, path_of(tree, above.id))


@command("merge", "Correct")
@click.argument("source", type=KEYWORD)
@click.argument("target", type=KEYWORD)
def merge(session: Session, source: str, target: str) -> None:
    """Merge two keywords.

    All that SOURCE has goes to TARGET; the names and the id of SOURCE lead to it.
    """
    with session.open() as tree:
        one, other = session.find(tree, source), session.find(tree, target)
        said = ("merged {} into {}", path_of(tree, one.id), path_of(tree, other.id))
        with tree.Operation("merge_keywords") as operation:
            merged = tree.MergeKeywords(one.id, other.id)
        session.report(tree, operation.id, {"keyword": spell_keyword(tree, merged)}, *said)


@command("delete", "Correct")
@click.argument("keyword", type=KEYWORD)
@click.option("--cascade", is_flag=True, help="Delete all under it, too; else its children move up.")
@click.option(
    "--infos",
    type=click.Choice(["reattach", "detach", "delete"]),
    default="reattach",
    show_default=True,
    help="Its infos: move them to the parent, unlink them, or delete those that no other keyword has.",
)
def delete(session: Session, keyword: str, cascade: bool, infos: str) -> None:
    """Delete a keyword or an info."""
    note = ""
    with session.open() as tree:
        info = session.find_info(tree, keyword, is_changed=True)
        if info is not None:
            with tree.Operation("delete_info") as operation:
                tree.DeleteInfo(info.id)
            value, said, count = {"info": spell_row(info)}, shorten(info.content, 60), 0
        else:
            node = session.find(tree, keyword)
            if node.id == ROOT_ID:
                raise InvalidInputError(say("the root cannot be deleted: delete what is under it"))
            value, said = {"keyword": spell_keyword(tree, node)}, path_of(tree, node.id)
            count = len(node.children)
            with tree.Operation("delete_keyword") as operation:
                tree.DeleteKeyword(node.id, cascade, infos)
            note = say_of_infos(tree, operation.id)
        text = "deleted {}"
        if count:
            text = "deleted {}, with all under it" if cascade else "deleted {}; {} under it moved up"
        session.report(tree, operation.id, {"deleted": value}, text, said, f"{count:,}", note=note)


def say_of_infos(tree: KeywordTree, operation_id: str) -> str:
    """Return what deleting keywords did to their infos; "" where they had none."""
    change = next(change for change in tree.History(limit=20) if change.operation_id == operation_id)
    links = [record for record in change.after if isinstance(record, InfoKeywordLink)]
    gone = {record.id for record in change.after if isinstance(record, Info) and record.deleted}
    moved = {link.info_id for link in links if not link.deleted} - gone
    left = {link.info_id for link in links} - moved - gone
    counts = {"{} moved to the parent": moved, "{} deleted": gone, "{} unlinked": left}
    return say("; ").join(say(text, count_of(len(ids), "info")) for text, ids in counts.items() if ids)
