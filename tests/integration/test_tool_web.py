"""webfetch, websearch and codesearch against servers on this machine."""

import gzip
import os
import socket
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from given.web import Answer, Web, open_web
from weft.errors import DeniedError, ToolError
from weft.host.network import NetworkAccess, find_proxy, is_public
from weft.testing.tool_contract import AskedPermission, ToolHarness
from weft.tool.contract import Attachment, Audience, ToolResult
from weft.tool.registry import WEBFETCH
from weft.tool.webfetch import decode_page
from weft.tool.websearch import make_search_tools

HTML = "text/html; charset=utf-8"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)


@pytest.fixture
def harness(tmp_path: Path) -> ToolHarness:
    directory = tmp_path / "project"
    directory.mkdir()
    found = ToolHarness(directory, outside=tmp_path, environment={"PATH": os.environ["PATH"]})
    found.resources = replace(found.resources, network=WORLD)
    return found


async def look_up(host: str, port: int) -> tuple[str, ...]:
    """Resolve names in a fake network: 127.0.0.1 is public, and 127.0.0.2 is private."""
    del port
    known = {
        "page.test": ("127.0.0.1",),
        "door.test": ("127.0.0.2",),
        "both.test": ("127.0.0.1", "127.0.0.2"),
    }
    if host not in known:
        raise ToolError(f"There is no address for {host}: it is not of this world")
    return known[host]


WORLD = NetworkAccess(resolve=look_up, is_public=lambda address: address == "127.0.0.1")


@pytest.fixture(scope="module")
def web() -> Iterator[Web]:
    pages = {
        "/": Answer(b"<h1>Hello</h1><p>A <a href='/x'>link</a>", kind=HTML),
        "/text": Answer(b"<b>plain</b>", kind="text/plain"),
        "/latin": Answer("<p>caf\xe9".encode("latin-1"), kind="text/html; charset=iso-8859-1"),
        "/packed": Answer(gzip.compress(b"<p>packed"), kind=HTML, headers=(("content-encoding", "gzip"),)),
        "/picture": Answer(PNG, kind="image/png"),
        "/binary": Answer(b"\0\1\2", kind="application/zip"),
        "/large": Answer(b"x" * (5 * 1024 * 1024 + 1), kind="text/plain"),
        "/bomb": Answer(
            gzip.compress(bytes(6 << 20)), kind="text/plain", headers=(("content-encoding", "gzip"),)
        ),
        "/round": Answer(b"", 302, headers=(("location", "/round"),)),
        "/here": Answer(b"", 301, headers=(("location", "/text"),)),
        "/nowhere": Answer(b"", 302),
        "/file": Answer(b"", 302, headers=(("location", "file:///etc/passwd"),)),
        "/odd": Answer(b"", 302, headers=(("location", "http://[x"),)),
        "/door": Answer(b"", 307, headers=(("location", "http://door.test:1/secret"),)),
    }
    with open_web(pages) as opened:
        yield opened


def make_url(web: Web, path: str, host: str = "page.test") -> str:
    return web.url.replace("127.0.0.1", host) + path


# --- webfetch ---


async def test_a_page_is_returned_as_markdown_text_or_html(harness: ToolHarness, web: Web) -> None:
    url = make_url(web, "/")
    assert await harness.call(WEBFETCH, url=url) == ToolResult(
        title=f"{url} ({HTML})",
        output=f"# Hello\n\nA [link]({make_url(web, '/x')})",
        metadata={"truncated": False},
    )
    assert (await harness.call(WEBFETCH, url=url, format="text")).output == "Hello\nA link"
    assert (
        await harness.call(WEBFETCH, url=url, format="html")
    ).output == "<h1>Hello</h1><p>A <a href='/x'>link</a>"
    assert harness.asked == [AskedPermission(permission="webfetch", patterns=(url,), always=("*",))] * 3


async def test_the_request_has_a_user_agent_and_accepted_types(harness: ToolHarness, web: Web) -> None:
    web.requests.clear()
    await harness.call(WEBFETCH, url=make_url(web, "/text"))
    [asked] = web.requests
    assert asked.headers["host"] == make_url(web, "").removeprefix("http://")
    assert asked.headers["user-agent"].startswith("weft/")
    assert asked.headers["accept"].startswith("text/markdown;q=1.0")


