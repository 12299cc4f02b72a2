"""Shared sessions, and the terms of sharing."""

from typing import Any, Literal

from weft.model.ids import SessionID
from weft.model.transfer import SessionExport
from weft.model.wire import Wire, always

ShareTarget = Literal["server", "remote", "received"]


class ShareTerms(Wire, frozen=True, kw_only=True):
    """How a session is shared.

    `to` is `server` for the pages of this server, the address of a share server, or empty for the configured one.
    `expires` is the time when the share ends (ms). Without `attachments`, attached files are left out.
    """

    to: str = ""
    expires: int | None = None
    redact: bool = True
    attachments: bool = True


DEFAULT_SHARE_TERMS = ShareTerms()


class Share(Wire, frozen=True, kw_only=True):
    """A share. Target `server` is shown by this server, `remote` by another; `received` is a session of another server.

    `known` is False for a share that OpenCode made, of which only the address is known.
    """

    id: str
    session_id: SessionID
    url: str
    target: ShareTarget
    created: int = always(0)
    expires: int | None = None
    redact: bool = always(True)
    attachments: bool = always(True)
    known: bool = always(True)


class ShareRedaction(Wire, frozen=True, kw_only=True):
    """A redacted secret: its kind, its first place, its placeholder, a glimpse of it, and how often it occurs."""

    kind: str
    where: str
    placeholder: str
    glimpse: str
    times: int


class SharePreview(Wire, frozen=True, kw_only=True):
    """What a share would contain.

    `pictures` counts attached files that are not text, such as images: they cannot be searched for secrets. `left_out` counts parts
    that are not shared. `covered` are the redacted secrets, and `kinds` how many there are of each kind.
    """

    to: str
    messages: int
    parts: int
    pictures: int
    left_out: int
    kinds: dict[str, int]
    covered: tuple[ShareRedaction, ...]


class SharedSession(Wire, frozen=True, kw_only=True):
    """A shared session as others see it. `busy` means that its last answer has not ended."""

    id: str
    export: SessionExport
    busy: bool = always(False)
    expires: int | None = None


class ShareItem(Wire, frozen=True, kw_only=True):
    """A piece of a session that is sent to a share server: `session`, `message`, `part`, `session_diff` or `model`."""

    type: str
    data: Any


class ShareTicket(Wire, frozen=True, kw_only=True):
    """The answer of a share server: the address of the share, and the secret for changing it."""

    id: str
    url: str
    secret: str
