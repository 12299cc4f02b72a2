"""Shut a server down: take no more work, and give running work a grace period."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from weft.model.session import Busy
from weft.server.directories import Opened
from weft.server.feed import Signal
from weft.server.response import Refusal
from weft.server.route import Route

BETWEEN_LOOKS: Final = 1.0
ENDING: Final = Refusal(
    status=503, name="EndingError", message="the server is ending and takes no more work: ask the next one"
)
# What is under way may need these to come to its end.
STILL_TAKEN: Final = frozenset(
    {
        "permission.reply",
        "permission.respond",
        "question.reply",
        "question.reject",
        "session.abort",
        "weft.permission.reply",
        "weft.session.abort",
        "app.log",
    }
)


class Ending:
    """Whether the server is ending, and how long it waits for what it has under way."""

    def __init__(self) -> None:
        self.begun = False

    def refuses(self, route: Route) -> bool:
        return self.begun and route.method != "GET" and route.name not in STILL_TAKEN

    async def wait(self, seconds: float, *, news: Signal, opened: Callable[[], Mapping[str, Opened]]) -> None:
        """Until no run is at work any more, and no longer than so many seconds. When there is `news` it looks again."""
        self.begun = True
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while (left := until - loop.time()) > 0 and await _is_at_work(opened()):
            await news.wait(min(left, BETWEEN_LOOKS))


async def _is_at_work(opened: Mapping[str, Opened]) -> bool:
    """Whether anything comes of waiting: a run that waits for a person, or for a model to recover, would go on waiting."""
    for each in opened.values():
        for status in (await each.api.list_status()).values():
            if isinstance(status, Busy) and not status.waiting_for:
                return True
    return False
