"""Judging entries, and rewriting them by a wish.

Each judgement is a record of its own, so that no two judges can overwrite each other. A wish is a proposal: a model
writes, guards compare, and what they stop waits for a person.
"""

from collections.abc import Mapping
from typing import Any

from pydantic_core import to_json

from ...base.secrets_in_text import secret_shape
from ...base.text import mapping_of
from ..catalog import Entry, read_case
from ..evolving import check_rewrite
from ..ledger import result_of
from ..records import Json, KnowHubError, Record, iso_time, kind_of, not_found
from ..schemas import AcceptIn, BatchIn, Case, KnowledgeUpdate, PageQuery, ProposalQuery, is_text, parse
from ..tokens import Token, need, sees_said
from .entries import Entries
from .store import Call, admit, page_of, read_cursor


class Judging(Entries):
    """Feedback, the wishes in it, and what becomes of them."""

    def update(self, token: Token, id: str, body: KnowledgeUpdate | Mapping[str, Any], key: str = "") -> Json:
        """Judge an entry, score it, or let it be rewritten; what is judged is one operation.

        Cost: one sync; with `evolve_feedback` a model's time, at most 20 s, and one sync more.
        """
        answer: Json = result_of(*self.together([self.updating(token, id, body, key)]))
        return answer

    def updating(self, token: Token, id: str, body: KnowledgeUpdate | Mapping[str, Any], key: str = "") -> Call:
        """Return `update` as a part of `together`."""
        body = admit(token, "write", KnowledgeUpdate, body)
        record = self._record(token, id, "knowledge")
        if body.update_score is not None:
            self._check_owner(token, record)
            self._check_scopes(token, record.fields["scopes"], record)
        if body.evolve_feedback is not None and not self.models.available(body.model):
            self.models.check_share(token.asker)
        cases = [(True, body.add_helpful_case), (False, body.add_harmful_case)]
        given = [(is_helpful, case) for is_helpful, case in cases if case is not None]
        self._check_secrets(body)
        mark, earlier = self._repeated(token, key, "update", record.id, body)
        if earlier:
            return self._first_answer(token, record, earlier)
        made = [self._new_feedback(token, record, *judged, key, str(judged[0])) for judged in given]
        if body.evolve_feedback is not None:
            made.append(self._new_proposal(token, record, body.evolve_feedback, key))
        note = self._note(token, record) if given else ""

        def plan() -> list[Record]:
            now = self.ledger.read(record.id) or record
            return [*self.ledger.create(made), self.ledger.update(now.changed(score=body.update_score))]

        try:
            if body.update_score is not None:
                operation_id, records = self._write(token, "feedback", plan, mark)
            elif len(made) != 1:
                operation_id, records = self._create(token, "feedback", made, mark)
            else:
                operation_id, records = yield token, "feedback", made, mark
        except KnowHubError:
            mark, earlier = self._repeated(token, key, "update", record.id, body)
            if not earlier:  # else the same call came twice, at once
                raise
            return self._first_answer(token, self._record(token, record.id, "knowledge"), earlier)
        answer: Json = {"operation_id": operation_id, "note": note}
        if body.evolve_feedback is not None:
            answer["evolution"] = self._evolve(token, record.id, records[len(given)], body)
        return {"entry": self._show(token, self._record(token, record.id, "knowledge")), **answer}

    def _note(self, token: Token, record: Record) -> str:
        """Return why a vote of a token does not count, or does not count once more; "" where it counts."""
        if record.created_by == token.principal:
            return "kept, and not counted: nobody votes on their own entry"
        if self.catalog.has_voted(record.id, token.principal):
            return "it takes the place of your earlier vote: each principal has one"
        return ""

    def _new_feedback(self, token: Token, record: Record, is_helpful: bool, case: Case, key: str, place: str) -> Record:
        """Return the record of a judgement, not stored yet; `place` distinguishes those of one call."""
        id = self._new_id("feedback", token, key, place)
        own: Json = {"of": record.id, "helpful": is_helpful, "owner": record.created_by}
        own["scopes"] = token.owned(record.fields["scopes"])
        stored = case.to_json()
        stored.setdefault("timestamp", iso_time(self.clock()))
        return Record(id, to_json(stored).decode(), "", own, token.principal)

    def _first_answer(self, token: Token, entry: Record, earlier: Entry) -> Json:
        """Return what a call that comes again was answered the first time, and what became of it since."""
        answer: Json = {"entry": self._show(token, entry), "operation_id": earlier.operation_id, "note": ""}
        for record in self._as_now(earlier):
            if record.kind == "proposal":
                is_applied = record.fields["state"] == "accepted"
                state = "applied" if is_applied else "proposed" if record.content else "queued"
                newest = self.catalog.operations_on(record.id, 1)
                why, id = str(record.fields.get("why", "")), newest[0].operation_id if newest else ""
                answer["evolution"] = {"state": state, "reason": why, "operation_id": id, "proposal_id": record.id}
        return answer

    def batch_update(self, token: Token, body: BatchIn | Mapping[str, Any], key: str = "") -> Json:
        """Judge several entries: all or none, unless `atomic` is false, when each has a result.

        Cost: one sync.
        """
        body = admit(token, "write", BatchIn, body)
        mark, earlier = self._repeated(token, key, "batch", body)
        made: list[Record] = []
        results: list[Json] = []
        problems: list[dict[str, str]] = []
        for place, one in enumerate(body.feedback_list):
            result: Json = {"knowledge_id": one.knowledge_id, "ok": True, "detail": ""}
            try:
                record = self._record(token, one.knowledge_id, "knowledge")
                self._check_secrets(one.case.to_json())
                made.append(self._new_feedback(token, record, one.is_helpful, one.case, key, str(place)))
                result["detail"] = self._note(token, record)
            except KnowHubError as error:
                problems.append({"pointer": f"/feedback_list/{place}", "detail": error.detail})
                result |= {"ok": False, "detail": error.detail}
            results.append(result)
        if problems and body.atomic:
            raise KnowHubError("conflict", "some of the feedback cannot be taken; none was", problems)
        if earlier:
            self._as_now(earlier)
        operation_id = earlier.operation_id if earlier else self._create(token, "feedback", made, mark)[0]
        return {"updated": len(made), "operation_id": operation_id, "results": results}

    def feedback(self, token: Token, id: str, query: PageQuery | Mapping[str, Any] = {}) -> Json:  # noqa: B006
        """Return a page of an entry's feedback, newest first; what is not visible makes a page shorter."""
        query, known = admit(token, "read", PageQuery, query), self._record(token, id, "knowledge")
        read = self.catalog.feedback(known.id, query.limit + 1, read_cursor(query.cursor))[: query.limit + 1]
        page = [each for each in read[: query.limit] if sees_said(token, each)]
        shown = [{**case_fields(each), "created_at": iso_time(each.created_at)} for each in page]
        return page_of(shown, read[query.limit - 1].key if len(read) > query.limit else None)

    # -- rewriting --

    def _new_proposal(self, token: Token, record: Record, feedback: str, key: str) -> Record:
        """Return the record of an open proposal, not stored yet."""
        own: Json = {"of": record.id, "version": record.version, "feedback": feedback, "why": "", "state": "open"}
        own |= {"scopes": token.owned(record.fields["scopes"]), "owner": record.created_by}
        return Record(self._new_id("proposal", token, key), "", "", own, token.principal)

    def _evolve(self, token: Token, id: str, proposal: Record, body: KnowledgeUpdate) -> Json:
        """Let a model rewrite an entry: what it wrote is applied, or left to a person."""
        record, feedback = self._record(token, id, "knowledge"), body.evolve_feedback
        question = {"query": record.fields["task"], "content": record.content, "feedback": feedback}

        def read(data: Any) -> str | None:
            content = mapping_of(data).get("content")
            return str(content) if is_text(content) else None

        reply = self.models.ask("evolve_knowledge", question, read, token.asker, body.model)
        text = reply.data or ""
        answer: Json = {"state": "queued", "reason": reply.reason, "operation_id": "", "proposal_id": proposal.id}
        answer["usage"] = reply.usage
        if not text:
            return answer
        stopped = check_rewrite(record.content, text, str(feedback))
        if secret_shape(text) and not self.allow_secret_shapes:
            # What looks like a key is not even proposed: a proposal would stand in the log.
            return {**answer, "reason": "; ".join(stopped) or "it has the shape of a secret"}
        if record.created_by != token.principal and not token.may("curate"):
            stopped.append("it is another's entry")
        if not stopped:
            try:
                operation_id = self._apply(token, proposal, record, text)
                return {**answer, "state": "applied", "operation_id": operation_id}
            except KnowHubError as error:
                if error.code != "changed":
                    raise
                stopped.append("the entry was changed meanwhile")
        why = "; ".join(stopped)[:1000]
        proposed = proposal.changed(text, why=why)
        operation_id, _ = self._write(token, "propose", lambda: [self.ledger.update(proposed)])
        return {**answer, "state": "proposed", "reason": why, "operation_id": operation_id}

    def _apply(self, token: Token, proposal: Record, record: Record, text: str, mark: str = "") -> str:
        """Give an entry a new content, and close the proposal: one operation."""
        changed = record.changed(text), proposal.changed(text, state="accepted")
        return self._write(token, "evolve", lambda: [*map(self.ledger.update, changed)], mark)[0]

    def proposals(self, token: Token, query: ProposalQuery | Mapping[str, Any] = {}) -> Json:  # noqa: B006
        """Return a page of proposals, newest first."""
        query = admit(token, "read", ProposalQuery, query)

        def wanted(known: Record) -> bool:
            return known.fields["state"] == query.state and self._sees_statement(token, known)

        return self._page("proposal", wanted, query, self._told_proposal)

    def _told_proposal(self, record: Record) -> Json:
        own = record.fields
        entry = self.catalog.get(own["of"])
        answer: Json = {"id": record.id, "knowledge_id": own["of"], "state": own["state"], "feedback": own["feedback"]}
        answer |= {"why": own["why"], "content": record.content, "old_content": entry.content if entry else ""}
        answer["task"] = entry.fields["task"] if entry else own["of"]
        return answer | {"created_by": record.created_by, "created_at": iso_time(record.created_at)}

    def _open_proposal(self, token: Token, id: str) -> tuple[Record, Record]:
        """Return an open proposal and its entry, for one who may decide on it."""
        need(token, "write")
        proposal = self._current(self.catalog.get, id) if kind_of(id) == "proposal" else None
        if proposal is None or not self._sees_statement(token, proposal):
            raise not_found()
        record = self._record(token, proposal.fields["of"], "knowledge", proposal.fields["version"])
        self._check_owner(token, record)
        self._check_scopes(token, record.fields["scopes"], record)
        if proposal.fields["state"] != "open":
            raise KnowHubError("conflict", f"the proposal was {proposal.fields['state']} already")
        return proposal, record

    def accept(self, token: Token, id: str, body: AcceptIn | Mapping[str, Any] = {}, key: str = "") -> Json:  # noqa: B006
        """Give an entry the text that was proposed, or that a person wrote instead; needs the entry, or `curate`."""
        body = parse(AcceptIn, body)
        mark, earlier = self._repeated(token, key, "accept", id, body)
        if earlier:
            [entry] = [each for each in earlier.after if each.kind == "knowledge"]
            return {"entry": self.get(token, entry.id), "operation_id": earlier.operation_id}
        proposal, record = self._open_proposal(token, id)
        text = body.content or proposal.content
        if not text:
            raise KnowHubError("conflict", "there is no text yet: give one as `content`")
        self._check_secrets(text)
        if not body.content and record.version != proposal.fields["version"]:
            raise KnowHubError("conflict", "the entry was changed since: it outgrew the proposal")
        operation_id = self._apply(token, proposal, record, text, mark)
        return {"entry": self.get(token, record.id), "operation_id": operation_id}

    def reject(self, token: Token, id: str, key: str = "") -> Json:
        """Close a proposal; the entry stays as it is."""
        mark, earlier = self._repeated(token, key, "reject", id)
        if earlier:
            return {"id": id, "operation_id": earlier.operation_id}
        proposal, _ = self._open_proposal(token, id)
        closed = proposal.changed(state="rejected")
        operation_id, _ = self._write(token, "reject", lambda: [self.ledger.update(closed)], mark)
        return {"id": id, "operation_id": operation_id}


def case_fields(record: Record) -> Json:
    """Return what every form of a feedback has."""
    own, case = record.fields, read_case(record.content)
    said: Json = {"id": record.id, "knowledge_id": own["of"], "is_helpful": own["helpful"], "case": case}
    return {**said, "created_by": record.created_by}
