"""Rewriting an entry by a wish: a model writes, guards compare, and what they stop waits for a person."""

import contextlib
from collections.abc import Mapping
from typing import Any

from ...base.secrets_in_text import secret_shape
from ...keyword_tree import VersionConflictError
from ..answers import ChangedOut, DoneOut, EvolutionOut, PageOut
from ..catalog import Known
from ..checks import is_text, need, parse
from ..evolving import check_rewrite
from ..schemas import AcceptIn, Json, KnowHubError, KnowledgeUpdate, ProposalQuery, Record, iso_time, kind_of, not_found
from ..tokens import Token, is_visible
from .entries import Entries
from .store import Store, asker_of

__all__ = ["Rewriting"]


class Rewriting:
    """Proposals, and what becomes of them."""

    def __init__(self, store: Store, entries: Entries) -> None:
        self._store, self._entries = store, entries

    def new_proposal(self, token: Token, record: Record, feedback: str, key: str) -> Record:
        """Return the record of an open proposal, not stored yet."""
        own: Json = {"of": record.id, "version": record.version, "feedback": feedback, "why": "", "state": "open"}
        own |= {"scopes": token.owned(record.fields["scopes"]), "owner": record.created_by}
        return Record(self._store.new_id("proposal", token, key), "", "", own, token.principal)

    def evolve(self, token: Token, id: str, proposal: Record, body: KnowledgeUpdate) -> EvolutionOut:
        """Let a model rewrite an entry: what it wrote is applied, or left to a person."""
        record, feedback = self._store.record(token, id, "knowledge"), body.evolve_feedback
        question = {"query": record.fields["task"], "content": record.content, "feedback": feedback}

        def read(data: Any) -> str | None:
            content = data.get("content") if isinstance(data, Mapping) else None
            return str(content) if is_text(content) else None

        reply = self._store.models.ask("evolve_knowledge", question, read, asker_of(token), body.model)
        text = reply.data or ""
        answer: EvolutionOut = {
            "state": "queued",
            "reason": reply.reason,
            "operation_id": "",
            "proposal_id": proposal.id,
            "usage": reply.usage,
        }
        if not text:
            return answer
        stopped = check_rewrite(record.content, text, str(feedback))
        if secret_shape(text) and not self._store.allow_secret_shapes:
            # What looks like a key is not even proposed: a proposal would stand in the log.
            return {**answer, "reason": "; ".join(stopped) or "it has the shape of a secret"}
        if record.created_by != token.principal and not token.may("curate"):
            stopped.append("it is another's entry")
        if not stopped:
            with contextlib.suppress(VersionConflictError):
                operation_id = self._apply(token, proposal, record, text)
                return {**answer, "state": "applied", "operation_id": operation_id}
            stopped.append("the entry was changed meanwhile")
        why = "; ".join(stopped)[:1000]
        proposed = proposal.changed(text, why=why)
        operation_id, _ = self._store.change(token, "propose", lambda: [self._store.ledger.update(proposed)])
        return {**answer, "state": "proposed", "reason": why, "operation_id": operation_id}

    def _apply(self, token: Token, proposal: Record, record: Record, text: str, mark: str = "") -> str:
        """Give an entry a new content, and close the proposal: one operation."""
        changed = record.changed(text), proposal.changed(text, state="accepted")
        return self._store.write(token, "evolve", lambda: [*map(self._store.ledger.update, changed)], mark)[0]

    def _sees_proposal(self, token: Token, known: Known) -> bool:
        """Return whether a token sees both the entry as it is, and as it was when the proposal was written."""
        entry = self._store.catalog.lead(known.of)
        return (
            entry is not None
            and self._store.catalog.sees(token, entry)
            and is_visible(token, known.scopes, known.owner)
        )

    def proposals(self, token: Token, query: ProposalQuery | Mapping[str, Any] = {}) -> PageOut:  # noqa: B006
        """Return a page of proposals, newest first."""
        need(token, "read")
        query = parse(ProposalQuery, query)
        records, cursor = self._store.page(
            "proposal", lambda known: known.state == query.state and self._sees_proposal(token, known), query
        )
        found = [self._told_proposal(each) for each in records]
        return {"results": found, "count": len(found), "next_cursor": cursor}

    def _told_proposal(self, record: Record) -> Json:
        own = record.fields
        entry = self._store.ledger.read(own["of"])
        answer: Json = {"id": record.id, "knowledge_id": own["of"], "state": own["state"], "feedback": own["feedback"]}
        answer |= {"why": own["why"], "content": record.content, "old_content": entry.content if entry else ""}
        answer["task"] = entry.fields["task"] if entry else own["of"]
        return answer | {"created_by": record.created_by, "created_at": iso_time(record.created_at)}

    def _open_proposal(self, token: Token, id: str) -> tuple[Record, Record]:
        """Return an open proposal and its entry, for one who may decide on it."""
        need(token, "write")
        known = self._store.catalog.get(id) if kind_of(id) == "proposal" else None
        if known is None and kind_of(id) == "proposal":
            self._store.catalog.catch_up()
            known = self._store.catalog.get(id)
        proposal = self._store.ledger.read(id) if known is not None and self._sees_proposal(token, known) else None
        if proposal is None:
            raise not_found()
        record = self._store.record(token, proposal.fields["of"], "knowledge")
        self._store.check_owner(token, record)
        self._store.check_scopes(token, record.fields["scopes"], record)
        if proposal.fields["state"] != "open":
            raise KnowHubError("conflict", f"the proposal was {proposal.fields['state']} already")
        return proposal, record

    def accept(self, token: Token, id: str, body: AcceptIn | Mapping[str, Any] = {}, key: str = "") -> ChangedOut:  # noqa: B006
        """Give an entry the text that was proposed, or that a person wrote instead; needs the entry, or `curate`."""
        body = parse(AcceptIn, body)
        mark, earlier = self._store.repeated(token, key, "accept", id, body)
        if earlier:
            [entry] = [each for each in earlier[0].after if each.kind == "knowledge"]
            return {"entry": self._entries.get(token, entry.id), "operation_id": earlier[0].operation_id}
        proposal, record = self._open_proposal(token, id)
        own_words = body.content
        text = own_words or proposal.content
        if not text:
            raise KnowHubError("conflict", "there is no text yet: give one as `content`")
        self._store.check_secrets(text)
        if not own_words and record.version < proposal.fields["version"]:  # another process wrote it just now
            self._store.catalog.catch_up()
            proposal, record = self._open_proposal(token, id)
        if not own_words and record.version != proposal.fields["version"]:
            raise KnowHubError("conflict", "the entry was changed since: it outgrew the proposal")
        try:
            operation_id = self._apply(token, proposal, record, text, mark)
        except VersionConflictError as error:
            self._store.catalog.catch_up()
            raise KnowHubError("conflict", "the entry was changed since: it outgrew the proposal") from error
        return {"entry": self._entries.get(token, record.id), "operation_id": operation_id}

    def reject(self, token: Token, id: str, key: str = "") -> DoneOut:
        """Close a proposal; the entry stays as it is."""
        mark, earlier = self._store.repeated(token, key, "reject", id)
        if earlier:
            return {"id": id, "operation_id": earlier[0].operation_id}
        proposal, _ = self._open_proposal(token, id)
        closed = proposal.changed(state="rejected")
        operation_id, _ = self._store.change(token, "reject", lambda: [self._store.ledger.update(closed)], mark)
        return {"id": id, "operation_id": operation_id}
