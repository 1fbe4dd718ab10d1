"""What holds of KeywordTree for any input: generated replies, texts and names.

Needs Hypothesis, and is skipped without it.
No sync is waited for here: nothing that is checked hangs on it.
"""

from __future__ import annotations

import datetime
import decimal
import itertools
import json
import math
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("hypothesis", reason="pip install '.[test]' brings Hypothesis")

from hypothesis import given, settings
from hypothesis import strategies as st

from Agent.keyword_tree import InvalidInputError, KeywordTree, LLMClient, RelationType, SearchResult, SearchStatus
from Agent.tests.support.examples import share
from Agent.tests.support.looking import disk

REASONS = {
    *("agent_match", "agent_ambiguous", "agent_missing", "agent_failure", "agent_timeout"),
    *("invalid_jump", "invalid_reply", "no_target", "stale_view"),
}


pytestmark = pytest.mark.usefixtures("no_sync")


def stamps(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Tell of every file what changes when it is written or replaced."""
    seen = {path.name: path.stat() for path in folder.iterdir()}
    return {name: (found.st_ino, found.st_size, found.st_mtime_ns) for name, found in seen.items()}


# == Replies ==============================================================================================

ANY_TEXT = st.text(st.characters(), max_size=12)  # lone surrogates too
NUMBERS = st.one_of(
    st.integers(-3, 60),
    st.integers(),
    st.sampled_from([10**30, -(2**63), 2**64, 10**4000]),
    st.floats(),
)
OBJECTS = st.sampled_from(
    [
        *(object(), ..., NotImplemented, int, dict, len, complex(1, 2), range(3), slice(1), iter([1]), ValueError("x")),
        *(b"match", bytearray(b"0"), memoryview(b"0"), frozenset({0}), decimal.Decimal(0), datetime.date(2024, 1, 1)),
        *(SearchStatus.MATCHED, RelationType.PRIMARY, math, lambda: 0),
    ]
)
LEAVES = st.one_of(st.none(), st.booleans(), NUMBERS, ANY_TEXT, OBJECTS)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(st.one_of(ANY_TEXT, st.integers(), st.none()), inner, max_size=3),
    ),
    max_leaves=5,
)
ACTIONS = st.sampled_from(["match", "jump", "missing", "ambiguous"])
IDS = st.sampled_from(["root", "top 1", "a", "a 7", "a 60", "group:0", "nowhere", ""])
TARGETS = st.one_of(st.integers(-2, 55), st.integers(0, 9), IDS, st.none(), st.booleans(), VALUES)
LISTS = st.one_of(st.lists(st.one_of(st.integers(0, 52), TARGETS), max_size=4), st.lists(st.integers(0, 9)), VALUES)
WORDS = st.one_of(ANY_TEXT, st.none(), VALUES)
NEARLY_VALID = st.fixed_dictionaries(
    {"action": st.one_of(ACTIONS, ACTIONS, ACTIONS, VALUES)},
    optional={
        "node_id": TARGETS,
        "node_ids": LISTS,
        "candidate_ids": LISTS,
        "suggest_name": WORDS,
        "reason": WORDS,
        "jump_depth": VALUES,
        "more": VALUES,
    },
)
VALID = st.one_of(
    st.fixed_dictionaries({"action": st.sampled_from(["match", "jump"]), "node_id": st.integers(0, 49)}),
    st.fixed_dictionaries({"action": st.just("jump"), "node_ids": st.lists(st.integers(0, 49), min_size=1)}),
)
RAISED = st.sampled_from([ValueError("bad"), TimeoutError("slow"), RecursionError("deep"), OSError(5, "io")])
REPLIES = st.one_of(VALUES, NEARLY_VALID, NEARLY_VALID, NEARLY_VALID, VALID, RAISED)


class Playback(LLMClient):
    """Answers with a list of replies, one after another; exceptions are raised."""

    short_list = 0

    def __init__(self) -> None:
        self.replies: list[Any] = []
        self.played = 0
        self.shown: set[str] = set()

    def Chat(self, messages: list[dict[str, str]], json_schema: dict[str, Any]) -> Any:
        candidates = json.loads(messages[-1]["content"])["candidates"]
        self.shown = {candidate["path"] for candidate in candidates}
        if not self.replies:
            return {"action": "missing"}
        self.played += 1
        reply = self.replies.pop(0)
        if isinstance(reply, Exception) and type(reply) is not ValueError:
            raise reply
        return reply


def big_enough_for_groups(folder: Path, client: LLMClient) -> KeywordTree:
    tree = KeywordTree(str(folder), client)
    specs = [{"name": f"top {n}", "id": f"top {n}", "parent_id": "root"} for n in range(5)]
    specs += [{"name": "a", "id": "a", "parent_id": "top 1"}]
    specs += [{"name": f"a {n}", "id": f"a {n}", "parent_id": "a"} for n in range(70)]
    tree.BatchCreateKeywords(specs)
    return tree


def path_of(tree: KeywordTree, node_id: str) -> str:
    return " / ".join(node.name for node in tree.GetPath(node_id)[1:])


def test_any_reply_ends_a_search_with_a_reason_and_writes_nothing(tmp_path: Path) -> None:
    client, outcomes = Playback(), Counter[str]()
    with big_enough_for_groups(tmp_path / "store", client) as tree:
        before = stamps(tmp_path / "store")

        @share(1)
        @given(replies=st.lists(REPLIES, min_size=11, max_size=11))
        def check(replies: list[Any]) -> None:
            client.replies = list(replies)
            while client.replies:
                result = tree.Search("zzz")

                outcomes[result.reason] += 1
                assert result.reason in REASONS
                assert type(result.reason) is str
                assert 1 <= result.rounds <= 6
                assert len(result.steps) == result.rounds
                if result.status is SearchStatus.MATCHED:
                    assert result.node is not None
                    assert path_of(tree, result.node.id) in client.shown
                    assert [node.id for node in result.path] == [n.id for n in tree.GetPath(result.node.id)]
                elif result.status is SearchStatus.AMBIGUOUS:
                    assert len(result.candidates) == result.candidate_count >= 1
                    assert {path_of(tree, node.id) for node in result.candidates} <= client.shown
                else:
                    assert result.status is SearchStatus.NOT_FOUND
                    assert result.node is None
                    assert tree.GetKeyword(result.suggested_parent_id or "") is not None
            assert stamps(tmp_path / "store") == before

        check()
    assert client.played >= 10 * settings().max_examples
    assert set(outcomes) >= REASONS - {"stale_view"}


def test_any_reply_leaves_an_info_stored(tmp_path: Path) -> None:
    client, made = Playback(), list[str]()
    with big_enough_for_groups(tmp_path / "store", client) as tree:

        @given(replies=st.lists(REPLIES, min_size=5, max_size=5))
        def check(replies: list[Any]) -> None:
            client.replies = list(replies)
            while client.replies:
                info = tree.CreateInfo("a text about a thing", auto_link=True)
                made.append(info.id)

                assert tree.GetInfo(info.id) == info
                linked = [node.id for node, _ in tree.GetKeywordsOfInfo(info.id)]
                assert {path_of(tree, one) for one in linked} <= client.shown

        check()
        links = [tree.GetKeywordsOfInfo(one) for one in made]
    with KeywordTree(str(tmp_path / "store")) as again:
        assert [again.GetKeywordsOfInfo(one) for one in made] == links


# == Round trips ==========================================================================================

JSON_LIKE = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(st.characters(), max_size=8),
        st.sampled_from([b"x", (1,), {1}, 10**4000, decimal.Decimal(1), -0.0, 5e-324]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(st.text(st.characters(), max_size=8), st.integers(0, 3)), inner, max_size=3),
        st.tuples(inner),
    ),
    max_leaves=8,
)
METADATA = st.dictionaries(st.text(st.characters(), max_size=8), JSON_LIKE, max_size=3)
SEPARATORS = ['", "', '{"id":"', ', "after": ', '], "infos": [', '"]', "\\", '"', "\n", "\u2028", "\x00", "]", "}}"]
TEXTS = st.lists(st.one_of(st.characters(), st.sampled_from(SEPARATORS)), max_size=30).map("".join)


def is_storable(value: Any) -> bool:
    """Tell whether JSON keeps a value as it is: the contract's own list."""
    if value is None or type(value) is bool:
        return True
    if type(value) is str:
        return not any("\ud800" <= char <= "\udfff" for char in value)
    if type(value) is int:
        return True
    if type(value) is float:
        return math.isfinite(value)
    if type(value) is list:
        return all(map(is_storable, value))
    if type(value) is dict:
        return all(type(key) is str and is_storable(key) and is_storable(each) for key, each in value.items())
    return False


def test_any_text_and_metadata_is_refused_whole_or_comes_back_equal(tmp_path: Path) -> None:
    folder, numbers = tmp_path / "store", itertools.count()

    @given(name=TEXTS, alias=TEXTS, text=TEXTS, metadata=METADATA, content=TEXTS, key=TEXTS)
    def check(name: str, alias: str, text: str, metadata: dict[str, Any], content: str, key: str) -> None:
        name, alias, content, key = f"n{name}", f"a{alias}", f"c{content}", f"{next(numbers)} {key}"
        given_keyword = {
            "name": name,
            "id": key,
            "parent_id": "root",
            "aliases": [alias],
            "description": text,
            "metadata": metadata,
        }
        given_info = {"content": content, "id": key, "source": text, "keyword_ids": [key], "metadata": metadata}
        with KeywordTree(str(folder)) as tree:
            before = disk(folder)
            if not all(map(is_storable, [name, alias, text, metadata, key])):
                with pytest.raises(InvalidInputError) as caught:
                    tree.BatchCreateKeywords([given_keyword])
                assert str(caught.value).encode("utf-8")
                assert disk(folder) == before
                return
            [node] = tree.BatchCreateKeywords([given_keyword])
            infos = tree.BatchCreateInfos([given_info] if is_storable(content) else [])
        with KeywordTree(str(folder)) as again:
            assert again.recovery == ()
            read = again.GetKeyword(key)
            assert read == node
            assert (read.name, read.aliases, read.description) == (name, [alias], text)
            assert repr(read.metadata) == repr(metadata)
            assert again.GetInfosOfKeyword(key) == infos
            for info in infos:
                assert (info.content, info.source, repr(info.metadata)) == (content, text, repr(metadata))

    check()


# == Normalising and looking up ===========================================================================

FULL_WIDTH = {code: code + 0xFEE0 for code in range(0x21, 0x7F)} | {0x20: 0x3000}


def folded(text: str) -> str:
    """Fold as the contract says it: NFKC, case folding, NFKC again."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def tokenised(text: str) -> str:
    """Make the token as the contract says it."""
    kept = [c for c in folded(text) if (k := unicodedata.category(c))[0] not in "PZ" and k not in ("Cc", "Cf")]
    return "".join(kept) or folded(text)


@pytest.fixture(scope="module")
def empty() -> Iterator[KeywordTree]:
    with tempfile.TemporaryDirectory() as folder, KeywordTree(folder) as tree:
        yield tree


class TestNormalize:
    @given(text=st.text(max_size=20))
    def test_is_what_the_contract_says(self, empty: KeywordTree, text: str) -> None:
        [token] = empty._Normalize(text)

        assert unicodedata.normalize("NFKC", token.strip()) == unicodedata.normalize("NFKC", tokenised(text).strip())

    def test_changes_no_token_of_a_single_character(self, empty: KeywordTree) -> None:
        odd = []
        for code in range(0x110000):
            if unicodedata.category(chr(code)) in ("Cn", "Co", "Cs"):  # no rule treats them differently
                continue
            [token] = empty._Normalize(chr(code))
            if empty._Normalize(token) != [token]:
                odd.append(f"U+{code:04X}")

        assert odd == []


NAMES = st.one_of(
    st.text(min_size=1, max_size=20),
    st.sampled_from(
        ["C", "C#", "C++", "c", ".NET", "net", "TCP/IP", "a > b", "a/b", "编程", "🐍", "a", "b", "///", "#"]
    ),
)


def test_exact_look_up_finds_any_created_name(tmp_path: Path) -> None:
    folders = itertools.count()

    @given(named=st.lists(NAMES, min_size=1, max_size=8), depth=st.integers(0, 7))
    def check(named: list[str], depth: int) -> None:
        with KeywordTree(str(tmp_path / str(next(folders)))) as tree:
            made: list[tuple[str, str]] = []
            for n, name in enumerate(named):
                parent = made[-1][0] if made and n <= depth else "root"
                try:
                    made.append((tree.CreateKeyword(name, parent, [f"{name} alias {n}"]).id, name))
                except InvalidInputError:  # a blank name
                    assert not any(char.isalnum() for char in name)
            for key, name in made:
                bearers = [one for one, other in made if folded(other).strip() == folded(name).strip()]
                for query in (name, name.translate(FULL_WIDTH), folded(name)):
                    result = tree.Search(query, llm_expand_query=False)

                    assert result.reason == "exact"
                    assert ids_found(result) == bearers
                    assert [node.id for node in tree.FindByName(query)] == bearers
                node = tree.GetKeyword(key)
                assert node is not None
                assert key in [bearer.id for bearer in tree.FindByName(node.aliases[0])]
                path = " > ".join(step.name for step in tree.GetPath(key)[1:])
                if sum(map(path.count, "/>›→")) <= 8:  # beyond some bound not every way of cutting is tried
                    found = tree.Search(path, False)
                    assert found.reason == "exact" or key in ids_found(found)

    check()


def ways_of(pieces: list[str], chain: list[str]) -> bool:
    """Tell whether pieces, joined in some way, name some of a chain's names in order, and the last."""
    if not pieces or not chain:
        return not pieces
    for size in range(1, len(pieces) + 1):
        if "/".join(pieces[-size:]) == chain[-1]:
            rest = pieces[:-size]
            if not rest or any(ways_of(rest, chain[:end]) for end in range(1, len(chain))):
                return True
    return False


def test_path_look_up_tries_every_way_of_cutting_a_path(tmp_path: Path) -> None:
    folders, outcomes = itertools.count(), Counter[str]()
    bearable = st.sampled_from(["a", "b", "a/b", "b/a/a", "c"])

    @given(
        nodes=st.lists(st.tuples(bearable, st.integers(0, 9)), min_size=2, max_size=10),
        query=st.lists(bearable, min_size=1, max_size=4).map("/".join),
    )
    def check(nodes: list[tuple[str, int]], query: str) -> None:
        chains: list[list[str]] = [[]]
        specs = []
        for n, (name, above) in enumerate(nodes, 1):
            parent = max(0, n - 1 - above % n)
            specs.append({"name": name, "id": str(n), "parent_id": str(parent) if parent else "root"})
            chains.append([*chains[parent], name])
        named = [str(n) for n, chain in enumerate(chains) if chain and chain[-1] == query]
        by_path = [str(n) for n, chain in enumerate(chains) if chain and ways_of(query.split("/"), chain)]
        with KeywordTree(str(tmp_path / str(next(folders)))) as tree:
            tree.BatchCreateKeywords(specs)
            result = tree.Search(query, llm_expand_query=False)

            outcomes[result.reason] += 1
            assert ids_found(result) == (named or by_path)
            assert (result.reason == "path") == (not named and bool(by_path))

    check()
    assert min(outcomes[reason] for reason in ("exact", "path", "exact_miss_llm_disabled")) > 0


def ids_found(result: SearchResult) -> list[str]:
    return [node.id for node in ([result.node] if result.node else result.candidates)]
