"""A server with two principals, over real HTTP, each with a project of its own."""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx2
from msgspec import Struct

from given.http_server import connect, make_project, run_in_thread
from weft.host.clock import SystemClock
from weft.local.open import OpenOptions, open_directory
from weft.local.tokens import TokenStore
from weft.model.principal import (
    ADMINISTRATOR,
    Caller,
    NewToken,
    Principal,
    PrincipalChange,
    PrincipalLimits,
    PrincipalTokens,
    Token,
    TokenInput,
    TokenScope,
)
from weft.provider.catalog.offers import make_scripted_model
from weft.provider.registry import ServedModel
from weft.provider.scripted import AnyMove, Say, ScriptedProvider
from weft.server.access import AccessPolicy
from weft.server.directories import ApiOpener
from weft.server.http_server import HttpServer, ServerSetup
from weft.server.routes.sharing import SHARE_ROOT
from weft.server.routes.table import list_routes
from weft.store.url import open_store

T = TypeVar("T")
PASSWORD = "the password"
ANSWERS: list[list[AnyMove]] = [[Say(text="Here is a short answer.")]] * 10_000


class StoreTokens:
    """The tokens of a store that is opened for each call, because every test has an event loop of its own."""

    def __init__(self, url: str, now: Callable[[], int]) -> None:
        self._url = url
        self._now = now

    async def _call(self, action: Callable[[TokenStore], Awaitable[T]]) -> T:
        async with open_store(self._url) as store:
            return await action(TokenStore(store, self._now))

    async def create(self, input: TokenInput) -> NewToken:
        return await self._call(lambda tokens: tokens.create(input))

    async def list_all(self) -> PrincipalTokens:
        return await self._call(lambda tokens: tokens.list_all())

    async def revoke(self, name: str, *, force: bool = False) -> Token:
        return await self._call(lambda tokens: tokens.revoke(name, force=force))

    async def change_principal(self, name: str, change: PrincipalChange) -> Principal:
        return await self._call(lambda tokens: tokens.change_principal(name, change))

    async def find_caller(self, secret: str) -> Caller | None:
        return await self._call(lambda tokens: tokens.find_caller(secret))

    async def find_principal(self, name: str) -> Caller | None:
        return await self._call(lambda tokens: tokens.find_principal(name))

    async def find_share_owner(self, share: str) -> Caller | None:
        return await self._call(lambda tokens: tokens.find_share_owner(share))


class TeamServer(Struct, frozen=True, kw_only=True):
    """A server, its tokens, and the directory of each principal."""

    url: str
    root: Path
    tokens: StoreTokens
    notes: list[str]

    def connect(self, secret: str | None = None) -> httpx2.Client:
        """Return a client with a token, or that of the administrator."""
        login = {"authorization": f"Bearer {secret}"} if secret is not None else {}
        auth = ("opencode", PASSWORD) if secret is None else None
        return connect(self.url, timeout=30, headers=login, auth=auth)

    def admit(
        self, name: str, scope: TokenScope = "run", limits: PrincipalLimits | None = None, principal: str = ""
    ) -> str:
        """Create a token and return its secret. A new principal gets a project of its own."""
        known = {each.name for each in asyncio.run(self.tokens.list_all()).principals}
        is_new = scope != "admin" and (principal or name) not in known
        directory = self.root / (principal or name)
        if is_new:
            directory.mkdir()
            (directory / "name.txt").write_text(name)  # so that every project has an id of its own
        directories = (str(make_project(directory)),) if is_new else ()
        input = TokenInput(
            name=name,
            scope=scope,
            principal=principal,
            directories=directories,
            limits=limits or PrincipalLimits(),
        )
        return asyncio.run(self.tokens.create(input)).secret


@contextmanager
def serve_team(
    tmp_path: Path, url: str, script: list[list[AnyMove]] | None = None, config: dict[str, Any] | None = None
) -> Iterator[TeamServer]:
    """Serve until the end of the block. All principals talk to the same scripted model."""
    own = Path(os.environ["XDG_CONFIG_HOME"]) / "opencode"
    own.mkdir(parents=True, exist_ok=True)
    (own / "opencode.json").write_text(json.dumps({"model": "scripted/test", **(config or {})}))
    clock, notes, env = SystemClock(), list[str](), dict(os.environ)
    model = ServedModel(make_scripted_model("test"), ScriptedProvider(script or ANSWERS, clock))
    tokens = StoreTokens(url, clock.now)

    def open_for(caller: Caller) -> ApiOpener:
        return lambda directory: open_directory(
            OpenOptions(
                directory=directory,
                env=env,
                store=url,
                can_ask=True,
                models=(model,),
                share_url="http://127.0.0.1",
                caller=caller,
            )
        )

    setup = ServerSetup(
        open=open_for(ADMINISTRATOR),
        default_directory=str(make_project(tmp_path / "admin")),
        access=AccessPolicy(password=PASSWORD, open_to_all=SHARE_ROOT),
        name="boot",
        note=notes.append,
        now=clock.now,
        tokens=tokens,
        open_for=open_for,
    )
    with run_in_thread(HttpServer(setup, list_routes())) as address:
        yield TeamServer(url=address, root=tmp_path, tokens=tokens, notes=notes)
