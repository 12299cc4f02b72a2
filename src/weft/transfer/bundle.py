"""Bundles: several sessions and their attachments in one zip file, and the files they worked on if they are being moved.

Everything in a bundle is checked before it is used.
"""

import base64
import binascii
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import IO, Any

from msgspec.structs import replace

from weft.errors import BundleError, DocumentError, NewerFormatError
from weft.model.ids import SessionID
from weft.model.part import AnyPart, CompletedState, FilePart, ToolPart
from weft.model.transfer import ExportCounts, SessionExport, count_export
from weft.model.wire import Wire, always, encode, encode_pretty, from_plain, parse
from weft.snapshot.contract import PackedObject
from weft.transfer.document import check_export
from weft.version import VERSION

BUNDLE_KIND = "weft-bundle"
FORMAT_VERSION = 2
# Without a workspace a bundle is as version 1 wrote it, so that older versions can read it.
PLAIN_FORMAT_VERSION = 1
MANIFEST_NAME = "manifest.json"
ATTACHMENT_PREFIX = "attachment:"

MAX_MANIFEST_BYTES = 64 << 20
MAX_FILE_BYTES = 512 << 20
MAX_TOTAL_BYTES = 8 << 30
MAX_FILES = 200_000
# No genuine bundle compresses better than this. One that does is made to fill a disk or the memory.
MAX_COMPRESSION_RATIO = 250
MIN_RATIO_CHECK_BYTES = 64 << 20

SESSION_NAME = re.compile(r"sessions/ses_[0-9A-Za-z]{20,40}\.json")
ATTACHMENT_NAME = re.compile(r"attachments/[0-9a-f]{64}")
OBJECT_NAME = re.compile(r"objects/(blob|tree)/([0-9a-f]{40})")


class BundledFile(Wire, frozen=True, kw_only=True):
    """A file in the archive."""

    name: str
    size: int
    sha256: str


class BundledSession(Wire, frozen=True, kw_only=True):
    """A session in the archive, and how many documents of each kind it has."""

    id: SessionID
    title: str = always("")
    file: BundledFile
    counts: ExportCounts


class BundledWorkspace(Wire, frozen=True, kw_only=True):
    """The uncommitted work in a checkout, over a commit, and what undo needs: trees, and the objects that they name.

    `present` are files as they are to be, `absent` are files that are not to exist. `directory` is the top of the checkout, and
    `briefings` are those of the sessions, by their ids.
    """

    directory: str
    commit: str
    present: str
    absent: str
    briefings: dict[str, Any] = always({})
    objects: tuple[BundledFile, ...] = ()


class Manifest(Wire, frozen=True, kw_only=True):
    """The list of all files in a bundle."""

    kind: str
    format: int
    version: str
    redacted: bool = False
    sessions: tuple[BundledSession, ...]
    attachments: tuple[BundledFile, ...] = ()
    workspace: BundledWorkspace | None = None


_DATA_URL = re.compile(r"data:([^,]*);base64,([A-Za-z0-9+/]*={0,2})")
# A fixed time, so that the same sessions give the same bundle.
ENTRY_TIME = (1980, 1, 1, 0, 0, 0)


class BundleWriter:
    """Writes a bundle piece by piece. `close` writes the manifest; a file without it is no bundle."""

    def __init__(self, file: IO[bytes]) -> None:
        self._archive = zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED)
        self._attachments: dict[str, BundledFile] = {}
        self._sessions: list[BundledSession] = []
        self._objects: list[BundledFile] = []

    def add_session(self, export: SessionExport) -> None:
        """Add a session. Parents must precede their children."""
        self._sessions.append(_write_session(self._archive, export, self._attachments))

    def add_object(self, each: PackedObject) -> None:
        """Add an object of a workspace."""
        self._objects.append(_write_entry(self._archive, f"objects/{each.kind}/{each.oid}", each.content))

    def close(self, *, redacted: bool = False, workspace: BundledWorkspace | None = None) -> Manifest:
        """Complete the bundle. Return its manifest."""
        manifest = Manifest(
            kind=BUNDLE_KIND,
            format=PLAIN_FORMAT_VERSION if workspace is None else FORMAT_VERSION,
            version=VERSION,
            redacted=redacted,
            sessions=tuple(self._sessions),
            attachments=tuple(self._attachments.values()),
            workspace=None if workspace is None else replace(workspace, objects=tuple(self._objects)),
        )
        _write_entry(self._archive, MANIFEST_NAME, encode_pretty(manifest))
        self._archive.close()
        return manifest


def write_bundle(file: IO[bytes], exports: Iterable[SessionExport], *, redacted: bool = False) -> Manifest:
    """Write sessions in the given order; parents must precede their children. Return the manifest."""
    writer = BundleWriter(file)
    for export in exports:
        writer.add_session(export)
    return writer.close(redacted=redacted)


