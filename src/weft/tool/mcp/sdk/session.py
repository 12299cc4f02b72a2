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
        capabilities = self._session.server_capabilities or types.ServerCapabilities()
        tools, surplus = (
            await self._list_pages(self._session.list_tools, "tools", MAX_TOOLS)
            if capabilities.tools
            else ([], 0)
        )
        return McpOffers(
            tools=tuple(to_tool_offer(tool) for tool in tools),
            prompts=await self._list_prompts() if capabilities.prompts else (),
            resources=await self._list_resources() if capabilities.resources else (),
            left_out=f"{surplus} or more tools left out: there are more than {MAX_TOOLS}" if surplus else "",
        )

    async def _list_prompts(self) -> tuple[PromptOffer, ...]:
        try:
            prompts, _ = await self._list_pages(self._session.list_prompts, "prompts", MAX_PROMPTS)
        except McpError:
            return ()  # a server without usable prompts or resources still offers its tools
        return tuple(
            PromptOffer(
                name=prompt.name,
                about=prompt.description or "",
                arguments=tuple(to_argument(argument) for argument in prompt.arguments or ()),
            )
            for prompt in prompts
        )

    async def _list_resources(self) -> tuple[ResourceOffer, ...]:
        try:
            resources, _ = await self._list_pages(self._session.list_resources, "resources", MAX_RESOURCES)
        except McpError:
            return ()
        return tuple(
            ResourceOffer(
                name=resource.name,
                uri=str(resource.uri),
                about=resource.description or "",
                mime=resource.mime_type or "",
            )
            for resource in resources
        )

    async def _list_pages(
        self, list_page: Callable[..., Awaitable[Any]], field: str, limit: int
    ) -> tuple[list[Any], int]:
        """Return the items of a list, page by page up to a limit, and how many more were seen."""
        items: list[Any] = []
        cursors: set[str | None] = set()
        cursor: str | None = None
        while len(cursors) < MAX_PAGES and cursor not in cursors and len(items) <= limit:
            cursors.add(cursor)
            page = await _convert_errors(list_page(params=types.PaginatedRequestParams(cursor=cursor)))
            items += (item for item in getattr(page, field) if len(item.name) <= MAX_NAME_LENGTH)
            cursor = page.next_cursor
            if cursor is None:
                break
        return items[:limit], max(0, len(items) - limit)

    async def call(self, tool: str, arguments: dict[str, Any], on_progress: OnProgress) -> dict[str, Any]:
        # `call_tool` would check the result against a schema of the server's own.
        params = types.CallToolRequestParams(name=tool, arguments=arguments)
        request = types.CallToolRequest(params=params)

        async def report(progress: float, total: float | None, message: str | None) -> None:
            await on_progress(progress, total, message)

        response = self._session.send_request(request, types.CallToolResult, progress_callback=report)
        return _to_plain(await _convert_errors(response))

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
