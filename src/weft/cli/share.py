"""`weft share` and `weft unshare`: show a session to others, list shares, and revoke them."""

import argparse
import asyncio
import os
import sys
from contextlib import suppress

from msgspec.structs import replace

from weft.cli.arguments import WHICH_SESSION, add_format, add_place, parse_age
from weft.cli.exit import ExitCode
from weft.cli.output import Paint, confirm, format_time_left, sanitize, to_table, write_json
from weft.cli.serve_access import PageServer, find_page_server
from weft.cli.session import open_reading
from weft.errors import NotFoundError, SharingError, StoreError, WeftError
from weft.host.files import write_atomic
from weft.host.now import now as read_clock
from weft.local.offline import open_offline_sessions
from weft.local.open import OpenOptions, open_directory
from weft.model.display import format_count
from weft.model.session import Session
from weft.model.share import Share, SharedSession, SharePreview, ShareTerms
from weft.model.transfer import SessionExport
from weft.page import render_page
from weft.share.contract import LazyShareClient, get_record, list_shares
from weft.share.records import ShareRecord, ShareRecords
from weft.share.redaction import SessionRedactor, to_preview
from weft.share.revoke import ShareRevoker
from weft.share.view import is_busy, to_shared_view

PAGE_SECONDS = 5.0
OK = 200
LIST = "list"
PAGES = (".html", ".htm")


def add_share_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("session", metavar="ID|list", help=f"{WHICH_SESSION}; or the word `list` to list all shares")
    add(
        "--to",
        metavar="FILE.html|server|URL",
        default="",
        help="a page in a file, the running weft serve --share, or a share server",
    )
    add("--expires", type=parse_age, metavar="AGE", help="stop sharing after this time, such as 7d")
    add("--preview", action="store_true", help="only show what would be redacted; nothing is sent")
    add("--no-redact", action="store_true", help="do not redact keys, tokens and passwords")
    add("--no-attachments", action="store_true", help="leave out the content of attached files")
    add("-y", "--yes", action="store_true", help="do not ask for confirmation")
    add_format(parser, ("default", "json"))
    add_place(parser)


def share_session(chosen: argparse.Namespace) -> int:
    if chosen.session == LIST:
        return _list_command(chosen)
    export = _read_session(chosen)
    terms = ShareTerms(
        to=chosen.to,
        expires=None if chosen.expires is None else read_clock() + chosen.expires,
        redact=not chosen.no_redact,
        attachments=not chosen.no_attachments,
    )
    preview = to_preview(export, terms)
    if chosen.preview:
        _print_preview(preview, as_json=chosen.format == "json")
        return ExitCode.DONE
    if chosen.to.lower().endswith(PAGES):
        return _write_page(chosen.to, export, terms, preview)
    return _share(chosen, export.info, terms, preview)


def _read_session(chosen: argparse.Namespace) -> SessionExport:
    reading = open_reading(chosen)
    session = reading.get_session(chosen.session)
    return SessionExport(
        info=session,
        messages=tuple(reading.store.list_messages(session.id)),
        diff=tuple(reading.store.list_diff(session.id)),
    )


def _write_page(path: str, export: SessionExport, terms: ShareTerms, preview: SharePreview) -> int:
    shown = to_shared_view(
        replace(export, info=replace(export.info, share=None)), attachments=terms.attachments
    )
    covered = SessionRedactor(redact=terms.redact).redact(shown)
    page = render_page(SharedSession(id="", export=covered, busy=is_busy(export)), kind="file")
    at = os.path.abspath(path)
    try:
        write_atomic(at, page, temp=f"{at}.{os.getpid()}.part")
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror or error}") from error
    print(f"{path}: {len(page):,} bytes; {_format_summary(preview)}", file=sys.stderr)
    return ExitCode.DONE


def _share(chosen: argparse.Namespace, session: Session, terms: ShareTerms, preview: SharePreview) -> int:
    print(_format_summary(preview), file=sys.stderr)
    title = sanitize(session.title).replace("\n", " ")
    if not confirm(f"Show the session “{title}” to others?", yes=chosen.yes):
        return ExitCode.DONE
    shared = asyncio.run(_share_live(chosen, session, terms))
    if chosen.format == "json":
        write_json(shared)
    elif shared.share is not None:
        print(shared.share.url)
    return ExitCode.DONE


