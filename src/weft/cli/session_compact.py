"""`weft session compact|uncompact`: summarise a conversation now, or undo the last summary."""

import argparse
import asyncio
import os
import sys

from weft.cli.arguments import add_format, add_place, add_session
from weft.cli.exit import ExitCode
from weft.cli.outcome import get_text, to_failure_code
from weft.cli.output import Paint, sanitize, write_json
from weft.cli.prompt import parse_model
from weft.cli.screen import describe_failure
from weft.cli.session import open_reading
from weft.local.open import OpenOptions, open_directory
from weft.model.message import AssistantMessage, MessageWithParts
from weft.model.session import Session


def add_compact_arguments(parser: argparse.ArgumentParser) -> None:
    add_session(parser)
    parser.add_argument("-m", "--model", metavar="PROVIDER/MODEL", help="the model that writes the summary")
    add_format(parser)
    add_place(parser)


def compact_session(chosen: argparse.Namespace) -> int:
    session = open_reading(chosen).get_session(chosen.session)
    summary = asyncio.run(_compact(chosen, session))
    failure = summary.info.error if isinstance(summary.info, AssistantMessage) else None
    if chosen.format == "json":
        write_json(summary)
    elif failure is None:
        print(f"{Paint(sys.stdout).bold(session.id)} was summed up:\n\n{sanitize(get_text(summary))}")
    if failure is None:
        return ExitCode.DONE
    print(
        f"{Paint(sys.stderr).red('error:')} it was not summed up: {sanitize(describe_failure(failure))}",
        file=sys.stderr,
    )
    return to_failure_code(failure)


async def _compact(chosen: argparse.Namespace, session: Session) -> MessageWithParts:
    async with open_directory(_to_opening(chosen, session)) as api:
        return await api.compact(session.id, model=parse_model(chosen.model))


def add_uncompact_arguments(parser: argparse.ArgumentParser) -> None:
    add_session(parser)
    add_format(parser)
    add_place(parser)


def uncompact_session(chosen: argparse.Namespace) -> int:
    session = open_reading(chosen).get_session(chosen.session)
    undone = asyncio.run(_uncompact(chosen, session))
    if chosen.format == "json":
        write_json({"session": session.id, "undone": undone})
    else:
        said = (
            "is shown to the model whole again" if undone else "was not summed up: the model sees all of it"
        )
        print(f"{Paint(sys.stdout).bold(session.id)} {said}")
    return ExitCode.DONE


async def _uncompact(chosen: argparse.Namespace, session: Session) -> bool:
    async with open_directory(_to_opening(chosen, session)) as api:
        return await api.uncompact(session.id)


def _to_opening(chosen: argparse.Namespace, session: Session) -> OpenOptions:
    """Open the directory that the session works in, which need not be the current one."""
    home = open_reading(chosen).find_home(session)
    return OpenOptions(directory=home, env=os.environ, store=chosen.store)