@pytest.mark.parametrize(
    ("path", "output"),
    [("/text", "<b>plain</b>"), ("/latin", "café"), ("/packed", "packed"), ("/here", "<b>plain</b>")],
)
async def test_the_content_of_a_page_is_read(harness: ToolHarness, web: Web, path: str, output: str) -> None:
    assert (await harness.call(WEBFETCH, url=make_url(web, path))).output == output


async def test_an_image_is_attached(harness: ToolHarness, web: Web) -> None:
    result = await harness.call(WEBFETCH, url=make_url(web, "/picture"))
    assert result.output == "Image fetched successfully"
    assert result.attachments == (
        Attachment(mime="image/png", url=f"data:image/png;base64,{b64encode(PNG).decode()}"),
    )


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/missing", "Request failed with status code: 404"),
        ("/nowhere", "Request failed with status code: 302"),
        ("/large", "Response too large (exceeds 5MB limit)"),
        ("/bomb", "Response too large (exceeds 5MB limit)"),
        ("/binary", "is not text: it says it is application/zip"),
        ("/round", "redirects more than 10 times"),
        ("/odd", "redirects to 'http://[x', which is not an address"),
        ("/file", "URL must start with http:// or https://"),
    ],
)
async def test_an_unreadable_page_is_an_error_with_the_reason(
    harness: ToolHarness, web: Web, path: str, said: str
) -> None:
    with pytest.raises(ToolError) as raised:
        await harness.call(WEBFETCH, url=make_url(web, path))
    assert said in str(raised.value)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://page.test/",
        "page.test",
        "file:///etc/passwd",
        "http://",
        "http://a b.test/",
        "http://a.test:x/",
        "",
    ],
)
async def test_an_invalid_url_is_refused_without_a_permission_request(harness: ToolHarness, url: str) -> None:
    with pytest.raises(ToolError):
        await harness.call(WEBFETCH, url=url)
    assert harness.asked == []


async def test_an_unknown_host_and_an_unreachable_server_are_reported(harness: ToolHarness) -> None:
    with pytest.raises(ToolError, match="There is no address for nobody"):
        await harness.call(WEBFETCH, url="http://nobody.test/")
    with pytest.raises(ToolError, match="did not answer"):
        await harness.call(WEBFETCH, url="http://page.test:1/")


async def test_every_redirect_is_checked_against_the_rules(harness: ToolHarness, web: Web) -> None:
    await harness.call(WEBFETCH, url=make_url(web, "/here"))
    assert [each.patterns for each in harness.asked] == [(make_url(web, "/here"),), (make_url(web, "/text"),)]


@pytest.mark.parametrize("host", ["127.0.0.2", "door.test", "both.test", "127.2", "2130706434", "0x7f000002"])
async def test_private_addresses_need_their_own_permission(harness: ToolHarness, host: str) -> None:
    harness.denied = {"webfetch_private"}
    url = f"http://{host}:9/a"
    with pytest.raises(DeniedError):
        await harness.call(WEBFETCH, url=url)
    assert harness.asked == [
        AskedPermission(permission="webfetch", patterns=(url,), always=("*",)),
        AskedPermission(permission="webfetch_private", patterns=(url,), always=(f"http://{host}:9/*",)),
    ]


async def test_a_redirect_to_a_private_address_needs_permission(harness: ToolHarness, web: Web) -> None:
    harness.denied = {"webfetch_private"}
    with pytest.raises(DeniedError):
        await harness.call(WEBFETCH, url=make_url(web, "/door"))
    assert harness.asked[-1].patterns == ("http://door.test:1/secret",)


async def test_this_machine_is_fetched_from_with_permission(harness: ToolHarness, web: Web) -> None:
    harness.resources = replace(harness.resources, network=NetworkAccess())
    assert (await harness.call(WEBFETCH, url=f"{web.url}/here")).output == "<b>plain</b>"
    assert [each.permission for each in harness.asked] == ["webfetch", "webfetch_private", "webfetch"]


