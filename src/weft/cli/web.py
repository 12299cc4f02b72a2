"""`weft web`: sessions in the browser. Uses the server that runs, or starts one."""

import argparse
import os
import sys
import webbrowser
from collections.abc import Callable, Mapping

import httpx2

from weft.cli.exit import ExitCode
from weft.cli.output import Paint
from weft.cli.serve import DEFAULT_HOST, DEFAULT_PORT, add_serve_arguments, serve
from weft.cli.serve_access import to_local_url
from weft.client.address import Address, resolve_address
from weft.errors import InvalidInputError
from weft.server.http_server import HttpServer
from weft.server.page_login import LINK_SECONDS, LOGIN_PATH

TIMEOUT_SECONDS = 5.0
UNAUTHORIZED, NOT_FOUND = 401, 404


def add_web_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "url",
        nargs="?",
        help="the address of a server that runs (default: http://127.0.0.1:4096, if one does)",
    )
    add("--no-open", action="store_true", help="print the link, and open no browser")
    add_serve_arguments(parser)


def web(args: argparse.Namespace) -> int:
    """Open the page of a running server. Without one, serve until a signal arrives."""
    if args.url is not None:
        address = resolve_address(args.url, os.environ)
        link = find_link(address)
        if link is None:
            raise InvalidInputError(
                "url", f"no server of weft answers at {address.url}", hint="start one: weft serve"
            )
        show_link(link, print, opens=not args.no_open)
        return ExitCode.DONE
    # With these options the person wants a server of their own, not the one that happens to run.
    is_plain = args.store is None and args.port is None and args.hostname is None
    address = resolve_address(f"http://{DEFAULT_HOST}:{DEFAULT_PORT}", os.environ)
    link = find_link(address) if is_plain else None
    if link is not None:
        show_link(link, print, opens=not args.no_open)
        return ExitCode.DONE
    return serve(
        args,
        on_ready=lambda server, url, put: show_link(make_link(server, url), put, opens=not args.no_open),
    )


def find_link(address: Address) -> str | None:
    """Return a link that logs a browser in to a server, None if no server of weft is there.

    Raise `InvalidInputError` if it does not accept our password, or is too old to have a page.
    """
    login = (address.username, address.password) if address.password else None
    try:
        with httpx2.Client(
            base_url=address.url, auth=login, timeout=TIMEOUT_SECONDS, trust_env=False
        ) as client:
            health = client.get("/global/health")
            if health.status_code != UNAUTHORIZED and not _is_weft(health):
                return None
            answer = client.post("/weft/login-link")
            needs_login = client.get(LOGIN_PATH).json().get("needed")
    except (httpx2.HTTPError, ValueError):
        return None
    if answer.status_code == UNAUTHORIZED:
        hint = "set OPENCODE_SERVER_PASSWORD to its password, or start your own server: weft web --port 0"
        raise InvalidInputError("url", f"the server at {address.url} has another password", hint=hint)
    if answer.status_code == NOT_FOUND:
        raise InvalidInputError(
            "url", f"the server at {address.url} has no page", hint="restart it with this version"
        )
    return f"{address.url}/#login={answer.json()['ticket']}" if needs_login else f"{address.url}/"


def _is_weft(health: httpx2.Response) -> bool:
    return health.status_code == httpx2.codes.OK and health.json().get("weft") is True


def make_link(server: HttpServer, url: str) -> str:
    """Return a link that logs a browser in to our own server."""
    local = to_local_url(url)
    if server.logins.password is None:
        return f"{local}/"
    return f"{local}/#login={server.tickets.issue(LOGIN_PATH, LINK_SECONDS)}"


def show_link(link: str, put: Callable[[str], None], *, opens: bool) -> None:
    """Print a link, and open it if there is a browser with windows."""
    put(f"open {Paint(sys.stdout).bold(link)}")
    if "#login=" in link:
        put(f"the link works once, within {LINK_SECONDS // 60} minutes; weft web makes another")
    if opens and has_browser(os.environ):
        webbrowser.open(link)


def has_browser(env: Mapping[str, str]) -> bool:
    """Return True if a browser can open a window here. A text browser would take the terminal from the server."""
    return sys.platform == "darwin" or any(
        env.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    )
