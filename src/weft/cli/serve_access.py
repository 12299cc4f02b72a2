"""How clients reach a server: the password, the names it answers to, the lines to paste, the address of its pages."""

import argparse
import json
import os
import shlex
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from weft.config.store_address import resolve_store_url
from weft.errors import ConfigError, InvalidInputError
from weft.host.paths import Paths, paths_from
from weft.host.private_files import get_secret
from weft.model.url import is_loopback_host
from weft.server.access import AccessPolicy
from weft.server.routes.sharing import SHARE_ROOT
from weft.share.contract import check_address
from weft.store.url import open_store

PASSWORD_VARIABLE: Final = "OPENCODE_SERVER_PASSWORD"
USERNAME_VARIABLE: Final = "OPENCODE_SERVER_USERNAME"
AUTH_VARIABLE: Final = "WEFT_SERVE_AUTH"
WILDCARD_HOSTS: Final = frozenset({"0.0.0.0", "::"})
PAGES_KEY: Final = ("sharing", "server")


class ServerAccess(Struct, frozen=True, kw_only=True):
    """Who may use a server. `file` contains the password if weft made it; clients read it there."""

    policy: AccessPolicy
    file: str | None = None


def make_access(
    args: argparse.Namespace, hostname: str, paths: Paths, env: Mapping[str, str]
) -> ServerAccess:
    """Return who may use the server. Raise `InvalidInputError` if others could reach it without a password."""
    password, is_local = env.get(PASSWORD_VARIABLE, ""), is_loopback_host(hostname)
    hosts = frozenset(host.lower() for host in (*args.allow_host, *_list_names(hostname)))
    origins = frozenset(check_origin(each) for each in args.cors)
    if choose_auth(args.auth, env) == "none":
        if not is_local:
            raise InvalidInputError(
                "--auth none",
                "without a password the server is only for this machine",
                hint=f"set {PASSWORD_VARIABLE}",
            )
        return ServerAccess(policy=AccessPolicy(password=None, hosts=hosts, origins=origins))
    if not password and not is_local:
        raise InvalidInputError(
            "--hostname",
            "to be reached from elsewhere, the server needs a password that you chose",
            hint=f"set {PASSWORD_VARIABLE} to one, or leave --hostname out to serve this machine alone",
        )
    file = None
    if not password:
        file = paths.password_file
        password = _get_password(file)
    policy = AccessPolicy(
        password=password, username=env.get(USERNAME_VARIABLE) or "opencode", hosts=hosts, origins=origins
    )
    return ServerAccess(policy=policy, file=file)


def check_origin(text: str) -> str:
    """Return an origin as browsers send it, without a slash at the end. Raise `InvalidInputError` if it is not one."""
    scheme, separator, host = text.rstrip("/").partition("://")
    if not (scheme and separator and host) or "/" in host:
        raise InvalidInputError(
            "--cors", f"{text[:80]!r} is not an origin", hint="write it as https://app.example.com"
        )
    return f"{scheme}://{host}"


def _get_password(file: str) -> str:
    try:
        return get_secret(file)
    except ConfigError as error:
        raise InvalidInputError(
            "--auth", str(error), hint=f"set {PASSWORD_VARIABLE} to one of your own"
        ) from error


def choose_auth(flag: str | None, env: Mapping[str, str]) -> str:
    """Return `password` or `none`, from the flag or else from the environment.

    The environment is for programs that start the server with OpenCode's flags only. Raise `InvalidInputError` if the
    value is unknown.
    """
    auth = flag or env.get(AUTH_VARIABLE) or "password"
    if auth not in {"password", "none"}:
        raise InvalidInputError(
            AUTH_VARIABLE, f"{auth!r} is not a way to protect a server", hint="set it to password or none"
        )
    return auth


def _list_names(hostname: str) -> tuple[str, ...]:
    """Return the host names that a request may use. For `0.0.0.0` and `::`, which stand for every address: the name of this machine."""
    try:
        address = ip_address(hostname.strip("[]"))
    except ValueError:
        return (hostname,)
    if address.is_unspecified:
        return (os.uname().nodename,)
    return (f"[{address}]" if address.version == 6 else str(address),)  # noqa: PLR2004


def to_welcome(url: str, directory: str, access: ServerAccess) -> Iterator[str]:
    """Yield the lines that say where the server is, with a command to paste for each client."""
    yield f"weft serves {directory} at {url}"
    # OpenCode's SDK and other programs that start a server wait for exactly this line.
    yield f"opencode server listening on {url}"
    yield ""
    yield from (f"  {line}" for line in _list_commands(to_local_url(url), access))
    yield ""
    if access.policy.password is None:
        yield "anybody on this machine may use it: there is no password"
    elif access.file is not None:
        yield f"the password is in {access.file}"
        yield "the terminal UI of OpenCode 1.1.34 cannot send one: for it, start with --auth none"


