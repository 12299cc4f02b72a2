"""Moving a session to another server: what is offered, how far it came, and the marks that it leaves on both sides."""

from typing import Final, Literal

from weft.model.ids import SessionID
from weft.model.wire import Wire, always

MOVE_FORMAT: Final = 1
PIECE_BYTES: Final = 8 << 20


class SessionDeparture(Wire, frozen=True, kw_only=True):
    """Where a session was moved to. Until it is `done`, the other side may or may not have it."""

    move: str
    url: str
    directory: str = ""
    time: int
    done: bool = False


class SessionArrival(Wire, frozen=True, kw_only=True):
    """Where a session came from: the machine, and the top of its checkout there."""

    move: str
    host: str
    directory: str
    time: int


class SessionResumption(Wire, frozen=True, kw_only=True):
    """The last time that a session of a git workspace continued on another node: from which machine, and whether a step was `interrupted` there.

    `id` distinguishes this time from others.
    """

    id: str
    host: str
    time: int
    interrupted: bool = False


class MoveOffer(Wire, frozen=True, kw_only=True):
    """A session that another machine wants to hand over.

    `move` names the move, however often it is tried. `session` is the topmost one of `sessions`. `commit` is checked out in `directory`,
    the top of a checkout on `host`. `size` and `sha256` are those of the bundle that follows.
    """

    move: str
    format: int
    session: SessionID
    sessions: tuple[SessionID, ...]
    host: str
    directory: str
    commit: str
    size: int
    sha256: str


class MoveProgress(Wire, frozen=True, kw_only=True):
    """How far a move came: the bytes of the bundle that were received, or that the session has `arrived`."""

    state: Literal["receiving", "arrived"]
    received: int = always(0)
    directory: str = always("")


class MovePiece(Wire, frozen=True, kw_only=True):
    """A piece of the bundle, from an offset on. `data` is in base64."""

    offset: int
    data: bytes


class MoveResult(Wire, frozen=True, kw_only=True):
    """A session that has arrived: where it works now, and the number of files that were changed there."""

    session: SessionID
    sessions: tuple[SessionID, ...]
    directory: str
    files: int = always(0)
