"""Share sessions with others, and show shared sessions as pages."""

from typing import Protocol

from weft.model.ids import SessionID
from weft.model.session import SessionInfo
from weft.model.share import (
    DEFAULT_SHARE_TERMS,
    Share,
    SharedSession,
    ShareItem,
    SharePreview,
    ShareTerms,
    ShareTicket,
)


class SharePages(Protocol):
    """The pages of this server: shares of its own sessions, and shares that other servers send.

    * `get_share` returns a share as others see it. `get_revision` returns a string that changes when the share does.
    * `receive` accepts a session from elsewhere and returns a secret. `add_items` and `remove` require that secret.
    * A share that has expired or was revoked raises `NotFoundError`.
    """

    async def get_share(self, id: str) -> SharedSession: ...

    async def get_revision(self, id: str) -> str: ...

    async def receive(self, session: SessionID, *, expires: int | None = None) -> ShareTicket: ...

    async def add_items(self, id: str, secret: str, items: tuple[ShareItem, ...]) -> None: ...

    async def remove(self, id: str, secret: str) -> None: ...


class Sharing(Protocol):
    """Share sessions. Nothing leaves this machine unless a person asks for it.

    * `share` returns the session with its address. A shared session is not shared a second time. If no target is
      configured or named, sharing is refused with a hint. If sharing is switched off, `SharingDisabledError` is raised.
    * Secrets are redacted unless the terms say otherwise. `preview_share` lists them and sends nothing.
    * The secret that is needed to change a share is in no session, event or export.
    * `unshare` first removes the share where it is shown. If that fails, `SharingError` is raised and the share stays
      listed, unless `forget` is set. A session that is not shared raises `NotFoundError`.
    * `revoke_share` does the same by the id of the share, also for shares that were received.
    * `catch_up` returns when remote copies are up to date, or when their server takes too long.
    """

    async def share(self, session: SessionID, terms: ShareTerms = DEFAULT_SHARE_TERMS) -> SessionInfo: ...

    async def preview_share(
        self, session: SessionID, terms: ShareTerms = DEFAULT_SHARE_TERMS
    ) -> SharePreview: ...

    async def unshare(self, session: SessionID, *, forget: bool = False) -> SessionInfo: ...

    async def list_shares(self) -> list[Share]: ...

    async def revoke_share(self, id: str, *, forget: bool = False) -> None: ...

    async def catch_up(self) -> None: ...

    @property
    def pages(self) -> SharePages: ...
