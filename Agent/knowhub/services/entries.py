"""Knowledge itself: saved, read, listed, changed, hidden, and as it once was."""

from collections.abc import Mapping
from typing import Any

from ..ledger import result_of
from ..records import OWNER_SCOPE, Json, KnowHubError, Record, iso_time, kind_of, not_found
from ..schemas import KnowledgeIn, KnowledgePatch, ListQuery
from ..tokens import Token, need, sees
from .store import Call, Store, admit, entry_fields, judgement_of, page_of, stamps, told_operation

HISTORY_LIMIT = 20
"""Cases that an entry shows; `feedback` pages all."""

SIMILAR_LIMIT = 3
SIMILAR_LEAST = 0.5
"""So many similar entries are returned with a new one: those whose tasks share at least half of their terms."""

_VERSIONS = 200
"""Versions of a history, at most."""


class Entries(Store):
    """Entries of knowledge."""

    def save(self, token: Token, body: KnowledgeIn | Mapping[str, Any], key: str = "") -> Json:
        """Keep new knowledge; return `entry`, `operation_id`, and `similar`: up to three that it resembles.

        Args:
            token: Who saves it: the entry's principal.
            body: See `KnowledgeIn`.
            key: Of the caller's choice: the same once more gets the first answer, another body under it is refused.

        Cost: one sync; what it resembles is found in memory.
        """
        answer: Json = result_of(*self.together([self.saving(token, body, key)]))
        return answer

    def saving(self, token: Token, body: KnowledgeIn | Mapping[str, Any], key: str = "") -> Call:
        """Return `save` as a part of `together`."""
        body = self._scoped(token, admit(token, "write", KnowledgeIn, body))
        self._check_scopes(token, body.scopes)
        self._check_secrets(body)
        mark, earlier = self._repeated(token, key, "save", body)
        if not earlier:
            id = self._new_id("knowledge", token, key)
            record = Record(id, body.content, body.source.name, self._fields_of(token, body), token.principal)
            found = self.catalog.resembling(token, body.task, SIMILAR_LEAST, SIMILAR_LIMIT)
            similar = [{"id": one.id, "task": one.fields["task"], "similarity": round(like, 3)} for like, one in found]
            try:
                operation_id, [made] = yield token, "save", [record], mark
                return self._saved(made, self._show(token, made, is_new=True), operation_id, similar)
            except KnowHubError:
                mark, earlier = self._repeated(token, key, "save", body)
                if not earlier:  # else the same call came twice, at once
                    raise
        [there] = self._as_now(earlier)
        if not sees(token, there):
            raise not_found()
        return self._saved(there, self._show(token, there), earlier.operation_id, [])

    def _saved(self, made: Record, entry: Json, operation_id: str, similar: list[Json]) -> Json:
        note = "private: nobody else sees it" if made.fields["scopes"] == [OWNER_SCOPE] else ""
        return {"entry": entry, "operation_id": operation_id, "similar": similar, "note": note}

    def _fields_of(self, token: Token, body: KnowledgeIn) -> Json:
        """Return the fields of the record that a body describes."""
        source = body.source.model_dump(mode="json")
        source["message_id"] = body.message_id or body.source.message_id
        source["timestamp"] = source["timestamp"] or iso_time(self.clock())
        del source["name"]
        return {
            "task": body.task,
            "types": list(dict.fromkeys(body.types)),
            "tags": body.tags,
            "scopes": list(dict.fromkeys(body.scopes)),
            "owner": (body.owner if token.may_say(body.owner) else "") or token.principal,
            "resource_ids": body.all_resource_ids(),
            "source": source,
            "message_id": source["message_id"],
            "score": body.score,
            "confidence": body.confidence,
        }

    def get(self, token: Token, id: str) -> Json:
        """Return an entry whole.

        Cost: some 0.1 ms, and 20 µs for each case shown.
        """
        need(token, "read")
        return self._show(token, self._record(token, id, "knowledge"))

    def _show(self, token: Token, record: Record, *, is_new: bool = False) -> Json:
        """Return an entry as answers have it; a new one was judged by no one yet."""
        own, judged_before = record.fields, record.fields.get("judged") or {}
        harmful, helpful = ([], []) if is_new else self.catalog.cases(token, record.id, HISTORY_LIMIT)
        judged = judgement_of(record)
        for name, cases in (("helpful_history", helpful), ("harmful_history", harmful)):
            judged[name] = [*cases, *judged_before.get(name, [])][:HISTORY_LIMIT]
        source = {"name": record.source, **own["source"]}
        entry = {**entry_fields(record), "message_id": own["message_id"], "source": source, "eval": judged}
        return {**entry, **stamps(record), "merged_into": record.merged_into}

    def list_knowledge(self, token: Token, query: ListQuery | Mapping[str, Any] = {}) -> Json:  # noqa: B006  it is only read
        """Return a page of entries, newest first."""
        query = admit(token, "read", ListQuery, query)
        types, scopes = _split(query.types), _split(query.scopes)
        key, _, value = (query.tag or "").partition(":")

        def wanted(known: Record) -> bool:
            own = known.fields
            return (
                not known.merged_into
                and sees(token, known)
                and (types is None or not types.isdisjoint(own["types"]))
                and (scopes is None or not scopes.isdisjoint(own["scopes"]))
                and (query.owner is None or query.owner == own["owner"])
                and (not key or (key in own["tags"] and value in ("", own["tags"][key])))
            )

        return self._page("knowledge", wanted, query, lambda record: self._show(token, record))

    def patch(
        self, token: Token, id: str, body: KnowledgePatch | Mapping[str, Any], version: int | None = None, key: str = ""
    ) -> Json:
        """Change what a body names of an entry, if it still has the version that was seen."""
        body = admit(token, "write", KnowledgePatch, body)
        given = body.model_dump(exclude_none=True)
        mark, earlier = self._repeated(token, key, "patch", id, body)
        if earlier:
            return {"entry": self.get(token, id), "operation_id": earlier.operation_id}
        record = self._record_at(token, id, "knowledge", version)
        self._check_owner(token, record)
        self._check_scopes(token, given.get("scopes") or record.fields["scopes"], record)
        owner = given.get("owner", "")
        if owner not in ("", record.fields["owner"], token.principal) and not token.may_say(owner):
            raise KnowHubError("forbidden", "the owner is what the token says: naming another needs `admin`")
        self._check_secrets(given)

        changed = record.changed(**given)
        operation_id, _ = self._write(token, "change", lambda: [self.ledger.update(changed)], mark)
        return {"entry": self._show(token, self._record(token, id, "knowledge")), "operation_id": operation_id}

    def delete(self, token: Token, id: str, version: int | None = None, key: str = "") -> Json:
        """Hide an entry, undoably; its bytes stay in the log until a purge."""
        return self._hide(token, "delete", id, "knowledge", version, key)

    def history(self, token: Token, id: str) -> Json:
        """Return the newest 200 versions of an entry, newest first: those that this token could see."""
        need(token, "read")
        record = self._record(token, id, kind_of(id) if kind_of(id) in ("knowledge", "resource") else "?")
        versions = []
        for entry in self.catalog.operations_on(record.id, _VERSIONS):
            for after in entry.after:
                if after.id == record.id and sees(token, after):
                    if after.deleted:
                        before = next((each.fields for each in entry.before if each.id == record.id), record.fields)
                        after.fields = {**before, **after.fields}
                    versions.append({**told_operation(entry), "version": after.version, **_version(after)})
        return {"id": record.id, **page_of(versions)}


def _version(record: Record) -> Json:
    own = record.fields
    shown: Json = {"deleted": record.deleted, "content": record.content, "created_by": record.created_by}
    if record.kind == "resource":
        return shown | {"title": record.source, "scopes": own["scopes"], "content_type": own["content_type"]}
    shown |= {"score": own["score"], "confidence": own["confidence"], "merged_into": record.merged_into}
    return {**entry_fields(record), **shown}


def _split(text: str | None) -> frozenset[str] | None:
    return frozenset(text.split(",")) if text else None
