"""A login that is under way: sent out by an address, and come back with a code."""

import asyncio
import secrets
from typing import Final
from urllib.parse import parse_qs, urlsplit

from weft.errors import McpError
from weft.tool.mcp.naming import legible

LONGEST_REASON: Final = 300


class PendingLogin:
    """A `Login` that a person answers: by the page they come back to, or with a code they hand over.

    Once somebody has `listened` for the browser it is known what `trouble` they had with that, if any.
    """

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.shown: asyncio.Future[str] = loop.create_future()
        self.listened = asyncio.Event()
        self.trouble = ""
        self._brought: asyncio.Future[tuple[str, str | None, str | None]] = loop.create_future()

    async def show(self, url: str) -> None:
        if not self.shown.done():
            self.shown.set_result(url)

    async def bring(self) -> tuple[str, str | None, str | None]:
        return await self._brought

    @property
    def state(self) -> str:
        """The word it was sent out with: whoever does not know it has nothing to bring."""
        if not self.shown.done() or self.shown.cancelled():
            return ""
        return next(iter(parse_qs(urlsplit(self.shown.result()).query).get("state", [])), "")

    def is_for(self, state: str) -> bool:
        return bool(self.state) and secrets.compare_digest(state.encode(), self.state.encode())

    def take(self, code: str, issuer: str | None = None) -> None:
        if not self._brought.done():
            self._brought.set_result((code, self.state, issuer))

    def refuse(self, reason: str) -> None:
        if not self._brought.done():
            self._brought.set_exception(McpError(f"the login was refused: {legible(reason, LONGEST_REASON)}"))
