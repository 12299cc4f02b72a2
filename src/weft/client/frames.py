"""Events on the wire: bytes, cut anywhere, to frames."""

from typing import Final

from msgspec import Struct

from weft.errors import DocumentError

MOST_BYTES: Final = 256 * 1024 * 1024


class Frame(Struct, frozen=True):
    """One event: where it stands, if the server says so, and what it says."""

    id: str | None
    data: bytes


class FrameReader:
    """Takes in bytes and gives the frames that became whole. One that is cut off is never given."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._length = 0
        self._id: str | None = None
        self._data: list[bytes] = []

    def feed(self, data: bytes) -> list[Frame]:
        *lines, rest = data.split(b"\n")
        frames: list[Frame] = []
        for line in lines:
            whole = b"".join([*self._pieces, line]).removesuffix(b"\r")
            self._pieces.clear()
            self._length = 0
            frame = self._take(whole)
            if frame is not None:
                frames.append(frame)
        self._pieces.append(rest)
        self._length += len(rest)
        if self._length > MOST_BYTES:
            raise DocumentError("event", "a line without an end")
        return frames

    def _take(self, line: bytes) -> Frame | None:
        if not line:
            frame = Frame(self._id, b"\n".join(self._data)) if self._data else None
            self._id, self._data = None, []
            return frame
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
        elif name == b"id":
            self._id = value.decode("latin-1")
        return None
