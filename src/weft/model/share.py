"""Share values: sessions shown to others, and on what terms."""

from typing import Any, Literal

from weft.model.ids import SessionID
from weft.model.parcel import Parcel
from weft.model.wire import Wire, always

Target = Literal["server", "remote", "received"]


class ShareTerms(Wire, frozen=True, kw_only=True):
    """How a session is to be shown.

    `to` is `server` for pages of our own, or the address of a share server; empty for whichever of these there is.
    `expires` is when it is over by itself (ms). Without `attachments` no file that was attached goes along.
    """

    to: str = ""
    expires: int | None = None
    redact: bool = True
    attachments: bool = True


USUAL_SHARE = ShareTerms()


class Share(Wire, frozen=True, kw_only=True):
    """One share. `server` shows it in our own pages, `remote` elsewhere; `received` is another's, shown in ours.

    `known` is false for one that OpenCode made: all that is kept of it is where it is.
    """

    id: str
    session_id: SessionID
    url: str
    target: Target
    created: int = always(0)
    expires: int | None = None
    redact: bool = always(True)
    attachments: bool = always(True)
    known: bool = always(True)


class Covered(Wire, frozen=True, kw_only=True):
    """A secret that is not shown: its kind, where it stands first, what stands for it, a glimpse, how often."""

    kind: str
    where: str
    placeholder: str
    glimpse: str
    times: int


class SharePreview(Wire, frozen=True, kw_only=True):
    """What would be shown, before anything is. `pictures` are what nobody can look into for secrets."""

    to: str
    messages: int
    parts: int
    pictures: int
    left_out: int
    kinds: dict[str, int]
    covered: tuple[Covered, ...]


class Shown(Wire, frozen=True, kw_only=True):
    """A shared session as others see it; `busy` while its last answer is not over."""

    id: str
    parcel: Parcel
    busy: bool = always(False)
    expires: int | None = None


class ShareItem(Wire, frozen=True, kw_only=True):
    """A piece of a session on its way: `session`, `message`, `part`, `session_diff` or `model`."""

    type: str
    data: Any


class ShareTicket(Wire, frozen=True, kw_only=True):
    """What a share server gives out: where the share is to be seen, and the secret it takes to change it."""

    id: str
    url: str
    secret: str
