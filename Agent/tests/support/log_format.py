"""The log, read and written without the library: what `KeywordTreeDesign.md` says of it, and nothing more."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

LOG = "change_log.jsonl"
KINDS = ("nodes", "infos", "links")
PROJECTIONS = tuple(f"{kind}.jsonl" for kind in KINDS)
FIRST_CRC = b"00000000"
"""What stands as `prev` in a log's first line."""

_CRC_END = len('{"crc": "00000000", ')


def is_whole(raw: bytes) -> bool:
    """Tell whether the checksum of a line, without its newline, is right."""
    crc, body = raw[9:17], raw[_CRC_END:]
    return raw[:9] + raw[17:_CRC_END] == b'{"crc": "", ' and b"%08x" % zlib.crc32(body) == crc


def whole_lines(log: bytes) -> list[bytes]:
    """Return the lines from the first on whose checksums and chain are right."""
    lines: list[bytes] = []
    first = 0
    for raw in log.split(b"\n")[:-1]:
        if not is_whole(raw):
            break
        line = json.loads(raw)
        first = first or line["seq"]  # a log that was compacted goes on counting
        if line["seq"] != first + len(lines) or line["prev"] != (lines[-1][9:17] if lines else FIRST_CRC).decode():
            break
        lines.append(raw)
    return lines


def read_log(log: bytes) -> list[dict[str, Any]]:
    """Return the operations of a log of which every line has to be whole, in sequence and chained."""
    operations: list[dict[str, Any]] = []
    previous, seq = FIRST_CRC.decode(), 0
    for line in log.split(b"\n"):
        if line.strip():
            assert is_whole(line), "a checksum is wrong"
            operation = json.loads(line)
            seq = seq + 1 if operations else operation["seq"]  # a log that was compacted goes on counting
            assert (operation["seq"], operation["prev"]) == (seq, previous)
            assert operation["durable"] < seq
            previous = operation["crc"]
            operations.append(operation)
    return operations


def rows_of(operation: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Return the rows that an operation brought, by the kind of projection that they belong to."""
    after = operation.get("after") or {}
    if "nodes" in after and "infos" in after:
        return {kind: after[kind] for kind in KINDS}
    if not after:
        return {"nodes": [], "infos": [], "links": []}
    kind = "links" if "info_id" in after else "infos" if "content" in after else "nodes"
    return {"nodes": [], "infos": [], "links": [], kind: [after]}


def seal(body: bytes) -> bytes:
    """Return a line with its checksum and its newline, of what stands behind the checksum."""
    return b'{"crc": "%08x", %b\n' % (zlib.crc32(body), body)


def reframed(lines: Sequence[bytes]) -> bytes:
    """Return a log of lines that were changed, with checksums and a chain that are right again."""
    log, crc = b"", FIRST_CRC
    for raw in lines:
        line = seal(re.sub(rb'"prev": "[0-9a-f]{8}"', b'"prev": "%b"' % crc, raw[_CRC_END:], count=1))
        log, crc = log + line, line[9:17]
    return log


def encoded(row: Mapping[str, Any]) -> str:
    """Return a row as the files hold it."""
    return json.dumps(row, ensure_ascii=False, separators=(",", ":"))


def operation_line(
    behind: Mapping[str, Any] | None, op: str, rows: Sequence[Mapping[str, Any]], extra: str = ""
) -> bytes:
    """Return the line of an operation that brings these rows of keywords, behind another one, or as the first."""
    seq, prev = (behind["seq"] + 1, behind["crc"]) if behind else (1, FIRST_CRC.decode())
    after = ",\t".join(map(encoded, rows))
    if len(rows) != 1:
        after = f'{{"nodes": [{after}], "infos": [], "links": []}}'
    body = (
        f'"seq": {seq}, "prev": "{prev}", "durable": {seq - 1}, "op": "{op}", {extra}"operation_id": "forged {seq}", '
        f'"timestamp": 1.0, "agent_io": null, "before": null, "after": {after}}}'
    )
    return seal(body.encode())
