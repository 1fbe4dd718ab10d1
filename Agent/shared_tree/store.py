"""The store of one tree, for the core's port: memory follows a log that others append to as well.

A commit: the process waits for its turn, and what others wrote is read; the operations' lines are encoded after it;
one statement inserts them, but only if the batch that they follow is still the last. So each batch comes from a
process that had read all before it. Turns go by who came first, near or far, and end after 0.3 s of doing nothing. A
process that writes in a loop, and is near, keeps its turn for up to 0.1 s, and for less where many wait: the server
holds it, and ends it whatever becomes of the process. In that time no other writes, and a commit is one round trip
again. Who waits nearby reads meanwhile, so that a turn begins with a write.

Where this tree has written within the last second, and no other lately, the first step is left out, a guess: the
statement shows whether that was right, and where nothing is to be written, a look after the last batch does. So a
process that writes alone pays one round trip for a commit. A guess is refused while another has its turn, so who
guesses passes nobody for longer than 10 ms.

    answer                       what is known                       what is done
    inserted                     durable, behind all that was read   acknowledged
    not inserted                 another was quicker                 BehindError: nothing was written; plan again;
                                                                     past `patience` StoreError
    refused (full disk, say)     nothing was written                 StoreError
    none (connection lost, …)    it may get in once, later, whole    the same bytes to the same place again

A second try waits for the first where that is under way. Where it finds the place taken, it compares: the same bytes
are its own, and it is done; others mean that its own can never get in. Where no try is answered while `patience` lasts,
the outcome is unknown; memory has not moved, and what gets in late is read like anybody's.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import NoReturn

from ..keyword_tree import ClosedError, NotFoundError, StoreError
from . import port
from .reading import PAGE, At, Reader, write_state
from .rows import Batch, NotSentError, ReadOnlyError, UnansweredError, UnkeptError
from .tables import LOOK_S, PostgresRows

__all__ = ["PIECES_FROM", "Known", "SharedStore"]

PIECES_FROM = 1024 * 1024
"""Bytes of lines above which a batch is laid down in pieces."""
_TURNS = 20  # commits that take turns after others have written
_GUESS_S = 1.0  # since the last commit: later others may well have written, or the connection be gone
_IDLE_S = 0.1  # since the last commit: others may have written more than is read quickly in a turn
_MUCH = 40  # operations that take a part of a turn to read
_FOUND = 64  # batches fetched at once by what they hold
_HELD_S = 0.1  # for which a turn is kept, at most, where the next commit comes at once
_ROUND_S = 0.4  # in which all who write in loops are to have their turns
_AGAIN = UnansweredError, NotSentError, ReadOnlyError  # what may pass
_PAUSES = (0.01, 0.5)  # seconds between tries: the first, and the longest
_OWN = 1000  # commits of a tree that are remembered, to say what is lost


@dataclass
class Known:
    """What a store leaves to the next one of the same tree object."""

    log_id: str | None = None
    own: deque[tuple[At, list[str]]] = field(default_factory=lambda: deque(maxlen=_OWN))
    """What was acknowledged here: the place of each commit, and its operations."""
    behind: tuple[At, float] | None = None
    """What was read when the present work first fell behind, and when."""
    is_behind: bool = False
    """Whether it just did, and is planned again."""


class SharedStore(Reader):
    """The core's port of a store, over its tables; its methods bear the core's names.

    One thread at a time opens it, writes, and closes it; any may read beside that. `least` is the position that a tree
    had read before it opens again; `is_guess` tells whether the last `Begin` put off to ask what others wrote.

    Where the log lost what was read of it, as after a failover to a standby that lacked the last writes, the tree opens
    again by itself, unless an operation that was acknowledged here is missing: what it wrote later went with it.
    """

    def __init__(self, rows: PostgresRows, tree_id: str, known: Known, counts: Counter[str]) -> None:
        """Open nothing yet.

        Args:
            rows: where the log lies.
            tree_id: whose log it is.
            known: what the store before this one, of the same tree object, knew.
            counts: where conflicts and lost answers are counted.
        """
        super().__init__(rows, tree_id)
        self.least = ""
        self.health, self.is_guess = port.Health.SOUND, False
        self._known = known
        self._counts = counts
        self._turns = 0  # commits that are still to take turns
        self._wrote_at = self._looked_at = self._ended_at = self._turn_ends = float("-inf")
        self._took = float("inf")  # seconds of an `Append`: the least lately, since a busy machine is not a far one
        self._turn = ExitStack()

    @property
    def position(self) -> str:
        """That number, and the checksum of its line, which distinguishes it from another log's."""
        return f"{self.seq} {self._at.crc.decode()}"

    # -- opening --------------------------------------------------------------

    def Open(self, first: Callable[[], port.Operation], state: port.State) -> None:
        """Give all that the log holds to `state`; an empty one begins with the `first()` of the quickest writer."""
        with self._rows.still():
            if self._rows.is_readonly():
                self.health = port.Health.READ_ONLY
            log_id = self._rows.log_id(self.tree_id)
            if self.least and log_id != self._known.log_id:
                self._refuse("the tree was removed" if log_id is None else "another log has this name now")
            self._check_own()
            for records in self.load():
                state.Apply(records)
        if log_id is not None and not self.seq:
            self._refuse("the log is gone, though the tree is known")
        if log_id is None:
            self._create(first())
            for records in self.read_on():
                state.Apply(records)
            log_id = self._rows.log_id(self.tree_id)
        state.Check()
        self._known.log_id = log_id

    def _check_own(self) -> None:
        """Refuse a log that lacks what was acknowledged here."""
        own, missing = self._known.own, list[str]()
        there = self._rows.find(self.tree_id, [at.after for at, _ in own]) if own else []
        first, kept = min(there, default=None), {each[:3] for each in there}
        begins = first.after if first is not None and self._is_beginning(first) else 0
        for at, ids in reversed(own):
            if at in kept or at.seq <= begins:
                break  # and with it all before
            missing = [*ids, *missing]
        if missing:
            lost = f"{len(missing)} acknowledged operations are not there any more, the first is {missing[0]}"
            self._refuse(f"{lost}: open it again, and repeat what they did")

    def _create(self, operation: port.Operation) -> None:
        if self.health is port.Health.READ_ONLY:
            raise ReadOnlyError(f"there is no tree {port.shorten(self.tree_id)}, and the server only reads")
        (line,), crc = port.encode_lines([operation], 0, port.FIRST_CRC, port.FORMAT_FIELD)
        create = partial(self._rows.create, self.tree_id, port.new_id(), [Batch(0, 1, crc, line, "", len(line))])
        self._try(lambda _: create() or True, lambda: True)

    def _refuse_if_replaced(self, below: int) -> None:
        super()._refuse_if_replaced(below)
        self._check_own()  # says more than that the chain is broken

    def _refuse(self, detail: str) -> NoReturn:
        port.raise_corrupt(self.tree_id, self.seq, detail)

    # -- committing -----------------------------------------------------------

    def Begin(self, apply: Callable[[port.Records], None], for_commit: bool = False) -> None:
        """Let `apply` take in what was acknowledged anywhere before, or guess that all of it is known."""
        self._refuse_if_closed()
        known, began, was_behind = self._known, time.monotonic(), self._known.is_behind
        known.behind, known.is_behind = known.behind if was_behind else None, False
        has_turn = began < self._turn_ends
        may_guess = has_turn or (not self._turns and began - self._wrote_at < _GUESS_S)
        self.is_guess = for_commit and may_guess and not was_behind
        if self.is_guess:
            return
        self._turns = max(self._turns - 1, 0)
        first, end = None, began + (self._rows.patience / 2 if for_commit else float("inf"))
        catch_up = partial(self._take_in, None, apply, end)
        takes_turn = for_commit and not has_turn  # a turn is a transaction: a snapshot would go with it
        if takes_turn and self._turns and began - self._wrote_at > _IDLE_S:
            catch_up()  # much may have been written since, and no one waits while it is read
            began = time.monotonic()
        if takes_turn:
            queue = self._rows.queue(self.tree_id, lambda: self._at.after, PAGE, catch_up)
            first = self._turn.enter_context(queue)
        waited, is_loop = time.monotonic() - began, began - self._ended_at < _HELD_S / 2
        self._take_in(first, apply, end)
        held = min(max((_ROUND_S - waited) / 2, _HELD_S / 5), _HELD_S)  # half of what others leave
        if first is not None and is_loop and 4 * self._took < held:  # else it is of no use for several commits
            self._rows.hold(self.tree_id, held)
            self._turn_ends = time.monotonic() + held - 2 * self._took  # what is under way gets in before

    def _take_in(self, first: list[Batch] | None, apply: Callable[[port.Records], None], end: float) -> bool:
        """Take in what others wrote, and return whether it was much.

        After `end` no more is read than was there then; StoreError where they go on.
        """
        last, was = None, self.seq
        for records in self.read_on(first):
            self._turns = _TURNS
            apply(records)
            if time.monotonic() < end:
                continue
            if last is None:
                last = max((batch.upto for batch in self._rows.read_back(self.tree_id, 1 << 62, 1)), default=0)
            elif self.seq >= last:
                raise StoreError("nothing was changed: others write faster than this machine reads")
        return self.seq - was > _MUCH

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            raise ClosedError(f"the tree {port.shorten(self.tree_id)} is closed")

    def Append(self, operations: list[port.Operation]) -> None:
        """Make all operations durable, or none, right behind what was read; fills in the places of long rows.

        Raises:
            BehindError: another writer was quicker; nothing was written, nor ever will be.
            StoreError: nothing was written; with `outcome_unknown` it may come in once, later, whole.
        """
        self._refuse_if_closed()
        at = self._at
        lines, crc = port.encode_lines(operations, at.seq, at.crc)
        batch = _batch(at.seq, at.seq + len(lines), crc, b"".join(lines))
        behind, began = (at.after, at.crc), time.monotonic()
        looks = self.is_guess and began > max(self._turn_ends, self._looked_at + LOOK_S)
        # Only the first try gives way to others: the next one has to show what became of that.
        self._put(lambda again: self._rows.append(self.tree_id, behind, batch, looks and not again), batch)
        self._looked_at = time.monotonic() if looks else self._looked_at
        start = 0
        for operation, line in zip(operations, lines, strict=True):
            if operation.after.infos:
                operation.after.places.update(port.places_in(line, batch.after, start))
            start += len(line)
        self._at = At(batch.after, batch.upto, batch.crc)
        self._known.own.append((self._at, [operation.id for operation in operations]))
        self.is_guess, self._wrote_at = False, time.monotonic()
        self._took = min(self._wrote_at - began, 2 * self._took)

    def Confirm(self) -> None:
        """Raise BehindError where others have written since what was read."""
        self._refuse_if_closed()
        at = self._at
        if self.is_guess and [batch[:3] for batch in self._rows.read(self.tree_id, at.after, at.after, 2)] != [at]:
            self._fall_behind()
        self.is_guess = False

    def _put(self, append: Callable[[bool], bool], batch: Batch) -> None:
        """Append; raise BehindError where another writer was quicker."""
        if not self._try(append, lambda: self._stands(batch)):
            self._fall_behind()

    def _fall_behind(self) -> NoReturn:
        """Another writer was quicker: take turns from now on; give up past patience."""
        self._counts["guesses" if self.is_guess else "conflicts"] += 1
        self._turns = _TURNS
        known = self._known
        if known.behind is not None and known.behind[0] == self._at:
            self._rows.check_format()  # nothing came between, and all the same nothing is written
        at, since = known.behind = known.behind or (self._at, time.monotonic())
        if (waited := time.monotonic() - since) > self._rows.patience:
            why = f"other writers were quicker for {waited:.0f} s"
            if at == self._at:
                why = "the server drops what is written: is there a trigger on kt_batch?"
            raise StoreError(f"nothing was changed: {why}")
        if not self.is_guess and at == self._at:
            time.sleep(_PAUSES[0])
        known.is_behind = True
        raise port.BehindError(f"another writer has written to the tree {port.shorten(self.tree_id)}")

    def _try(self, attempt: Callable[[bool], bool], stands: Callable[[], bool]) -> bool:
        """Return what an attempt did; where one was not answered and the next finds nothing to do, what `stands` says.

        `attempt` is told whether one before it may have been carried out.

        Raises:
            StoreError: nothing was done, or with `outcome_unknown`, it may have been, or may still be.
        """
        end, (pause, longest) = time.monotonic() + self._rows.patience, _PAUSES
        is_unsure = False
        while True:
            try:
                if attempt(is_unsure):
                    return True
                if not is_unsure or not stands():
                    return False
                self._rows.settle(self.tree_id)
                self._counts["resolved"] += 1
                return True
            except StoreError as problem:
                is_final = isinstance(problem, ReadOnlyError) and self.health is port.Health.READ_ONLY
                if is_final or not (is_unsure or isinstance(problem, _AGAIN)):
                    raise
                is_lost = isinstance(problem, UnansweredError)
                self._counts["unanswered"] += is_lost
                is_unsure, error = is_unsure or is_lost, problem
            if error.outcome_unknown or time.monotonic() + pause > end:
                break
            time.sleep(pause)
            pause = min(2 * pause, longest)
        if not is_unsure:
            raise StoreError(f"nothing was changed: {error}")
        self._counts["unknown"] += 1
        raise StoreError(f"the outcome is unknown: {error}", outcome_unknown=True)

    def _stands(self, batch: Batch) -> bool:
        """Tell whether a batch is in its place; where another is, it never can be."""
        found = self._rows.read(self.tree_id, batch.after, -1, 1, time.monotonic() + 1)
        if not found or found[0].after != batch.after:  # it may have been there, and be compacted by now
            self._rows.check_format()
            raise StoreError("the log was written again meanwhile", outcome_unknown=True)
        there = found[0]
        return there == batch if not batch.pieces else there[:3] + there[4:] == batch[:3] + batch[4:]

    def End(self) -> None:
        """Let the next one have its turn; twice is no error."""
        self._turn.close()
        self._ended_at = time.monotonic()

    def known(self) -> tuple[str, int, bytes]:
        """Return by what a change of the log is seen: the tree, and the last batch's key and checksum."""
        return self.tree_id, self._at.after, self._at.crc

    # -- looking back ---------------------------------------------------------

    def ReadBack(self, with_history: bool, id: str = "") -> Generator[tuple[port.Line | None, bytes], None, None]:
        """Yield the lines, newest first; None for what breaks the chain.

        Cost: with an id, the server looks through the log for the lines that may touch that record.
        """
        return self._find_lines(id) if id else self.read_back(self._at)

    def _find_lines(self, id: str) -> Generator[tuple[port.Line | None, bytes], None, None]:
        held, below = port.id_in_row(id), self._at.seq
        while batches := self._rows.read_back(self.tree_id, below, _FOUND, held):
            for batch in batches:
                for line, raw in port.read_lines_back(self._lines_of(batch)):
                    if line is None or held in raw:
                        yield line, raw
            below = batches[-1].after

    def Sizes(self) -> dict[str, int]:
        """Return the bytes in each table."""
        return self._rows.sizes(self.tree_id)

    def FindProblems(self, fresh: port.State) -> Iterator[str]:
        """Read the whole log again, from its first line, and look at what is derived from it."""
        at = self._at
        with Reader(self._rows, self.tree_id, at.seq, from_state=False) as reader:
            for records in reader.load():
                fresh.Apply(records)
            if reader._at != at:
                port.raise_corrupt(self.tree_id, reader.seq + 1, "it cannot be read")
            fresh.next_ordinal = max(fresh.next_ordinal, reader.next_ordinal)
        marks = self._rows.marks(self.tree_id)
        damaged = [mark.seq for mark in marks if not self._rows.is_whole(self.tree_id, mark.seq)]
        for seq in damaged:
            yield f"the state at operation {seq} is damaged; opening reads the log instead"
        kept = {mark.seq for mark in marks if mark.is_full and mark.seq not in damaged}
        for name, seq in self._rows.snapshots(self.tree_id).items():
            if seq not in kept and (seq <= reader.begins or seq > at.seq):
                yield f"the snapshot {name} cannot be read: neither the log nor a state goes back to operation {seq}"

    # -- setting aside --------------------------------------------------------

    def SnapshotNames(self) -> list[str]:
        """Return the names of all snapshots, oldest first."""
        return sorted(self._rows.snapshots(self.tree_id))

    def Snapshot(self, stamp: str, copy: bool) -> str:
        """Keep a name for the present state; with `copy` also all its rows."""
        self._refuse_if_closed()
        at = self._at
        for name in itertools.chain([stamp], (f"{stamp}-{number}" for number in itertools.count(2))):
            if self._rows.add_snapshot(self.tree_id, name, at.seq, (at.after, at.crc)):
                break
        if copy:
            write_state(self._rows, self.tree_id, at.seq, is_full=True)
        return name

    def OpenSnapshot(self, name: str) -> Reader:
        """Return a reader of the log as far as a snapshot goes."""
        seq = self._rows.snapshots(self.tree_id).get(name)
        if seq is None:
            raise NotFoundError("snapshot", name)
        return Reader(self._rows, self.tree_id, seq)

    def Compact(self, rows_of: Callable[[int], Iterable[bytes]], next_ordinal: int, keep_history: bool) -> None:
        """Write a state; without history a log that begins with it, and take what was before away."""
        self._refuse_if_closed()
        if keep_history:
            write_state(self._rows, self.tree_id)
            return
        at, batches, unread = self._at, list[Batch](), port.unread(rows_of)

        def fetched(kind: int) -> Iterator[bytes]:
            return (row for _, row in port.read_ahead(unread(kind), self.read_rows))

        for seq, crc, line in port.encode_state(fetched, next_ordinal, at.seq, time.time):
            batches.append(_batch(seq - 1, seq, crc, line))
        while True:
            for seq in set(self._rows.snapshots(self.tree_id).values()):
                write_state(self._rows, self.tree_id, seq, is_full=True)
            try:
                self._put(lambda _: self._rows.replace(self.tree_id, (at.after, at.crc), batches), batches[0])
                self._known.own.clear()
                self._known.own.append((At(*batches[0][:3]), ["the compaction"]))
                return
            except UnkeptError:  # a snapshot was taken meanwhile
                continue

    # -- closing --------------------------------------------------------------

    def Close(self, apply: Callable[[port.Records], None]) -> None:
        """Do nothing: all that was acknowledged is where it belongs."""

    def Release(self) -> None:
        """Use the log no more; connections are the log's own, and a forked child may come here in the middle of one."""
        self._is_closed = True


def _batch(after: int, upto: int, crc: bytes, lines: bytes) -> Batch:
    return Batch(after, upto, crc, lines, port.new_id() if len(lines) > PIECES_FROM else "", len(lines))
