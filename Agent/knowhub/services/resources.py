"""Resources, whose public part is a record like any other, and whose secret goes to the vault alone."""

import itertools
import logging
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from ...base.text import read_time
from ..catalog import Entry
from ..records import Json, KnowHubError, Record, iso_time
from ..schemas import PageQuery, ResourceIn, check_resource_id
from ..tokens import LOCAL, Token, need, sees
from .store import ACCESS, Store, admit, outgrown, stamps

RESOURCE_NAMES = ("content_type", "metadata", "scopes", "owner", "expires_at")
"""Fields of a resource that answers and an export tell."""

KEPT_S = 90 * 86_400
"""Seconds for which it is kept who read which secret."""

_log = logging.getLogger("keyword_tree.knowhub")


class Resources(Store):
    """Code, accounts, cookies."""

    def put_resource(
        self,
        token: Token,
        id: str,
        body: ResourceIn | Mapping[str, Any],
        version: int | None = None,
        key: str = "",
        *,
        created_by: str = "",
        mark: str = "",
    ) -> Json:
        """Keep a resource, or take the place of one that has this version; `secure_body` goes to the vault alone.

        A body that says nothing of a secret leaves the one that is there; `null` or "" destroys it.

        Args:
            token: Who keeps it.
            id: A path of up to 8 segments.
            body: See `ResourceIn`.
            version: Which one it takes the place of, 0 any; None makes a new one.
            key: As in `save`.
            created_by: Whose a new one is: for imports; "" is who keeps it.
            mark: That of the import which this is a part of.

        Cost: one sync; with a secret, three.
        """
        body = admit(token, "write", ResourceIn, body)
        self._check_secrets([id, body])
        old = self._resource_there(token, id, version)
        mark, earlier = (mark, None) if mark else self._repeated(token, key, "put", id, body)
        if earlier:
            return self._kept_before(token, id, earlier, body)
        body = _merged(old, body) if old is not None else self._scoped(token, body)
        self._check_scopes(token, body.scopes, old)
        self._check_place(token, old, body, version)
        is_kept = old is not None and body.keeps_secret()
        verb = "allow" if old and is_kept and self._check_targets(token, old, body.metadata) else "keep"
        whose = old.created_by if old is not None else created_by or token.principal
        record = Record(f"resource/{id}", body.body, body.title, self._own_fields(token, old, body, whose), whose)
        return self._keep(token, verb, record, old, body, mark)

    def _check_place(self, token: Token, old: Record | None, body: ResourceIn, version: int | None) -> None:
        """Refuse to take the place of what is there by one who may not, or who has seen another version."""
        if old is None:
            if version is not None:
                raise KnowHubError("changed", "there is no such version: the resource is not there")
            return
        self._check_owner(token, old)
        if version is None:
            raise KnowHubError("version-needed", "the resource is there: If-Match must say which version is meant")
        if version and version != old.version:
            raise outgrown(old.version)
        is_wider = not set(body.scopes) <= set(old.fields["scopes"])
        if old.created_by != token.principal and is_wider and old.secret_ref and body.keeps_secret():
            raise KnowHubError("forbidden", "another's secret is not shown to more than who may see it now")

    def _own_fields(self, token: Token, old: Record | None, body: ResourceIn, whose: str) -> Json:
        before, ends_at = old.fields["owner"] if old is not None else "", body.ends_at()
        is_owner = token.may("admin") or body.owner == before
        return {
            "content_type": body.content_type,
            "metadata": body.metadata,
            "scopes": list(dict.fromkeys(body.scopes)),
            "owner": (body.owner if is_owner else "") or before or whose,
            "expires_at": iso_time(ends_at) if ends_at is not None else None,
        }

    def _keep(self, token: Token, verb: str, record: Record, old: Record | None, body: ResourceIn, mark: str) -> Json:
        """Seal the secret, then write the operation that names it, then destroy the one whose place it takes."""
        before = old.secret_ref if old is not None else ""
        sealed = self.vault.seal(record.id, body.secret()) if body.secret() else ""
        record.fields["secret_ref"] = sealed or (before if body.keeps_secret() else "")
        try:
            operation_id, [made] = self._write(token, verb, lambda: self.ledger.put(record, old), mark)
        except KnowHubError as error:
            # What was sealed for nothing goes at once; where it is unknown whether it is named, the sweep decides.
            if error.code != "outcome-unknown":
                self.vault.destroy(sealed)
            raise
        if before != made.secret_ref:
            self.vault.destroy(before)
        return {"resource": self._told_resource(made), "operation_id": operation_id}

    def _resource_there(self, token: Token, id: str, version: int | None) -> Record | None:
        """Return the resource of an id; of one that a token does not see it learns only that the id is in use."""
        check_resource_id(id)
        old = self._current(self.ledger.stored, f"resource/{id}", version)
        if old is not None and (old.created_by != token.principal if old.deleted else not sees(token, old)):
            raise KnowHubError("conflict", "the id is in use")
        return None if old is None or old.deleted else old

    def _kept_before(self, token: Token, id: str, earlier: Entry, body: ResourceIn) -> Json:
        """Return what a call that comes again wrote, as it is now; another secret in it is another request."""
        if not earlier.after:
            return {"resource": self.get_resource(token, id), "operation_id": ""}
        [then], [now] = earlier.after, self._as_now(earlier)
        if then.version == now.version and not body.keeps_secret():
            sealed = self.vault.open(now.secret_ref, now.id) if now.secret_ref else ""
            if sealed is not None and sealed != body.secret():
                raise KnowHubError("key-reused", "the Idempotency-Key was used for another body")
        return {"resource": self._told_resource(now), "operation_id": earlier.operation_id}

    def _told_resource(self, record: Record) -> Json:
        return {**resource_fields(record), "secret": self._secret_state(record), **stamps(record)}

    def _secret_state(self, record: Record) -> str:
        if not record.secret_ref:
            return "none"
        if not self.vault.exists(record.secret_ref):
            return "destroyed"
        expires_at = read_time(record.fields.get("expires_at"))
        return "expired" if expires_at is not None and self.clock() >= expires_at else "sealed"

    def get_resource(self, token: Token, id: str) -> Json:
        """Return a resource without its secret; `secret` says `none`, `sealed`, `expired` or `destroyed`."""
        need(token, "read")
        check_resource_id(id)
        return self._told_resource(self._record(token, f"resource/{id}", "resource"))

    def list_resources(self, token: Token, query: PageQuery | Mapping[str, Any] = {}) -> Json:  # noqa: B006
        """Return a page of resources, newest first."""
        query = admit(token, "read", PageQuery, query)
        return self._page("resource", lambda known: sees(token, known), query, self._told_resource)

    def delete_resource(self, token: Token, id: str, version: int | None = None, key: str = "") -> Json:
        """Hide a resource, undoably, and destroy its secret, for good."""
        check_resource_id(id)
        return self._hide(token, "drop", id, "resource", version, key)

    def reveal(self, token: Token, id: str) -> Json:
        """Return a secret to one with the right, and log who read it.

        Raises:
            KnowHubError: `forbidden`, `not-found`, `gone` once it has expired or was destroyed, `vault-locked`.
        """
        check_resource_id(id)
        if not token.may("secrets"):
            there = self.catalog.get(f"resource/{id}")
            if there is not None and sees(token, there):
                self._note_access(token, there.id, there.created_by, "refused")
        need(token, "secrets")
        record = self._record(token, f"resource/{id}", "resource")
        state = self._secret_state(record)
        if state == "none":
            raise KnowHubError("not-found", "the resource has no secret")
        text = self.vault.open(record.secret_ref, record.id) if state == "sealed" else None
        if text is None:
            self._note_access(token, record.id, record.created_by, "gone")
            raise KnowHubError("gone", f"the secret is {'expired' if state == 'expired' else 'destroyed'}")
        self._note_access(token, record.id, record.created_by, "read")
        _log.info("secret read: %s by %s", record.id, token.principal)
        return {"id": id, "secure_body": text}

    def _note_access(self, token: Token, id: str, owner: str, outcome: str) -> None:
        """Keep that a secret was read, or was not; of refusals one a minute, so that nobody fills the log by them."""
        if outcome != "read" and self.refused.wait_s(f"{token.principal} {id}", 1 / 60, 1.0):
            return
        own: Json = {"of": id, "outcome": outcome, "scopes": [], "owner": owner}
        self._create(token, ACCESS, [Record(f"{ACCESS}/{secrets.token_hex(10)}", "", "", own, token.principal)])

    def accesses(self, token: Token, query: PageQuery | Mapping[str, Any] = {}) -> Json:  # noqa: B006
        """Return a page of who read which secret, and who was refused, newest first: of one's own, or with `admin` all.

        They are kept for 90 days.
        """
        query, is_all = admit(token, "read", PageQuery, query), token.may("admin") and token.sees_all()

        def wanted(known: Record) -> bool:
            return is_all or token.principal in (known.fields["owner"], known.created_by)

        return self._page(ACCESS, wanted, query, _told_access)

    def sweep(self) -> None:
        """Destroy sealed files that no resource has named for an hour, and end browsers' sessions.

        What was noted of secrets 90 days ago is forgotten.

        What has expired is refused, and stays sealed until `purge`: a clock that is a year ahead destroys nothing.
        """
        self.catalog.catch_up()
        self.vault.sweep(self.catalog.secret_references())
        self.tokens.sweep()
        old = itertools.takewhile(lambda each: each.created_at < self.clock() - KEPT_S, self.catalog.all(ACCESS))
        if ids := [each.id for each in itertools.islice(old, 500)]:
            self._write(LOCAL, ACCESS, lambda: [self.ledger.drop(id) for id in ids])


