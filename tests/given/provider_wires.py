"""For each model API: our adapter, a fake of its server, and a check whether the server accepts the next request."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from fake.anthropic import AnthropicDialect
from fake.converse import ConverseDialect
from fake.gemini import GeminiDialect
from fake.openai import OpenAIChatDialect
from fake.responses import ResponsesDialect
from given.engine import open_engine, text_prompt
from given.model_requests import GEMINI_3, GPT_5
from given.models import CLAUDE, GPT, ON_BEDROCK
from weft.context.system import Briefing, Environment
from weft.model.agent import AgentInfo
from weft.model.catalog import Model
from weft.model.input import SessionInput
from weft.model.message import MessageWithParts
from weft.provider.anthropic import request as anthropic_request
from weft.provider.anthropic.adapter import AnthropicMessages
from weft.provider.bedrock import request as converse_request
from weft.provider.bedrock.adapter import Bedrock
from weft.provider.body import to_bytes
from weft.provider.contract import ModelRequest
from weft.provider.gemini import request as gemini_request
from weft.provider.gemini.adapter import Gemini
from weft.provider.openai_chat import request as openai_chat_request
from weft.provider.openai_chat.adapter import OpenAIChat
from weft.provider.openai_responses import request as responses_request
from weft.provider.openai_responses.adapter import OpenAIResponses
from weft.provider.scripted import Say
from weft.run.decide import ModelStep, find_newest_prompt
from weft.run.request import build_request, list_summary_requests, split_for_summary
from weft.run.runtime import Runtime
from weft.testing.fake_model_api import Dialect, ReceivedRequest
from weft.testing.provider_harness import MakeProvider, open_provider_harness

THINKING = {"thinking": {"type": "enabled", "budgetTokens": 16_000}}
SUMMARISER = AgentInfo(name="compaction", mode="primary", hidden=True, prompt="Sum it up.")
BASIS = Briefing(environment=Environment(directory="/nowhere", git=False, platform="linux", today="a day"))


class Wire(Struct, frozen=True, kw_only=True):
    """One model API: our adapter, its fake server, and a model."""

    dialect: Callable[[], Dialect]
    make: MakeProvider
    to_body: Callable[[ModelRequest], dict[str, Any]]
    model: Model


WIRES = {
    "chat": Wire(dialect=OpenAIChatDialect, make=OpenAIChat, to_body=openai_chat_request.to_body, model=GPT),
    "anthropic": Wire(
        dialect=AnthropicDialect,
        make=AnthropicMessages,
        to_body=anthropic_request.to_body,
        model=replace(CLAUDE, options=THINKING),
    ),
    "responses": Wire(
        dialect=ResponsesDialect, make=OpenAIResponses, to_body=responses_request.to_body, model=GPT_5
    ),
    "converse": Wire(
        dialect=ConverseDialect,
        make=Bedrock,
        to_body=converse_request.to_body,
        model=replace(ON_BEDROCK, options={"reasoningConfig": THINKING["thinking"]}),
    ),
    "gemini": Wire(dialect=GeminiDialect, make=Gemini, to_body=gemini_request.to_body, model=GEMINI_3),
}


def next_requests(
    runtime: Runtime, history: Sequence[MessageWithParts], model: Model
) -> Iterator[tuple[str, ModelRequest]]:
    """Yield every possible next request: the next step, the last step, which has no tools, or a summary."""
    prompt = find_newest_prompt(history)
    assert prompt is not None
    yield "step", build_request(runtime, history, ModelStep(prompt), model, BASIS)
    yield "last step", build_request(runtime, history, ModelStep(prompt, last=True), model, BASIS)
    most = runtime.output_limit
    for piece in split_for_summary(history, prompt, model, output_limit=most):
        asked = list_summary_requests(
            piece, "", request=prompt, agent=SUMMARISER, model=model, output_limit=most
        )
        for request in asked:
            yield "summary", request


class RequestChecker:
    """A server that only checks whether it would accept a request. It checks equal requests once."""

    def __init__(self, wire: Wire, dialect: Dialect, like: ReceivedRequest) -> None:
        self._wire = wire
        self._dialect = dialect
        self._like = like
        self._seen: set[bytes] = set()

    def problem(self, request: ModelRequest) -> str | None:
        raw = to_bytes(self._wire.to_body(request))
        if raw in self._seen:
            return None
        self._seen.add(raw)
        return self._dialect.problem(replace(self._like, raw=raw))


async def capture_request(wire: Wire) -> ReceivedRequest:
    """Return a request as the adapter sends it, for its address and headers."""
    async with (
        open_provider_harness(wire.dialect(), wire.make, wire.model) as harness,
        open_engine(model=wire.model, provider=harness.provider) as engine,
    ):
        harness.play([Say(text="hello")])
        session = (await engine.api.create_session(SessionInput(title="t"))).id
        await engine.api.prompt(session, text_prompt("hello"))
        return harness.server.requests[0]
