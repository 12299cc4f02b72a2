"""Search the web, and code and its documentation, through the service that OpenCode uses."""

import asyncio
from collections.abc import Iterator, Mapping
from functools import partial
from importlib import import_module
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from weft.errors import ToolError
from weft.tool.contract import AnyTool, Audience, Tool, ToolContext, ToolResult
from weft.tool.description import about
from weft.tool.network import proxy_for
from weft.version import VERSION

SERVICE: Final = "https://mcp.exa.ai/mcp"
# Who is served by it without asking for it by name.
INCLUDED: Final = "opencode"
WEB_SECONDS: Final = 25.0
CODE_SECONDS: Final = 30.0
LIMIT: Final = 5 * 1024 * 1024
RESULTS: Final = 8
TOKENS: Final = 5000
FEWEST: Final = 1000
MOST: Final = 50_000

_NO_RESULTS: Final = "No search results found. Please try a different query."
_NO_CODE: Final = (
    "No code snippets or documentation found. Name the library or the idea more exactly, or check how the name of "
    "the framework is spelled."
)


class WebSearchInput(Struct, frozen=True, kw_only=True, rename="camel"):
    query: Annotated[str, Meta(description="What to look for.")]
    num_results: Annotated[int, Meta(ge=1, le=100, description="How many results; 8 if left out.")] = RESULTS
    livecrawl: Annotated[
        Literal["fallback", "preferred"],
        Meta(description="Whether pages are fetched anew only if no copy is kept, or whenever possible."),
    ] = "fallback"
    type: Annotated[
        Literal["auto", "fast", "deep"], Meta(description="How thoroughly to search; auto finds a balance.")
    ] = "auto"
    context_max_characters: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="How long the results may be together, in characters; 10000 if left out."),
    ] = None


class CodeSearchInput(Struct, frozen=True, kw_only=True, rename="camel"):
    query: Annotated[
        str, Meta(description="What to find out: a library, an interface, a way of doing something.")
    ]
    tokens_num: Annotated[
        int, Meta(ge=FEWEST, le=MOST, description="How much to bring back, in tokens; 5000 if left out.")
    ] = TOKENS


class Errand(Struct, frozen=True, kw_only=True):
    """What the service is asked to do, how long it may take, and what it is called when it goes wrong."""

    tool: str
    arguments: dict[str, Any]
    seconds: float
    named: str


async def websearch(url: str, wanted: WebSearchInput, ctx: ToolContext) -> ToolResult:
    given = {
        "query": wanted.query,
        "type": wanted.type,
        "numResults": wanted.num_results,
        "livecrawl": wanted.livecrawl,
    }
    if wanted.context_max_characters is not None:
        given["contextMaxCharacters"] = wanted.context_max_characters
    await ctx.ask("websearch", wanted.query, always=("*",), metadata=dict(given))
    errand = Errand(tool="web_search_exa", arguments=given, seconds=WEB_SECONDS, named="Search")
    found = await _run(url, errand, ctx)
    return ToolResult(title=f"Web search: {wanted.query}", output=found or _NO_RESULTS)


async def codesearch(url: str, wanted: CodeSearchInput, ctx: ToolContext) -> ToolResult:
    given = {"query": wanted.query, "tokensNum": wanted.tokens_num}
    await ctx.ask("codesearch", wanted.query, always=("*",), metadata=dict(given))
    errand = Errand(tool="get_code_context_exa", arguments=given, seconds=CODE_SECONDS, named="Code search")
    found = await _run(url, errand, ctx)
    return ToolResult(title=f"Code search: {wanted.query}", output=found or _NO_CODE)


def search_tools(url: str | None = None) -> tuple[AnyTool, AnyTool]:
    """Both tools. Without a `url` of a service, only models that come with one are offered them."""
    for_some = None if url else _tell_included
    return (
        Tool(
            name="websearch",
            about=about("websearch"),
            takes=WebSearchInput,
            run=partial(websearch, url or SERVICE),
            tell=for_some and partial(for_some, about("websearch")),
            announces=True,
        ),
        Tool(
            name="codesearch",
            about=about("codesearch"),
            takes=CodeSearchInput,
            run=partial(codesearch, url or SERVICE),
            tell=for_some and partial(for_some, about("codesearch")),
            announces=True,
        ),
    )


def _tell_included(text: str, audience: Audience) -> str | None:
    return text if audience.provider_id == INCLUDED else None


async def _run(url: str, errand: Errand, ctx: ToolContext) -> str:
    """What the service answers, "" if that is nothing."""
    call = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": errand.tool, "arguments": errand.arguments},
    }
    try:
        async with asyncio.timeout(errand.seconds):
            status, body = await _post(url, msgspec.json.encode(call), ctx.desk.environment)
    except TimeoutError:
        raise ToolError(f"{errand.named} request timed out") from None
    if status // 100 != 2:  # noqa: PLR2004  any success
        raise ToolError(f"{errand.named} error ({status}): {body[:1000]}")
    return next((text for text in _texts(body, errand.named) if text), "")


async def _post(url: str, body: bytes, environment: Mapping[str, str]) -> tuple[int, str]:
    httpx2 = import_module("httpx2")  # late: most runs search nothing
    headers = {
        "accept": "application/json, text/event-stream",
        "content-type": "application/json",
        "user-agent": f"weft/{VERSION}",
    }
    proxy = proxy_for(url, environment)
    try:
        async with (
            httpx2.AsyncClient(trust_env=False, proxy=proxy, timeout=None) as client,
            client.stream("POST", url, content=body, headers=headers) as response,
        ):
            raw = bytearray()
            async for piece in response.aiter_bytes():
                raw += piece
                if len(raw) > LIMIT:
                    raise ToolError("The search brought back more than 5 MB.")
            return response.status_code, raw.decode(errors="replace")
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        # Never with the address: a person's key may stand in it.
        raise ToolError(f"The search service did not answer: {type(error).__name__}") from None


def _texts(body: str, named: str) -> Iterator[str]:
    """The words in an answer: one document, or a stream of events with one in each."""
    lines = [line[len("data:") :] for line in body.splitlines() if line.startswith("data:")] or [body]
    for line in lines:
        try:
            said = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeEncodeError):
            continue
        match said:
            case {"error": {"message": str(message)}}:
                raise ToolError(f"{named} error: {message[:1000]}")
            case {"result": {"content": [{"text": str(text)}, *_], **rest}}:
                # OpenCode takes an error of the service for a result.
                if rest.get("isError"):
                    raise ToolError(f"{named} error: {text[:1000]}")
                yield text
            case _:
                continue


WEBSEARCH, CODESEARCH = search_tools()
