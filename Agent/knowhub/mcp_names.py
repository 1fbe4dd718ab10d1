"""Tools under names that others' hosts know: the reference memory server's nine, and ChatGPT's two."""

from typing import Any

from .hub import KnowHub
from .schemas import Json, KnowHubError
from .tokens import Token

try:
    from mcp.server import MCPServer
except ImportError as error:
    raise ImportError("KnowHub's MCP server needs its extra: pip install 'keyword-tree-memory[knowhub-mcp]'") from error

__all__ = ["add_chatgpt_names", "add_memory_names"]


def add_memory_names(server: MCPServer[Any], hub: KnowHub, ask: Any) -> None:
    """Add the nine tools of the reference memory server: entities are entries, observations lines of their content."""

    def entries(token: Token) -> list[Json]:
        found: list[Json] = []
        query: Json = {"limit": 200, "tag": "memory_entity"}
        while True:
            page = hub.list_knowledge(token, query)
            found += page["results"]
            if page["next_cursor"] is None:
                return found[::-1]
            query["cursor"] = page["next_cursor"]

    def by_name(token: Token) -> dict[str, Json]:
        return {
            entry["tags"]["memory_entity"]: entry for entry in entries(token) if entry["created_by"] == token.principal
        }

    def parts(entry: Json) -> tuple[list[str], list[Json]]:
        """Return an entry's observations and relations."""
        said, relations = [], []
        for line in entry["content"].split("\n"):
            kind, _, rest = line.partition(" ")
            if kind == "-" and rest:
                said.append(rest)
            elif kind == "→":
                relation, _, to = rest.partition(" → ")
                relations.append({"from": entry["task"], "to": to, "relationType": relation})
        return said, relations

    def write(token: Token, entry: Json, said: list[str], relations: list[Json]) -> None:
        lines = [f"- {one}" for one in said] + [f"→ {each['relationType']} → {each['to']}" for each in relations]
        hub.patch(token, entry["id"], {"content": "\n".join(lines) or "-"}, entry["version"])

    def graph(held: list[Json]) -> Json:
        names = {entry["task"] for entry in held}
        told, links = [], []
        for entry in held:
            said, relations = parts(entry)
            told.append(
                {"name": entry["task"], "entityType": entry["tags"].get("entity_type", ""), "observations": said}
            )
            links += [relation for relation in relations if relation["to"] in names]
        return {"entities": told, "relations": links}

    def create(token: Token, entities: list[Json]) -> list[Json]:
        known, made = by_name(token), []
        for entity in entities:
            name = str(entity.get("name", ""))
            if name in known or not name.strip():
                continue
            said = [" ".join(str(one).split()) for one in entity.get("observations", [])]
            tags = {"memory_entity": name, "entity_type": str(entity.get("entityType") or "entity")}
            content = "\n".join(f"- {one}" for one in said) or "-"
            known[name] = hub.save(token, {"task": name, "content": content, "types": ["definition"], "tags": tags})[
                "entry"
            ]
            made.append({"name": name, "entityType": tags["entity_type"], "observations": said})
        return made

    def find(held: dict[str, Json], name: object) -> Json:
        if str(name) not in held:
            raise KnowHubError("not-found", "there is no such entity")
        return held[str(name)]

    @server.tool()
    async def create_entities(entities: list[dict[str, Any]]) -> dict[str, Any]:
        """Make entities: name, entityType, observations."""
        return {"entities": await ask(create, entities)}

    @server.tool()
    async def create_relations(relations: list[dict[str, Any]]) -> dict[str, Any]:
        """Make relations: from, to, relationType."""

        def run(token: Token) -> list[Json]:
            made = []
            for relation in relations:
                entry = find(by_name(token), relation.get("from"))
                said, links = parts(entry)
                new = {name: " ".join(str(relation.get(name, "")).split()) for name in ("from", "to", "relationType")}
                if new not in links:
                    write(token, entry, said, [*links, new])
                    made.append(new)
            return made

        return {"relations": await ask(run)}

    @server.tool()
    async def add_observations(observations: list[dict[str, Any]]) -> dict[str, Any]:
        """Add lines to entities: entityName, contents."""

        def run(token: Token) -> list[Json]:
            made = []
            for row in observations:
                entry = find(by_name(token), row.get("entityName"))
                said, links = parts(entry)
                new = [" ".join(str(one).split()) for one in row.get("contents", [])]
                new = [one for one in dict.fromkeys(new) if one and one not in said]
                if new:
                    write(token, entry, said + new, links)
                made.append({"entityName": entry["task"], "addedObservations": new})
            return made

        return {"results": await ask(run)}

    @server.tool()
    async def delete_entities(entityNames: list[str]) -> dict[str, Any]:  # noqa: N803  as the reference calls it
        """Hide entities, undoably."""

        def run(token: Token) -> None:
            held = by_name(token)
            for name in entityNames:
                if name in held:
                    hub.delete(token, held[name]["id"])

        await ask(run)
        return {"success": True, "message": "Entities deleted successfully"}

    @server.tool()
    async def delete_observations(deletions: list[dict[str, Any]]) -> dict[str, Any]:
        """Take lines from entities: entityName, observations."""

        def run(token: Token) -> None:
            for row in deletions:
                entry = by_name(token).get(str(row.get("entityName")))
                if entry is not None:
                    said, links = parts(entry)
                    write(token, entry, [one for one in said if one not in row.get("observations", [])], links)

        await ask(run)
        return {"success": True, "message": "Observations deleted successfully"}

    @server.tool()
    async def delete_relations(relations: list[dict[str, Any]]) -> dict[str, Any]:
        """Take relations away."""

        def run(token: Token) -> None:
            for row in relations:
                entry = by_name(token).get(str(row.get("from")))
                if entry is not None:
                    said, links = parts(entry)
                    write(token, entry, said, [link for link in links if link != row])

        await ask(run)
        return {"success": True, "message": "Relations deleted successfully"}

    @server.tool()
    async def read_graph() -> dict[str, Any]:
        """Return all entities and relations."""
        return graph(await ask(entries))

    @server.tool()
    async def search_nodes(query: str) -> dict[str, Any]:
        """Return entities that fit a query."""

        def run(token: Token) -> Json:
            found = hub.search(token, {"q": query, "top_k": 50, "min_score": 1, "route": "recall"})["results"]
            ids = {result["id"] for result in found}
            return graph([entry for entry in entries(token) if entry["id"] in ids])

        told: Json = await ask(run)
        return told

    @server.tool()
    async def open_nodes(names: list[str]) -> dict[str, Any]:
        """Return entities by their names."""

        def run(token: Token) -> Json:
            return graph([entry for entry in entries(token) if entry["task"] in names])

        told: Json = await ask(run)
        return told


def add_chatgpt_names(server: MCPServer[Any], hub: KnowHub, ask: Any) -> None:
    """Add the two tools that ChatGPT's connectors ask for."""

    @server.tool()
    async def search(query: str) -> dict[str, Any]:
        """Find entries: id, title, url of each."""
        told = await ask(hub.search, {"q": query[:2000], "top_k": 10, "min_score": 1, "route": "recall"})
        rows = [
            {"id": each["id"], "title": each["task"], "url": f"knowhub://knowledge/{each['id']}"}
            for each in told["results"]
        ]
        return {"results": rows}

    @server.tool()
    async def fetch(id: str) -> dict[str, Any]:
        """Return one entry: id, title, text, url."""
        entry = await ask(hub.get, id)
        told = {"id": id, "title": entry["task"], "text": entry["content"], "url": f"knowhub://knowledge/{id}"}
        return {**told, "metadata": {"owner": entry["owner"], "score": str(entry["eval"]["score"])}}
