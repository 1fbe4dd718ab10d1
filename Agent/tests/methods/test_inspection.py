"""A drawing of a tree; what `Verify` and `TreeMetrics` return is tested in `tests/methods`."""

from __future__ import annotations

from pathlib import Path

from Agent.keyword_tree import KeywordTree


class TestDrawing:
    def add(self, tree: KeywordTree, name: str, parent_id: str = "root") -> str:
        return tree.CreateKeyword(name, parent_id).id

    def test_prints_the_top_of_the_tree(self, tree: KeywordTree) -> None:
        coding = self.add(tree, "编程")
        self.add(tree, "asyncio", self.add(tree, "Python\x1b[31m", coding))
        for number in range(11):
            self.add(tree, f"k{number}", coding)
        self.add(tree, "<b>旅行</b>")

        lines = str(tree).splitlines()

        assert lines[0] == repr(tree)
        assert lines[1:5] == ["├── '编程'", "│   ├── 'Python\\x1b[31m'", "│   │   └── … 1 more", "│   ├── 'k0'"]
        assert lines[-2:] == ["│   └── … 2 more", "└── '<b>旅行</b>'"]
        assert "<b>" not in tree._repr_html_()
        assert "&lt;b&gt;旅行" in tree._repr_html_()

    def test_of_a_closed_tree_says_so(self, folder: Path) -> None:
        tree = KeywordTree(str(folder))
        tree.Close()

        assert str(tree) == repr(tree)
