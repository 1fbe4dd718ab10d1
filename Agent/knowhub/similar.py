"""Which entries' tasks may resemble another task: the terms of all tasks, in memory, where a save finds them at once.

>>> db = sqlite3.connect(":memory:")
>>> _ = db.executescript("CREATE TABLE place (file); INSERT INTO place VALUES ('a');"
...     "CREATE TABLE record (number INTEGER PRIMARY KEY, kind, terms);"
...     "INSERT INTO record (kind, terms) VALUES ('knowledge', 'boil egg'), ('knowledge', 'boil potato')")
>>> tasks = Tasks()
>>> tasks.take_in(db)
>>> tasks.likely(frozenset(["boil", "egg", "hard"]))
[1]
"""

import sqlite3
from array import array
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Collection
from itertools import accumulate, chain

_LOOKED_AT = 1_000  # entries with a term: the newest
_SUMMED = 2_000  # of all terms of a task together: the commonest ones say least


class Tasks:
    """The terms of tasks, of the file in which the catalog has its records; one thread at a time takes in."""

    def __init__(self) -> None:
        self._file, self._number = "", 0
        # Term → numbers of the records that have it, the oldest first.
        self._entries: defaultdict[str, array[int]] = defaultdict(lambda: array("I"))

    def take_in(self, db: sqlite3.Connection) -> None:
        """Take in what came since the last time; a record that was written again has a new number."""
        [file] = db.execute("SELECT file FROM place").fetchone()
        if file != self._file:
            self._file, self._number, self._entries = file, 0, defaultdict(lambda: array("I"))
        sql = "SELECT number, terms FROM record WHERE number > ? AND kind = 'knowledge' ORDER BY number"
        for number, terms in db.execute(sql, (self._number,)):
            for term in terms.split():
                self._entries[term].append(number)
            self._number = number

    def likely(self, terms: Collection[str]) -> list[int]:
        """Return the numbers of the entries that may share half of all terms, theirs and these, the likeliest first.

        Such an entry has half of these. The rarest are looked at, as many as leave too few for it, and more of them as
        long as that takes little: the more of them it must have.
        """
        held = sorted((self._entries.get(term, ())[-_LOOKED_AT:] for term in terms), key=len)
        least = (len(terms) + 1) // 2
        looked_at = max(len(terms) - least + 1, bisect([*accumulate(map(len, held))], _SUMMED))
        enough = least - max(0, len(terms) - looked_at)
        # One that is in `enough` of these is in one of the first, and few are left after each further one.
        first = looked_at - enough + 1
        found: dict[int, int] = Counter(chain.from_iterable(held[:first]))
        for left, more in zip(range(enough - 1, 0, -1), held[first:looked_at], strict=True):
            found = {number: often for number, often in found.items() if often >= enough - left}
            if not found:
                return []
            for number in found.keys() & more:
                found[number] += 1
        likely = [number for number, often in found.items() if often >= enough]
        return sorted(likely, key=lambda number: (found[number], number), reverse=True)
