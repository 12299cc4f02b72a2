"""`weft attach`: talk with a server line by line."""

import argparse
import asyncio
import sys

from weft.cli.attached.desk import Desk
from weft.cli.attached.run import directory_there, notice
from weft.cli.exit import Exit
from weft.cli.run import check_fork, find_session, model_of
from weft.client.api import open_remote
from weft.client.http import Terms


def attach(chosen: argparse.Namespace) -> int:
    check_fork(chosen)
    chosen.attach, chosen.title = chosen.url, None
    asyncio.run(_talk(chosen))
    return Exit.DONE


async def _talk(chosen: argparse.Namespace) -> None:
    """A server that goes away is waited for: it may be starting anew."""
    terms = Terms(directory=directory_there(chosen), patience=None, notice=notice)
    model = model_of(chosen.model)
    async with open_remote(chosen.attach, terms) as api:
        known = await find_session(api, chosen, "") if chosen.session or chosen.go_on else None
        desk = Desk(api, model=model, agent=chosen.agent)
        who = "weft" if api.is_weft else "OpenCode"
        print(f"{who} at {api.url}; Ctrl-C interrupts, Ctrl-D leaves, /help says more", file=sys.stderr)
        await desk.work(known)