async def _share_live(chosen: argparse.Namespace, session: Session, terms: ShareTerms) -> Session:
    server = await find_page_server(os.environ, chosen.store)
    opening = OpenOptions(
        directory=open_reading(chosen).find_home(session),
        env=os.environ,
        store=chosen.store,
        pages=server.pages if server else "",
        warn=_warn,
    )
    async with open_directory(opening) as api:
        shared = await api.sharing.share(session.id, terms)
        if server is not None and not await _is_visible(server, shared):
            await api.sharing.unshare(shared.id)
            raise SharingError(
                f"no server shows pages at {server.here}, and nothing is shared",
                hint="start one: weft serve --share",
            )
        return shared


async def _is_visible(server: PageServer, shared: Session) -> bool:
    """Return False if the session is shared on our server, but that does not answer: it may have been killed."""
    url = shared.share.url if shared.share is not None else ""
    if not url.startswith(f"{server.pages}/"):
        return True
    return await is_page_served(server.here + url.removeprefix(server.pages))


async def is_page_served(url: str) -> bool:
    """Return True if a shared page can be reached at this address."""
    import httpx2  # noqa: PLC0415  most ways to share need no HTTP

    # Ask for the stream of the page and not for the page: laying out a long session takes a while.
    try:
        async with (
            httpx2.AsyncClient(timeout=PAGE_SECONDS, trust_env=False) as client,
            client.stream("GET", f"{url}/live") as answer,
        ):
            return answer.status_code == OK
    except httpx2.HTTPError:
        return False


def _print_preview(preview: SharePreview, *, as_json: bool) -> None:
    if as_json:
        write_json(preview)
        return
    rows = [(each.placeholder, each.glimpse, str(each.times), each.where) for each in preview.covered]
    if rows:
        head = ("Covered by", "Secret", "Times", "First in")
        print("\n".join(to_table(head, rows, Paint(sys.stdout), right="Times")))
    print(f"{_format_summary(preview)}; nothing has left", file=sys.stderr)


def _format_summary(preview: SharePreview) -> str:
    kinds = ", ".join(f"{count} {kind}" for kind, count in preview.kinds.items())
    many = "secret" if len(preview.covered) == 1 else "secrets"
    covered = f"{len(preview.covered)} {many} covered ({kinds})" if kinds else "no secrets found"
    pictures = f"; {preview.pictures} files that nobody looked into" if preview.pictures else ""
    return f"{format_count(preview.messages, 'message')}, {format_count(preview.parts, 'part')}; {covered}{pictures}"


def _list_command(chosen: argparse.Namespace) -> int:
    shares = asyncio.run(_list_shares(chosen))
    if chosen.format == "json":
        write_json(shares)
    elif shares:
        now = read_clock()
        rows = [
            (each.id, each.session_id, each.target, _format_expiry(each, now), each.url) for each in shares
        ]
        print("\n".join(to_table(("share", "session", "where", "over", "address"), rows, Paint(sys.stdout))))
    return ExitCode.DONE


async def _list_shares(chosen: argparse.Namespace) -> list[Share]:
    async with open_offline_sessions(chosen.dir, os.environ, store=chosen.store) as offline:
        revoker = ShareRevoker(
            store=offline.store, journal=offline.journal, remote=LazyShareClient(offline.clock)
        )
        await revoker.sweep(offline.clock.now())
        return await list_shares(offline.store)


def _format_expiry(share: Share, now: int) -> str:
    if share.expires is None:
        return "never"
    return format_time_left(share.expires - now) if share.expires > now else "now, if it can be taken back"


def add_unshare_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("share", metavar="ID", help="the session, or the id of the share")
    add(
        "--forget",
        action="store_true",
        help="do not ask the server to remove it; the server may go on showing it",
    )
    add_place(parser)


def unshare_session(chosen: argparse.Namespace) -> int:
    record = asyncio.run(_revoke(chosen))
    gone = "is forgotten here" if chosen.forget and record.target == "remote" else "is shown no more"
    print(f"{Paint(sys.stdout).bold(record.url)} {gone}")
    return ExitCode.DONE


async def _revoke(chosen: argparse.Namespace) -> ShareRecord:
    async with open_offline_sessions(chosen.dir, os.environ, store=chosen.store) as offline:
        revoker = ShareRevoker(
            store=offline.store, journal=offline.journal, remote=LazyShareClient(offline.clock)
        )
        record: ShareRecord | None = None
        with suppress(NotFoundError):
            record = await get_record(offline.store, chosen.share)
        if record is None:
            session = await asyncio.to_thread(lambda: open_reading(chosen).get_session(chosen.share))
            record = await ShareRecords(offline.store).find_for_session(session.id)
            if record is None:
                raise NotFoundError("share of session", session.id, hint="list the shares: weft share list")
        await revoker.revoke(record, forget=chosen.forget)
        return record


def _warn(warning: WeftError) -> None:
    print(f"{Paint(sys.stderr).yellow('warning:')} {warning}", file=sys.stderr)
