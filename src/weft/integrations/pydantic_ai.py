"""Keep the message history of pydantic-ai in weft: append `result.new_messages()`, and load it as `message_history`."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from weft.agent.sessions import Session
from weft.integrations.packages import require_package
from weft.integrations.records import (
    Record,
    find_raw_records,
    group_records,
    make_data_url,
    make_file,
    make_result,
    read_arguments,
    to_text,
)
from weft.model.message import MessageWithParts, UserMessage
from weft.model.part import (
    AnyPart,
    CacheTokens,
    CompletedState,
    ErrorState,
    ReasoningPart,
    TextPart,
    Tokens,
    ToolPart,
)
from weft.model.wire import encode, parse
from weft.session.append import NewContent, NewReasoning, NewText, NewToolCall, NewToolResult, Role

require_package("pydantic_ai", "weft[pydantic-ai]")

from pydantic_ai.messages import ModelMessagesTypeAdapter  # noqa: E402

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage

FRAMEWORK = "pydantic-ai"
SUCCESS = "success"

RawMessage = dict[str, Any]


class WeftHistory:
    """The message history of an agent of pydantic-ai, in a session of weft.

    Messages are loaded exactly as `ModelMessagesTypeAdapter` writes and reads them. Messages that something else appended to the
    session are loaded as messages of pydantic-ai, too.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    async def append(self, messages: "Sequence[ModelMessage]") -> None:
        """Append messages, all or none. Pass `result.new_messages()`: `all_messages()` repeats what is stored."""
        raw: list[RawMessage] = parse(ModelMessagesTypeAdapter.dump_json(list(messages)))
        await self._session.append(*group_records(FRAMEWORK, map(read_message, raw)))

    async def load(self) -> "list[ModelMessage]":
        """Return the history, oldest first, for `agent.run(…, message_history=…)`."""
        raw = [each for message in await self._session.load() for each in to_raw_messages(message)]
        return ModelMessagesTypeAdapter.validate_json(encode(raw))


# --- messages to weft ---


def read_message(message: RawMessage) -> Record:
    """Return what weft shows of a message. A request with nothing but results of calls belongs to the answer before it."""
    content = [each for part in message["parts"] for each in _read_part(part)]
    if message["kind"] == "response":
        model = "/".join(str(message[name]) for name in ("provider_name", "model_name") if message.get(name))
        return Record(
            raw=message,
            role="assistant",
            content=tuple(content),
            starts=True,
            model=model,
            tokens=_read_usage(message.get("usage") or {}),
        )
    is_prompt = any(not isinstance(each, NewToolResult) for each in content)
    role: Role = "user" if is_prompt else "assistant"
    return Record(raw=message, role=role, content=tuple(content), starts=is_prompt)


def _read_part(part: dict[str, Any]) -> Iterator[NewContent]:
    match part.get("part_kind"):
        case "user-prompt":
            yield from _read_prompt(part.get("content"))
        case "system-prompt" | "retry-feedback":
            yield NewText(to_text(part.get("content", "")), synthetic=True)
        case "tool-return" | "builtin-tool-return":
            yield make_result(
                part.get("tool_call_id"),
                part.get("content", ""),
                failed=part.get("outcome", SUCCESS) != SUCCESS,
                tool=part.get("tool_name"),
            )
        case "text":
            yield NewText(str(part.get("content", "")))
        case "thinking" if part.get("content"):
            yield NewReasoning(str(part["content"]))
        case "tool-call" | "builtin-tool-call":
            input = read_arguments(part.get("args"))
            yield NewToolCall(str(part.get("tool_name")), input, str(part.get("tool_call_id")))
        case "file":
            yield from _read_file(part.get("content"))
        case _:
            pass


def _read_prompt(content: object) -> Iterator[NewContent]:
    for each in content if isinstance(content, list) else [content]:
        match each:
            case str():
                yield NewText(each)
            case {"kind": "text-content" | "structured-content", "content": text}:
                yield NewText(to_text(text))
            case _:
                yield from _read_file(each)


def _read_file(content: object) -> Iterator[NewContent]:
    match content:
        case {"kind": "binary", "data": data, "media_type": mime}:
            yield from make_file(make_data_url(data, mime), mime=mime)
        case {"kind": "image-url" | "audio-url" | "video-url" | "document-url", "url": url, **rest}:
            yield from make_file(url, mime=rest.get("media_type"))
        case _:
            pass


def _read_usage(usage: dict[str, Any]) -> Tokens | None:
    """Return the tokens of a response; None if they are unknown."""
    counts = {name: count for name, count in usage.items() if isinstance(count, int)}
    given, written = counts.get("input_tokens", 0), counts.get("output_tokens", 0)
    if not given and not written:
        return None
    cache = CacheTokens(read=counts.get("cache_read_tokens", 0), write=counts.get("cache_write_tokens", 0))
    return Tokens(input=max(0, given - cache.read - cache.write), output=written, cache=cache)


# --- weft to messages ---


def to_raw_messages(message: MessageWithParts) -> list[RawMessage]:
    """Return the messages of pydantic-ai in a message: as they were appended, or made from its parts."""
    found = find_raw_records(FRAMEWORK, message)
    if found is not None:
        return found
    if isinstance(message.info, UserMessage):
        prompts = [
            {"part_kind": "user-prompt", "content": part.text}
            for part in message.parts
            if isinstance(part, TextPart) and part.text and not part.ignored
        ]
        return [{"kind": "request", "parts": prompts}] if prompts else []
    answer = [each for part in message.parts for each in _to_answer(part)]
    results = [each for part in message.parts for each in _to_results(part)]
    return [
        *([{"kind": "response", "parts": answer}] if answer else []),
        *([{"kind": "request", "parts": results}] if results else []),
    ]


def _to_answer(part: AnyPart) -> Iterator[dict[str, Any]]:
    match part:
        case TextPart(ignored=False, text=text) if text:
            yield {"part_kind": "text", "content": text}
        case ReasoningPart(ignored=False, text=text) if text:
            yield {"part_kind": "thinking", "content": text}
        case ToolPart(state=CompletedState() | ErrorState()):
            yield {
                "part_kind": "tool-call",
                "tool_name": part.tool,
                "args": part.state.input,
                "tool_call_id": part.call_id,
            }
        case _:
            pass  # a call without a result would be refused by the API


def _to_results(part: AnyPart) -> Iterator[dict[str, Any]]:
    if isinstance(part, ToolPart) and isinstance(part.state, CompletedState | ErrorState):
        failed = isinstance(part.state, ErrorState)
        yield {
            "part_kind": "tool-return",
            "tool_name": part.tool,
            "content": part.state.error if isinstance(part.state, ErrorState) else part.state.output,
            "tool_call_id": part.call_id,
            "outcome": "failed" if failed else SUCCESS,
        }
