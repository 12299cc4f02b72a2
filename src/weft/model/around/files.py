"""Files as a front end sees them: a directory, a content, what changed, what was found."""

from typing import Literal

from msgspec import field

from weft.model.wire import Wire, always

Kind = Literal["file", "directory"]


class FileNode(Wire, frozen=True, kw_only=True):
    """An entry of a directory; `path` is from where we work, `ignored` says that version control passes it over."""

    name: str
    path: str
    absolute: str
    type: Kind
    ignored: bool


class Hunk(Wire, frozen=True, kw_only=True):
    old_start: int
    old_lines: int
    new_start: int
    new_lines: int
    lines: tuple[str, ...]


class FilePatch(Wire, frozen=True, kw_only=True):
    """The difference between a file as it was committed and as it is."""

    old_file_name: str
    new_file_name: str
    hunks: tuple[Hunk, ...]


class FileContent(Wire, frozen=True, kw_only=True):
    """What is in a file: text, or bytes in base64. `diff` and `patch` are there if it is not as committed."""

    type: Literal["text"]
    content: str
    diff: str | None = None
    patch: FilePatch | None = None
    encoding: Literal["base64"] | None = None
    mime_type: str | None = None


class FileChange(Wire, frozen=True, kw_only=True):
    """A file that is not as committed, and by how many lines."""

    path: str
    added: int
    removed: int
    status: Literal["added", "deleted", "modified"]


class Words(Wire, frozen=True, kw_only=True):
    text: str


class Submatch(Wire, frozen=True, kw_only=True):
    """Where in a line it is, in bytes."""

    match: Words
    start: int
    end: int


class TextMatch(Wire, frozen=True, kw_only=True):
    """A line in which a pattern was found, in the words of ripgrep."""

    path: Words
    lines: Words
    line_number: int = field(name="line_number")
    absolute_offset: int = field(name="absolute_offset")
    submatches: tuple[Submatch, ...] = always(())


class Position(Wire, frozen=True, kw_only=True):
    line: int
    character: int


class Stretch(Wire, frozen=True, kw_only=True):
    start: Position
    end: Position


class SymbolPlace(Wire, frozen=True, kw_only=True):
    uri: str
    range: Stretch


class Symbol(Wire, frozen=True, kw_only=True):
    """A thing that has a name in code, as language servers tell it."""

    name: str
    kind: int
    location: SymbolPlace
