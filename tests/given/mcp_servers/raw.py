"""An MCP server without a library, so that it starts at once. It misbehaves as its first argument says.

It writes the methods that it receives to the log named by its second argument.
"""

import json
import os
import signal
import subprocess
import sys
import time

MANNER, LOG = sys.argv[1], sys.argv[2]


def say(message: dict[str, object]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def note(line: str) -> None:
    with open(LOG, "a") as file:
        file.write(line + "\n")


def tool(name: str, **more: object) -> dict[str, object]:
    return {"name": name, "description": "Says it back.", "inputSchema": {"type": "object"}, **more}


TOOLS: dict[str, list[dict[str, object]]] = {
    "many": [tool(f"tool{number}") for number in range(10_000)],
    "huge": [tool("echo", description="x" * 10_000_000)],
    "deep": [tool("echo"), tool("big", inputSchema={"type": "object", "title": "x" * 200_000})],
    "odd": [
        tool("../../etc/passwd"),
        tool("a\x00b\x1b[31mc"),
        tool("x" * 200),
        tool("same name"),
        tool("same/name"),
        tool(""),
    ],
}


def answer(method: str, params: dict[str, object]) -> object:
    if method == "initialize":
        if MANNER == "mute":
            time.sleep(3600)
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": MANNER, "version": "1"},
        }
    if method == "tools/list":
        if MANNER == "restless":
            say({"method": "notifications/tools/list_changed"})
        if MANNER == "slowly":
            # Wait for a file of the test instead of a clock.
            while not os.path.exists(LOG + ".go"):
                time.sleep(0.02)
        if MANNER == "endless":
            return {"tools": [tool(f"t{params.get('cursor')}")], "nextCursor": str(time.monotonic())}
        return {"tools": TOOLS.get(MANNER, [tool("echo")])}
    if method == "tools/call":
        return call(params)
    raise KeyError(method)


def call(params: dict[str, object]) -> object:
    if MANNER == "dies":
        sys.stderr.write("out of memory\n")
        sys.stderr.flush()
        os._exit(3)
    if MANNER == "grows":
        TOOLS["grows"] = [tool("echo"), tool("new")]
        say({"method": "notifications/tools/list_changed"})
    if MANNER == "murderous":
        os.kill(os.getppid(), signal.SIGKILL)
    if MANNER == "silent":
        note("called")
        return None
    if MANNER == "wrong":
        return {"content": "this is no list"}
    if MANNER == "parrot":
        # Whatever the arguments say, then an answer, so that the call ends in any case.
        words = bytes.fromhex(params["arguments"]["hex"])  # type: ignore[index]
        sys.stdout.buffer.write(words.replace(b'"<id>"', str(params["id"]).encode()) + b"\n")
    return {"content": [{"type": "text", "text": json.dumps(params.get("arguments"))}]}


def prepare() -> None:
    if MANNER == "exits":
        sys.stderr.write("no such key\n")
        sys.exit(2)
    if MANNER == "traceback":
        sys.stderr.write(
            "".join(f"  File line {number}\n" for number in range(80)) + "KeyError: 'API_TOKEN'\n"
        )
        sys.exit(1)
    if MANNER == "junk":
        for number in range(5):
            print(f"starting up, {number}", flush=True)
    if MANNER == "babble":
        while True:
            print("this is not MCP", flush=True)
    if MANNER == "line":
        while True:
            sys.stdout.write("x" * 65536)
    if MANNER == "stubborn":
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        subprocess.Popen(["sleep", "3600"])


def main() -> None:
    note(f"started {os.getpid()}")
    prepare()
    for line in sys.stdin:
        message = json.loads(line)
        note(message.get("method", "answer"))
        if MANNER == "flood" and message.get("method") == "notifications/initialized":
            for number in range(4_000):
                say({"method": "notifications/tools/list_changed" if number % 2 else "notifications/odd"})
        if "id" not in message or "method" not in message:
            continue
        result = answer(message["method"], {**message.get("params", {}), "id": message["id"]})
        if result is not None:
            say({"id": message["id"], "result": result})
    if MANNER == "stubborn":
        time.sleep(3600)


main()
