"""The commands that write to a memory, and correct what it holds."""

import sys
from collections.abc import Callable

import click

from ..base.language import say
from ..formats.records import ROOT_ID
from ..keyword_tree import Info, InvalidInputError, KeywordNode, KeywordTree, NotFoundError, RelationType
from .program import command
from .screen import line, shorten, spell_row
from .session import NEAR, Session, UnknownNameError, path_of, spell_keyword, spell_links, spell_places, unclear


def read_content(content: str) -> str:
    """Return a content, from standard input where it is `-`: unchanged, line ends and all."""
    if content == "-":
        try:
            content = sys.stdin.buffer.read().decode("utf-8")
        except UnicodeDecodeError as error:
            raise InvalidInputError(say("standard input is not UTF-8: {}", error)) from error
    if not content.strip():
        raise InvalidInputError(f"content must not be empty or blank: {content!r}")
    return content


@command("add", "Write", asks=True)
@click.argument("name")
@click.option("--parent", help="Its parent; without it a model chooses, or words where none is configured.")
@click.option("--alias", "aliases", multiple=True, help="Another name; may be given several times.")
@click.option("--description", default="", help="Its description.")
@click.option("--yes", is_flag=True, help="Take the best place without asking.")
def add(session: Session, name: str, parent: str | None, aliases: tuple[str, ...], description: str, yes: bool) -> None:
    r"""Create a keyword.

    Without --parent a NAME with a slash is a path; its missing levels are created, too. For any other NAME a model
    chooses the place; where none is set up, three are offered on a terminal, and elsewhere words alone choose.

    \b
    keyword-tree add 编程 --parent / --alias programming
    keyword-tree add Python --parent 编程
    keyword-tree add 编程/Python/asyncio
    """
    above, slash, last = name.rpartition("/") if parent is None else ("", "", name)
    client = None if parent is not None or slash else session.client()
    offered = choose_place(session, name, description, yes) if session.is_lexical else None
    with session.changing("create_keyword", makes=True, client=client) as (tree, report):
        parent_id = offered if parent is None else session.find(tree, parent, may_add=True).id
        others = tree.FindByName(name)
        if slash and not others:
            name, parent_id = last.strip(), find_or_make(session, tree, above)
            others = [node for node in tree.FindByName(name) if node.parent_id == parent_id]
        siblings = [node for node in others if node.parent_id == parent_id]
        if siblings or (others and parent is None):
            there = path_of(tree, (siblings or others)[0].id)
            hint = "{} is there already" if siblings else "{} is there already: --parent creates another one"
            raise InvalidInputError(say(hint, there))
        node = tree.CreateKeyword(name, parent_id, list(aliases), description)
        is_left = parent_id is None and node.parent_id == ROOT_ID and len(tree) > 1
        text = "added {}, at the top: no keyword fits it" if is_left else "added {}"
        report({"keyword": spell_keyword(tree, node)}, text, path_of(tree, node.id), note=say_others(tree, others))


def choose_place(session: Session, name: str, description: str, yes: bool) -> str | None:
    """Return the id of the place that a person chooses of three, or of the best; None without a terminal."""
    asks = sys.stdin.isatty() and not session.as_json
    if not (yes or asks):
        return None
    with session.open(makes=True) as tree:
        found = [] if tree.FindByName(name) else tree.SuggestParents(name, description)
        places = [(node.id, f"{path_of(tree, node.id)}  {confidence:.2f}") for node, confidence in found]
    if not places:
        return None
    if yes:
        return places[0][0]
    places.append((ROOT_ID, "/"))
    for number, (_, shown) in enumerate(places, 1):
        session.messages.print(line((f"{number}  ", "bold"), shown))
    best = 1 if found[0][1] >= NEAR else len(places)
    number = click.prompt(say("where does it belong?"), type=click.IntRange(1, len(places)), default=best, err=True)
    return places[number - 1][0]


def say_others(tree: KeywordTree, others: list[KeywordNode]) -> str:
    """Return where else a name is; "" where it is nowhere else."""
    places = say(", ").join(path_of(tree, node.id) for node in others)
    return say("another one of this name is at {}", places) if others else ""


def find_or_make(session: Session, tree: KeywordTree, path: str) -> str:
    """Return the id of a keyword; where there is none, that of the one at the end of a new path from the root."""
    from ..memory.writing import ensure_keyword

    try:
        return session.find(tree, path or "/").id
    except UnknownNameError:
        return ensure_keyword(tree, path.strip("/"), "user")


