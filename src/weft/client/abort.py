"""End a run from the process that sent its prompt."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from weft.model.ids import SessionID

if TYPE_CHECKING:  # for types alone: starting up is faster without these
    from weft.api import Api

TRIES: Final = 20
RETRY_SECONDS: Final = 0.1


async def end_run(api: Api, session: SessionID, prompting: asyncio.Future[Any]) -> None:
    """End the run that a prompt began, and wait until it has settled.

    A prompt that has not arrived yet would begin its run afterwards, so try again until it arrives, for two seconds at most.
    """
    for _ in range(TRIES):
        if prompting.done() or await api.abort(session):
            return
        await asyncio.wait((prompting,), timeout=RETRY_SECONDS)
