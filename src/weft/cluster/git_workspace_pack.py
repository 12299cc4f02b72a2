"""The files of a session in a git workspace as they are stored for other nodes: a list, and pieces with contents (pure)."""

import zlib
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Final

from weft.errors import BundleError, ConflictError
from weft.model.ids import SessionID
from weft.model.wire import Wire
from weft.snapshot.contract import ObjectKind, PackedObject
from weft.store.contract import Key

WORKSPACE_KEY: Final = "workspace"
# What one session may take in the store: its uncommitted files, its own commits, and what undo needs.
MAX_PACK_BYTES: Final = 128 << 20
# Contents that are stored together.
PIECE_BYTES: Final = 8 << 20
# With this many pieces, everything that is still needed is written anew, and the rest is dropped.
MAX_PIECES: Final = 32
COMPRESSION: Final = 1
KINDS: Final[dict[bytes, ObjectKind]] = {b"blob": "blob", b"tree": "tree"}


class StoredPiece(Wire, frozen=True, kw_only=True):
    """A value of the store: its name, size and SHA-256, and the objects that it contains."""

    name: str
    size: int
    sha256: str
    objects: tuple[str, ...] = ()


class StoredFiles(Wire, frozen=True, kw_only=True):
    """The files of a session: the commit `base` of the workspace, the session's own commits up to `head`, and the uncommitted work as
    trees of what is `present` and what is `absent`.

    `state` names these files: whichever node has a checkout with this name has them all. `host` stored them; it is "" in a fork, whose
    files were copied in the store.
    """

    workspace: str
    base: str
    head: str
    state: str
    host: str
    time: int
    present: str = ""
    absent: str = ""
    pieces: tuple[StoredPiece, ...] = ()
    commits: StoredPiece | None = None

    @property
    def rescue(self) -> str:
        """What to do if something of them is missing in the store."""
        if not self.host:
            return "fork the session again from which they were copied"
        return f"the checkout on the node {self.host} has them: start it again, and let it go on"

    @property
    def known(self) -> frozenset[str]:
        """The objects that are stored."""
        return frozenset(oid for piece in self.pieces for oid in piece.objects)

    @property
    def size(self) -> int:
        all_pieces = (*self.pieces, *([] if self.commits is None else [self.commits]))
        return sum(piece.size for piece in all_pieces)

    @property
    def names(self) -> frozenset[str]:
        """The names of all pieces."""
        names = {piece.name for piece in self.pieces}
        return frozenset(names if self.commits is None else {*names, self.commits.name})


def make_key(session: SessionID) -> Key:
    """Return where the list of a session's files is stored. Its pieces are below."""
    return (WORKSPACE_KEY, session)


def check_size(workspace: str, size: int) -> None:
    """Raise `ConflictError` if a session's files take more than they may."""
    if size > MAX_PACK_BYTES:
        raise ConflictError(
            "workspace",
            workspace,
            f"keeps at most {MAX_PACK_BYTES >> 20} MB of uncommitted work for a session, and there are {size >> 20} MB, "
            "so no other node could go on with these files",
            hint="remove what is not needed, or let git ignore it: add it to .gitignore",
        )


def group_objects(objects: Iterable[PackedObject]) -> Iterator[list[PackedObject]]:
    """Yield objects in groups, each for one piece."""
    group: list[PackedObject] = []
    size = 0
    for each in objects:
        if group and size + len(each.content) > PIECE_BYTES:
            yield group
            group, size = [], 0
        group.append(each)
        size += len(each.content)
    if group:
        yield group


def encode_objects(objects: Iterable[PackedObject]) -> bytes:
    return zlib.compress(
        b"".join(
            b"%s %s %d\n%s" % (each.kind.encode(), each.oid.encode(), len(each.content), each.content)
            for each in objects
        ),
        COMPRESSION,
    )


def decode_objects(raw: bytes, where: str) -> Iterator[PackedObject]:
    """Yield the objects of a piece. Raise `BundleError` if it is damaged. Whether they are what their names say is not checked."""
    unpacker = zlib.decompressobj()
    try:
        content = unpacker.decompress(raw, 2 * MAX_PACK_BYTES)
        if not unpacker.eof:
            raise BundleError(where, "it is truncated, or unpacks to more than any session needs")
        position = 0
        while position < len(content):
            end = content.index(b"\n", position)
            kind, oid, length = content[position:end].split(b" ")
            position = end + 1 + int(length)
            if not end < position <= len(content):
                raise BundleError(where, "it is truncated")
            yield PackedObject(KINDS[kind], oid.decode(), content[end + 1 : position])
    except (zlib.error, ValueError, KeyError) as error:
        raise BundleError(where, f"it is damaged: {error}") from error


def describe_piece(name: str, raw: bytes, objects: Iterable[PackedObject] = ()) -> StoredPiece:
    return StoredPiece(
        name=name, size=len(raw), sha256=sha256(raw).hexdigest(), objects=tuple(each.oid for each in objects)
    )


def check_piece(piece: StoredPiece, raw: bytes | None, where: str, *, hint: str) -> bytes:
    """Return the content of a piece. Raise `BundleError` if it is missing or is not what was stored."""
    if raw is None:
        raise BundleError(where, "a part of them is missing in the store", hint=hint)
    if len(raw) != piece.size or sha256(raw).hexdigest() != piece.sha256:
        raise BundleError(where, "a part of them is damaged in the store", hint=hint)
    return raw
