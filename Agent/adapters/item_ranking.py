"""Rank the items of a tree by their words, and by similarity where there is an embedder; what the adapters search with.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder, KeywordTree(folder) as tree:
...     ranking = ItemRanking(tree, None, lambda info: [info.content])
...     tea, dog = tree.CreateInfo("龙井是杭州的绿茶"), tree.CreateInfo("The dog is called Oliver.")
...     list(ranking.rank_by_words("杭州有什么茶", 5, [tea.id, dog.id])) == [tea.id]
True
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..finding.embedder import Meaning
from ..keyword_tree import Info, KeywordTree
from ..memory.memories import Memories

__all__ = ["ItemRanking", "index_path"]

_PATIENCE_S = 60.0  # for an embedder that was given: what is put is to be found


def index_path(tree: KeywordTree, name: str) -> Path:
    """Return where an index of a tree is kept: beside its log, or in its cache folder where that is on a server."""
    return Path(tree.data_dir, "indexes", f"{name}.db")


class ItemRanking(Memories):
    """The infos of a tree that are items, indexed; the index follows the log by itself.

    Args:
        tree: Whose infos.
        path: Of the index's file; None keeps it in memory.
        texts_of: Returns the texts of an info that is an item; nothing for any other.
        embedder: An `Embedder`, for `rank_by_similarity`; None ranks as an index does by itself.

    Cost: as of `Memories`.
    """

    def __init__(
        self, tree: KeywordTree, path: Path | None, texts_of: Callable[[Info], Sequence[str]], embedder: Any = None
    ) -> None:
        meaning = True if embedder is None else Meaning(embedder, _PATIENCE_S)
        super().__init__(tree, path, meaning, texts_of, is_joined=False)
        self._is_similarity = embedder is not None

    def embed(self, questions: Iterable[str] = ()) -> None:
        """Have the model read the items that are new, and questions; where it fails, a log line says so, once."""
        if self._index.meaning is not None:
            self.catch_up()
            for question in questions or [""]:
                self._index.ask(question)

    def rank_by_words(self, query: str, limit: int, among: Collection[str]) -> dict[str, float]:
        """Return items and how well they fit, from 0 to 1, best first; those that share no word are not among them."""
        self.catch_up()
        hits = self._do(lambda: self._index.search(query, limit, among=frozenset(among), quotes=False))
        return {hit.id: hit.score for hit in hits}

    def rank_by_similarity(self, query: str, among: Collection[str]) -> Mapping[str, float] | None:
        """Return the cosine of each item's likest text; None where the query has no vector: `embed` it first."""
        self.catch_up()
        return self._do(lambda: self._cosines(query, among)) if self._is_similarity else None

    def _cosines(self, query: str, among: Collection[str]) -> dict[str, float] | None:
        index = self._index
        compared = None if index.vectors is None else index.vectors.compare(query)
        if compared is None:
            return None
        with index.reading():
            numbers = index.numbers(among)
            passages = index.passages_of(numbers.values())
            near = {id: max(compared.similarities([2 * at, *passages.get(at, ())])) for id, at in numbers.items()}
        return {id: one for id, one in near.items() if one > -1.0}
