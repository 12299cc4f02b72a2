"""A provider that plays a script, for demos and tests. It needs no network and always answers the same."""

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from typing import Any

import msgspec
from msgspec import Struct

from weft.errors import FaultKind, InvalidInputError, ProviderError
from weft.host.clock import Clock
from weft.model.wire import encode
from weft.provider.chunk import (
    AnyChunk,
    Finished,
    FinishReason,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    Started,
    TextDelta,
    TextEnd,
    TextStart,
    ToolCall,
    ToolInputStart,
    Usage,
)
from weft.provider.contract import ModelRequest

CHARS_PER_TOKEN = 4


class Move(Struct, frozen=True, kw_only=True, tag_field="do", forbid_unknown_fields=True):
    """One thing that the scripted model does in an answer."""


class Say(Move, frozen=True, kw_only=True, tag="say"):
    text: str


class Think(Move, frozen=True, kw_only=True, tag="think"):
    text: str


class UseTool(Move, frozen=True, kw_only=True, tag="call"):
    tool: str
    input: dict[str, Any] = {}
    raw: str | None = None


class Fail(Move, frozen=True, kw_only=True, tag="fail"):
    """Fail with an error. `wait_ms` is the wait that the API asks for."""

    message: str
    status: int | None = None
    retryable: bool = False
    kind: FaultKind = "unknown"
    wait_ms: int | None = None


class Wait(Move, frozen=True, kw_only=True, tag="wait"):
    seconds: float


class End(Move, frozen=True, kw_only=True, tag="end"):
    """End the answer with this reason and usage. Without an `End`, the moves decide how a step ends."""

    reason: FinishReason = "stop"
    usage: Usage | None = None


AnyMove = Say | Think | UseTool | Fail | Wait | End
Script = tuple[tuple[AnyMove, ...], ...]

_script = msgspec.json.Decoder(Script)


def read_script(raw: bytes, *, where: str) -> Script:
    """Parse a script: a JSON list of steps, each a list of moves like `{"do": "say", "text": "hello"}`.

    Raise `InvalidInputError` that names `where` if it is not one.
    """
    try:
        return _script.decode(raw)
    except msgspec.DecodeError as error:
        raise InvalidInputError(where, f"not a script: {error}") from error


class ScriptedProvider:
    """Plays one step of its script per request, word by word. `pace` is the pause after each word in seconds."""

    def __init__(self, script: Sequence[Sequence[AnyMove]], clock: Clock, *, pace: float = 0) -> None:
        self._script = script
        self._clock = clock
        self._pace = pace
        self.requests: list[ModelRequest] = []

    async def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        self.requests.append(request)
        number = len(self.requests)
        if number > len(self._script):
            raise ProviderError("the script is over: it has no answer to this request")
        moves = self._script[number - 1]
        async with aclosing(play(moves, request, self._clock, number=number, pace=self._pace)) as chunks:
            async for chunk in chunks:
                yield chunk


async def play(
    moves: Sequence[AnyMove], request: ModelRequest, clock: Clock, *, number: int, pace: float = 0
) -> AsyncGenerator[AnyChunk]:
    """Yield one response, word by word. `number` makes the ids of its calls unique."""
    yield Started()
    for place, move in enumerate(moves):
        match move:
            case Wait(seconds=seconds):
                await clock.sleep(seconds)
            case Fail():
                raise _to_error(move)
            case End():
                yield _to_finished(moves, request, move)
                return
            case Say() | Think() | UseTool():
                for chunk in _to_chunks(move, f"{number}.{place}"):
                    yield chunk
                    if pace and isinstance(chunk, TextDelta | ReasoningDelta):
                        await clock.sleep(pace)
    yield _to_finished(moves, request, None)


def _to_error(move: Fail) -> ProviderError:
    error = ProviderError(move.message, status=move.status, retryable=move.retryable)
    error.kind, error.wait_ms = move.kind, move.wait_ms
    return error


def _to_chunks(move: Say | Think | UseTool, id: str) -> Iterable[AnyChunk]:
    match move:
        case Say(text=text):
            yield TextStart(id=id)
            yield from (TextDelta(id=id, text=word) for word in _split_words(text))
            yield TextEnd(id=id)
        case Think(text=text):
            yield ReasoningStart(id=id)
            yield from (ReasoningDelta(id=id, text=word) for word in _split_words(text))
            yield ReasoningEnd(id=id)
        case UseTool(tool=tool, input=input, raw=raw):
            yield ToolInputStart(call_id=f"call_{id}", tool=tool)
            yield ToolCall(
                call_id=f"call_{id}",
                tool=tool,
                raw=msgspec.json.encode(input).decode() if raw is None else raw,
            )


def _split_words(text: str) -> list[str]:
    """Split a text into words, each with the space that follows it."""
    words = text.split(" ")
    return [word + " " for word in words[:-1]] + [words[-1]]


def _to_finished(moves: Sequence[AnyMove], request: ModelRequest, end: End | None) -> Finished:
    reason: FinishReason = "tool-calls" if any(isinstance(move, UseTool) for move in moves) else "stop"
    return Finished(
        reason=end.reason if end else reason,
        raw_reason=end.reason if end else reason,
        usage=(end.usage if end else None) or _estimate_usage(moves, request),
    )


def _estimate_usage(moves: Sequence[AnyMove], request: ModelRequest) -> Usage:
    """Estimate the tokens that a real model would count."""
    input_length = len(encode((request.system, request.messages)))
    output_length = sum(len(msgspec.json.encode(move)) for move in moves if isinstance(move, Say | UseTool))
    thought_length = sum(len(move.text) for move in moves if isinstance(move, Think))
    return Usage(
        input=input_length // CHARS_PER_TOKEN,
        output=output_length // CHARS_PER_TOKEN,
        reasoning=thought_length // CHARS_PER_TOKEN,
    )
