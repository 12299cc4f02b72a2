"""Bundles written: sessions with their attachments, in one file (see `bundle_format`)."""

import base64
import binascii
import re
import zipfile
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import IO, Any

from msgspec.structs import replace

from weft.model.parcel import Parcel, count
from weft.model.part import AnyPart, CompletedState, FilePart, ToolPart
from weft.model.wire import encode, encode_pretty
from weft.session.transfer.bundle_format import (
    ATTACHMENT,
    FORMAT,
    KIND,
    MANIFEST,
    BundledFile,
    BundledSession,
    Manifest,
)
from weft.version import VERSION

_DATA_URL = re.compile(r"data:([^,]*);base64,([A-Za-z0-9+/]*={0,2})")
LONG_AGO = (1980, 1, 1, 0, 0, 0)


def write_bundle(file: IO[bytes], parcels: Iterable[Parcel], *, redacted: bool = False) -> Manifest:
    """Write sessions as they come; parents are to come before their children."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        attachments: dict[str, BundledFile] = {}
        sessions = [_put_session(archive, parcel, attachments) for parcel in parcels]
        manifest = Manifest(
            kind=KIND,
            format=FORMAT,
            version=VERSION,
            redacted=redacted,
            sessions=tuple(sessions),
            attachments=tuple(attachments.values()),
        )
        _put(archive, MANIFEST, encode_pretty(manifest))
    return manifest


def _put_session(
    archive: zipfile.ZipFile, parcel: Parcel, attachments: dict[str, BundledFile]
) -> BundledSession:
    def take_out(url: str) -> str:
        raw = data_of(url)
        if raw is None:
            return url
        name = f"attachments/{sha256(raw).hexdigest()}"
        if name not in attachments:
            attachments[name] = _put(archive, name, raw)
        header = url.partition(",")[0].removeprefix("data:").removesuffix(";base64")
        return f"{ATTACHMENT}{attachments[name].sha256},{header}"

    file = _put(archive, f"sessions/{parcel.info.id}.json", encode(with_urls(parcel, take_out)))
    return BundledSession(id=parcel.info.id, title=parcel.info.title, file=file, counts=count(parcel))


def _put(archive: zipfile.ZipFile, name: str, raw: bytes) -> BundledFile:
    entry = zipfile.ZipInfo(name, LONG_AGO)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o600 << 16
    archive.writestr(entry, raw)
    return BundledFile(name=name, size=len(raw), sha256=sha256(raw).hexdigest())


def data_of(url: str) -> bytes | None:
    """What a `data:` URL holds, if writing it again gives the very same URL."""
    found = _DATA_URL.fullmatch(url)
    if found is None:
        return None
    try:
        raw = base64.b64decode(found[2], validate=True)
    except binascii.Error:
        return None
    return raw if base64.b64encode(raw).decode() == found[2] else None


def with_urls(parcel: Parcel, turn: Callable[[str], str]) -> Parcel:
    """The parcel with the URL of every file in it turned."""

    def turned(part: AnyPart) -> AnyPart:
        match part:
            case FilePart(url=url):
                return replace(part, url=turn(url))
            case ToolPart(state=CompletedState(attachments=tuple(files)) as state):
                new: Any = tuple(replace(file, url=turn(file.url)) for file in files)
                return replace(part, state=replace(state, attachments=new))
            case _:
                return part

    messages = tuple(
        replace(message, parts=tuple(turned(part) for part in message.parts)) for message in parcel.messages
    )
    return replace(parcel, messages=messages)
