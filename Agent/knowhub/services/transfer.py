"""Out and in: all that a token sees as lines of JSON, without secrets."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ...base.text import mapping_of
from ..records import Json, KnowHubError, Record, invalid, iso_time, kind_of, not_found
from ..schemas import FeedbackLine, ImportIn, KnowledgeLine, ResourceLine, check_resource_id, parse
from ..tokens import Token, need, sees
from .judging import Judging, case_fields
from .resources import Resources, resource_fields
from .store import digest_of, entry_fields

_IMPORTED_AT_ONCE = 200
_ERRORS_TOLD = 100


class Transfer(Judging, Resources):
    """Export and import."""

    def export(self, token: Token) -> Iterator[Json]:
        """Yield all that a token sees, without secrets, an object a line: what an import reads.

        Cost: a page at a time; memory does not grow with the hub.
        """
        need(token, "read")
        for kind in ("knowledge", "resource", "feedback"):
            for record in self.catalog.all(kind):
                if self._sees_statement(token, record) if kind == "feedback" else sees(token, record):
                    yield {"kind": kind, **self._exported(record)}

    def _exported(self, record: Record) -> Json:
        own = record.fields
        if record.kind == "resource":
            return resource_fields(record)
        if record.kind == "feedback":
            return case_fields(record)
        exported = entry_fields(record) | {name: own[name] for name in ("score", "confidence", "message_id")}
        exported |= {"source": {"name": record.source, **own["source"]}, "merged_into": record.merged_into}
        if own.get("judged"):
            exported["eval"] = {"score": own["score"], "confidence": own["confidence"], **own["judged"]}
        return exported | {"created_at": iso_time(record.created_at)}

    def take_in(self, token: Token, lines: ImportIn | Iterable[Mapping[str, Any]], key: str = "") -> Json:
        """Write what an export holds; what is there already is skipped, so a second time changes nothing.

        Who may `admin` keeps whose it was; for others all becomes their own.
        """
        need(token, "write")
        lines = lines.lines if isinstance(lines, ImportIn) else list(lines) if key else lines
        mark, earlier = self._repeated(token, key, "import", json.dumps(lines, sort_keys=True) if key else "")
        report: Json = {"written": 0, "skipped": 0, "errors": [], "notes": []}
        waiting, kind, is_again = dict[str, Record](), None, earlier is not None
        for number, line in enumerate(lines, 1):
            if (said := mapping_of(line).get("kind")) != kind or len(waiting) >= _IMPORTED_AT_ONCE:
                kind = said  # feedback is of entries that must be there
                self._flush(token, waiting, report, mark)
            try:
                made = self._take_line(token, line, report["notes"], mark, is_again=is_again)
            except KnowHubError as error:
                if error.code in ("outcome-unknown", "disk-full", "quota-exceeded", "store-damaged"):
                    raise
                if len(report["errors"]) < _ERRORS_TOLD:
                    report["errors"].append({"line": number, "detail": error.detail})
                continue
            if isinstance(made, Record) and made.id not in waiting:
                waiting[made.id] = made
            else:
                report["written" if made is True else "skipped"] += 1
        self._flush(token, waiting, report, mark)
        if mark and not is_again and not report["written"]:
            self._create(token, "import", [], mark)
        return report

    def _flush(self, token: Token, waiting: dict[str, Record], report: Json, mark: str) -> None:
        """Write what an import has gathered, as one operation, but for what others wrote meanwhile."""

        def plan() -> list[Record]:
            there = {id: self.ledger.read(id) for id in waiting}
            return self.ledger.create([waiting[id] for id in waiting if there[id] is None])

        if waiting:
            written = len(self._write(token, "import", plan, mark)[1])
            report["written"] += written
            report["skipped"] += len(waiting) - written
            waiting.clear()

    def _take_line(
        self, token: Token, line: Mapping[str, Any], notes: list[Json], mark: str, *, is_again: bool
    ) -> Record | bool:
        """Return what a line brings; or whether it was written, which what is there already was not."""
        rest = {**mapping_of(line)}
        kind = rest.pop("kind", "knowledge")
        if kind == "resource":
            return self._take_resource(token, rest, mark, is_again)
        if kind == "feedback":
            return self._take_feedback(token, parse(FeedbackLine, rest), is_again)
        if kind == "knowledge" and isinstance(line, Mapping):
            return self._take_knowledge(token, rest, notes, is_again)
        raise invalid("/kind", "a line is knowledge, a resource or feedback")

    def _take_resource(self, token: Token, rest: Json, mark: str, is_again: bool) -> bool:
        id = str(rest.pop("id", ""))
        check_resource_id(id)
        there = self.ledger.stored(f"resource/{id}")
        is_known = there is not None and (sees(token, there) or there.created_by == token.principal)
        if is_known and there is not None and (is_again or not there.deleted):
            return False
        body = parse(ResourceLine, rest)
        self.put_resource(token, id, body, created_by=_whose(token, body.created_by).principal, mark=mark)
        return True

    def _take_knowledge(self, token: Token, rest: Json, notes: list[Json], is_again: bool) -> Record | bool:
        body = self._scoped(token, parse(KnowledgeLine, rest))
        self._check_scopes(token, body.scopes)
        self._check_secrets(body)
        said = body.id or f"knowledge-{digest_of(json.dumps(rest, sort_keys=True))[:20]}"
        whose, id = _whose(token, body.created_by), self._own_id(token, said)
        if not self._is_new(id, whose, is_again):
            return False
        own = self._fields_of(whose, body)
        if body.merged_into:
            own["merged_into"] = self._own_id(token, body.merged_into)
            target = self.catalog.get(own["merged_into"])
            if target is not None and target.created_by != whose.principal:
                raise not_found()
        self._take_judgement(token, body, own, notes)
        if body.created_at is not None and body.source.timestamp is None:
            own["source"]["timestamp"] = iso_time(body.created_at.timestamp())
        return Record(id, body.content, body.source.name, own, whose.principal)

    def _take_judgement(self, token: Token, body: KnowledgeLine, own: Json, notes: list[Json]) -> None:
        """Take over how a record was judged elsewhere; its votes for who may `admin`: others would make some up."""
        if body.eval is None:
            return
        for name in ("score", "confidence"):
            if name not in body.model_fields_set:
                own[name] = getattr(body.eval, name)
        judged = body.eval.model_dump(mode="json", exclude={"score", "confidence"})
        if token.may("admin") and any(judged.values()):
            own["judged"] = judged
        elif any(judged.values()):
            notes.append({"id": body.id or "", "detail": "its votes are left out: taking them needs `admin`"})

    def _take_feedback(self, token: Token, body: FeedbackLine, is_again: bool) -> Record | bool:
        self._check_secrets(body.case.to_json())
        whose, id = _whose(token, body.created_by), self._own_id(token, body.id)
        if not self._is_new(id, whose, is_again):
            return False
        of = [self.ledger.read(of) for of in (body.knowledge_id, self._own_id(token, body.knowledge_id))]
        record = next((each for each in of if each is not None and sees(token, each)), None)
        if record is None:
            raise not_found()
        made = self._new_feedback(whose, record, body.is_helpful, body.case, "", "")
        made.id = id
        return made

    def _own_id(self, token: Token, id: str) -> str:
        """Return the id that an imported record gets: its own for who may `admin`, else one of the principal's alone.

        So what an import answers depends on nothing that others made.
        """
        there = None if token.may("admin") else self.ledger.stored(id)
        if token.may("admin") or (there is not None and there.created_by == token.principal):
            return id
        digest = digest_of("\0".join([token.principal, id]))
        return f"{kind_of(id)}-{digest[:20]}"

    def _is_new(self, id: str, whose: Token, is_again: bool) -> bool:
        there = self.ledger.stored(id)
        if there is not None and there.deleted and there.created_by != whose.principal:
            raise KnowHubError("conflict", "the id belongs to another principal")
        return there is None or (there.deleted and not is_again)


def _whose(token: Token, created_by: str) -> Token:
    return Token(created_by, token.rights, token.scopes) if created_by and token.may("admin") else token
