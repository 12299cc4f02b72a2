"""A model behind an OpenAI-compatible API on this machine, which plays a script for each prompt."""

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from msgspec import Struct

from weft.provider.scripted import AnyMove, Say, Think, UseTool, Wait

Scripts = Mapping[str, Sequence[Sequence[AnyMove]]]
CHUNK = 80


class ModelServer(Struct, frozen=True, kw_only=True):
    """Where the model listens, the prompts it was sent, and `go_on`, for which a `Wait` of a script waits."""

    url: str
    prompts: list[str]
    go_on: threading.Event

    @property
    def config(self) -> dict[str, Any]:
        """The configuration that makes `mill/loom` the model."""
        limit = {"context": 10_000, "output": 1000}
        cost = {"input": 100, "output": 100}
        models = {
            "loom": {"limit": limit, "cost": cost, "variants": {"high": {}}},
            "shuttle": {"limit": limit},
        }
        options = {"baseURL": f"{self.url}/v1", "apiKey": "sk-x"}
        provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": models}
        return {"model": "mill/loom", "small_model": "mill/loom", "provider": {"mill": provider}}


@contextmanager
def open_model_server(scripts: Scripts) -> Iterator[ModelServer]:
    """Serve a model. Each prompt plays its script, one step for each request; a prompt without a script is echoed.

    A script for one model alone is named `model: prompt`.
    """
    prompts: list[str] = []
    go_on = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            with suppress(ConnectionError):  # the run was interrupted
                for frame in self._play(body):
                    self.wfile.write(f"data: {json.dumps(frame)}\n\n".encode())
                    self.wfile.flush()
                self.wfile.write(b"data: [DONE]\n\n")

        def _play(self, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
            moves: Sequence[AnyMove] = (Say(text="A title"),)
            if body.get("tools"):
                prompt, step = find_prompt(body["messages"])
                prompts.append(prompt)
                echo = ((Say(text=f"You said: {prompt}"),),)
                script = scripts.get(f"{body['model']}: {prompt}") or scripts.get(prompt, echo)
                moves = script[min(step, len(script) - 1)]
            yield from to_frames(moves, go_on)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield ModelServer(url=f"http://127.0.0.1:{server.server_port}", prompts=prompts, go_on=go_on)
    finally:
        go_on.set()
        server.shutdown()
        thread.join()
        server.server_close()


def find_prompt(messages: Sequence[Mapping[str, Any]]) -> tuple[str, int]:
    """Return the last prompt, and how many answers followed it."""
    step = 0
    for message in reversed(messages):
        if message["role"] == "user":
            content = message["content"]
            texts = [content] if isinstance(content, str) else [part.get("text", "") for part in content]
            return texts[0].partition("\n\n<system-reminder>")[0].strip(), step
        step += message["role"] == "assistant"
    return "", step


def to_frames(moves: Sequence[AnyMove], go_on: threading.Event) -> Iterator[dict[str, Any]]:
    calls = 0
    for move in moves:
        match move:
            case Say(text=text):
                for at in range(0, len(text), CHUNK):
                    yield _to_frame({"content": text[at : at + CHUNK]})
            case Think(text=text):
                yield _to_frame({"reasoning_content": text})
            case UseTool(tool=tool, input=input):
                function = {"name": tool, "arguments": json.dumps(input)}
                yield _to_frame(
                    {
                        "tool_calls": [
                            {"index": calls, "id": f"call_{calls}", "type": "function", "function": function}
                        ]
                    }
                )
                calls += 1
            case Wait():
                go_on.wait(60)
                go_on.clear()
            case _:
                raise AssertionError(f"not played here: {move}")
    yield _to_frame({}, "tool_calls" if calls else "stop")
    yield {"id": "c", "choices": [], "usage": {"prompt_tokens": 1000, "completion_tokens": 50}}


def _to_frame(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
    return {"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}