def resource_fields(record: Record) -> Json:
    """Return what every form of a resource has."""
    shown: Json = {"id": record.id.removeprefix("resource/"), "title": record.source, "body": record.content}
    return shown | {name: record.fields.get(name) for name in RESOURCE_NAMES} | {"created_by": record.created_by}


def _told_access(record: Record) -> Json:
    id, at = str(record.fields["of"]).removeprefix("resource/"), iso_time(record.created_at)
    return {"resource_id": id, "principal": record.created_by, "outcome": record.fields["outcome"], "timestamp": at}


def _merged(old: Record, body: ResourceIn) -> ResourceIn:
    """Return a body in which what it does not say is as it was."""
    own = old.fields
    there = {"body": old.content, **{name: own.get(name) for name in RESOURCE_NAMES}}
    if not body.keeps_secret() or ("metadata" in body.model_fields_set and "expires_at" in body.metadata):
        del there["expires_at"]  # that was of another secret, or the metadata say it
    kept = {name: value for name, value in there.items() if name not in body.model_fields_set}
    kept["expires_at"] = datetime.fromtimestamp(ends, UTC) if (ends := read_time(kept.get("expires_at"))) else None
    given = {name: getattr(body, name) for name in body.model_fields_set}
    return ResourceIn.model_construct(body.model_fields_set, **{**kept, **given})
