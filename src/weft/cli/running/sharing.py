"""`weft run --share`: the session is shown while it runs, and its address is told before it begins."""

import argparse
import sys
from collections.abc import Mapping

from weft.api import Api
from weft.cli.serving.announced import find_announced
from weft.errors import WeftError
from weft.model.session import Session


async def find_pages(chosen: argparse.Namespace, env: Mapping[str, str]) -> str:
    """Where a running server shows pages, for who wants to share."""
    server = await find_announced(env, chosen.store) if chosen.share else None
    return server.pages if server else ""


async def share_first(api: Api, chosen: argparse.Namespace, session: Session) -> None:
    """Before anything is said. A session that was made for this run and cannot be shared does not stay behind."""
    if not chosen.share:
        return
    try:
        tell(await api.sharing.share(session.id))
    except WeftError:
        if not (chosen.session or chosen.go_on):
            await api.remove_session(session.id, trash=False)
        raise


async def tell_shared(api: Api, chosen: argparse.Namespace, session: Session) -> None:
    """At the end: what is shown elsewhere is all there, and one that is shared by itself says where."""
    await api.sharing.catch_up()
    if not chosen.share and session.share is None:
        tell(await api.get_session(session.id))


def tell(session: Session) -> None:
    if session.share is not None:
        print(f"~  {session.share.url}", file=sys.stderr)
