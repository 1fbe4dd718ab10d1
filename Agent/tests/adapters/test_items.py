"""Tests of what the adapters of items share: ranking by words and similarity, the index and the list that are kept."""

import contextlib
import json
import zlib
from collections.abc import Callable, Sequence
from functools import partial, partialmethod
from pathlib import Path
from typing import Any

import pytest

from Agent.adapters import items, mem0
from Agent.adapters.filters import equals
from Agent.adapters.item_ranking import ItemRanking
from Agent.adapters.items import ItemList
from Agent.adapters.langgraph import KeywordTreeStore
from Agent.adapters.mcp.graph import MemoryGraph
from Agent.adapters.mcp.graph_index import GraphIndex
from Agent.adapters.mem0 import Memory
from Agent.base.checks import depth_of
from Agent.keyword_tree import Info, KeywordTree
from Agent.tests.shared.memory_log import MemoryLog


class OneModel:
    """Knows tea from dogs."""

    name = "one"

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        return [[1.0 + ("tea" in text), 1.0 + ("dog" in text)] for text in texts]


def lines_of(info: Info) -> list[str]:
    """Say what an item's texts are; what has no source is none."""
    return info.content.splitlines() if info.source else []


def test_words_follow_what_is_added_and_removed(tree: KeywordTree) -> None:
    ranking = ItemRanking(tree, None, lines_of)
    green, other = tree.CreateInfo("green tea", "s"), tree.CreateInfo("tea")
    both = [green.id, other.id]
    assert list(ranking.rank_by_words("tea", 5, both)) == [green.id]
    dog = tree.CreateInfo("a dog\ntea", "s")
    tree.DeleteInfo(green.id)

    assert list(ranking.rank_by_words("tea", 5, [*both, dog.id])) == [dog.id]
    assert list(ranking.rank_by_words("tea", 5, both)) == []
    tree.DeleteInfo(dog.id)
    assert list(ranking.rank_by_words("tea", 5, [*both, dog.id])) == []


def test_the_likest_text_of_an_item_counts(tree: KeywordTree) -> None:
    pytest.importorskip("numpy")
    ranking = ItemRanking(tree, None, lines_of, OneModel())
    green, dog, black = (tree.CreateInfo(text, "s").id for text in ("green tea", "a dog\ntea", "black"))
    assert ranking.rank_by_similarity("tea", [green, dog, black]) is None
    ranking.embed(["tea"])

    near = ranking.rank_by_similarity("tea", [green, dog, black])
    assert near is not None
    assert near[green] == near[dog] == pytest.approx(1.0, abs=0.01)
    assert near[black] < 0.99
    tree.DeleteInfo(dog)
    assert ranking.rank_by_similarity("tea", [green, dog, black]).keys() == {green, black}  # type: ignore[union-attr]


