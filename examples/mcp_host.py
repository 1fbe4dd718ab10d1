"""An MCP host in small: it starts `keyword-tree-mcp`, and a scripted model uses its tools.

    python examples/mcp_host.py [FOLDER]

A real host lets its language model choose the calls. This one needs no key: the calls are below. They place a keyword
where similar ones are, remember a fact, find it again, and undo a mistake.
"""

import asyncio
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters

ROOT = Path(__file__).resolve().parents[1]


class Host:
    """Calls tools, and shows what it calls."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def call(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        """Call a tool and return its result.

        Raises:
            RuntimeError: the tool says what was wrong.
        """
        result = await self._client.call_tool(name, arguments)
        if result.is_error:
            raise RuntimeError(result.content)
        print(f"→ {name}({', '.join(f'{key}={value!r}' for key, value in arguments.items() if key != 'parent_id')})")
        return dict(result.structured_content or {})


async def work(host: Host) -> None:
    """Do what a model would: look, place, remember, find, correct."""
    drinks = await host.call("place", name="饮料 drinks", parent_id="root")
    tea = await host.call("place", name="茶 tea", parent_id=drinks["id"])
    await host.call("place", name="绿茶 green tea", parent_id=tea["id"])

    asked = await host.call("place", name="红茶 black tea")
    best = asked["candidates"][0]
    print(f"  it could be under {' / '.join(best['path'])}")
    black = await host.call("place", name="红茶 black tea", parent_id=best["id"])
    await host.call("remember", content="红茶用沸水冲泡。", keywords=[black["id"]])

    found = await host.call("search", query="茶 tea/红茶 black tea")
    print(f"  {' / '.join(found['match']['path'])}: {found['match']['facts'][0]['content']}")

    await host.call("remember", content="红茶用冷水冲泡。", keywords=["红茶 black tea"])
    await host.call("undo")
    found = await host.call("search", query="红茶 black tea")
    print(f"  after undo: {[fact['content'] for fact in found['match']['facts']]}")


async def main(folder: str) -> None:
    """Start the server on a folder, as a host does, and work with it."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))  # where it is not installed
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "keyword_tree.cli.command_line", "mcp", folder],
        env={**os.environ, "PYTHONPATH": path},
    )
    async with Client(server) as client:
        await work(Host(client))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(main(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            asyncio.run(main(temporary))
