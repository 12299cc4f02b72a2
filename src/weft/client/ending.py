"""The end of a run that somebody no longer wants."""

import asyncio
from typing import Any, Final

from weft.api import Api
from weft.model.ids import SessionID

TRIES: Final = 20
BETWEEN: Final = 0.1


async def end_run(api: Api, session: SessionID, prompting: asyncio.Future[Any]) -> None:
    """End the run that a prompt began; it is settled when this returns. A prompt that has yet to arrive is waited for a
    while: else it would begin behind our back."""
    for _ in range(TRIES):
        if prompting.done() or await api.abort(session):
            return
        await asyncio.wait((prompting,), timeout=BETWEEN)