@command("info", "Write", asks=True)
@click.argument("content")
@click.option("--to", "names", multiple=True, help="The keyword it belongs to; may be given several times.")
@click.option("--source", default="", help="Its source.")
def info(session: Session, content: str, names: tuple[str, ...], source: str) -> None:
    r"""Store an info and link it to keywords; without --to the model, or words alone, choose them.

    \b
    keyword-tree info "PEP 703 makes the GIL optional." --to Python --source peps.python.org
    keyword-tree info - --to Python < notes.txt
    """
    text = read_content(content)
    # A keyword that is named is there already, and so is its memory.
    client = None if names else session.client()
    with session.changing("create_info", makes=not names, client=client) as (tree, report):
        ids = [session.find(tree, name, may_add=True).id for name in names]
        stored = tree.CreateInfo(text, source, ids, not names)
        places = spell_places(tree, [node for node, _ in tree.GetKeywordsOfInfo(stored.id)])
        said = "stored {} on {}" if places else "stored {0} on no keyword: keyword-tree link {0} KEYWORD"
        on = say(", ").join(place["path"] for place in places)
        report({"info": spell_row(stored), "keywords": places}, said, stored.id, on)


@command("remember", "Write")
@click.argument("content")
@click.option("--keyword", "names", multiple=True, help="A keyword or path for it; missing ones are created.")
@click.option("--source", default="", help="Its source.")
def remember(session: Session, content: str, names: tuple[str, ...], source: str) -> None:
    r"""Store a fact as an agent's memory does, and make the keywords of --keyword that are missing.

    \b
    keyword-tree remember "Ada lives in Rome." --keyword people/Ada --source "chat, 3 May"
    keyword-tree recall "where does Ada live?"
    """
    from ..memory.store import MemoryStore  # imported here: it takes longer than most commands

    text = read_content(content)
    with session.open(makes=True) as tree, MemoryStore(tree) as memory:
        with tree.Operation("remember") as operation:
            ids = [id for name in names if (id := find_or_make(session, tree, name)) != ROOT_ID]
            id = memory.remember(text, ids, source, created_by="user")
        value = {"info": spell_row(tree.GetInfo(id)), "keywords": spell_links(tree, id)}
        session.report(tree, operation.id, value, "remembered {}", shorten(text, 60), note=say(id.note))


@command("link", "Write")
@click.argument("info_id", metavar="INFO")
@click.argument("keyword")
@click.option(
    "--relation",
    type=click.Choice([relation.value.lower() for relation in RelationType], case_sensitive=False),
    default="primary",
    show_default=True,
    help="The kind of link.",
)
@click.option("--remove", is_flag=True, help="Unlink the info from the keyword instead.")
def link(session: Session, info_id: str, keyword: str, relation: str, remove: bool) -> None:
    """Link an info to another keyword."""
    with session.changing("unlink_info" if remove else "link_info") as (tree, report):
        node = session.find(tree, keyword)
        if tree.GetInfo(info_id) is None:
            raise NotFoundError("info", info_id)
        if remove:
            tree.UnlinkInfo(info_id, node.id)
        else:
            tree.LinkInfo(info_id, node.id, RelationType(relation.upper()))
        value = {"info_id": info_id, "keywords": spell_links(tree, info_id)}
        report(value, "unlinked from {}" if remove else "linked to {}", path_of(tree, node.id))


# Correcting


@command("correct", "Correct")
@click.argument("id", metavar="INFO")
@click.argument("content")
@click.option("--source", default="", help="Its source.")
def correct(session: Session, id: str, content: str, source: str) -> None:
    r"""Put a new fact in the place of an old one, whose words find it, too, and which stays in the history.

    \b
    keyword-tree recall "where does Ada live?" --ids
    keyword-tree correct ID "Ada moved to Oslo." --source "chat, 9 May"
    """
    from ..memory.store import MemoryStore

    text = read_content(content)
    with session.changing("correct") as (tree, report), MemoryStore(tree) as memory:
        new = memory.correct(id, text, source, "user")
        value = {"info": spell_row(tree.GetInfo(new)), "keywords": spell_links(tree, new)}
        report(value, "corrected: {}", shorten(text, 60), note=say("its id is {}", new))


@command("forget", "Correct")
@click.argument("info_id", metavar="INFO")
def forget(session: Session, info_id: str) -> None:
    """Delete a fact, with its former versions."""
    with session.changing("forget") as (tree, report):
        info = tree.GetInfo(info_id)
        if info is None:
            raise NotFoundError("info", info_id)
        forget_info(tree, info, report)


