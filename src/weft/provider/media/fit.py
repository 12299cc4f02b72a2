"""Files within what an API takes: pictures made smaller; what is still too much replaced by a word."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from weft.provider.contract import FileContent, ModelMessage, ResultContent, TextContent, ToolTurn, UserTurn
from weft.provider.media.data import modality, to_data
from weft.provider.media.shrink import EXTRA, Room, can_shrink, shrink
from weft.provider.media.sides import sides

MB: Final = 1024 * 1024


class MediaLimits(Struct, frozen=True, kw_only=True):
    """How much an API takes: bytes of one file and of all (as base64), how many, how many pixels on a side.

    With more than `many` pictures in a request each may have no more than `pixels_when_many`.
    """

    each: int = 20 * MB
    total: int = 28 * MB
    count: int = 100
    documents: int | None = None
    pixels: int | None = None
    many: int = 20
    pixels_when_many: int | None = None

    @property
    def room(self) -> Room:
        """What a picture is made to fit. It is the same however many there are: a picture that was sent stays as it was
        sent."""
        known = [pixels for pixels in (self.pixels, self.pixels_when_many) if pixels is not None]
        return Room(min(known, default=None), self.each)


def within(messages: Sequence[ModelMessage], limits: MediaLimits) -> list[ModelMessage]:
    """The newest files stay; what is too big, or too much with those after it, is replaced by its name and why."""
    files = [file for turn in messages for file in files_of(turn)]
    if not files:
        return list(messages)
    fitted = _fitted(files, limits)
    if all(new is old for new, old in zip(fitted, files, strict=True)):
        return list(messages)
    made = iter(fitted)
    return [_with(turn, made) for turn in messages]


def files_of(turn: ModelMessage) -> list[FileContent]:
    if isinstance(turn, UserTurn):
        return [item for item in turn.content if isinstance(item, FileContent)]
    if isinstance(turn, ToolTurn):
        return [file for result in turn.content for file in result.files]
    return []


def _fitted(files: Sequence[FileContent], limits: MediaLimits) -> list[FileContent | TextContent]:
    made = [_smaller(file, limits.room) for file in files]
    pixels = limits.pixels_when_many if len(files) > limits.many else limits.pixels
    fitted: list[FileContent | TextContent] = []
    count, total, documents = 0, 0, 0
    for file in reversed(made):
        size, is_document = len(file.url), modality(file.mime) == "pdf"
        why = _too_large(file, pixels, limits.each)
        full = count == limits.count or total + size > limits.total
        if not why and (full or (is_document and documents == limits.documents)):
            why = "with the files after it, it is more than the model takes"
        if why:
            fitted.append(TextContent(text=f"[{file.filename or file.mime} is not shown: {why}]"))
            continue
        count, total, documents = count + 1, total + size, documents + is_document
        fitted.append(file)
    return fitted[::-1]


def _smaller(file: FileContent, room: Room) -> FileContent:
    data = to_data(file.url) if modality(file.mime) == "image" or file.url.startswith("data:image/") else None
    if data is None or modality(data.mime) != "image":
        return file
    if len(file.url) <= room.size and (room.pixels is None or max(sides(data)) <= room.pixels):
        return file
    made = shrink(data, room)
    return file if made is None else replace(file, url=made.url, mime=made.mime)


def _too_large(file: FileContent, pixels: int | None, size: int) -> str:
    """Why a file cannot be shown by itself; empty if it can."""
    data = to_data(file.url) if pixels is not None else None
    width, height = sides(data) if data is not None else (0, 0)
    if pixels is not None and max(width, height) > pixels:
        return f"it has {width} × {height} pixels, the model takes {pixels} on a side{_way_out()}"
    if len(file.url) > size:
        is_picture = modality(file.mime) == "image"
        return f"it is larger than the model takes{_way_out() if is_picture else ''}"
    return ""


def _way_out() -> str:
    return "" if can_shrink() else f"; with {EXTRA} installed it would be made smaller"


# --- putting them back ---


def _with(turn: ModelMessage, made: Iterator[FileContent | TextContent]) -> ModelMessage:
    if isinstance(turn, UserTurn):
        content = tuple(next(made) if isinstance(item, FileContent) else item for item in turn.content)
        return UserTurn(content=content)
    if isinstance(turn, ToolTurn):
        return ToolTurn(
            content=tuple(with_files(result, [next(made) for _ in result.files]) for result in turn.content)
        )
    return turn


def with_files(result: ResultContent, files: Iterable[FileContent | TextContent]) -> ResultContent:
    """The result with these for its files; what became a word follows its text."""
    told = list(files)
    notes = [item.text for item in told if isinstance(item, TextContent)]
    output = "\n\n".join([result.output, *notes]) if notes else result.output
    return replace(result, output=output, files=tuple(item for item in told if isinstance(item, FileContent)))