def _write_session(
    archive: zipfile.ZipFile, export: SessionExport, attachments: dict[str, BundledFile]
) -> BundledSession:
    def extract(url: str) -> str:
        if url.startswith(ATTACHMENT_PREFIX):
            return f"{ATTACHMENT_PREFIX},{url}"  # somebody else's address, which names no file here
        raw = decode_data_url(url)
        if raw is None:
            return url
        name = f"attachments/{sha256(raw).hexdigest()}"
        if name not in attachments:
            attachments[name] = _write_entry(archive, name, raw)
        header = url.partition(",")[0].removeprefix("data:").removesuffix(";base64")
        return f"{ATTACHMENT_PREFIX}{attachments[name].sha256},{header}"

    file = _write_entry(archive, f"sessions/{export.info.id}.json", encode(map_urls(export, extract)))
    return BundledSession(id=export.info.id, title=export.info.title, file=file, counts=count_export(export))


def _write_entry(archive: zipfile.ZipFile, name: str, raw: bytes) -> BundledFile:
    entry = zipfile.ZipInfo(name, ENTRY_TIME)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o600 << 16
    archive.writestr(entry, raw)
    return BundledFile(name=name, size=len(raw), sha256=sha256(raw).hexdigest())


def decode_data_url(url: str) -> bytes | None:
    """Decode a `data:` URL. Return None unless encoding the result gives exactly the same URL."""
    match = _DATA_URL.fullmatch(url)
    if match is None:
        return None
    try:
        raw = base64.b64decode(match[2], validate=True)
    except binascii.Error:
        return None
    return raw if base64.b64encode(raw).decode() == match[2] else None


def map_urls(export: SessionExport, convert: Callable[[str], str]) -> SessionExport:
    """Return the session with `convert` applied to the URL of every file."""

    def map_part(part: AnyPart) -> AnyPart:
        match part:
            case FilePart(url=url):
                return replace(part, url=convert(url))
            case ToolPart(state=CompletedState(attachments=tuple(files)) as state):
                new: Any = tuple(replace(file, url=convert(file.url)) for file in files)
                return replace(part, state=replace(state, attachments=new))
            case _:
                return part

    messages = tuple(
        replace(message, parts=tuple(map_part(part) for part in message.parts)) for message in export.messages
    )
    return replace(export, messages=messages)


ZIP_MAGIC = b"PK"
BLOCK_BYTES = 1 << 20
# Everything that `zipfile` raises for input that is not a zip file or uses unsupported features.
ZIP_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    OSError,
    OverflowError,
    RuntimeError,
    ValueError,
)


def is_bundle(head: bytes) -> bool:
    """Return True if a file that starts with these bytes is a zip file, and so probably a bundle."""
    return head.startswith(ZIP_MAGIC)


