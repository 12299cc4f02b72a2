"""Start Firefox for Playwright, which speaks WebDriver BiDi with it.

Playwright expects commands that the Firefox of a distribution may not know yet. What it can do without, this program answers in
Firefox's place; it passes on everything else. It is started as Firefox would be: `python firefox.py FIREFOX ARGUMENTS…`.
"""

import asyncio
import json
import re
import signal
import sys

from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve

ADDRESS = re.compile(r"WebDriver BiDi listening on (ws://\S+)")
# Themes and the like: the tests that need them use chromium.
DISPENSABLE = frozenset({"emulation.setMediaFeaturesOverride"})


async def run(command: list[str]) -> int:
    """Run Firefox until it ends, and return its exit code."""
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, process.terminate)
    address = ""

    async def relay(client: ServerConnection) -> None:
        assert client.request is not None
        async with connect(address + client.request.path, max_size=None) as firefox:
            tasks = [
                asyncio.ensure_future(_pass_commands(client, firefox)),
                asyncio.ensure_future(_forward_messages(firefox, client)),
            ]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()

    async with serve(relay, "127.0.0.1", 0, max_size=None) as server:
        own = f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"
        assert process.stderr is not None
        async for line in process.stderr:
            said = line.decode("utf-8", "replace")
            if found := ADDRESS.search(said):
                address = found[1]
                said = said.replace(address, own)
            sys.stderr.write(said)
            sys.stderr.flush()
    return await process.wait()


async def _pass_commands(client: ServerConnection, firefox: ClientConnection) -> None:
    async for text in client:
        command = json.loads(text)
        if command["method"] in DISPENSABLE:
            await client.send(json.dumps({"type": "success", "id": command["id"], "result": {}}))
        else:
            await firefox.send(text)


async def _forward_messages(firefox: ClientConnection, client: ServerConnection) -> None:
    async for text in firefox:
        await client.send(text)


if __name__ == "__main__":
    sys.exit(asyncio.run(run(sys.argv[1:])))
