"""A `Link` over the library's session: its values in, ours out."""

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import mcp_types as types
from mcp import ClientSession, MCPError
from pydantic import BaseModel, ValidationError

from weft.errors import McpError
from weft.tool.mcp.link import (
    MOST_PAGES,
    MOST_PROMPTS,
    MOST_RESOURCES,
    MOST_TOOLS,
    Offers,
    Progressed,
    PromptArgument,
    PromptOffer,
    ResourceOffer,
    ToolOffer,
)

T = TypeVar("T")
LONGEST_NAME: Final = 500


class SessionLink:
    """Every fault of the server becomes a `McpError`."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session

    async def list_offers(self) -> Offers:
        can = self._session.server_capabilities or types.ServerCapabilities()
        tools, more = (
            await self._pages(self._session.list_tools, "tools", MOST_TOOLS) if can.tools else ([], 0)
        )
        return Offers(
            tools=tuple(to_tool_offer(each) for each in tools),
            prompts=await self._prompts() if can.prompts else (),
            resources=await self._resources() if can.resources else (),
            left_out=f"{more} or more tools left out: there are more than {MOST_TOOLS}" if more else "",
        )

    async def _prompts(self) -> tuple[PromptOffer, ...]:
        try:
            found, _ = await self._pages(self._session.list_prompts, "prompts", MOST_PROMPTS)
        except McpError:
            return ()  # a server is not refused for what is beside its tools
        return tuple(
            PromptOffer(
                name=each.name,
                about=each.description or "",
                arguments=tuple(to_argument(argument) for argument in each.arguments or ()),
            )
            for each in found
        )

    async def _resources(self) -> tuple[ResourceOffer, ...]:
        try:
            found, _ = await self._pages(self._session.list_resources, "resources", MOST_RESOURCES)
        except McpError:
            return ()
        return tuple(
            ResourceOffer(
                name=each.name,
                uri=str(each.uri),
                about=each.description or "",
                mime=each.mime_type or "",
            )
            for each in found
        )

    async def _pages(
        self, list_page: Callable[..., Awaitable[Any]], field: str, most: int
    ) -> tuple[list[Any], int]:
        """What a list has, page by page up to a limit, and how many more of it we saw."""
        found: list[Any] = []
        cursors: set[str | None] = set()
        cursor: str | None = None
        while len(cursors) < MOST_PAGES and cursor not in cursors and len(found) <= most:
            cursors.add(cursor)
            page = await _sound(list_page(params=types.PaginatedRequestParams(cursor=cursor)))
            found += (each for each in getattr(page, field) if len(each.name) <= LONGEST_NAME)
            cursor = page.next_cursor
            if cursor is None:
                break
        return found[:most], max(0, len(found) - most)

    async def call(self, tool: str, arguments: dict[str, Any], progressed: Progressed) -> dict[str, Any]:
        # Not by `call_tool`, which holds results against a schema of the server's own making.
        params = types.CallToolRequestParams(name=tool, arguments=arguments)
        request = types.CallToolRequest(params=params)

        async def heard(progress: float, total: float | None, message: str | None) -> None:
            await progressed(progress, total, message)

        asked = self._session.send_request(request, types.CallToolResult, progress_callback=heard)
        return _plain(await _sound(asked))

    async def render(self, prompt: str, arguments: dict[str, str]) -> dict[str, Any]:
        return _plain(await _sound(self._session.get_prompt(prompt, arguments or None)))

    async def read(self, uri: str) -> dict[str, Any]:
        return _plain(await _sound(self._session.read_resource(uri)))


async def _sound(work: Awaitable[T]) -> T:
    try:
        return await work
    except MCPError as error:
        raise McpError(error.message or "it failed, and did not say why") from error
    except (ValidationError, RuntimeError) as error:
        raise McpError(f"its answer is not MCP ({type(error).__name__})") from error


def _plain(answer: BaseModel) -> dict[str, Any]:
    return answer.model_dump(mode="json", by_alias=True, exclude_none=True)


def to_argument(argument: types.PromptArgument) -> PromptArgument:
    return PromptArgument(
        name=argument.name, about=argument.description or "", required=argument.required is True
    )


def to_tool_offer(tool: types.Tool) -> ToolOffer:
    hints = tool.annotations
    return ToolOffer(
        name=tool.name,
        about=tool.description or "",
        schema=tool.input_schema,
        read_only=hints is not None and hints.read_only_hint is True,
    )
