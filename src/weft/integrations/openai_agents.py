"""Keep the sessions of openai-agents in weft: `Runner.run(agent, "…", session=WeftSession(session))`."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

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
from weft.model.part import CompletedState, ErrorState, FilePart, TextPart, ToolPart
from weft.model.wire import encode
from weft.session.append import NewContent, NewReasoning, NewText, NewToolCall, Role

require_package("agents", "weft[openai-agents]")

from agents import SessionSettings  # noqa: E402

if TYPE_CHECKING:
    from agents import TResponseInputItem

FRAMEWORK = "openai-agents"
# What a call of a hosted tool was asked to do, in the words of each tool.
ASKED = ("action", "arguments", "code", "input", "name", "operation", "queries", "server_label")

Item = dict[str, Any]


class WeftSession:
    """A session of openai-agents in a session of weft. It follows the `Session` protocol of openai-agents.

    Items are returned exactly as they were added. Messages that something else appended to the session are returned as items, too.
    """

    session_id: str
    session_settings: SessionSettings | None

    def __init__(self, session: Session, *, session_settings: SessionSettings | None = None) -> None:
        self.session_id = session.id
        self.session_settings = session_settings
        self._session = session
        self._lock = asyncio.Lock()

    async def get_items(self, limit: int | None = None) -> "list[TResponseInputItem]":
        """Return the items, oldest first; with a limit, only the last ones."""
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        if limit is not None and limit <= 0:
            return []
        # A message holds one item or more, unless it has nothing to show. Few have none.
        items = list_items(await self._session.load(last=limit))
        if limit is not None and len(items) < limit:
            items = list_items(await self._session.load())
        return _cast_items(items if limit is None else items[-limit:])

    async def add_items(self, items: "list[TResponseInputItem]") -> None:
        """Append items, all or none."""
        async with self._lock:
            await self._session.append(*group_records(FRAMEWORK, read_items(_to_plain_items(items))))

    async def pop_item(self) -> "TResponseInputItem | None":
        """Remove the last item and return it; None if there is none."""
        async with self._lock:
            for message in reversed(await self._session.load()):
                if items := to_items(message):
                    kept = group_records(FRAMEWORK, read_items(items[:-1]))
                    await self._session.rewind(message.info.id, *kept)
                    return _cast_items(items)[-1]
            return None

    async def clear_session(self) -> None:
        """Remove all items. The session stays."""
        async with self._lock:
            messages = await self._session.load()
            if messages:
                await self._session.rewind(messages[0].info.id)


def _cast_items(items: list[Item]) -> "list[TResponseInputItem]":
    return cast("list[TResponseInputItem]", items)


def _to_plain_items(items: "list[TResponseInputItem]") -> list[Item]:
    return [cast("Item", item) for item in items]


# --- items to weft ---


def read_items(items: Sequence[Item]) -> list[Record]:
    """Return what weft shows of items. The first item after the results of calls starts the next step."""
    records: list[Record] = []
    after_results = False
    for item in items:
        is_result = _is_result(item)
        role, content = _read_item(item)
        records.append(
            Record(raw=item, role=role, content=tuple(content), starts=after_results and not is_result)
        )
        after_results = is_result
    return records


def _is_result(item: Item) -> bool:
    return str(item.get("type", "")).endswith("_output") and "call_id" in item


def _read_item(item: Item) -> tuple[Role, list[NewContent]]:
    match item.get("type", "message"), item.get("role"):
        case "message", "assistant":
            return "assistant", list(_read_content(item.get("content"), synthetic=False))
        case "message", role:
            return "user", list(_read_content(item.get("content"), synthetic=role != "user"))
        case "reasoning", _:
            blocks = [*_list_blocks(item.get("summary")), *_list_blocks(item.get("content"))]
            text = "\n\n".join(str(block["text"]) for block in blocks if block.get("text"))
            return "assistant", [NewReasoning(text)] if text else []
        case "function_call", _:
            return "assistant", [_make_call(item, item.get("name"), read_arguments(item.get("arguments")))]
        case "custom_tool_call", _:
            return "assistant", [_make_call(item, item.get("name"), read_arguments(item.get("input")))]
        case str(type), _ if type.endswith("_output") and "call_id" in item:
            return "assistant", [make_result(item["call_id"], _read_output(item.get("output", "")))]
        case str(type), _ if type.endswith("_call"):
            asked = {name: item[name] for name in ASKED if name in item}
            return "assistant", [_make_call(item, type.removesuffix("_call"), asked)]
        case _:
            return "assistant", []


def _make_call(item: Item, name: object, input: dict[str, Any]) -> NewToolCall:
    """Return a call. One without `call_id` ran at the provider, and gets no result of its own."""
    if "call_id" in item:
        return NewToolCall(str(name), input, str(item["call_id"]))
    error = item.get("error")
    output = None if error else to_text(item.get("output") or item.get("status") or "")
    return NewToolCall(str(name), input, str(item.get("id", "")), output, to_text(error) if error else None)


def _read_content(content: object, *, synthetic: bool) -> Iterator[NewContent]:
    if isinstance(content, str):
        yield NewText(content, synthetic)
    for block in _list_blocks(content):
        match block.get("type"):
            case "input_text" | "output_text" | "text":
                yield NewText(str(block.get("text", "")), synthetic)
            case "refusal":
                yield NewText(str(block.get("refusal", "")), synthetic)
            case "input_image":
                yield from make_file(block.get("image_url"))
            case "input_file":
                url = block.get("file_url") or block.get("file_data")
                if isinstance(url, str) and "file_data" in block and not url.startswith("data:"):
                    url = make_data_url(url, None)
                yield from make_file(url, filename=block.get("filename"))
            case _:
                pass


def _read_output(output: object) -> object:
    """Return the text of a result that is a list of text blocks; any other result as it is."""
    blocks = _list_blocks(output)
    if blocks and all(isinstance(block.get("text"), str) for block in blocks):
        return "\n".join(block["text"] for block in blocks)
    return output


def _list_blocks(content: object) -> list[Item]:
    if not isinstance(content, list | tuple):
        return []
    return [dict(block) for block in content if isinstance(block, Mapping)]


# --- weft to items ---


def list_items(messages: Sequence[MessageWithParts]) -> list[Item]:
    return [item for message in messages for item in to_items(message)]


def to_items(message: MessageWithParts) -> list[Item]:
    """Return the items of a message: as they were added, or made from its parts if something else appended it."""
    found = find_raw_records(FRAMEWORK, message)
    if found is not None:
        return found
    if isinstance(message.info, UserMessage):
        content = [block for part in message.parts for block in _to_input(part)]
        return [{"role": "user", "content": content}] if content else []
    return [item for part in message.parts for item in _to_output(part)]


def _to_input(part: object) -> Iterator[Item]:
    match part:
        case TextPart(ignored=False, text=text) if text:
            yield {"type": "input_text", "text": text}
        case FilePart(mime=mime, url=url) if mime.startswith("image/"):
            yield {"type": "input_image", "image_url": url, "detail": "auto"}
        case _:
            pass


def _to_output(part: object) -> Iterator[Item]:
    match part:
        case TextPart(ignored=False, text=text) if text:
            yield {"role": "assistant", "content": text}
        case ToolPart(state=CompletedState(output=result) | ErrorState(error=result)):
            call = {"type": "function_call", "call_id": part.call_id, "name": part.tool}
            yield {**call, "arguments": encode(part.state.input).decode()}
            yield {"type": "function_call_output", "call_id": part.call_id, "output": result}
        case _:
            pass  # a call without a result would be refused by the API
