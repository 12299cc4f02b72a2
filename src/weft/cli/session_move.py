"""`weft session move`: move a session to a server on another machine, with its history, files and undo."""

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec.structs import replace

from weft.cli.arguments import add_format, add_place, add_session
from weft.cli.exit import ExitCode
from weft.cli.output import Paint, ProgressLine, sanitize, write_json
from weft.cli.session import make_reader
from weft.client.address import resolve_address
from weft.client.api import RemoteApi, open_remote
from weft.client.http import ConnectionOptions
from weft.errors import ConflictError, InvalidInputError, NotFoundError, ServerError, WeftError
from weft.local.move_departure import Departure, make_move_id, open_departure
from weft.local.offline import open_offline_sessions
from weft.model.display import format_count
from weft.model.ids import SessionID
from weft.model.move import PIECE_BYTES, MoveOffer, MovePiece, MoveResult, SessionDeparture
from weft.model.session import get_weft_data

PATIENCE_SECONDS = 10.0


def add_move_arguments(parser: argparse.ArgumentParser) -> None:
    add_session(parser)
    add = parser.add_argument
    add("--to", metavar="URL", help="the server that continues the session: a weft serve on another machine")
    add(
        "--into",
        metavar="PATH",
        help="the checkout on that machine (default: the one that the server works in, or knows for this project)",
    )
    add("--dry-run", action="store_true", help="only check whether the server would take the session")
    add("--cancel", action="store_true", help="take a session back whose move was interrupted")
    add_format(parser)
    add_place(parser)


def move_session(args: argparse.Namespace) -> int:
    if args.cancel == bool(args.to):
        raise InvalidInputError(
            "--to", "name the server that takes the session", hint="pass --to URL, or --cancel without it"
        )
    result = asyncio.run(_move(args))
    if args.format == "json":
        write_json(result)
    return ExitCode.DONE


async def _move(args: argparse.Namespace) -> MoveResult | None:
    session = make_reader(args).get_session(args.session)
    async with (
        open_offline_sessions(args.dir, os.environ, store=args.store) as offline,
        open_departure(offline, session) as departure,
    ):
        if args.cancel:
            await _cancel(departure)
            _print(args, session.id, "stays here")
            return None
        departed, url = departure.departed, resolve_address(args.to, os.environ).url
        if departed is not None and departed.url != url:
            state = "was moved" if departed.done else "is being moved"
            raise ConflictError(
                "session", session.id, f"{state} to {departed.url}", hint="name that server with --to"
            )
        if departed is not None and departed.done:
            _print(
                args,
                session.id,
                f"was moved to {url} before; continue it there: {_format_attach(url, session.id)}",
            )
            return MoveResult(session=session.id, sessions=(session.id,), directory=departed.directory)
        move = make_move_id() if departed is None else departed.move
        async with _connect(args, departure) as api:
            with tempfile.TemporaryDirectory(prefix="weft-move-") as directory:
                return await _send_session(args, departure, api, move, os.path.join(directory, "bundle.zip"))


async def _send_session(
    args: argparse.Namespace, departure: Departure, api: RemoteApi, move: str, path: str
) -> MoveResult | None:
    """Send the session, let the server accept it, and mark it as moved. If a step before that fails, the session stays here."""
    offer = await departure.pack(path, move)
    progress = await api.moves.offer(offer)
    if args.dry_run:
        if progress.state == "receiving" and departure.departed is None:
            await api.moves.cancel(move, offer.session)
        count = format_count(len(offer.sessions), "session")
        _print(
            args,
            offer.session,
            f"could be moved to {api.url}, {progress.directory}: {count}, {offer.size:,} bytes",
        )
        return None
    departed = SessionDeparture(move=move, url=api.url, directory=progress.directory, time=departure.now())
    if progress.state == "receiving":
        await _send(api, offer, path, progress.received)
        # From here on nobody may continue the session here until it is known whether the server has it.
        await departure.mark(departed)
        result = await _accept(departure, api, offer)
    else:
        result = MoveResult(session=offer.session, sessions=offer.sessions, directory=progress.directory)
    await departure.mark(replace(departed, directory=result.directory, done=True))
    _print_moved(args, result, api.url)
    return result


