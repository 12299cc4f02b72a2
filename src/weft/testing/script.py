"""Models written in Python, for tests: without a key, without a network, and the same every time.

script = Script("Remember tea.").calls("write", filePath="note.txt", content="tea").says("Done.")
with weft.open(tmp_path, model=script, store="memory:") as agent:
    assert agent.ask("Remember tea.").text == "Done."
"""

import math
import re
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from itertools import takewhile
from typing import Final, Literal, Self

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from weft.context.reminders import VALUE_TOOL
from weft.errors import FaultKind, InvalidInputError, ProviderError
from weft.host.clock import Clock, SystemClock
from weft.model.catalog import Model, ModelApi
from weft.provider.catalog.offers import make_scripted_model
from weft.provider.chunk import AnyChunk, FinishReason, Usage
from weft.provider.contract import ModelMessage, ModelRequest, TextContent, ToolModelMessage, UserModelMessage
from weft.provider.registry import ServedModel
from weft.provider.scripted import AnyMove, End, Fail, Say, Think, UseTool, Wait, play

Expected = str | re.Pattern[str]
"""A prompt: its exact text, or a pattern that is found in it."""

Fault = Literal[
    "overload", "rate-limit", "server", "network", "timeout", "auth", "quota", "overflow", "content-filter",
    "bad-request",
]  # fmt: skip

# What each fault looks like: the status of the answer, whether it is retried, and the message.
FAULTS: Final[dict[Fault, tuple[int | None, bool, str]]] = {
    "overload": (529, True, "the model is overloaded"),
    "rate-limit": (429, True, "too many requests"),
    "server": (500, True, "internal server error"),
    "network": (None, True, "the connection was reset"),
    "timeout": (None, True, "the model did not answer in time"),
    "auth": (401, False, "the key is not valid"),
    "quota": (402, False, "there is no credit left"),
    "overflow": (400, False, "the prompt is too long"),
    "content-filter": (400, False, "the request was blocked by a content filter"),
    "bad-request": (400, False, "the request is not valid"),
}
# An API with an output format of its own: the text of an answer is the value that was requested.
API: Final = "scripted"


class Turn:
    """One expected prompt, and the responses to it. A prompt of None stands for any."""

    def __init__(self, expected: Expected | None) -> None:
        self.expected = expected
        self.steps: list[list[AnyMove]] = []

    def matches(self, prompts: Sequence[str]) -> bool:
        match self.expected:
            case None:
                return True
            case str():
                return any(self.expected.strip() == prompt.strip() for prompt in prompts)
            case re.Pattern():
                return any(self.expected.search(prompt) for prompt in prompts)

    def __repr__(self) -> str:
        expected = self.expected.pattern if isinstance(self.expected, re.Pattern) else self.expected
        return "any prompt" if expected is None else repr(expected)


