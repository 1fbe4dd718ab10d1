"""The tools that a session used, counted: no model is needed for that, since the caller names them."""

from typing import Any

from ..core.config import OWNER_OF
from ..core.objects import CandidateMemory, SessionArchive
from ..core.text import cut_tokens, mapping_of, one_line, read_time, to_json

__all__ = ["describe_tool", "read_tools"]


def read_tools(archive: SessionArchive) -> list[CandidateMemory]:
    """Return how tools went in a session: one candidate for each, with its figures as JSON in `overview`."""
    used: dict[str, list[dict[str, Any]]] = {}
    for tool in archive.stats.get("used_tools") or ():
        made = mapping_of(tool)
        if made.get("name"):
            used.setdefault(str(made["name"]), []).append(made)
    found = []
    for name, calls in used.items():
        failures = [call for call in calls if call.get("ok") is False]
        figures = {
            "calls": len(calls),
            "successes": len(calls) - len(failures),
            "failures": len(failures),
            "seconds": round(sum(float(call.get("seconds") or 0.0) for call in calls), 3),
        }
        errors = dict.fromkeys(one_line(str(call["error"])) for call in failures if call.get("error"))
        times = [at for call in calls if (at := read_time(call.get("at"))) is not None]
        found.append(
            CandidateMemory(
                category="tools",
                owner_scope=OWNER_OF["tools"],
                routing_key=name,
                abstract="",
                overview=to_json(figures),
                content=cut_tokens("; ".join(errors), 300),
                confidence=1.0,
                source_refs=[{"archive": archive.archive_uri, "message": ""}],
                at=max(times, default=float(archive.stats.get("at") or 0.0)),
            )
        )
    return found


def describe_tool(tool: Any) -> dict[str, Any]:
    """Return a used tool as the archive keeps it: `name`, `ok`, `seconds`, `error`, `at`."""
    made = mapping_of(tool) if not isinstance(tool, str) else {"name": tool}
    name = made.get("name", made.get("tool"))
    status = made.get("ok", made.get("success"))
    if status is None and isinstance(made.get("status"), str):
        status = made["status"].casefold() not in ("error", "failed", "failure")
    seconds = made.get("seconds", made.get("duration_s"))
    milliseconds: object = made.get("duration_ms")
    if seconds is None and isinstance(milliseconds, (int, float)):
        seconds = milliseconds / 1000
    return {
        "name": one_line(str(name or ""))[:100],
        "ok": status is not False and not made.get("error"),
        "seconds": float(seconds) if isinstance(seconds, (int, float)) and not isinstance(seconds, bool) else 0.0,
        **({"error": one_line(str(made["error"]))[:300]} if made.get("error") else {}),
        **({"at": made["at"]} if read_time(made.get("at")) is not None else {}),
    }
