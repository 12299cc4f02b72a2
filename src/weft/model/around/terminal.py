"""Terminals: a program at a screen of its own, which a front end shows and types into."""

from typing import Annotated, Literal

from msgspec import Meta

from weft.model.ids import PtyID
from weft.model.wire import Wire

Side = Annotated[int, Meta(ge=1, le=1000)]


class PtySize(Wire, frozen=True, kw_only=True):
    rows: Side
    cols: Side


class Pty(Wire, frozen=True, kw_only=True):
    """A terminal and the program in it."""

    id: PtyID
    title: str
    command: str
    args: tuple[str, ...]
    cwd: str
    status: Literal["running", "exited"]
    pid: int
    exit_code: int | None = None


class PtyInput(Wire, frozen=True, kw_only=True):
    """A terminal to be opened; the person's shell if no program is named."""

    command: str | None = None
    args: tuple[str, ...] | None = None
    cwd: str | None = None
    title: str | None = None
    env: dict[str, str] | None = None


class PtyChange(Wire, frozen=True, kw_only=True):
    """What of a terminal is to be another."""

    title: str | None = None
    size: PtySize | None = None
