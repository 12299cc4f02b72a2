"""An `McpConnection` over the library's session, which converts between the library's values and ours."""

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import mcp_types as types
from mcp import ClientSession, MCPError
from pydantic import BaseModel, ValidationError

from weft.errors import McpError
from weft.tool.mcp.connection import (
    MAX_PAGES,
    MAX_PROMPTS,
    MAX_RESOURCES,
    MAX_TOOLS,
    McpOffers,
    OnProgress,
    PromptArgument,
    PromptOffer,
    ResourceOffer,
    ToolOffer,
)

T = TypeVar("T")
MAX_NAME_LENGTH: Final = 500


class SdkConnection:
    """A connection that raises every failure of the server as `McpError`."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session

    async def list_offers(self) -> McpOffers:
        can = self._session.server_capabilities or types.ServerCapabilities()
        tools, more = (
            await self._pages(self._session.list_tools, "tools", MAX_TOOLS) if can.tools else ([], 0)
        )
        return McpOffers(
            tools=tuple(to_tool_offer(each) for each in tools),
            prompts=await self._prompts() if can.prompts else (),
            resources=await self._resources() if can.resources else (),
            left_out=f"{more} or more tools left out: there are more than {MAX_TOOLS}" if more else "",
        )

    async def _prompts(self) -> tuple[PromptOffer, ...]:
        try:
            found, _ = await self._pages(self._session.list_prompts, "prompts", MAX_PROMPTS)
        except McpError:
            return ()  # a server without usable prompts or resources still offers its tools
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
            found, _ = await self._pages(self._session.list_resources, "resources", MAX_RESOURCES)
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
        """Return the items of a list, page by page up to a limit, and how many more were seen."""
        found: list[Any] = []
        cursors: set[str | None] = set()
        cursor: str | None = None
        while len(cursors) < MAX_PAGES and cursor not in cursors and len(found) <= most:
            cursors.add(cursor)
            page = await _convert_errors(list_page(params=types.PaginatedRequestParams(cursor=cursor)))
            found += (each for each in getattr(page, field) if len(each.name) <= MAX_NAME_LENGTH)
            cursor = page.next_cursor
            if cursor is None:
                break
        return found[:most], max(0, len(found) - most)

    async def call(self, tool: str, arguments: dict[str, Any], on_progress: OnProgress) -> dict[str, Any]:
        # `call_tool` would check the result against a schema of the server's own.
        params = types.CallToolRequestParams(name=tool, arguments=arguments)
        request = types.CallToolRequest(params=params)

        async def report(progress: float, total: float | None, message: str | None) -> None:
            await on_progress(progress, total, message)

        asked = self._session.send_request(request, types.CallToolResult, progress_callback=report)
        return _to_plain(await _convert_errors(asked))

    async def render(self, prompt: str, arguments: dict[str, str]) -> dict[str, Any]:
        return _to_plain(await _convert_errors(self._session.get_prompt(prompt, arguments or None)))

    async def read(self, uri: str) -> dict[str, Any]:
        return _to_plain(await _convert_errors(self._session.read_resource(uri)))


async def _convert_errors(work: Awaitable[T]) -> T:
    try:
        return await work
    except MCPError as error:
        raise McpError(error.message or "it failed, and did not say why") from error
    except (ValidationError, RuntimeError) as error:
        raise McpError(f"its answer is not MCP ({type(error).__name__})") from error


def _to_plain(answer: BaseModel) -> dict[str, Any]:
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