def _list_commands(url: str, access: ServerAccess) -> Iterator[str]:
    policy = access.policy
    prefix, login = "", ""
    if policy.password is not None:
        secret = f"$(cat {shlex.quote(access.file)})" if access.file else f"${PASSWORD_VARIABLE}"
        prefix = f'{PASSWORD_VARIABLE}="{secret}" ' if access.file else ""
        login = f'-u {shlex.quote(policy.username)}:"{secret}" '
    yield f"weft web {url}"
    yield f"weft attach {url}"  # our own clients find the password themselves
    yield f'weft run --attach {url} "hello"'
    yield f"{prefix}opencode attach {url}"
    yield f'{prefix}opencode run --attach {url} "hello"'
    yield f"curl {login}{url}/session"
    yield f"{prefix}python -c {shlex.quote(_to_python(url, policy.username if policy.password else ''))}"


def _to_python(url: str, username: str) -> str:
    """Return a Python program for the package `opencode-ai`, without single quotes: the shell needs them."""
    if not username:
        return f'from opencode_ai import Opencode; print(Opencode(base_url="{url}").session.list())'
    login = f'b64encode(({json.dumps(f"{username}:")} + os.environ["{PASSWORD_VARIABLE}"]).encode()).decode()'
    client = f'Opencode(base_url="{url}", default_headers={{"Authorization": "Basic " + {login}}})'
    return f"import os; from base64 import b64encode; from opencode_ai import Opencode; print({client}.session.list())"


def to_local_url(url: str) -> str:
    """Return the address to use on this machine: the server does not accept `0.0.0.0` or `::` as a host name."""
    return url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")


class PageServer(Struct, frozen=True):
    """A running server that shows shared sessions. `share_url` is its address for others, `local` the one on this machine."""

    share_url: str
    local: str


@asynccontextmanager
async def announce_share_url(
    share_url: str, url: str, env: Mapping[str, str], store_url: str | None
) -> AsyncIterator[None]:
    """Store the address of the pages while the server runs, so that `weft share` finds it.

    If a later server has replaced the address, leave it.
    """
    if not share_url:
        yield
        return
    announcement = {"pages": share_url, "here": to_local_url(url)}
    async with open_store(resolve_store_url(env, paths_from(env), store_url)) as store:
        await store.put_value(PAGES_KEY, announcement)
    try:
        yield
    finally:
        async with open_store(resolve_store_url(env, paths_from(env), store_url)) as store:
            await store.update_value(PAGES_KEY, lambda stored: None if stored == announcement else stored)


async def find_page_server(env: Mapping[str, str], store_url: str | None) -> PageServer | None:
    """Return the server that announced its pages last, or None if it has ended. A server that was killed is still returned."""
    async with open_store(resolve_store_url(env, paths_from(env), store_url)) as store:
        match await store.find_value(PAGES_KEY):
            case {"pages": str(share_url), "here": str(local)}:
                return PageServer(share_url, local)
            case _:
                return None


def to_share_url(args: argparse.Namespace, url: str) -> str:
    """Return the address below which shared sessions are shown; empty without `--share`."""
    if args.share_url and not args.share:
        raise InvalidInputError("--share-url", "it needs --share", hint="pass both")
    if not args.share:
        return ""
    if args.share_url:
        return check_address(args.share_url, "--share-url")
    if urlsplit(url).hostname in WILDCARD_HOSTS:
        hint = "such as https://share.example.org"
        raise InvalidInputError(
            "--share-url", "pass the address at which others reach this server", hint=hint
        )
    return url


def allow_share_pages(access: ServerAccess, share_url: str) -> ServerAccess:
    """Let everybody see the pages of shared sessions; everything else still needs the password."""
    if not share_url:
        return access
    host = urlsplit(share_url).hostname or ""
    name = f"[{host}]" if ":" in host else host
    if access.policy.password is None and not is_loopback_host(host):
        raise InvalidInputError(
            "--share-url",
            "it would open the whole server to others, because the server has no password",
            hint=f"leave out --auth none, and set {PASSWORD_VARIABLE}",
        )
    policy = replace(access.policy, hosts=access.policy.hosts | {name}, open_to_all=SHARE_ROOT)
    return replace(access, policy=policy)
