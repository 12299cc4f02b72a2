"""Answer requests with the answers of a stored session, as a tape does with recorded ones."""

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from typing import Final, get_args

import msgspec
from msgspec.structs import replace

from weft.errors import ProviderError
from weft.model.catalog import Model
from weft.model.message import AssistantMessage, MessageWithParts
from weft.model.part import ErrorState, ModelRef, ReasoningPart, TextPart, ToolPart
from weft.model.wire import from_plain, to_plain
from weft.provider.catalog.offers import make_scripted_model
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
from weft.provider.contract import ModelRequest, Provider
from weft.provider.tape import replace_names, rewrite_texts

RECORDING_IS_OVER: Final = "the recording is over: it has no answer to this request"
FINISH_REASONS: Final = frozenset(get_args(FinishReason))

Answers = Sequence[MessageWithParts]


class SessionTape:
    """Plays the answers of a session, and of the child sessions that it started, in the order in which they were stored.

    The first session that asks is the main one; every further one is the next child. A model has the name under which
    it was recorded, even if it does not exist any more. `renamed` maps the recorded directories to those of this run.
    """

    def __init__(
        self, main: Answers, children: Sequence[Answers] = (), *, renamed: Mapping[str, str] | None = None
    ) -> None:
        self._renamed = renamed or {}
        self._waiting = [list(main), *(list(child) for child in children)]
        self._playing: dict[str, list[MessageWithParts]] = {}
        self._default = next(
            (
                ModelRef(provider_id=each.info.provider_id, model_id=each.info.model_id)
                for each in main
                if isinstance(each.info, AssistantMessage)
            ),
            None,
        )

    def set_places(self, places: Mapping[str, str]) -> None:
        """Do nothing: answers are found by their order, and requests are not compared."""

    def find_model(self, name: ModelRef) -> Model | None:
        return replace(make_scripted_model(name.model_id), provider_id=name.provider_id)

    def find_default(self) -> ModelRef | None:
        return self._default

    def wrap(self, provider: Provider | None) -> Provider:  # noqa: ARG002  the recording answers
        return self

    async def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        if request.session not in self._playing:
            self._playing[request.session] = self._waiting.pop(0) if self._waiting else []
        answers = self._playing[request.session]
        if not answers:
            raise ProviderError(RECORDING_IS_OVER)
        for chunk in to_chunks(rename_paths(answers.pop(0), self._renamed)):
            yield chunk


def rename_paths(message: MessageWithParts, renamed: Mapping[str, str]) -> MessageWithParts:
    """Return a message in which directories have other names: in its texts, calls and results."""
    if not renamed:
        return message
    plain = rewrite_texts(to_plain(message), lambda text: replace_names(text, renamed))
    return from_plain(plain, MessageWithParts, where=f"message {message.info.id}")


def to_chunks(answer: MessageWithParts) -> Iterator[AnyChunk]:
    """Yield a stored answer as a model streams it, without what it said in attempts that failed.

    Raise `ProviderError` if it ended with a failure.
    """
    info = answer.info
    assert isinstance(info, AssistantMessage)
    yield Started()
    for part in answer.parts:
        match part:
            case TextPart(id=id, text=text, metadata=metadata, ignored=False):
                yield TextStart(id=id)
                yield TextDelta(id=id, text=text)
                yield TextEnd(id=id, metadata=metadata)
            case ReasoningPart(id=id, text=text, metadata=metadata, ignored=False):
                yield ReasoningStart(id=id)
                yield ReasoningDelta(id=id, text=text)
                yield ReasoningEnd(id=id, metadata=metadata)
            case ToolPart(call_id=call_id, tool=tool, state=state, metadata=metadata):
                raw = msgspec.json.encode(state.input).decode()
                yield ToolInputStart(call_id=call_id, tool=tool)
                yield ToolCall(call_id=call_id, tool=tool, raw=raw, metadata=metadata)
            case _:
                pass
    if info.error is not None and not _was_cut_by_call(answer):
        raise ProviderError(f"the recorded answer failed: {_get_message(info)}")
    reason: FinishReason = info.finish if info.finish in FINISH_REASONS else "stop"  # type: ignore[assignment]
    yield Finished(reason=reason, raw_reason=info.finish or "", usage=_to_usage(info))


def _was_cut_by_call(answer: MessageWithParts) -> bool:
    """Return True if a call ended the run, for example because it was refused. The call will do so again."""
    return any(isinstance(part, ToolPart) and isinstance(part.state, ErrorState) for part in answer.parts)


def _get_message(info: AssistantMessage) -> str:
    data = getattr(info.error, "data", None)
    return str(getattr(data, "message", "") or getattr(info.error, "name", "") or "no reason is known")


def _to_usage(info: AssistantMessage) -> Usage:
    tokens = info.tokens
    return Usage(
        input=tokens.input,
        output=tokens.output,
        reasoning=tokens.reasoning,
        cache_read=tokens.cache.read,
        cache_write=tokens.cache.write,
        cost=info.cost,
    )
