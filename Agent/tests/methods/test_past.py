"""Which lines of the logs lead to a moment; what `At` opens is tested in `test_at`."""

from __future__ import annotations

import pytest

from Agent import keyword_tree
from Agent.keyword_tree import LinesUntil


class TestLinesUntil:
    """Of an old log (1 to 3) and the one after its compaction (4 to 6, of which 4 and 5 are the state)."""

    LINES = tuple(
        (keyword_tree.LogLine(b"%08d" % seq, seq, prev, seq - 1, op, None), b"%d" % seq)
        for seq, prev, op in (
            (6, b"00000005", "create_keyword"),
            (5, b"00000004", "state"),
            (4, b"00000000", "state"),
            (3, b"00000002", "create_keyword"),
            (2, b"00000001", "create_keyword"),
            (1, b"00000000", "create_store"),
        )
    )

    @pytest.mark.parametrize(("at", "wanted"), [(6, b"456"), (5, b"45"), (4, b"45"), (3, b"123"), (1, b"1"), (0, b"")])
    def test_begin_where_a_log_begins(self, at: int, wanted: bytes) -> None:
        assert b"".join(LinesUntil(self.LINES, at)) == wanted

    def test_are_none_where_the_older_log_is_gone(self) -> None:
        assert LinesUntil(self.LINES[:3], 3) == []
