"""A fake of Amazon's ConverseStream API: a binary stream of events with checksums."""

import re
import struct
import zlib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from fake.converse_rules import check_request, signature_of
from fake.refusing import RefusedError, require
from weft.provider.bedrock.adapter import sign_request
from weft.provider.chunk import Usage
from weft.provider.endpoint import AwsKeys
from weft.provider.scripted import AnyMove, End, Fail, Say, Think, UseTool, Wait
from weft.testing.fake_model_api import ReceivedRequest, split_words

Json = dict[str, Any]

SECRET: Final = AwsKeys(id="AKIAFAKE", secret="fake/secret+key", token="lent")
REGION: Final = "eu-west-1"
TEXT: Final = 7
REASONS: Final = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool-calls": "tool_use",
    "content-filter": "content_filtered",
}
ERRORS: Final = {
    400: "ValidationException",
    403: "AccessDeniedException",
    404: "ResourceNotFoundException",
    429: "ThrottlingException",
    500: "InternalServerException",
    503: "ServiceUnavailableException",
}


def frame(data: bytes, **headers: str) -> bytes:
    """Encode one event. Underscores in header names stand for characters that Python names cannot contain."""
    raw = b"".join(_header(f":{name.replace('_', '-')}", value) for name, value in headers.items())
    prelude = struct.pack(">II", 12 + len(raw) + len(data) + 4, len(raw))
    body = prelude + struct.pack(">I", zlib.crc32(prelude)) + raw + data
    return body + struct.pack(">I", zlib.crc32(body))


def _header(name: str, value: str) -> bytes:
    return (
        struct.pack(">B", len(name)) + name.encode() + struct.pack(">BH", TEXT, len(value)) + value.encode()
    )


def event(name: str, **fields: Any) -> bytes:
    padded = {**fields, "p": "abcdefghij"}  # padding, so that the length reveals nothing
    return frame(
        msgspec.json.encode(padded), event_type=name, content_type="application/json", message_type="event"
    )


class ConverseDialect:
    """Bedrock in one region. It recognises its own thoughts, and requests signed with `SECRET`."""

    kind = "application/vnd.amazon.eventstream"

    def problem(self, request: ReceivedRequest) -> str | None:
        try:
            _, model, action = request.path.lstrip("/").removeprefix("v1/").split("/")
            require(action == "converse-stream", "UnknownOperationException")
            require(":" not in model, f"the id of the model is not written as part of a path: {model}")
            require(request.headers.get("accept") in {self.kind, "*/*"}, "the answer is an event stream")
            require(request.headers.get("content-type") == "application/json", "the body must be JSON")
            _check_who(request)
            check_request(unquote(model), request.body)
        except RefusedError as refused:
            return str(refused)
        return None

    def wrapped(self, data: bytes) -> bytes:
        return frame(data, event_type="contentBlockDelta", message_type="event")

    def frames(self, moves: Sequence[AnyMove]) -> list[bytes]:
        return list(_answer(moves))

    def refusal(self, status: int, message: str) -> bytes:
        return msgspec.json.encode({"__type": ERRORS.get(status, "UnknownException"), "message": message})

    def failure(self, message: str) -> bytes:
        return _exception("serviceUnavailableException", message)

    def nameless_call(self) -> list[bytes]:
        start = {"toolUse": {"toolUseId": "tooluse_1", "name": ""}}
        return [
            event("messageStart", role="assistant"),
            event("contentBlockStart", start=start, contentBlockIndex=0),
        ]


def _check_who(request: ReceivedRequest) -> None:
    proof = request.headers.get("authorization", "")
    if proof.startswith("Bearer "):
        return
    require(proof.startswith("AWS4-HMAC-SHA256 "), "Missing Authentication Token")
    url = f"http://{request.headers['host']}{request.path}"
    at = _parse_time(request.headers.get("x-amz-date", ""))
    wanted = sign_request(url, request.raw, SECRET, REGION, at)
    require(
        proof == wanted["authorization"],
        "The request signature we calculated does not match the signature you provided.",
    )
    require(request.headers.get("x-amz-security-token") == SECRET.token, "The security token is invalid")


def _parse_time(date: str) -> int:
    require(re.fullmatch(r"\d{8}T\d{6}Z", date), "X-Amz-Date must be a moment")
    return int(datetime.strptime(date, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()) * 1000


# --- an answer ---


def _answer(moves: Sequence[AnyMove]) -> Iterator[bytes]:
    end = next((move for move in moves if isinstance(move, End)), None)
    called = any(isinstance(move, UseTool) for move in moves)
    yield event("messageStart", role="assistant")
    for index, move in enumerate(moves):
        if isinstance(move, Fail):
            yield _exception(
                "serviceUnavailableException" if move.retryable else "validationException", move.message
            )
            return
        yield from _block(index, move)
    reason = REASONS[end.reason] if end else REASONS["tool-calls" if called else "stop"]
    yield event("messageStop", stopReason=reason)
    used = (end.usage if end else None) or Usage(input=10, output=5)
    yield event("metadata", usage=_counts(used), metrics={"latencyMs": 7})


def _counts(used: Usage) -> Json:
    output = used.output + used.reasoning  # the API does not distinguish them
    return {
        "inputTokens": used.input,
        "outputTokens": output,
        "totalTokens": used.input + output + used.cache_read + used.cache_write,
        "cacheReadInputTokens": used.cache_read,
        "cacheWriteInputTokens": used.cache_write,
    }


def _block(index: int, move: AnyMove) -> Iterator[bytes]:
    deltas: list[Json]
    match move:
        case Say(text=text):
            deltas = [{"text": word} for word in split_words(text)]
        case Think(text=text):
            deltas = [{"reasoningContent": {"text": word}} for word in split_words(text)]
            deltas.append({"reasoningContent": {"signature": signature_of(text)}})
        case UseTool(tool=tool, input=input, raw=raw):
            written = msgspec.json.encode(input).decode() if raw is None else raw
            start = {"toolUse": {"toolUseId": f"tooluse_{index}", "name": tool}}
            yield event("contentBlockStart", start=start, contentBlockIndex=index)
            deltas = [{"toolUse": {"input": letter}} for letter in ["", *written]]
        case Wait() | End() | Fail():
            return
    for delta in deltas:
        yield event("contentBlockDelta", delta=delta, contentBlockIndex=index)
    yield event("contentBlockStop", contentBlockIndex=index)


def _exception(name: str, message: str) -> bytes:
    return frame(
        msgspec.json.encode({"message": message}),
        exception_type=name,
        content_type="application/json",
        message_type="exception",
    )