class Bundle:
    """A checked bundle: every file has the size and hash in the manifest. Create it with `open_bundle`."""

    def __init__(self, path: str, archive: zipfile.ZipFile) -> None:
        self._path = path
        self._archive = archive
        self.manifest = self._read_manifest()
        self._attachments = {file.sha256: file for file in self.manifest.attachments}
        for _ in self.exports():
            pass  # read everything once, so that nothing of a bad bundle is used

    def exports(self) -> Iterator[SessionExport]:
        """Yield the sessions in the order of the manifest."""
        for session in self.manifest.sessions:
            yield self.read(session)

    def read(self, session: BundledSession) -> SessionExport:
        """Return a session with its attachments. Raise `BundleError` if it does not match the manifest."""
        plain = parse(self._read(session.file), where=session.file.name)
        export = check_export(
            from_plain(plain, SessionExport, where=session.file.name), where=session.file.name
        )
        if export.info.id != session.id or count_export(export) != session.counts:
            raise self._make_error(f"{session.file.name} does not match its manifest")
        return map_urls(export, self._embed)

    def read_objects(self) -> Iterator[PackedObject]:
        """Yield the objects of the workspace."""
        for file in () if self.manifest.workspace is None else self.manifest.workspace.objects:
            found = OBJECT_NAME.fullmatch(file.name)
            assert found is not None, "names are checked when a bundle is opened"
            yield PackedObject("tree" if found[1] == "tree" else "blob", found[2], self._read(file))

    def _embed(self, url: str) -> str:
        if not url.startswith(ATTACHMENT_PREFIX):
            return url
        digest, comma, header = url.removeprefix(ATTACHMENT_PREFIX).partition(",")
        if comma and not digest:
            return header
        file = self._attachments.get(digest)
        if file is None:
            raise self._make_error(f"an attachment is missing: {digest[:80]!r}")
        return f"data:{header};base64,{base64.b64encode(self._read(file)).decode()}"

    # --- checking ---

    def _read_manifest(self) -> Manifest:
        names = self._list_names()
        if MANIFEST_NAME not in names:
            raise self._make_error("it has no manifest.json, so it is not a bundle of weft")
        plain = parse(
            self._read_bytes(MANIFEST_NAME, MAX_MANIFEST_BYTES), where=f"{self._path}: {MANIFEST_NAME}"
        )
        if not isinstance(plain, dict) or plain.get("kind") != BUNDLE_KIND:
            raise self._make_error("its manifest is not that of a bundle")
        version = plain.get("format")
        if not isinstance(version, int) or version < 1:
            raise self._make_error(f"its format is {version!r}, which is not valid")
        if version > FORMAT_VERSION:
            raise NewerFormatError(self._path, version, FORMAT_VERSION)
        manifest = from_plain(plain, Manifest, where=f"{self._path}: {MANIFEST_NAME}")
        self._check_manifest(manifest, names)
        return manifest

    def _list_names(self) -> set[str]:
        entries = self._archive.infolist()
        if len(entries) > MAX_FILES:
            raise self._make_error(f"it has {len(entries)} files, more than the {MAX_FILES} allowed")
        names: set[str] = set()
        for entry in entries:
            self._check_entry(entry)
            if entry.filename in names:
                raise self._make_error(f"{entry.filename!r} is in it twice")
            names.add(entry.filename)
        self._check_total(sum(entry.file_size for entry in entries))
        return names

    def _check_entry(self, entry: zipfile.ZipInfo) -> None:
        name = entry.filename
        patterns = (SESSION_NAME, ATTACHMENT_NAME, OBJECT_NAME)
        is_expected = name == MANIFEST_NAME or any(pattern.fullmatch(name) for pattern in patterns)
        if not is_expected:
            escapes = (
                name.startswith(("/", "\\")) or ".." in name.replace("\\", "/").split("/") or ":" in name
            )
            reason = "points outside the bundle" if escapes else "does not belong in a bundle"
            raise self._make_error(f"{name[:200]!r} {reason}")
        if entry.flag_bits & 1 or entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise self._make_error(f"{name} is encrypted or uses an unsupported compression")
        if entry.file_size > MAX_FILE_BYTES:
            raise self._make_error(
                f"{name} unpacks to {entry.file_size} bytes, more than the {MAX_FILE_BYTES} allowed"
            )

    def _check_total(self, size: int) -> None:
        packed = os.path.getsize(self._path)
        if size > MAX_TOTAL_BYTES or (size > MIN_RATIO_CHECK_BYTES and size > MAX_COMPRESSION_RATIO * packed):
            raise self._make_error(f"it is {packed} bytes and unpacks to {size}, more than any session needs")

    def _check_manifest(self, manifest: Manifest, names: set[str]) -> None:
        objects = () if manifest.workspace is None else manifest.workspace.objects
        files = [*(session.file for session in manifest.sessions), *manifest.attachments, *objects]
        self._check_kinds(manifest, objects)
        listed = [file.name for file in files]
        if len(set(listed)) != len(listed):
            raise self._make_error("its manifest names a file twice")
        if unmatched := sorted(names.symmetric_difference([*listed, MANIFEST_NAME])):
            problem = "lists, but it is missing" if unmatched[0] in listed else "does not list"
            raise self._make_error(f"{unmatched[0][:200]!r} is a file that its manifest {problem}")
        for file in files:
            self._check_hash(file)

    def _check_kinds(self, manifest: Manifest, objects: Iterable[BundledFile]) -> None:
        kinds = (
            *((session.file, SESSION_NAME) for session in manifest.sessions),
            *((file, ATTACHMENT_NAME) for file in manifest.attachments),
            *((file, OBJECT_NAME) for file in objects),
        )
        for file, pattern in kinds:
            if not pattern.fullmatch(file.name):
                raise self._make_error(f"its manifest lists {file.name[:200]!r} as something else")

    def _check_hash(self, file: BundledFile) -> None:
        digest, size = sha256(), 0
        for block in self._read_blocks(file.name, MAX_FILE_BYTES):
            digest.update(block)
            size += len(block)
        if size != file.size or digest.hexdigest() != file.sha256:
            raise self._make_error(f"{file.name} has changed since the bundle was written")

    # --- reading ---

    def _read(self, file: BundledFile) -> bytes:
        return self._read_bytes(file.name, file.size)

    def _read_bytes(self, name: str, limit: int) -> bytes:
        return b"".join(self._read_blocks(name, limit))

    def _read_blocks(self, name: str, limit: int) -> Iterator[bytes]:
        remaining = limit
        try:
            with self._archive.open(name) as file:
                while block := file.read(BLOCK_BYTES):
                    remaining -= len(block)
                    if remaining < 0:
                        raise self._make_error(f"{name} unpacks to more than the {limit} bytes allowed")
                    yield block
        except ZIP_ERRORS as error:
            raise self._make_error(f"{name} is damaged: {error}") from error

    def _make_error(self, reason: str) -> BundleError:
        return BundleError(self._path, reason)


@contextmanager
def open_bundle(path: str) -> Generator[Bundle]:
    """Open and check a bundle. Raise `BundleError` if it is bad, `NewerFormatError` if a later version wrote it."""
    try:
        archive = zipfile.ZipFile(path)
    except ZIP_ERRORS as error:
        reason = f"it is truncated or damaged: {error}" if not isinstance(error, OSError) else str(error)
        raise BundleError(path, reason) from error
    with archive:
        try:
            bundle = Bundle(path, archive)
        except BundleError:
            raise
        except DocumentError as error:
            raise BundleError(path, f"{error.where.removeprefix(f'{path}: ')}: {error.reason}") from error
        yield bundle