def forget_info(tree: KeywordTree, info: Info, report: Callable[..., None]) -> None:
    """Delete an info with all that it was corrected to, and its former versions, and say so."""
    from ..memory.store import MemoryStore  # imported here, as in `remember`

    with MemoryStore(tree) as memory:
        memory.forget(info.id)
    report({"deleted": {"info": spell_row(info)}}, "deleted {}", shorten(info.content, 60))


@command("rename", "Correct")
@click.argument("keyword")
@click.argument("name", required=False)
@click.option("--description", help="Its description; empty to remove it.")
def rename(session: Session, keyword: str, name: str | None, description: str | None) -> None:
    """Change a keyword's name or description."""
    patch = {key: value for key, value in (("name", name), ("description", description)) if value is not None}
    if not patch:
        raise click.UsageError(say("say what to change: a NAME or --description"))
    with session.changing("update_keyword") as (tree, report):
        node = session.find(tree, keyword)
        renamed = tree.UpdateKeyword(node.id, patch, node.version)
        said = ("renamed {} to {}", node.name, renamed.name) if name is not None else ("described {}", node.name)
        others = [one for one in tree.FindByName(renamed.name) if one.id != node.id] if name is not None else []
        report({"keyword": spell_keyword(tree, renamed)}, *said, note=say_others(tree, others))


@command("alias", "Correct")
@click.argument("keyword")
@click.argument("aliases", metavar="ALIAS...", nargs=-1, required=True)
@click.option("--remove", is_flag=True, help="Remove these aliases instead.")
def alias(session: Session, keyword: str, aliases: tuple[str, ...], remove: bool) -> None:
    """Add aliases to a keyword."""
    with session.changing("remove_alias" if remove else "add_alias") as (tree, report):
        node = session.find(tree, keyword)
        for one in aliases:
            node = (tree.RemoveAlias if remove else tree.AddAlias)(node.id, one)
        said = "{} has the aliases {}" if node.aliases else "{} has no alias"
        report({"keyword": spell_keyword(tree, node)}, said, node.name, say(", ").join(node.aliases))


@command("confirm", "Correct")
@click.argument("query")
@click.argument("keyword")
def confirm(session: Session, query: str, keyword: str) -> None:
    r"""Store that a query means a keyword.

    The same QUERY is answered at once from then on, and similar ones rank better.

    \b
    keyword-tree confirm "the green stuff from Hangzhou" 饮食/龙井茶
    """
    with session.changing("confirm") as (tree, report):
        node = tree.Confirm(query, session.find(tree, keyword).id)
        report({"keyword": spell_keyword(tree, node)}, "{} means {}", query, path_of(tree, node.id))


@command("move", "Correct")
@click.argument("keyword")
@click.argument("parent")
def move(session: Session, keyword: str, parent: str) -> None:
    """Move a keyword, with all under it, to another parent."""
    with session.changing("move_keyword") as (tree, report):
        node, above = session.find(tree, keyword), session.find(tree, parent)
        moved = tree.MoveKeyword(node.id, above.id)
        report({"keyword": spell_keyword(tree, moved)}, "moved {} to {}", node.name, path_of(tree, above.id))


@command("merge", "Correct")
@click.argument("source")
@click.argument("target")
def merge(session: Session, source: str, target: str) -> None:
    """Merge two keywords.

    All that SOURCE has goes to TARGET; the names and the id of SOURCE lead to it.
    """
    with session.changing("merge_keywords") as (tree, report):
        one, other = session.find(tree, source), session.find(tree, target)
        said = ("merged {} into {}", path_of(tree, one.id), path_of(tree, other.id))
        report({"keyword": spell_keyword(tree, tree.MergeKeywords(one.id, other.id))}, *said)


@command("delete", "Correct")
@click.argument("keyword")
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
    with session.changing("delete") as (tree, report):
        info = session.find_info(tree, keyword)
        if info is not None:
            if named := tree.FindByName(keyword):
                raise unclear(tree, keyword, named, len(named), say("and an info"))
            forget_info(tree, info, report)
            return
        node = session.find(tree, keyword)
        if node.id == ROOT_ID:
            raise InvalidInputError(say("the root cannot be deleted: delete what is under it"))
        value, path, count = {"keyword": spell_keyword(tree, node)}, path_of(tree, node.id), len(node.children)
        tree.DeleteKeyword(node.id, cascade, infos)
        text = "deleted {}"
        if count:
            text = "deleted {}, with all under it" if cascade else "deleted {}; {} under it moved up"
        report({"deleted": value}, text, path, f"{count:,}")
