"""A minimal language server, run as a program: `python language_server.py <manner> <log>`.

It reports a problem in every line that contains `wrong`. Its manners: `good`; `silent` reports nothing; `deaf` never
answers; `dying` exits at `initialize`; `noisy` writes text that is not a message. It logs each message that it receives.
"""

import json
import sys
from pathlib import Path
from typing import Any


class Server:
    def __init__(self, manner: str, log: Path) -> None:
        self.manner = manner
        self.log = log
        self.texts: dict[str, str] = {}

    def run(self) -> None:
        while (message := self.read()) is not None:
            with self.log.open("a") as file:
                file.write(json.dumps(message) + "\n")
            self.take(message)

    def read(self) -> dict[str, Any] | None:
        length = 0
        while (line := sys.stdin.buffer.readline()).strip():
            name, _, value = line.decode().partition(":")
            if name.lower() == "content-length":
                length = int(value)
        if not line and not length:
            return None
        found: dict[str, Any] = json.loads(sys.stdin.buffer.read(length))
        return found

    def say(self, **message: Any) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        sys.stdout.buffer.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        sys.stdout.buffer.flush()

    def take(self, message: dict[str, Any]) -> None:
        method, params = message.get("method", ""), message.get("params") or {}
        if self.manner == "deaf":
            return
        if method == "initialize" and self.manner == "dying":
            sys.exit(3)
        if method == "initialize" and self.manner == "noisy":
            sys.stdout.write("Starting up, please wait\r\n\r\n")
            sys.stdout.flush()
        elif method == "initialize":
            self.say(id=message["id"], result={"capabilities": {}})
        elif method == "initialized":
            self.say(id="a", method="workspace/configuration", params={"items": [{}, {}]})
            self.say(id="b", method="weft/unheardOf", params={})
        elif method in ("textDocument/didOpen", "textDocument/didChange"):
            self.see(params)
        elif "id" in message and method:
            self.answer(message["id"], method, params)

    def see(self, params: dict[str, Any]) -> None:
        document = params["textDocument"]
        changes = params.get("contentChanges")
        self.texts[document["uri"]] = changes[0]["text"] if changes else document["text"]
        if self.manner != "silent":
            self.publish(document["uri"])

    def publish(self, uri: str) -> None:
        lines = self.texts[uri].split("\n")
        found = [
            {
                "range": {
                    "start": {"line": number, "character": line.index("wrong")},
                    "end": {"line": number, "character": len(line)},
                },
                "message": f"{line.strip()} is not right",
                "severity": 2 if "rather" in line else 1,
                "source": "given",
            }
            for number, line in enumerate(lines)
            if "wrong" in line
        ]
        self.say(method="textDocument/publishDiagnostics", params={"uri": uri, "diagnostics": found})

    def answer(self, id: Any, method: str, params: dict[str, Any]) -> None:
        here = {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 1}}
        answers: dict[str, Any] = {
            "textDocument/definition": {"uri": "file:///there.fake", "range": here},
            "textDocument/references": [{"uri": "file:///there.fake", "range": here}] * 2,
            "textDocument/hover": {"contents": "a word"},
            "textDocument/documentSymbol": [{"name": "word"}],
            "textDocument/implementation": None,
            "textDocument/prepareCallHierarchy": [{"name": "caller"}],
            "callHierarchy/incomingCalls": [{"from": params.get("item")}],
            "callHierarchy/outgoingCalls": [],
            "workspace/symbol": [{"name": params.get("query"), "number": number} for number in range(15)],
        }
        if method in answers:
            self.say(id=id, result=answers[method])
        else:
            self.say(id=id, error={"code": -32601, "message": "what?"})


if __name__ == "__main__":
    Server(sys.argv[1], Path(sys.argv[2])).run()
