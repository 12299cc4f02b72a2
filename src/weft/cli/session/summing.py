"""`weft session compact` and `uncompact`: sum a conversation up now, or show the model all of it again."""

import argparse
import asyncio
import os
import sys

from weft.cli.ending import code_of, words_of
from weft.cli.exit import Exit
from weft.cli.paint import Paint, plain, write_json
from weft.cli.run import model_of
from weft.cli.screen import describe
from weft.cli.session.read import read
from weft.local.open import Opening, open_app
from weft.model.message import AssistantMessage, MessageWithParts
from weft.model.session import Session


def compact(chosen: argparse.Namespace) -> int:
    session = read(chosen.dir, chosen.store).get_session(chosen.session)
    summary = asyncio.run(_compact(chosen, session))
    failure = summary.info.error if isinstance(summary.info, AssistantMessage) else None
    if chosen.format == "json":
        write_json(summary)
    elif failure is None:
        print(f"{Paint(sys.stdout).bold(session.id)} was summed up:\n\n{plain(words_of(summary))}")
    if failure is None:
        return Exit.DONE
    print(
        f"{Paint(sys.stderr).red('error:')} it was not summed up: {plain(describe(failure))}", file=sys.stderr
    )
    return code_of(failure)


async def _compact(chosen: argparse.Namespace, session: Session) -> MessageWithParts:
    async with open_app(_opening(chosen, session)) as api:
        return await api.compact(session.id, model=model_of(chosen.model))


def uncompact(chosen: argparse.Namespace) -> int:
    session = read(chosen.dir, chosen.store).get_session(chosen.session)
    undone = asyncio.run(_uncompact(chosen, session))
    if chosen.format == "json":
        write_json({"session": session.id, "undone": undone})
    else:
        said = (
            "is shown to the model whole again" if undone else "was not summed up: the model sees all of it"
        )
        print(f"{Paint(sys.stdout).bold(session.id)} {said}")
    return 0


async def _uncompact(chosen: argparse.Namespace, session: Session) -> bool:
    async with open_app(_opening(chosen, session)) as api:
        return await api.uncompact(session.id)


def _opening(chosen: argparse.Namespace, session: Session) -> Opening:
    home = read(chosen.dir, chosen.store).find_home(session)
    return Opening(directory=home, env=os.environ, store=chosen.store)
