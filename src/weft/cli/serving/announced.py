"""A server that shows pages says so in the store, so that `weft share` knows where they will be seen."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

from msgspec import Struct

from weft.cli.serving.welcome import from_here
from weft.config.store_address import store_url
from weft.host.paths import paths_from
from weft.store.url import open_store

KEY: Final = ("sharing", "server")


class Announced(Struct, frozen=True):
    """`pages` is the address others use, `here` the one on this machine."""

    pages: str
    here: str


@asynccontextmanager
async def announced(pages: str, here: str, env: Mapping[str, str], store: str | None) -> AsyncIterator[None]:
    """As long as the server runs. A later one takes over, and its word is left alone."""
    if not pages:
        yield
        return
    said = {"pages": pages, "here": from_here(here)}
    async with open_store(store_url(env, paths_from(env), store)) as opened:
        await opened.keep(KEY, said)
    try:
        yield
    finally:
        async with open_store(store_url(env, paths_from(env), store)) as opened:
            await opened.rework(KEY, lambda kept: None if kept == said else kept)


async def find_announced(env: Mapping[str, str], store: str | None) -> Announced | None:
    async with open_store(store_url(env, paths_from(env), store)) as opened:
        match await opened.kept(KEY):
            case {"pages": str(pages), "here": str(here)}:
                return Announced(pages, here)
            case _:
                return None