class Script:
    """A model that answers as written. Pass it as `model=`.

    `Script("…")` and `.asked("…")` name the prompt that comes next; a different prompt fails the question, and the error
    shows both. Every `.says` and every `.calls` is a response of its own, because the model sees the result of a call before
    it goes on; `.also_calls` adds a call to the same response. Text and reasoning before a call belong to its response.
    """

    def __init__(self, prompt: Expected | None = None, *, name: str = "script") -> None:
        self.requests: list[ModelRequest] = []
        self._name = name
        self._turns = [Turn(prompt)]
        self._is_open = False
        self._player: ScriptPlayer | None = None

    def asked(self, prompt: Expected) -> Self:
        """Expect this prompt next, in this session or in another one."""
        self._turns.append(Turn(prompt))
        self._is_open = False
        return self

    def says(self, text: str) -> Self:
        """Answer with text. A JSON text answers a question with a `schema`."""
        self._add(Say(text=text))
        return self

    def answers(self, value: object) -> Self:
        """Answer a question that has a `schema`, with a value that JSON can express."""
        return self.says(_to_json("answers", value).decode())

    def thinks(self, text: str) -> Self:
        """Reason before what follows."""
        self._add(Think(text=text))
        return self

    def calls(self, tool: str, /, **arguments: object) -> Self:
        """Call a tool, in a response of its own."""
        if self._has_calls():
            self._is_open = False
        return self._call("calls", tool, arguments)

    def also_calls(self, tool: str, /, **arguments: object) -> Self:
        """Call another tool in the same response."""
        if not self._has_calls():
            raise InvalidInputError("also_calls", "there is no call before it", hint="begin with .calls(…)")
        return self._call("also_calls", tool, arguments)

    def uses(self, *, input: int = 0, output: int = 0) -> Self:
        """Count these tokens for the response before this, and end that response."""
        usage = Usage(input=input, output=output)
        reason: FinishReason = "tool-calls" if self._has_calls() else "stop"
        self._add(End(reason=reason, usage=usage))
        self._is_open = False
        return self

    def fails(self, fault: Fault = "server", message: str = "") -> Self:
        """Fail as an API does. Faults that pass by themselves are retried at once: what follows is the next attempt."""
        if fault not in FAULTS:
            raise InvalidInputError("fails", f"{fault!r} is none of {', '.join(FAULTS)}")
        status, retryable, usual = FAULTS[fault]
        kind: FaultKind = fault
        self._add(
            Fail(
                message=message or usual,
                status=status,
                retryable=retryable,
                kind=kind,
                wait_ms=0 if retryable else None,
            )
        )
        self._is_open = False
        return self

    def hangs(self) -> Self:
        """Say nothing more, until the question is aborted or its time is over."""
        self._add(Wait(seconds=math.inf))
        self._is_open = False
        return self

    def assert_finished(self) -> None:
        """Raise `AssertionError` if some of the script was not played."""
        player = self._player or ScriptPlayer(self._turns, SystemClock(), [])
        if left := player.list_left():
            raise AssertionError(f"the script was not played to its end: {left[0]}")

    def serve(self, clock: Clock) -> ServedModel:
        """Return the model. It plays the script from the beginning."""
        self.requests.clear()
        self._player = ScriptPlayer(self._turns, clock, self.requests)
        return ServedModel(make_test_model(self._name), self._player)

    def _has_calls(self) -> bool:
        """Return True if the response that is being written has a call."""
        return self._is_open and any(isinstance(move, UseTool) for move in self._turns[-1].steps[-1])

    def _call(self, method: str, tool: str, arguments: dict[str, object]) -> Self:
        _to_json(method, arguments)
        self._add(UseTool(tool=tool, input=arguments))
        return self

    def _add(self, move: AnyMove) -> None:
        steps = self._turns[-1].steps
        # Text after a call is a new response, because the model writes it after the result. So is a second text.
        ends = {Say: (Say, UseTool), Think: (Say, UseTool)}.get(type(move), ())
        if self._is_open and any(isinstance(each, ends) for each in steps[-1]):
            self._is_open = False
        if not self._is_open:
            steps.append([])
        steps[-1].append(move)
        self._is_open = True


class PlayedTurn:
    """A turn that a session has taken: the prompt that was asked, and the responses that are left."""

    def __init__(self, turn: Turn, prompts: list[str]) -> None:
        self.turn = turn
        self.prompts = prompts
        self.steps = list(turn.steps)


class ScriptPlayer:
    """Plays a script for any number of sessions. A session takes the next turn that expects its prompt."""

    def __init__(self, turns: Sequence[Turn], clock: Clock, requests: list[ModelRequest]) -> None:
        self._waiting = [turn for turn in turns if turn.steps]
        self._silent = [turn for turn in turns if not turn.steps and turn.expected is not None]
        self._clock = clock
        self._requests = requests
        self._taken: list[PlayedTurn] = []
        self._playing: dict[str, PlayedTurn] = {}

    async def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        self._requests.append(request)
        number, moves = len(self._requests), self._next_step(request)
        async with aclosing(play(moves, request, self._clock, number=number)) as chunks:
            async for chunk in chunks:
                yield chunk

    def list_left(self) -> list[str]:
        """Return what was not played: the responses that were not requested, then the prompts that were not asked."""
        left = [f"{len(each.steps)} more for {each.turn!r}" for each in self._taken if each.steps]
        return left + [f"{turn!r} was not asked" for turn in self._waiting]

    def _next_step(self, request: ModelRequest) -> list[AnyMove]:
        playing = self._playing.get(request.session)
        prompts = list_prompts(request.messages)
        if playing is None or not playing.steps or self._is_next(playing, prompts):
            playing = self._playing[request.session] = self._take_turn(prompts)
        return playing.steps.pop(0)

    def _is_next(self, playing: PlayedTurn, prompts: list[str]) -> bool:
        """Return True if a turn expects the new prompt of the session, although responses to its last prompt are left."""
        expected = (turn for turn in self._waiting if turn.expected is not None)
        return prompts != playing.prompts and any(turn.matches(prompts) for turn in expected)

    def _take_turn(self, prompts: list[str]) -> PlayedTurn:
        if not prompts:
            raise ProviderError(
                "the script is over, but the agent continues after its last call: add .says(…)"
            )
        for turn in self._waiting:
            if turn.matches(prompts):
                self._waiting.remove(turn)
                self._taken.append(taken := PlayedTurn(turn, prompts))
                return taken
        asked = prompts[-1]
        if VALUE_TOOL in asked:
            raise ProviderError(
                "the question has a schema, and the script answered with text: write .answers(value)"
            )
        if any(turn.matches(prompts) for turn in self._silent):
            raise ProviderError(f"the script has no response to {asked!r}: add .says(…)")
        if not self._waiting:
            raise ProviderError(
                f"the script is over: nothing answers {asked!r}; add .asked({asked!r}).says(…)"
            )
        raise ProviderError(f"the script expects {self._waiting[0]!r}, but the prompt is {asked!r}")


