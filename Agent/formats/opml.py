"""OPML 2.0, which outliners, mind maps and feed readers speak.

An `<outline text="…">` is a keyword, its content is under it. An outline with an address (`url`, `xmlUrl` or
`htmlUrl`: a bookmark, a feed) and nothing under it is an info, the address its source. `_note` or `description`, as
outliners and readers have it, is the description of a keyword and follows the text of an info. A document may be in any
encoding that Python knows and the document declares. Exports of 0.2.0 have ids, aliases and infos besides (`_id`,
`_aliases`, parted by `|`, and `type="info"`), by which they are recognised.

The parser is the standard library's expat, and every document that declares an entity is refused, as `defusedxml` would
do it (whose last release is of 2021): without one nothing can be expanded or fetched, and OPML has no use
for them.
"""

import codecs
import re
from collections.abc import Iterator
from xml.etree import ElementTree

from .records import DEFAULT_ENCODING, Fact, Keyword, Outline, Record, Source, is_blank, refuse, split_names

_ADDRESSES = ("url", "xmlUrl", "htmlUrl")


def read(source: Source, outline: Outline) -> Iterator[Record]:
    """Yield the records of an outline.

    An outline without a text, and one that repeats an info, is passed over; its content counts.

    Raises:
        InvalidInputError: it is not XML, or declares an entity.

    Cost: the parser reads a document as a whole.
    """
    try:
        text = source.path.read_bytes().decode(_encoding_of(source))
    except LookupError as error:
        raise refuse(source, f"it declares an encoding that is not known: {error}") from error
    if entity := re.search("<!ENTITY", text):
        raise refuse(source, "it declares an entity", text.count("\n", 0, entity.start()) + 1)
    try:
        waiting = [(ElementTree.fromstring(text), outline.parent_id)]
    except ElementTree.ParseError as error:
        raise refuse(source, f"this is no XML: {error}") from error
    while waiting:
        element, id = waiting.pop()
        for record in _records(element, id, outline) if element.tag == "outline" else ():
            yield record
            id = record.id if isinstance(record, Keyword) else id
        waiting += [(inner, id) for inner in reversed(element)]


def _encoding_of(source: Source) -> str:
    """Return the encoding that was named, or that the document has by its first bytes, or declares."""
    encoding = source.encoding_of(source.path)
    if encoding != DEFAULT_ENCODING:
        return encoding
    with source.path.open("rb") as file:
        declared = re.match(rb"""(?:\xef\xbb\xbf)?<\?xml[^>]*\sencoding\s*=\s*["']([\w.:-]+)""", file.read(256))
    name = declared[1].decode() if declared else encoding
    return encoding if codecs.lookup(name).name == "utf-8" else name


def _records(element: ElementTree.Element, parent_id: str, outline: Outline) -> Iterator[Keyword | Fact]:
    get = element.get
    text = get("text") or get("title") or ""
    address = next((found for name in _ADDRESSES if (found := get(name, ""))), "")
    note = get("_note") or get("description") or ""
    if get("type") == "info" or (address and not len(element)):
        fact = outline.fact(parent_id, text, address, get("_id", ""))
        fact.content = "\n\n".join(filter(None, (text, note)))
        yield fact
    elif not is_blank(text):
        aliases = split_names(get("_aliases", ""), "|")
        yield (keyword := outline.keyword(parent_id, text, aliases, note, get("_id", "")))
        if address:
            yield outline.fact(keyword.id, text, address)
