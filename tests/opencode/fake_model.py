"""A scripted model, over the API of OpenAI-compatible providers. Loopback only."""

import json
import threading
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from msgspec import Struct

TITLE = "A title by the model"
PIECE = 16


class ModelCall(Struct, frozen=True):
    """A tool call of the model."""

    tool: str
    input: dict[str, Any]


class Answer(Struct, frozen=True, kw_only=True):
    """One answer of the model. `words` may be endless: they are read one by one while the stream is open."""

    thought: str = ""
    words: Iterable[str] = ()
    calls: tuple[ModelCall, ...] = ()
    pause: float = 0


def answer_text(text: str) -> Answer:
    return Answer(words=_pieces(text))


def answer_call(tool: str, **input: Any) -> Answer:
    return Answer(calls=(ModelCall(tool, input),))


def answer_slow_call(tool: str, **input: Any) -> Answer:
    """Call a tool slowly. OpenCode takes its snapshot while the model streams, and records no patch for changes before it."""
    return Answer(calls=(ModelCall(tool, input),), pause=0.7)


class FakeModel:
    """Plays its script, one answer for each request. A request without tools is for a title, and not part of the script."""

    def __init__(self) -> None:
        self._answers: list[Answer] = []
        self._requests: list[dict[str, Any]] = []
        self._numbers = iter(range(1, 1 << 30))
        self._lock = threading.Lock()

    def play(self, *answers: Answer) -> None:
        """Start a new script, and forget earlier requests."""
        with self._lock:
            self._answers = list(answers)
            self._requests = []

    @property
    def requests(self) -> list[dict[str, Any]]:
        """Return the requests since the script began, without titles."""
        with self._lock:
            return list(self._requests)

    def answer(self, request: dict[str, Any]) -> Answer:
        if not request.get("tools"):
            return answer_text(TITLE)
        with self._lock:
            self._requests.append(request)
            number = len(self._requests)
            over = answer_text(f"the script has no answer to request {number}")
            return self._answers[number - 1] if number <= len(self._answers) else over

    def number(self) -> int:
        with self._lock:
            return next(self._numbers)


@contextmanager
def open_fake_model() -> Generator[tuple[FakeModel, str]]:
    """Serve a fake model, and yield it with its URL."""
    model = FakeModel()
    with ThreadingHTTPServer(("127.0.0.1", 0), lambda *given: _Handler(model, *given)) as server:
        server.daemon_threads = True
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        serving.start()
        try:
            yield model, f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            serving.join()


class _Handler(BaseHTTPRequestHandler):
    """`/api.json` is an empty catalogue; completions are streamed; everything else is a 404."""

    protocol_version = "HTTP/1.1"

    def __init__(self, model: FakeModel, *given: Any) -> None:
        self._model = model
        super().__init__(*given)

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        found = self.path.partition("?")[0] == "/api.json"
        self._reply(200 if found else 404, b"{}")

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if not self.path.endswith("/chat/completions"):
            self._reply(404, b"{}")
            return
        with suppress(BrokenPipeError, ConnectionResetError):  # the client may have closed the connection
            self._stream(self._model.answer(json.loads(raw)), self._model.number())

    def _reply(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, answer: Answer, number: int) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        for chunk in _chunks(answer, number):
            self._send(json.dumps(chunk))
            if answer.pause:
                time.sleep(answer.pause)
        self._send("[DONE]")

    def _send(self, data: str) -> None:
        self.wfile.write(f"data: {data}\n\n".encode())
        self.wfile.flush()


def _chunks(answer: Answer, number: int) -> Iterator[dict[str, Any]]:
    yield _chunk(number, {"role": "assistant", "content": ""})
    for piece in _pieces(answer.thought):
        yield _chunk(number, {"reasoning_content": piece})
    length = 0
    for word in answer.words:
        length += len(word)
        yield _chunk(number, {"content": word})
    for index, call in enumerate(answer.calls):
        for part in _call(index, f"call_{number}_{index}", call):
            yield _chunk(number, {"tool_calls": [part]})
    yield _chunk(number, {}, finish="tool_calls" if answer.calls else "stop")
    used = {"prompt_tokens": 1000 + number, "completion_tokens": 7 + length, "total_tokens": 1007 + number}
    yield {**_chunk(number, {}), "choices": [], "usage": used}


def _call(index: int, id: str, call: ModelCall) -> Iterator[dict[str, Any]]:
    yield {
        "index": index,
        "id": id,
        "type": "function",
        "function": {"name": call.tool, "arguments": ""},
    }
    for piece in _pieces(json.dumps(call.input)):
        yield {"index": index, "function": {"arguments": piece}}


def _chunk(number: int, delta: dict[str, Any], *, finish: str | None = None) -> dict[str, Any]:
    return {
        "id": f"answer-{number}",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": "fake-model",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }


def _pieces(text: str) -> list[str]:
    return [text[start : start + PIECE] for start in range(0, len(text), PIECE)]
