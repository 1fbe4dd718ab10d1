"""Judging entries: each judgement is a record of its own, so that no two judges can overwrite each other."""

import json
from collections.abc import Mapping
from typing import Any

from ...keyword_tree import DuplicateIdError, VersionConflictError
from ..answers import BatchOut, PageOut, UpdatedOut
from ..checks import need, parse
from ..journal import Entry
from ..ledger import ATTEMPTS
from ..schemas import BatchIn, Case, Json, KnowHubError, KnowledgeUpdate, PageQuery, Record, iso_time
from ..tokens import Token, is_visible
from .entries import Entries
from .rewriting import Rewriting
from .store import Store, asker_of, read_case, read_cursor, under_way, write_cursor

__all__ = ["Judging"]


class Judging:
    """Feedback."""

    def __init__(self, store: Store, entries: Entries, rewriting: Rewriting) -> None:
        self._store, self._entries, self._rewriting = store, entries, rewriting

    def update(self, token: Token, id: str, body: KnowledgeUpdate | Mapping[str, Any], key: str = "") -> UpdatedOut:
        """Judge an entry, score it, or let it be rewritten; what is judged is one operation.

        Cost: one sync; with `evolve_feedback` a model's time, at most 20 s, and one sync more.
        """
        need(token, "write")
        body = parse(KnowledgeUpdate, body)
        record = self._store.record(token, id, "knowledge")
        if body.update_score is not None:
            self._store.check_owner(token, record)
            self._store.check_scopes(token, record.fields["scopes"], record)
        if body.evolve_feedback is not None and not self._store.models.available(body.model):
            self._store.models.check_share(asker_of(token))
        cases = [(True, body.add_helpful_case), (False, body.add_harmful_case)]
        given = [(is_helpful, case) for is_helpful, case in cases if case is not None]
        self._store.check_secrets(body)
        mark, earlier = self._store.repeated(token, key, "update", record.id, body)
        if earlier:
            return self._first_answer(token, record, earlier[0])
        made = [self.new_feedback(token, record, *judged, key, str(judged[0])) for judged in given]
        proposal = None
        if body.evolve_feedback is not None:
            proposal = self._rewriting.new_proposal(token, record, body.evolve_feedback, key)
            made.append(proposal)
        if not made and body.update_score is None:  # nothing is to be updated
            return {"entry": self._entries.show(token, record), "operation_id": ""}
        operation_id, records = self._judge(token, record, made, body.update_score, mark)
        entry = self._entries.show(token, next((each for each in records if each.id == record.id), record))
        answer: UpdatedOut = {"entry": entry, "operation_id": operation_id}
        if proposal is not None:
            stored = next(each for each in records if each.id == proposal.id)
            answer["evolution"] = self._rewriting.evolve(token, record.id, stored, body)
            answer["entry"] = self._entries.get(token, id)
        return answer

    def _judge(
        self, token: Token, record: Record, made: list[Record], score: int | None, mark: str
    ) -> tuple[str, list[Record]]:
        for left in reversed(range(ATTEMPTS)):
            now = record if left == ATTEMPTS - 1 else (self._store.ledger.read(record.id) or record)

            def plan(now: Record = now) -> list[Record]:
                written = self._store.ledger.create(made) if made else []
                if score is not None:
                    written.append(self._store.ledger.update(now.changed(score=score)))
                return written

            try:
                return self._store.write(token, "feedback", plan, mark)
            except VersionConflictError as error:
                if not left:
                    raise KnowHubError("conflict", "others changed it each time: try again") from error
                self._store.ledger.refresh()
            except DuplicateIdError as error:
                raise under_way() from error
        raise AssertionError("the last attempt returns or raises")

    def new_feedback(self, token: Token, record: Record, is_helpful: bool, case: Case, key: str, place: str) -> Record:
        """Return the record of a judgement, not stored yet; `place` distinguishes those of one call."""
        id = self._store.new_id("feedback", token, key, place)
        own: Json = {"of": record.id, "helpful": is_helpful, "owner": record.created_by}
        own["scopes"] = token.owned(record.fields["scopes"])
        stored = case.to_json()
        stored.setdefault("timestamp", iso_time(self._store.clock()))
        return Record(id, json.dumps(stored, ensure_ascii=False), "", own, token.principal)

    def _first_answer(self, token: Token, entry: Record, earlier: Entry) -> UpdatedOut:
        """Return what a call that comes again was answered the first time, and what became of it since."""
        answer: UpdatedOut = {"entry": self._entries.show(token, entry), "operation_id": earlier.operation_id}
        for record in self._store.as_now(earlier):
            if record.kind == "proposal":
                is_applied = record.fields["state"] == "accepted"
                state = "applied" if is_applied else "proposed" if record.content else "queued"
                newest = self._store.ledger.journal.of_record(record.id, 1)
                why, id = str(record.fields.get("why", "")), newest[0].operation_id if newest else ""
                answer["evolution"] = {"state": state, "reason": why, "operation_id": id, "proposal_id": record.id}
        return answer

    def batch_update(self, token: Token, body: BatchIn | Mapping[str, Any], key: str = "") -> BatchOut:
        """Judge several entries: all or none, unless `atomic` is false, when each has a result.

        Cost: one sync.
        """
        need(token, "write")
        body = parse(BatchIn, body)
        mark, earlier = self._store.repeated(token, key, "batch", body)
        made: list[Record] = []
        results: list[Json] = []
        problems: list[dict[str, str]] = []
        for place, one in enumerate(body.feedback_list):
            try:
                record = self._store.record(token, one.knowledge_id, "knowledge")
                self._store.check_secrets(one.case.to_json())
            except KnowHubError as error:
                problems.append({"pointer": f"/feedback_list/{place}", "detail": error.detail})
                results.append({"knowledge_id": one.knowledge_id, "ok": False, "detail": error.detail})
                continue
            made.append(self.new_feedback(token, record, one.is_helpful, one.case, key, str(place)))
            results.append({"knowledge_id": one.knowledge_id, "ok": True, "detail": ""})
        if problems and body.atomic:
            raise KnowHubError("conflict", "some of the feedback cannot be taken; none was", problems)
        if earlier:
            self._store.as_now(earlier[0])
            operation_id = earlier[0].operation_id
        else:
            try:
                operation_id = self._store.create(token, "feedback", made, mark)[0] if made else ""
            except DuplicateIdError as error:
                raise under_way() from error
        return {"updated": len(made), "operation_id": operation_id, "results": results}

    def feedback(self, token: Token, id: str, query: PageQuery | Mapping[str, Any] = {}) -> PageOut:  # noqa: B006
        """Return a page of an entry's feedback, newest first; what is not visible makes a page shorter."""
        need(token, "read")
        query, known = parse(PageQuery, query), self._store.known(token, id, "knowledge")
        read = self._store.catalog.feedback(known.id, query.limit + 1, before=read_cursor(query.cursor))
        page = [each for each in read[: query.limit] if is_visible(token, each.scopes, each.owner)]
        results = [
            {"id": each.id, "knowledge_id": each.of, "is_helpful": each.is_helpful, "case": read_case(record)}
            | {"created_by": each.principal, "created_at": iso_time(each.created_at)}
            for each in page
            if (record := self._store.ledger.read(each.id)) is not None
        ]
        cursor = write_cursor(read[query.limit - 1].key) if len(read) > query.limit else None
        return {"results": results, "count": len(results), "next_cursor": cursor}
