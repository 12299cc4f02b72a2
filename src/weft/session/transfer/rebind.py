"""Rebinding: the paths in a session, turned into those of the place it now lives in.

Only whole values that are a path are turned: where the session and its agent stood, files it patched, what its tools
were called with. What was said, and what tools answered, stays as it was.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from msgspec import Struct

from weft.errors import InvalidInputError
from weft.model.message import AssistantMessage
from weft.model.parcel import Parcel
from weft.model.wire import from_plain, to_plain

# Words, not places, even if they happen to be nothing but a path.
WORDS = frozenset(
    {
        *("text", "output", "raw", "title", "content", "prompt", "description", "error", "system"),
        *("oldString", "newString", "patchText", "before", "after", "diff", "preview", "id", "slug"),
    }
)


class Rebind(Struct, frozen=True):
    """What lay below `old` lies below `new`."""

    old: str
    new: str


def parse_rebind(text: str) -> Rebind:
    """`OLD=NEW`, both absolute."""
    old, equals, new = text.partition("=")
    if not equals or not os.path.isabs(old) or not os.path.isabs(new):
        raise InvalidInputError("--rebind", f"{text!r} is not OLD=NEW with two absolute paths")
    return Rebind(_bare(old), _bare(new))


def moved(path: str, rebinds: Sequence[Rebind]) -> str:
    for rebind in rebinds:
        if path == rebind.old:
            return rebind.new
        if path.startswith(f"{rebind.old}/"):
            return rebind.new + path[len(rebind.old) :]
    return path


def rebound(parcel: Parcel, rebinds: Sequence[Rebind]) -> Parcel:
    """The first rebind that fits a path is the one that turns it."""
    meant = [rebind for rebind in rebinds if rebind.old != rebind.new]
    if not meant:
        return parcel
    urls = [Rebind(f"file://{quote(each.old)}", f"file://{quote(each.new)}") for each in meant]
    plain: Any = _turned(to_plain(parcel), (*meant, *urls))
    return from_plain(plain, Parcel, where=parcel.info.id)


def _turned(value: Any, rebinds: Sequence[Rebind]) -> Any:
    match value:
        case str():
            return moved(value, rebinds) if value[:1] == "/" or value[:5] == "file:" else value
        case Mapping():
            return {
                key: item if key in WORDS and isinstance(item, str) else _turned(item, rebinds)
                for key, item in value.items()
            }
        case list() | tuple():
            return [_turned(item, rebinds) for item in value]
        case _:
            return value


def checkout(parcel: Parcel) -> str:
    """The top of the checkout a session was made in, as far as it says so; else its directory."""
    directory = parcel.info.directory
    for message in parcel.messages:
        if isinstance(message.info, AssistantMessage) and message.info.path is not None:
            root = message.info.path.root
            if root != "/" and (directory == root or directory.startswith(f"{root}/")):
                return root
    return directory


def rebinds_between(incoming: Parcel, present: Parcel) -> tuple[Rebind, ...]:
    """What turns the paths of one state of a session into those of another that lives elsewhere."""
    if not incoming.info.directory or incoming.info.directory == present.info.directory:
        return ()
    old, new = checkout(incoming), checkout(present)
    if incoming.info.directory[len(old) :] != present.info.directory[len(new) :]:
        old, new = incoming.info.directory, present.info.directory
    return (Rebind(old, new),)


def _bare(path: str) -> str:
    return path.rstrip("/") or "/"