async def _send(api: RemoteApi, offer: MoveOffer, path: str, received: int) -> None:
    with await asyncio.to_thread(open, path, "rb") as file, ProgressLine("sending") as progress:
        while received < offer.size:
            file.seek(received)
            piece = MovePiece(offset=received, data=file.read(PIECE_BYTES))
            received = (await api.moves.add_piece(offer.move, piece)).received
            progress(received, offer.size)


async def _accept(departure: Departure, api: RemoteApi, offer: MoveOffer) -> MoveResult:
    try:
        return await api.moves.accept(offer.move)
    except ServerError as error:
        command = f"weft session move {offer.session}"
        error.hint = (
            f"the server may have the session, so nobody can continue it here; "
            f"finish the move: {command} --to {api.url}; or take it back: {command} --cancel"
        )
        raise
    except WeftError:
        # The server refused. When it has forgotten the bundle as well, nothing can make it change its mind.
        await api.moves.cancel(offer.move, offer.session)
        await departure.mark(None)
        raise


async def _cancel(departure: Departure) -> None:
    """Cancel a move: let the server delete what it received, and then remove the marks of the move here."""
    marked = [departed for each in departure.family if (departed := get_weft_data(each).departed)]
    departed = departure.departed
    if departed is not None and departed.done:
        raise ConflictError(
            "session",
            departure.session.id,
            f"was moved to {departed.url}",
            hint=f"move it back from there, or continue it there: {_format_attach(departed.url, departure.session.id)}",
        )
    if not marked:
        raise InvalidInputError("--cancel", f"{departure.session.id} is not being moved")
    if departed is not None:
        options = ConnectionOptions(directory=departed.directory, patience=PATIENCE_SECONDS)
        async with open_remote(departed.url, options) as api:
            await api.moves.cancel(departed.move, departure.session.id)
    await departure.mark(None)


@asynccontextmanager
async def _connect(args: argparse.Namespace, departure: Departure) -> AsyncIterator[RemoteApi]:
    """Connect to the server, in the checkout of the session's project."""
    directory = args.into
    if directory is None:
        async with open_remote(args.to, ConnectionOptions(patience=PATIENCE_SECONDS)) as api:
            directory = await _find_checkout(api, departure)
    options = ConnectionOptions(directory=directory, patience=PATIENCE_SECONDS)
    async with open_remote(args.to, options) as api:
        yield api


async def _find_checkout(api: RemoteApi, departure: Departure) -> str | None:
    """Return the directory of the session's project on the server, None for the one that the server works in."""
    project = departure.place.project
    if (await api.current_project()).id == project.id:
        return None
    for each in await api.workspace.list_projects():
        if each.id == project.id:
            return each.worktree
    raise NotFoundError(
        "project",
        project.id[:12],
        hint=f"{api.url} does not know the repository of {departure.session.directory}; --into PATH names its checkout there",
    )


def _format_attach(url: str, session: SessionID) -> str:
    return f"weft attach {url} -s {session}"


def _print(args: argparse.Namespace, session: SessionID, what: str) -> None:
    if args.format != "json":
        print(f"{Paint(sys.stdout).bold(session)} {sanitize(what)}")


def _print_moved(args: argparse.Namespace, result: MoveResult, url: str) -> None:
    sessions = format_count(len(result.sessions), "session")
    files = format_count(result.files, "file")
    _print(args, result.session, f"was moved to {url}, {result.directory}: {sessions}, {files} changed there")
    if args.format != "json":
        print(f"continue it there: {_format_attach(url, result.session)}")
        print(Paint(sys.stdout).dim("the files in this checkout stay as they are"))