async def test_a_silent_server_times_out(harness: ToolHarness) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://page.test:{silent.getsockname()[1]}/"
        with pytest.raises(ToolError) as raised:
            await harness.call(WEBFETCH, url=url, timeout=0.05)
    assert str(raised.value) == f"{url} did not answer within 0.05 seconds."


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.216.34", True),
        ("2606:4700::1111", True),
        ("127.0.0.1", False),
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("::1", False),
        ("::", False),
        ("fe80::1%eth0", False),
        ("fd00::1", False),
        ("::ffff:127.0.0.1", False),
        ("::ffff:93.184.216.34", True),
        ("64:ff9b::7f00:1", False),
        ("2002:7f00:1::", False),
        ("nonsense", False),
    ],
)
def test_public_addresses_are_recognised(address: str, public: bool) -> None:
    assert is_public(address) is public


@pytest.mark.parametrize(
    ("url", "environment", "proxy"),
    [
        ("http://a.test/", {}, None),
        ("http://a.test/", {"HTTP_PROXY": "http://p:1"}, "http://p:1"),
        ("https://a.test/", {"HTTP_PROXY": "http://p:1"}, None),
        ("https://a.test/", {"all_proxy": "http://p:1"}, "http://p:1"),
        ("http://x.a.test/", {"http_proxy": "http://p:1", "no_proxy": "b.test, .a.test"}, None),
        ("http://xa.test/", {"http_proxy": "http://p:1", "no_proxy": "a.test"}, "http://p:1"),
        ("http://a.test/", {"http_proxy": "http://p:1", "NO_PROXY": "*"}, None),
    ],
)
def test_the_proxy_of_the_environment_is_used(
    url: str, environment: dict[str, str], proxy: str | None
) -> None:
    assert find_proxy(url, environment) == proxy


async def test_a_proxy_resolves_names_and_is_not_used_for_this_machine(
    harness: ToolHarness, web: Web
) -> None:
    harness.resources = replace(
        harness.resources, environment={"http_proxy": web.url}, network=NetworkAccess()
    )
    web.requests.clear()
    with pytest.raises(ToolError, match="status code: 404"):
        await harness.call(WEBFETCH, url="http://unheard-of.test/page")
    assert [each.path for each in web.requests] == ["http://unheard-of.test/page"]
    harness.denied = {"webfetch_private"}
    for host in ("localhost", "10.0.0.1", "127.1"):
        with pytest.raises(DeniedError):
            await harness.call(WEBFETCH, url=f"http://{host}/")


@pytest.mark.parametrize(
    ("kind", "raw", "text"),
    [
        ("text/html", b"<meta charset='windows-1252'>\x80", "<meta charset='windows-1252'>€"),
        ("text/html; charset=nonsense", "é".encode(), "é"),
        ("", b"\xef\xbb\xbfa\xff", "a\ufffd"),
        ("", "é".encode("utf-16"), "é"),
        ("text/plain; charset=utf-7", b"+2AA- +2D3eAA-", "? \U0001f600"),
        ("text/plain; charset=unicode_escape", rb"a\ud800b", "a?b"),
    ],
)
def test_a_page_is_decoded_with_its_declared_encoding(kind: str, raw: bytes, text: str) -> None:
    assert decode_page(kind, raw) == text


# --- websearch and codesearch ---


def text_result(text: str, **more: object) -> dict[str, object]:
    return {"result": {"content": [{"type": "text", "text": text}], **more}}


def event(value: object) -> bytes:
    return b"event: message\ndata: " + msgspec.json.encode(value) + b"\n\n"


SERVED = {
    "/good": Answer(
        b": hello\n\n" + event({"method": "ping"}) + event(text_result("Found it.")), kind="text/event-stream"
    ),
    "/json": Answer(msgspec.json.encode(text_result("Found it."))),
    "/breaks": Answer(event(text_result("a\u2028b\x85c")), kind="text/event-stream"),
    "/breaks-crlf": Answer(
        event(text_result("a\u2028b\x85c")).replace(b"\n", b"\r\n"), kind="text/event-stream"
    ),
    "/none": Answer(event({"result": {"content": []}}), kind="text/event-stream"),
    "/odd": Answer(b"data: not json\n\n"),
    "/refused": Answer(b"no more", 429),
    "/wrong": Answer(event(text_result("quota", isError=True)), kind="text/event-stream"),
    "/error": Answer(event({"error": {"code": 1, "message": "no such tool"}}), kind="text/event-stream"),
}