def _to_json(method: str, value: object) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(method, f"JSON cannot express it: {error}") from error


class ModelConversation(Struct, frozen=True, kw_only=True):
    """What a model sees: the prompt, the messages so far, and the names of its tools.

    `results` are the outputs of the calls it made in its last response.
    """

    prompt: str
    results: tuple[str, ...]
    messages: tuple[ModelMessage, ...]
    tools: tuple[str, ...]
    system: str


Reply = str | AnyMove | Sequence[AnyMove]
"""What a model answers: text, or one or several of `say`, `think` and `call`."""


class FunctionModel:
    """A model whose responses a function makes. Pass it as `model=`.

    def model(conversation: ModelConversation) -> Reply:
        return call("glob", pattern="*") if not conversation.results else "There are files."
    """

    def __init__(self, function: Callable[[ModelConversation], Reply], *, name: str = "function") -> None:
        self.requests: list[ModelRequest] = []
        self._function = function
        self._name = name

    def serve(self, clock: Clock) -> ServedModel:
        """Return the model."""
        self.requests.clear()
        return ServedModel(make_test_model(self._name), FunctionPlayer(self._function, clock, self.requests))


class FunctionPlayer:
    """Answers each request by calling a function."""

    def __init__(
        self, function: Callable[[ModelConversation], Reply], clock: Clock, requests: list[ModelRequest]
    ) -> None:
        self._function = function
        self._clock = clock
        self._requests = requests

    async def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        self._requests.append(request)
        try:
            reply: object = self._function(to_conversation(request))
        except Exception as error:
            raise ProviderError(f"the function raised {type(error).__name__}: {error}") from error
        moves = _to_moves(reply)
        async with aclosing(play(moves, request, self._clock, number=len(self._requests))) as chunks:
            async for chunk in chunks:
                yield chunk


def _to_moves(reply: object) -> Sequence[AnyMove]:
    if isinstance(reply, str):
        return (Say(text=reply),)
    moves = reply if isinstance(reply, list | tuple) else (reply,)
    for move in moves:
        if not isinstance(move, Say | Think | UseTool | Fail | Wait | End):
            raise ProviderError(
                f"the function returned {reply!r}: return text, say(…), think(…), call(…) or a list of these"
            )
    return tuple(moves)


def say(text: str) -> Say:
    """Return text, as a part of a model's response."""
    return Say(text=text)


def think(text: str) -> Think:
    """Return reasoning, as a part of a model's response."""
    return Think(text=text)


def call(tool: str, /, **arguments: object) -> UseTool:
    """Return a call of a tool, as a part of a model's response."""
    return UseTool(tool=tool, input=arguments)


def make_test_model(name: str) -> Model:
    """Return the description of a scripted model. Its API has an output format: a JSON text is a value."""
    model = make_scripted_model(name)
    return replace(model, api=ModelApi(id=name, npm=API), options={"structuredOutputs": True})


def to_conversation(request: ModelRequest) -> ModelConversation:
    last = request.messages[-1] if request.messages else None
    prompts = [text for message in request.messages for text in _list_texts(message)]
    return ModelConversation(
        prompt=prompts[-1] if prompts else "",
        results=tuple(each.output for each in last.content) if isinstance(last, ToolModelMessage) else (),
        messages=request.messages,
        tools=tuple(tool.name for tool in request.tools),
        system="\n\n".join(request.system),
    )


def list_prompts(messages: Sequence[ModelMessage]) -> list[str]:
    """Return the texts of the user since the last response; none if the last message is a tool's result."""
    latest = takewhile(lambda message: isinstance(message, UserModelMessage), reversed(messages))
    return [text for message in reversed(list(latest)) for text in _list_texts(message)]


def _list_texts(message: ModelMessage) -> list[str]:
    if not isinstance(message, UserModelMessage):
        return []
    return [content.text for content in message.content if isinstance(content, TextContent)]
