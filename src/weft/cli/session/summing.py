"""`weft session compact` and `uncompact`: sum a conversation up now, or show the model all of it again."""

import argparse
import asyncio
import os
import sys

from weft.app.open import Opening, open_app
from weft.cli.paint import Paint, plain
from weft.cli.run import model_of
from weft.cli.session.read import read
from weft.model.message import MessageWithParts
from weft.model.part import TextPart
from weft.model.session import Session
from weft.model.wire import encode_pretty


def compact(chosen: argparse.Namespace) -> int:
    session = read(chosen.dir, chosen.store).get_session(chosen.session)
    summary = asyncio.run(_compact(chosen, session))
    words = "\n".join(part.text for part in summary.parts if isinstance(part, TextPart) and not part.ignored)
    if chosen.format == "json":
        sys.stdout.write(encode_pretty(summary).decode() + "\n")
    else:
        print(f"{Paint(sys.stdout).bold(session.id)} was summed up:\n\n{plain(words)}")
    return 0


async def _compact(chosen: argparse.Namespace, session: Session) -> MessageWithParts:
    async with open_app(_opening(chosen)) as api:
        return await api.compact(session.id, model=model_of(chosen.model))


def uncompact(chosen: argparse.Namespace) -> int:
    session = read(chosen.dir, chosen.store).get_session(chosen.session)
    undone = asyncio.run(_uncompact(chosen, session))
    if chosen.format == "json":
        sys.stdout.write(encode_pretty({"session": session.id, "undone": undone}).decode() + "\n")
    else:
        said = (
            "is shown to the model whole again" if undone else "was not summed up: the model sees all of it"
        )
        print(f"{Paint(sys.stdout).bold(session.id)} {said}")
    return 0


async def _uncompact(chosen: argparse.Namespace, session: Session) -> bool:
    async with open_app(_opening(chosen)) as api:
        return await api.uncompact(session.id)


def _opening(chosen: argparse.Namespace) -> Opening:
    return Opening(directory=chosen.dir, env=os.environ, store=chosen.store)
