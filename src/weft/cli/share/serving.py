"""What `weft serve --share` changes about a server: an address for its pages, and a door that lets people look."""

import argparse
from typing import Final
from urllib.parse import urlsplit

from msgspec.structs import replace

from weft.cli.serving.door import PASSWORD, Entrance, is_loopback
from weft.errors import InvalidInputError
from weft.server.pages import SHARES
from weft.share.contract import to_address

EVERYWHERE: Final = frozenset({"0.0.0.0", "::"})


def to_pages(chosen: argparse.Namespace, url: str) -> str:
    """Where shared sessions will be seen; empty if none will."""
    if chosen.share_url and not chosen.share:
        raise InvalidInputError("--share-url", "it is for --share", hint="say both")
    if not chosen.share:
        return ""
    if chosen.share_url:
        return to_address(chosen.share_url, "--share-url")
    if urlsplit(url).hostname in EVERYWHERE:
        hint = "such as https://share.example.org"
        raise InvalidInputError("--share-url", "say at which address others reach this server", hint=hint)
    return url


def let_look(entrance: Entrance, pages: str) -> Entrance:
    """The entrance with the pages open to all who know an address; everything else stays behind the password."""
    if not pages:
        return entrance
    host = urlsplit(pages).hostname or ""
    name = f"[{host}]" if ":" in host else host
    if entrance.door.password is None and not is_loopback(host):
        raise InvalidInputError(
            "--share-url",
            "others would come to all of the server by it, which asks for no password",
            hint=f"leave out --auth none, and set {PASSWORD}",
        )
    door = replace(entrance.door, hosts=entrance.door.hosts | {name}, open_to_all=SHARES)
    return replace(entrance, door=door)
