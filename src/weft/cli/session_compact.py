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
from weft.cli.session import make_reader
from weft.local.open import OpenOptions, open_directory
from weft.model.display import describe_failure
from weft.model.message import AssistantMessage, MessageWithParts
from weft.model.session import SessionInfo


def add_compact_arguments(parser: argparse.ArgumentParser) -> None:
    add_session(parser)
    parser.add_argument("-m", "--model", metavar="PROVIDER/MODEL", help="the model that writes the summary")
    add_format(parser)
    add_place(parser)


def compact_session(args: argparse.Namespace) -> int:
    session = make_reader(args).get_session(args.session)
    summary = asyncio.run(_compact(args, session))
    failure = summary.info.error if isinstance(summary.info, AssistantMessage) else None
    if args.format == "json":
        write_json(summary)
    elif failure is None:
        print(f"{Paint(sys.stdout).bold(session.id)} was summarised:\n\n{sanitize(get_text(summary))}")
    if failure is None:
        return ExitCode.DONE
    print(
        f"{Paint(sys.stderr).red('error:')} it was not summarised: {sanitize(describe_failure(failure))}",
        file=sys.stderr,
    )
    return to_failure_code(failure)


async def _compact(args: argparse.Namespace, session: SessionInfo) -> MessageWithParts:
    async with open_directory(_make_open_options(args, session)) as api:
        return await api.compact(session.id, model=parse_model(args.model))


def add_uncompact_arguments(parser: argparse.ArgumentParser) -> None:
    add_session(parser)
    add_format(parser)
    add_place(parser)


def uncompact_session(args: argparse.Namespace) -> int:
    session = make_reader(args).get_session(args.session)
    undone = asyncio.run(_uncompact(args, session))
    if args.format == "json":
        write_json({"session": session.id, "undone": undone})
    else:
        outcome = (
            "is shown to the model in full again"
            if undone
            else "has no summary: the model sees the full history"
        )
        print(f"{Paint(sys.stdout).bold(session.id)} {outcome}")
    return ExitCode.DONE


async def _uncompact(args: argparse.Namespace, session: SessionInfo) -> bool:
    async with open_directory(_make_open_options(args, session)) as api:
        return await api.uncompact(session.id)


def _make_open_options(args: argparse.Namespace, session: SessionInfo) -> OpenOptions:
    """Return the options that open the directory of the session, which need not be the current one."""
    directory = make_reader(args).choose_directory(session)
    return OpenOptions(directory=directory, env=os.environ, store=args.store)