@pytest.fixture(scope="module")
def service() -> Iterator[Web]:
    with open_web(SERVED) as opened:
        yield opened


async def test_a_web_search_calls_the_service(harness: ToolHarness, service: Web) -> None:
    websearch, _ = make_search_tools(f"{service.url}/good")
    service.requests.clear()
    assert await harness.call(websearch, query="weft", numResults=3, contextMaxCharacters=900) == ToolResult(
        title="Web search: weft", output="Found it.", metadata={"truncated": False}
    )
    arguments = {
        "query": "weft",
        "type": "auto",
        "numResults": 3,
        "livecrawl": "fallback",
        "contextMaxCharacters": 900,
    }
    assert msgspec.json.decode(service.requests[0].body) == {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "web_search_exa", "arguments": arguments},
    }
    assert harness.asked == [AskedPermission(permission="websearch", patterns=("weft",), always=("*",))]


async def test_a_code_search_calls_the_service(harness: ToolHarness, service: Web) -> None:
    _, codesearch = make_search_tools(f"{service.url}/json")
    service.requests.clear()
    result = await harness.call(codesearch, query="msgspec")
    assert (result.title, result.output) == ("Code search: msgspec", "Found it.")
    assert msgspec.json.decode(service.requests[0].body)["params"] == {
        "name": "get_code_context_exa",
        "arguments": {"query": "msgspec", "tokensNum": 5000},
    }
    assert harness.asked == [AskedPermission(permission="codesearch", patterns=("msgspec",), always=("*",))]


@pytest.mark.parametrize("path", ["/breaks", "/breaks-crlf"])
async def test_a_result_with_line_breaks_of_unicode_is_found(
    harness: ToolHarness, service: Web, path: str
) -> None:
    websearch, _ = make_search_tools(f"{service.url}{path}")
    assert (await harness.call(websearch, query="x")).output == "a\u2028b\x85c"


@pytest.mark.parametrize("path", ["/none", "/odd"])
async def test_a_search_that_finds_nothing_says_so(harness: ToolHarness, service: Web, path: str) -> None:
    websearch, codesearch = make_search_tools(f"{service.url}{path}")
    assert (await harness.call(websearch, query="x")).output.startswith("No search results found.")
    assert (await harness.call(codesearch, query="x")).output.startswith("No code snippets")


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/refused", "Search error (429): no more"),
        ("/wrong", "Search error: quota"),
        ("/error", "Search error: no such tool"),
    ],
)
async def test_a_search_that_fails_says_why(
    harness: ToolHarness, service: Web, path: str, words: str
) -> None:
    websearch, _ = make_search_tools(f"{service.url}{path}")
    with pytest.raises(ToolError) as raised:
        await harness.call(websearch, query="x")
    assert str(raised.value) == words


async def test_an_unreachable_service_is_reported_without_its_address(harness: ToolHarness) -> None:
    websearch, _ = make_search_tools("http://127.0.0.1:1/?key=secret")
    with pytest.raises(ToolError) as raised:
        await harness.call(websearch, query="x")
    assert str(raised.value) == "The search service did not answer: ConnectError"


async def test_a_denied_search_is_not_made(harness: ToolHarness, service: Web) -> None:
    harness.denied = {"websearch"}
    service.requests.clear()
    with pytest.raises(DeniedError):
        await harness.call(make_search_tools(f"{service.url}/good")[0], query="x")
    assert service.requests == []


@pytest.mark.parametrize(
    ("url", "provider", "offered"),
    [(None, "anthropic", False), (None, "opencode", True), ("http://127.0.0.1:1", "anthropic", True)],
)
def test_searching_is_offered_if_there_is_a_service(url: str | None, provider: str, offered: bool) -> None:
    audience = Audience(provider_id=provider, api_id="m", allowed=lambda *_: True)
    tools = make_search_tools(url)
    descriptions = [tool.describe(audience) if tool.describe else tool.about for tool in tools]
    assert descriptions == [tool.about if offered else None for tool in tools] != []
