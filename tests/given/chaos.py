"""A model that fails at random, by a seed, in every way that a model, its API or the network can fail."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from random import Random
from typing import Any

import msgspec

from given.engine import EchoInput
from weft.errors import FaultKind
from weft.host.clock import Clock
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
    ToolInputDelta,
    ToolInputStart,
    Usage,
)
from weft.provider.contract import ModelRequest
from weft.provider.faults import make_error
from weft.tool.contract import AnyTool, Tool, ToolContext, ToolResult

Chunks = Iterable[AnyChunk]
LONGEST_STALL = 200.0
FOR_EVER = 0.02
REASONS: tuple[FinishReason, ...] = (
    "stop",
    "length",
    "content-filter",
    "tool-calls",
    "error",
    "other",
    "unknown",
)
PASSING: tuple[FaultKind, ...] = ("rate-limit", "overload", "server", "network", "timeout")
LASTING: tuple[FaultKind, ...] = (
    "auth",
    "quota",
    "content-filter",
    "not-found",
    "bad-request",
    "media",
    "signature",
)
WORDS = ("loom", "thread", "Schuss", "Kette", "織る", "🧵", "a\n\nb", "", " ", "x" * 300)

# The weight of each behaviour. Answers that succeed are frequent enough for conversations to make progress.
BEHAVIOURS = {
    "answer_text": 20,
    "think_and_answer": 6,
    "call_tools": 22,
    "call_tools_wrongly": 8,
    "reuse_call_ids": 3,
    "delegate": 4,
    "answer_nothing": 3,
    "send_empty_body": 2,
    "truncate": 4,
    "reset": 6,
    "refuse": 2,
    "limit_the_rate": 4,
    "overflow": 2,
    "fill_the_context": 3,
    "stall": 4,
    "repeat_a_call": 3,
    "repeat_text": 2,
    "break_the_protocol": 5,
    "end_oddly": 4,
    "raise_a_bug": 1,
}


class ChaosModel:
    """A provider whose models behave at random. `look` receives every request before it is answered."""

    def __init__(self, random: Random, clock: Clock, look: Callable[[ModelRequest], None]) -> None:
        self._random = random
        self._clock = clock
        self._look = look
        self._stuck: dict[str, tuple[int, ToolCall]] = {}
        self._count = 0
        self.behaviours: dict[str, int] = {}

    async def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        self._look(request)
        self._count += 1
        behaviour = self._choose_behaviour(request)
        self.behaviours[behaviour] = self.behaviours.get(behaviour, 0) + 1
        async for chunk in getattr(self, f"_{behaviour}")(request):
            yield chunk
            if self._random.random() < 0.1:
                await self._clock.sleep(self._random.uniform(0, 0.4))

    def _choose_behaviour(self, request: ModelRequest) -> str:
        if request.session in self._stuck:
            return "repeat_a_call"
        return self._random.choices(list(BEHAVIOURS), list(BEHAVIOURS.values()))[0]

    # --- answers that succeed ---

    async def _answer_text(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        for chunk in (Started(), *self._text(), self._end("stop", request)):
            yield chunk

    async def _think_and_answer(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        for chunk in (Started(), *self._thought(), *self._text(), self._end("stop", request)):
            yield chunk

    async def _call_tools(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        calls = [self._call(*self._good_call()) for _ in range(self._random.randint(1, 3))]
        said = self._text() if self._random.random() < 0.5 else ()
        pieces = [chunk for call in calls for chunk in call]
        for chunk in (Started(), *said, *pieces, self._end("tool-calls", request)):
            yield chunk

    async def _delegate(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        """Delegate to one or two child sessions at once."""
        given = {
            "description": "Weave",
            "prompt": "Weave it.",
            "subagent_type": self._pick("general", "nobody"),
        }
        calls = [self._call("task", self._raw(given)) for _ in range(self._random.randint(1, 2))]
        for chunk in (
            Started(),
            *(each for call in calls for each in call),
            self._end("tool-calls", request),
        ):
            yield chunk

    # --- invalid calls ---

    async def _call_tools_wrongly(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        bad = [self._call(*self._bad_call()) for _ in range(self._random.randint(1, 3))]
        for chunk in (Started(), *(each for call in bad for each in call), self._end("tool-calls", request)):
            yield chunk

    async def _reuse_call_ids(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        """Some servers number the calls of every answer from the same number, or give all of them the same id."""
        ids = self._pick(("call_0", "call_0"), ("", ""), ("call_0", "call_1"))
        pieces = [chunk for id in ids for chunk in self._call(*self._good_call(), id=id)]
        for chunk in (Started(), *pieces, self._end("tool-calls", request)):
            yield chunk

    async def _repeat_a_call(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        """Make the same call, step after step."""
        left, call = self._stuck.pop(request.session, None) or self._draw_repeated_call()
        call = msgspec.structs.replace(call, call_id=f"call_{self._count}")
        if left > 1:
            self._stuck[request.session] = (left - 1, call)
        for chunk in (Started(), *_to_chunks(call), self._end("tool-calls", request)):
            yield chunk

    def _draw_repeated_call(self) -> tuple[int, ToolCall]:
        tool, raw = self._pick(self._good_call, self._bad_call)()
        return self._random.randint(2, 12), ToolCall(call_id="", tool=tool, raw=raw)

    # --- answers that break off ---

    async def _send_empty_body(self, _: ModelRequest) -> AsyncGenerator[AnyChunk]:
        """Send an empty body."""
        for chunk in self._pick((), (Started(),)):
            yield chunk

    async def _truncate(self, _: ModelRequest) -> AsyncGenerator[AnyChunk]:
        for chunk in self._draw_unfinished_answer():
            yield chunk

    async def _reset(self, _: ModelRequest) -> AsyncGenerator[AnyChunk]:
        for chunk in self._draw_unfinished_answer():
            yield chunk
        raise make_error(self._pick(*PASSING), "the connection was reset")

    async def _refuse(self, _: ModelRequest) -> AsyncGenerator[AnyChunk]:
        for chunk in self._draw_unfinished_answer() if self._random.random() < 0.3 else ():
            yield chunk
        raise make_error(self._pick(*LASTING), "no")

    async def _limit_the_rate(self, _: ModelRequest) -> AsyncGenerator[AnyChunk]:
        headers = self._pick({}, {"retry-after": "1"}, {"retry-after": "3600"}, {"retry-after": "-5"})
        for chunk in ():
            yield chunk
        raise make_error("rate-limit", "Too Many Requests", status=429, headers=headers)

    async def _overflow(self, _: ModelRequest) -> AsyncGenerator[AnyChunk]:
        for chunk in ():
            yield chunk
        raise make_error("overflow", "prompt is too long", status=400)

    async def _raise_a_bug(self, _: ModelRequest) -> AsyncGenerator[AnyChunk]:
        """Raise an unexpected error, as a bug in an adapter would."""
        for chunk in self._draw_unfinished_answer():
            yield chunk
        raise ZeroDivisionError("a bug in an adapter")

    async def _stall(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        """Stop sending. The read timeout ends it, or else the deadline of the turn."""
        half = self._draw_unfinished_answer()
        for chunk in half[: self._random.randint(0, len(half))]:
            yield chunk
        if self._random.random() < FOR_EVER:
            await asyncio.Event().wait()
        await self._clock.sleep(self._random.uniform(1, LONGEST_STALL))
        if self._random.random() < 0.5:
            raise make_error("timeout", "no word for too long")
        for chunk in (*self._text(), self._end("stop", request)):
            yield chunk

    # --- complete but unusual answers ---

    async def _answer_nothing(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        for chunk in (Started(), self._end("stop", request)):
            yield chunk

    async def _fill_the_context(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        """Report that the context is almost full, so that the next request would not fit."""
        window = request.model.limit.context
        usage = Usage(input=window - self._random.randint(0, 500), output=self._random.randint(0, 400))
        asked = self._call(*self._good_call()) if self._random.random() < 0.7 else self._text()
        for chunk in (Started(), *asked, Finished(reason="stop", usage=usage)):
            yield chunk

    async def _repeat_text(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        text = f"text_{self._count}"
        yield Started()
        yield TextStart(id=text)
        for _ in range(self._random.randint(50, 150)):
            yield TextDelta(id=text, text="over and over and ")
        yield TextEnd(id=text)
        yield self._end(self._pick("stop", "length"), request)

    async def _end_oddly(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        asked = self._call(*self._good_call()) if self._random.random() < 0.5 else self._text()
        for chunk in (Started(), *asked, self._end(self._pick(*REASONS), request)):
            yield chunk

    async def _break_the_protocol(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        """Send the right chunks in an order that the contract forbids, some twice, some not at all."""
        pieces = [Started(), *self._thought(), *self._text(), *self._call(*self._good_call())]
        kept = [piece for piece in pieces if self._random.random() < 0.8]
        if self._random.random() < 0.5:
            self._random.shuffle(kept)
        kept += [piece for piece in kept if self._random.random() < 0.1]
        for chunk in (*kept, *[self._end("stop", request)] * self._random.randint(1, 2)):
            yield chunk

    # --- pieces ---

    def _draw_unfinished_answer(self) -> list[AnyChunk]:
        whole = [
            Started(),
            *self._thought(),
            *self._text(),
            *self._call(*self._pick(self._good_call, self._bad_call)()),
        ]
        return whole[: self._random.randint(1, len(whole))]

    def _text(self) -> list[AnyChunk]:
        id = f"text_{self._count}"
        words = self._random.choices(WORDS, k=self._random.randint(0, 6))
        return [TextStart(id=id), *(TextDelta(id=id, text=word) for word in words), TextEnd(id=id)]

    def _thought(self) -> list[AnyChunk]:
        id = f"thought_{self._count}"
        words = self._random.choices(WORDS, k=self._random.randint(0, 4))
        return [
            ReasoningStart(id=id),
            *(ReasoningDelta(id=id, text=word) for word in words),
            ReasoningEnd(id=id),
        ]

    def _call(self, tool: str, raw: str, *, id: str | None = None) -> list[AnyChunk]:
        named = f"call_{self._count}_{self._random.randrange(10**6)}" if id is None else id
        return list(_to_chunks(ToolCall(call_id=named, tool=tool, raw=raw)))

    def _good_call(self) -> tuple[str, str]:
        tool = self._random.choices(("echo", "slow", "fall", "hold", "big"), (10, 5, 2, 1, 2))[0]
        return tool, self._raw({"words": self._pick(*WORDS) + str(self._random.randrange(1000))})

    def _bad_call(self) -> tuple[str, str]:
        return self._pick(
            ("echo", '{"words": "h'),
            ("echo", "[1, 2]"),
            ("echo", ""),
            ("echo", '{"words": 7}'),
            ("echo", '{"wörds": "\\ud83d"}'),
            ("unheard-of", "{}"),
            ("", "{}"),
            ("task", '{"prompt": "go"}'),
            ("invalid", "{}"),
        )

    def _end(self, reason: FinishReason, request: ModelRequest) -> Finished:
        """Report about as many tokens as a real model would, or none: not all of them do."""
        asked = len(msgspec.json.encode((request.system, request.messages))) // 4
        known = self._random.random() < 0.9
        usage = Usage(
            input=asked // 2,
            cache_read=asked - asked // 2,
            output=self._random.randint(0, 200),
            reasoning=self._random.randint(0, 50),
        )
        return Finished(reason=reason, usage=usage if known else Usage())

    def _raw(self, given: dict[str, Any]) -> str:
        return msgspec.json.encode(given).decode()

    def _pick(self, *from_these: Any) -> Any:
        return self._random.choice(from_these)


def _to_chunks(call: ToolCall) -> Chunks:
    yield ToolInputStart(call_id=call.call_id, tool=call.tool)
    for piece in (call.raw[:3], call.raw[3:]):
        if piece:
            yield ToolInputDelta(call_id=call.call_id, text=piece)
    yield call


# --- the tools ---


async def _echo(wanted: EchoInput, ctx: ToolContext) -> ToolResult:
    await ctx.ask("echo", wanted.words, always=("*",))
    return ToolResult(title="Echo", output=wanted.words)


async def _run_slowly(wanted: EchoInput, ctx: ToolContext) -> ToolResult:
    for share in range(1, 4):
        await ctx.clock.sleep(len(wanted.words))
        await ctx.report(title=f"{share}/3", metadata={"done": share})
    return ToolResult(title="Slow", output=wanted.words)


async def _raise(_: EchoInput, __: ToolContext) -> ToolResult:
    raise ValueError("it fell")


async def _hold(_: EchoInput, __: ToolContext) -> ToolResult:
    await asyncio.Event().wait()
    raise AssertionError("waited for nothing")


async def _print_much(wanted: EchoInput, _: ToolContext) -> ToolResult:
    return ToolResult(title="Big", output=f"{wanted.words}\n" * 100)


TOOLS: tuple[AnyTool, ...] = tuple(
    Tool(name=name, about=f"{name.title()}.", takes=EchoInput, run=run)
    for name, run in (
        ("echo", _echo),
        ("slow", _run_slowly),
        ("fall", _raise),
        ("hold", _hold),
        ("big", _print_much),
    )
)