class TestFile:
    """The index is kept: the next process reads what is new alone."""

    @pytest.fixture
    def read(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """Say which items' texts were indexed."""
        read, texts_of = list[str](), mem0._texts_of

        def note(info: Info) -> list[str]:
            read.extend([] if info.deleted else [info.id])
            return texts_of(info)

        monkeypatch.setattr(mem0, "_texts_of", note)
        return read

    def found(self, folder: Path, query: str) -> list[str]:
        with Memory(path=str(folder)) as memory:
            return [row["memory"] for row in memory.search(query, filters={"user_id": "u"})["results"]]

    def test_is_gone_on_with(self, tmp_path: Path, read: list[str]) -> None:
        with Memory(path=str(tmp_path)) as memory:
            ids = [memory.add(f"tea number {n}", user_id="u", infer=False)["results"][0]["id"] for n in range(4)]
        assert len(self.found(tmp_path, "tea")) == 4
        assert sorted(read) == sorted(ids)
        with Memory(path=str(tmp_path)) as memory:
            memory.delete(ids[0])
            new = memory.add("tea and cake", user_id="u", infer=False)["results"][0]["id"]
        read.clear()

        assert self.found(tmp_path, "cake") == ["tea and cake"]
        assert "tea number 0" not in self.found(tmp_path, "tea")
        assert read == [new]


def put(door: str, place: Any, texts: Sequence[str]) -> None:
    """Store texts, each under itself, in a folder or a tree; of the first one a new version at the end."""
    with contextlib.nullcontext(place) if isinstance(place, KeywordTree) else KeywordTree(place) as tree:
        if door == "mcp":
            graph = MemoryGraph(tree)
            graph.create_entities([{"name": one, "entityType": "t", "observations": [f"tea {one}"]} for one in texts])
            graph.create_relations([{"from": texts[0], "to": texts[-1], "relationType": "knows"}])
            graph.add_observations([{"entityName": texts[0], "contents": ["x" * 5000]}])
        elif door == "langgraph":
            with KeywordTreeStore(tree) as store:
                for number, text in enumerate([*texts, texts[0]]):
                    store.put((f"n{len(text) % 2}",), text, {"text": f"tea {text} {number}"}, index=["text"])
        else:
            with Memory(tree=tree) as memory:
                ids = [memory.add(f"tea {t}", user_id=f"n{len(t) % 2}", infer=False)["results"][0]["id"] for t in texts]
                memory.update(ids[0], f"tea {texts[0]} {len(texts)}", {"of": [texts[0]]})


def found(door: str, place: Any) -> list[Any]:
    """Return all that a door says of its items, in its order."""
    with contextlib.nullcontext(place) if isinstance(place, KeywordTree) else KeywordTree(place) as tree:
        if door == "mcp":
            graph = MemoryGraph(tree)
            graph.index.catch_up()
            graph.index.keep()
            return [graph.read_graph(), graph.search_nodes("TEA"), graph.search_nodes("xxx"), graph.open_nodes(["a"])]
        if door == "langgraph":
            with KeywordTreeStore(tree) as store:
                return [store.search((), limit=-1), store.search((), query="tea"), store.list_namespaces()]
        with Memory(tree=tree) as memory:
            all_rows = [memory.get_all(filters={"user_id": name}, top_k=99) for name in ("n0", "n1", "*")]
            return [*all_rows, memory.search("tea", filters={"user_id": "*"})]


def count(folder: str) -> int:
    """Return how many infos there are."""
    with KeywordTree(folder) as tree:
        return len(tree.ListInfos())


def checked(kept: Any) -> bytes:
    """Return what a whole file would hold."""
    text = json.dumps(kept).encode()
    return b"%d %b" % (zlib.crc32(text), text)


@pytest.mark.parametrize("door", ["langgraph", "mem0", "mcp"])
class TestKeptView:
    """The next process begins with what an earlier one kept of many records."""

    @pytest.fixture
    def folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, door: str) -> str:
        monkeypatch.setattr(items, "KEPT_FROM", 4)
        put(door, str(tmp_path / "store"), ["a", "bb", "c", "dd", "e", "ff"])
        found(door, str(tmp_path / "store"))  # who only puts knows no list
        return str(tmp_path / "store")

    @pytest.fixture
    def read(self, folder: str, monkeypatch: pytest.MonkeyPatch, door: str) -> Callable[[], tuple[list[Any], int]]:
        """Open a store; return what it finds, and how many infos it took from the tree for that."""
        taken = list[str]()

        def note(take: Callable[[Any, Info], None], its: Any, info: Info) -> None:
            taken.append(info.id)
            take(its, info)

        for kind, name in ((ItemList, "_take"), (GraphIndex, "_take_info")):
            monkeypatch.setattr(kind, name, partialmethod(partial(note, getattr(kind, name))))

        def open_and_read() -> tuple[list[Any], int]:
            taken.clear()
            return found(door, folder), len(set(taken))

        return open_and_read

    def test_serves_as_the_tree_does(self, folder: str, read: Callable[[], tuple[list[Any], int]], door: str) -> None:
        kept, taken = read()
        Path(folder, "indexes", f"{door}.json").rename(Path(folder, "indexes", f"{door}.json.of-a-killed-one"))

        assert (read(), taken) == ((kept, count(folder)), 0)
        assert len([*Path(folder, "indexes").glob(f"{door}.json*")]) == 1

    def test_is_kept_where_no_folder_is_yet(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, door: str) -> None:
        monkeypatch.setattr(items, "KEPT_FROM", 4)
        tree = KeywordTree(str(tmp_path / "cache" / "u42"), store=MemoryLog().tree("u42"))
        put(door, tree, ["a", "bb", "c", "dd", "e", "ff"])
        found(door, tree)

        assert (tmp_path / "cache" / "u42" / "indexes" / f"{door}.json").exists()

    def test_is_followed_by_what_others_wrote_since(
        self, folder: str, read: Callable[[], tuple[list[Any], int]], door: str
    ) -> None:
        with KeywordTree(folder) as tree:
            tree.DeleteInfo(tree.ListInfos()[1].id)
            put(door, tree, ["new"])
        _, taken = read()
        Path(folder, "indexes", f"{door}.json").unlink(missing_ok=True)

        assert taken <= 4
        assert read()[1] == count(folder)

    @pytest.mark.parametrize("harm", ["cut", "[]", "a bit", "another log", "another form", "of no log"])
    def test_that_is_damaged_is_made_again(
        self, folder: str, read: Callable[[], tuple[list[Any], int]], harm: str, door: str
    ) -> None:
        before, _ = read()
        file = Path(folder, "indexes", f"{door}.json")
        text = file.read_bytes()
        kept = json.loads(text.partition(b" ")[2])
        harmed = {
            "cut": text[:-9],
            "[]": checked([]),
            "a bit": text[:-50] + bytes([text[-50] ^ 1]) + text[-49:],
            "another log": checked({**kept, "position": [2, "another"]}),
            "another form": checked({**kept, "items": [[["x"], 1]]}),
            "of no log": checked({"items": [[7, [[]]]], "position": [1, "x"]}),
        }
        file.write_bytes(harmed[harm])

        assert read() == (before, count(folder))
        assert read() == (before, 0)

    def test_that_fits_no_log_any_more_is_removed(self, folder: str, door: str) -> None:
        file = Path(folder, "indexes", f"{door}.json")
        kept = file.read_text()
        with KeywordTree(folder) as tree:
            for node in tree.GetChildren("root"):
                tree.DeleteKeyword(node.id, True, "delete")
            tree.CompactStorage(keep_history=False)
        file.parent.mkdir(exist_ok=True)
        file.write_text(kept)

        found(door, folder)
        assert not file.exists()


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (1, 1.0, True),
        (0, False, False),
        ("1", 1, False),
        (None, None, True),
        (None, 0, False),
        ([1, 2], (1, 2), True),
        ([1], [True], False),
        ([1, 2], [1], False),
        ({"a": [1]}, {"a": [1]}, True),
        ({"a": 1}, {"a": 1, "b": None}, False),
        ({"a": 1}, [1], False),
        (float("nan"), float("nan"), False),
    ],
)
def test_equals(one: Any, other: Any, same: bool) -> None:
    assert equals(one, other) is equals(other, one) is same


@pytest.mark.parametrize(("value", "depth"), [(7, 0), ({}, 1), ([], 1), ({"a": 1}, 1), ({"a": [{}, 2]}, 3)])
def test_depth(value: Any, depth: int) -> None:
    assert depth_of(value) == depth
