"""The `websearch` and `codesearch` tools: search the web and code documentation with the service that OpenCode uses."""

import asyncio
from collections.abc import Iterator, Mapping
from functools import partial
from importlib import import_module
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from weft.errors import ToolError
from weft.host.network import find_proxy
from weft.tool.contract import AnyTool, Audience, Tool, ToolContext, ToolResult, read_text
from weft.version import VERSION

SERVICE_URL: Final = "https://mcp.exa.ai/mcp"
# Models of this provider get the search tools without any configuration.
INCLUDED_PROVIDER: Final = "opencode"
WEB_TIMEOUT_SECONDS: Final = 25.0
CODE_TIMEOUT_SECONDS: Final = 30.0
MAX_RESPONSE_BYTES: Final = 5 * 1024 * 1024
DEFAULT_RESULTS: Final = 8
DEFAULT_TOKENS: Final = 5000
MIN_TOKENS: Final = 1000
MAX_TOKENS: Final = 50_000

_NO_RESULTS: Final = "No search results found. Please try a different query."
_NO_CODE_RESULTS: Final = (
    "No code snippets or documentation found. Name the library or the idea more exactly, or check how the name of "
    "the framework is spelled."
)


class WebSearchInput(Struct, frozen=True, kw_only=True, rename="camel"):
    query: Annotated[str, Meta(description="What to look for.")]
    num_results: Annotated[int, Meta(ge=1, le=100, description="How many results; 8 if left out.")] = (
        DEFAULT_RESULTS
    )
    livecrawl: Annotated[
        Literal["fallback", "preferred"],
        Meta(
            description="Whether to fetch pages again only if there is no stored copy, or whenever possible."
        ),
    ] = "fallback"
    type: Annotated[
        Literal["auto", "fast", "deep"], Meta(description="How thoroughly to search; auto chooses.")
    ] = "auto"
    context_max_characters: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="The largest total length of the results, in characters; 10000 if left out."),
    ] = None


class CodeSearchInput(Struct, frozen=True, kw_only=True, rename="camel"):
    query: Annotated[
        str, Meta(description="What to look for: a library, an interface, or how to do something.")
    ]
    tokens_num: Annotated[
        int,
        Meta(ge=MIN_TOKENS, le=MAX_TOKENS, description="How much to return, in tokens; 5000 if left out."),
    ] = DEFAULT_TOKENS


async def websearch(url: str, arguments: WebSearchInput, ctx: ToolContext) -> ToolResult:
    parameters = {
        "query": arguments.query,
        "type": arguments.type,
        "numResults": arguments.num_results,
        "livecrawl": arguments.livecrawl,
    }
    if arguments.context_max_characters is not None:
        parameters["contextMaxCharacters"] = arguments.context_max_characters
    await ctx.ask("websearch", arguments.query, always=("*",), metadata=dict(parameters))
    text = await _call_service(
        url, ctx, tool="web_search_exa", arguments=parameters, seconds=WEB_TIMEOUT_SECONDS, label="Search"
    )
    return ToolResult(title=f"Web search: {arguments.query}", output=text or _NO_RESULTS)


async def codesearch(url: str, arguments: CodeSearchInput, ctx: ToolContext) -> ToolResult:
    parameters = {"query": arguments.query, "tokensNum": arguments.tokens_num}
    await ctx.ask("codesearch", arguments.query, always=("*",), metadata=dict(parameters))
    text = await _call_service(
        url,
        ctx,
        tool="get_code_context_exa",
        arguments=parameters,
        seconds=CODE_TIMEOUT_SECONDS,
        label="Code search",
    )
    return ToolResult(title=f"Code search: {arguments.query}", output=text or _NO_CODE_RESULTS)


def make_search_tools(url: str | None = None) -> tuple[AnyTool, AnyTool]:
    """Return both tools. Without a `url` of a service, they are only offered to models of the included provider."""
    describe = None if url else _describe_if_included
    return (
        Tool(
            name="websearch",
            about=read_text("websearch"),
            takes=WebSearchInput,
            run=partial(websearch, url or SERVICE_URL),
            describe=describe and partial(describe, read_text("websearch")),
            watch_all=False,
        ),
        Tool(
            name="codesearch",
            about=read_text("codesearch"),
            takes=CodeSearchInput,
            run=partial(codesearch, url or SERVICE_URL),
            describe=describe and partial(describe, read_text("codesearch")),
            watch_all=False,
        ),
    )


def _describe_if_included(text: str, audience: Audience) -> str | None:
    return text if audience.provider_id == INCLUDED_PROVIDER else None


async def _call_service(
    url: str, ctx: ToolContext, *, tool: str, arguments: dict[str, Any], seconds: float, label: str
) -> str:
    """Call a tool of the service and return the first text that it answers, or "".

    Raise a `ToolError` on failure, whose message starts with `label`.
    """
    call = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": tool, "arguments": arguments},
    }
    try:
        async with asyncio.timeout(seconds):
            status, body = await _post(url, msgspec.json.encode(call), ctx.resources.environment)
    except TimeoutError:
        raise ToolError(f"{label} request timed out") from None
    if status // 100 != 2:  # noqa: PLR2004  any success
        raise ToolError(f"{label} error ({status}): {body[:1000]}")
    return next((text for text in _parse_texts(body, label) if text), "")


async def _post(url: str, body: bytes, environment: Mapping[str, str]) -> tuple[int, str]:
    httpx2 = import_module("httpx2")  # imported late, because most runs search nothing
    headers = {
        "accept": "application/json, text/event-stream",
        "content-type": "application/json",
        "user-agent": f"weft/{VERSION}",
    }
    proxy = find_proxy(url, environment)
    try:
        async with (
            httpx2.AsyncClient(trust_env=False, proxy=proxy, timeout=None) as client,
            client.stream("POST", url, content=body, headers=headers) as response,
        ):
            raw = bytearray()
            async for piece in response.aiter_bytes():
                raw += piece
                if len(raw) > MAX_RESPONSE_BYTES:
                    raise ToolError("The search returned more than 5 MB.")
            return response.status_code, raw.decode(errors="replace")
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        # Do not show the URL, which may contain a person's key.
        raise ToolError(f"The search service did not answer: {type(error).__name__}") from None


def _parse_texts(body: str, label: str) -> Iterator[str]:
    """Yield the texts of an answer, which is one document or a stream of events with a document each."""
    # Not `splitlines`: JSON may contain what Unicode calls a line break.
    lines = [line[len("data:") :] for line in body.split("\n") if line.startswith("data:")] or [body]
    for line in lines:
        try:
            answer = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeEncodeError):
            continue
        match answer:
            case {"error": {"message": str(message)}}:
                raise ToolError(f"{label} error: {message[:1000]}")
            case {"result": {"content": [{"text": str(text)}, *_], **rest}}:
                # OpenCode takes an error of the service for a result.
                if rest.get("isError"):
                    raise ToolError(f"{label} error: {text[:1000]}")
                yield text
            case _:
                continue


WEBSEARCH, CODESEARCH = make_search_tools()
