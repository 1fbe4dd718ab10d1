"""Write the records that a reader yields, in batches, and take them back.

>>> from keyword_tree.formats.records import Outline
>>> import tempfile
>>> from keyword_tree import KeywordTree
>>> with tempfile.TemporaryDirectory() as folder, KeywordTree(folder) as tree:
...     outline = Outline("my list", "root")
...     food = outline.keyword("root", "食物 food")
...     records = [food, outline.fact(food.id, "Bread needs an hour.", "grandmother")]
...     load(tree, records), load(tree, records)
(ImportReport(keywords=1, infos=1, links=1, skipped=0), ImportReport(keywords=0, infos=0, links=0, skipped=2))
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ..keyword_tree import (
    Change,
    Info,
    KeywordNode,
    KeywordTree,
    RelationType,
)
from .records import ROOT_ID, Fact, Keyword, Link, Record, Source

BATCH = 1000
"""Records in a batch: 43,118 keywords then cost 44 syncs, and a bad record undoes at most one batch of good ones."""

Progress: TypeAlias = Callable[[int, float | None], None]
"""Called with the records done so far, and the share of the source that was read: 0 to 1, None where it is unknown."""


@dataclass
class ImportReport:
    """What an import wrote."""

    keywords: int = 0
    """New keywords."""
    infos: int = 0
    """New infos."""
    links: int = 0
    """New links."""
    skipped: int = 0
    """Keywords and infos that were there already, or came twice; `changed` ones are not among them."""
    changed: int = field(default=0, repr=False)
    """Those there of which the source has another name, description, content or source: an import that updates took it
    from there, any other left it as it was.  What the source leaves empty is no other one."""
    problems: list[str] = field(default_factory=list, compare=False, repr=False)
    """Lines that were passed over since they cannot be read, where that was asked for."""
    operation_ids: list[str] = field(default_factory=list, compare=False, repr=False)
    """One for each batch that wrote something, in their order; `undo_import` takes all of them back."""


def load(
    tree: KeywordTree,
    records: Iterable[Record],
    *,
    batch_size: int = BATCH,
    progress: Progress | None = None,
    source: Source | None = None,
    update: bool = False,
) -> ImportReport:
    """Write the records, all or nothing per batch, and skip those whose id is there, or update them.

    Of an info that is there, links that are missing are added, so that an import which was cut off completes itself.

    Raises:
        KeywordTreeError: what the tree raises; the batches before it stay.

    Cost: one sync a batch.
    """
    report = ImportReport()
    batch: list[Record] = []
    done = 0

    def flush() -> None:
        nonlocal done
        first = report.operation_ids[:1]
        with tree.Operation(f"import, part of {first[0]}" if first else "import") as operation:
            written = _load_batch(tree, batch, report, update)
        if written:
            report.operation_ids.append(operation.id)
        done += len(batch)
        batch.clear()
        if progress is not None:
            progress(done, None if source is None else source.share)

    for record in records:
        batch.append(record)
        if len(batch) >= batch_size:
            flush()
    flush()
    return report


def import_id(change: Change) -> str | None:
    """Return the id of the first operation of the import that a change is a part of; None where it is of none."""
    if change.op == "import":
        return change.operation_id
    name, _, first = change.op.partition(", part of ")
    return first if name == "import" and first else None


def undone_by(change: Change) -> list[str]:
    """Return the ids of the operations that an undo undoes, as the log has them; none for any other operation."""
    notes = change.agent_io or {}
    return [str(note["undoes"]) for note in notes.get("calls", [notes]) if "undoes" in note]


def undo_import(tree: KeywordTree, report: ImportReport) -> str:
    """Take back all that an import wrote, as one operation, and return the id of that, which `Undo` takes.

    Raises:
        ConflictError: something depends on it; nothing is undone then.

    Cost: reads the log backwards to the import; all that was imported is in memory meanwhile.
    """
    with tree.Operation("undo import") as operation:
        for operation_id in reversed(report.operation_ids):
            tree.Undo(operation_id)
    return operation.id


def _load_batch(tree: KeywordTree, batch: list[Record], report: ImportReport, update: bool) -> int:
    """Write a batch, add to the report, and return how many writes it took."""
    keywords: dict[str, dict[str, Any]] = {}
    infos: dict[str, dict[str, Any]] = {}
    confirmed: list[tuple[str, str]] = []
    late: list[Link] = []
    written = 0
    for record in batch:
        if isinstance(record, Keyword):
            if record.id == ROOT_ID:
                written += _load_root(tree, record)
            elif record.id in keywords:
                report.skipped += 1
            elif (keyword := tree.GetKeyword(record.id)) is not None:
                written += _compare(tree, keyword, record, report, update)
            else:
                keywords[record.id] = spec = dict(vars(record))
                confirmed += [(query, record.id) for query in spec.pop("confirmed")]
        elif isinstance(record, Link):
            late.append(record)
        elif record.id in infos:
            report.skipped += 1
            late += _links_of(record)
        elif (info := tree.GetInfo(record.id)) is not None:
            written += _compare(tree, info, record, report, update)
            late += _links_of(record)
        else:
            infos[record.id] = spec = {name: value for name, value in vars(record).items() if name != "links"}
            # The tree links a new info as PRIMARY, by who made it. From the first link on that is another one, all are
            # made one by one: infos of a keyword are in the order of their links.
            own = (RelationType.PRIMARY, record.created_by)
            if late or any((link.relation, link.created_by) != own for link in _links_of(record)):
                late += _links_of(record)
            else:
                spec["keyword_ids"] = list(dict.fromkeys(link[0] for link in record.links))
                report.links += len(spec["keyword_ids"])
    if keywords:
        tree.BatchCreateKeywords(list(keywords.values()))
    for query, id in confirmed:
        tree.Confirm(query, id)
    if infos:
        tree.BatchCreateInfos(list(infos.values()))
    for link in late:
        keyword = tree.GetKeyword(link.keyword_id)  # one that was merged leads to another id
        # What links an info already stays as the owner has it.
        if keyword is None or all(known.keyword_id != keyword.id for known in tree.GetLinks(link.info_id)):
            tree.LinkInfo(link.info_id, link.keyword_id, link.relation, link.created_by)
            report.links += 1
            written += 1
    report.keywords += len(keywords)
    report.infos += len(infos)
    return written + len(keywords) + len(infos)


def _compare(
    tree: KeywordTree, there: KeywordNode | Info, said: Keyword | Fact, report: ImportReport, update: bool
) -> bool:
    """Count a record that is there, take over what the source says of it, and return whether that was written."""
    fields = ("name", "description") if isinstance(there, KeywordNode) else ("content", "source")
    patch = {name: text for name in fields if (text := getattr(said, name)) and text != getattr(there, name)}
    if not patch or there.id != said.id:  # one that was merged leads to another keyword
        report.skipped += 1
        return False
    report.changed += 1
    if not update:
        return False
    if isinstance(there, KeywordNode):
        tree.UpdateKeyword(there.id, patch, there.version)
    else:
        tree.UpdateInfo(there.id, patch)
    return True


def _links_of(fact: Fact) -> list[Link]:
    return [Link(fact.id, id, relation, *(by or (fact.created_by,))) for id, relation, *by in fact.links]


def _load_root(tree: KeywordTree, said: Keyword) -> bool:
    """Give the root what was said of it, if nothing is said of it yet; return whether that was so."""
    root = tree.GetKeyword(ROOT_ID)
    patch = {"description": said.description, "metadata": said.metadata}
    if root is None or root.description or root.metadata or not any(patch.values()):
        return False
    tree.UpdateKeyword(ROOT_ID, patch, root.version)
    return True
