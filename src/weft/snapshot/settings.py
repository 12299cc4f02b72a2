"""Settings: `experimental.weft.snapshots` as limits, and where snapshots lie."""

import hashlib
import os
from typing import Any, Final

import msgspec
from msgspec import Struct

from weft.errors import InvalidInputError
from weft.host.paths import Paths
from weft.snapshot.contract import MAX_BYTES, MAX_FILE_BYTES, WAIT_SECONDS, Limits

NAME_LENGTH: Final = 16
KEY: Final = ("experimental", "weft", "snapshots")


class _Given(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    max_bytes: int = MAX_BYTES
    max_file_bytes: int = MAX_FILE_BYTES
    wait_seconds: float = WAIT_SECONDS


def to_limits(given: Any) -> Limits:
    """What a person wrote, None for nothing. `InvalidInputError` names what cannot be meant."""
    try:
        found = msgspec.convert({} if given is None else given, _Given)
    except msgspec.ValidationError as error:
        hint = '{"maxBytes": 2147483648, "maxFileBytes": 10485760, "waitSeconds": 30}'
        raise InvalidInputError(".".join(KEY), str(error), hint=hint) from error
    if min(found.max_bytes, found.max_file_bytes, found.wait_seconds) < 0:
        raise InvalidInputError(".".join(KEY), "a limit cannot be below zero")
    return Limits(
        max_bytes=found.max_bytes, max_file_bytes=found.max_file_bytes, wait_seconds=found.wait_seconds
    )


def snapshot_base(data: str) -> str:
    """Where all snapshots lie. OpenCode's own are in `snapshot`, and we keep away from them."""
    return f"{data}/weft/snapshot"


def base_for(paths: Paths, url: str) -> str:
    """Where the snapshots of a store's sessions lie. Each store has a place of its own: what the sessions of one no
    longer need, those of another may."""
    usual, storage = snapshot_base(paths.data), os.path.realpath(paths.storage)
    if url.startswith("file:"):
        url = f"file:{os.path.realpath(url.removeprefix('file:'))}"
    if url == f"file:{storage}":
        return usual
    return f"{usual}-{hashlib.sha256(os.fsencode(url)).hexdigest()[:NAME_LENGTH]}"
