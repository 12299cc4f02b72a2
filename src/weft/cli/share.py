"""`weft share` and `weft unshare`: show a session to others, list shares, and revoke them."""

import argparse
import asyncio
import os
import sys
from contextlib import suppress

from msgspec.structs import replace

from weft.cli.arguments import SESSION_HELP, add_format, add_place, parse_age
from weft.cli.exit import ExitCode
from weft.cli.output import Paint, confirm, format_time_left, print_note, sanitize, to_table, warn, write_json
from weft.cli.serve_access import PageServer, find_page_server
from weft.cli.session import make_reader
from weft.errors import NotFoundError, SharingError, StoreError
from weft.host.files import write_atomic
from weft.host.now import now as read_clock
from weft.local.offline import open_offline_sessions
from weft.local.open import OpenOptions, open_directory
from weft.local.reader import upgrade_existing_store
from weft.model.display import format_count
from weft.model.session import SessionInfo
from weft.model.share import Share, SharedSession, SharePreview, ShareTerms
from weft.model.transfer import SessionExport
from weft.page.document import render_page
from weft.share.contract import LazyShareClient, get_record, list_shares
from weft.share.records import ShareRecord, ShareRecords
from weft.share.revoke import ShareRevoker
from weft.share.view import SessionRedactor, is_busy, to_preview, to_shared_view

PAGE_TIMEOUT_SECONDS = 5.0
HTTP_OK = 200
LIST_WORD = "list"
OUTPUT_HINT = "name a file in a directory that exists and that you may write to"
PAGE_SUFFIXES = (".html", ".htm")


def add_share_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("session", metavar="ID|list", help=f"{SESSION_HELP}; or the word `list` to list all shares")
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


def share_session(args: argparse.Namespace) -> int:
    if args.session == LIST_WORD:
        return _print_shares(args)
    export = _read_session(args)
    terms = ShareTerms(
        to=args.to,
        expires=None if args.expires is None else read_clock() + args.expires,
        redact=not args.no_redact,
        attachments=not args.no_attachments,
    )
    preview = to_preview(export, terms)
    if args.preview:
        _print_preview(preview, as_json=args.format == "json")
        return ExitCode.DONE
    if args.to.lower().endswith(PAGE_SUFFIXES):
        return _write_page(args.to, export, terms, preview)
    return _share(args, export.info, terms, preview)


def _read_session(args: argparse.Namespace) -> SessionExport:
    reader = make_reader(args)
    session = reader.get_session(args.session)
    return SessionExport(
        info=session,
        messages=tuple(reader.store.list_messages(session.id)),
        diff=tuple(reader.store.list_diff(session.id)),
    )


def _write_page(path: str, export: SessionExport, terms: ShareTerms, preview: SharePreview) -> int:
    view = to_shared_view(
        replace(export, info=replace(export.info, share=None)), attachments=terms.attachments
    )
    redacted = SessionRedactor(redact=terms.redact).redact(view)
    page = render_page(SharedSession(id="", export=redacted, busy=is_busy(export)), kind="file")
    target = os.path.abspath(path)
    try:
        write_atomic(target, page, temp=f"{target}.{os.getpid()}.part")
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror or error}", hint=OUTPUT_HINT) from error
    print(f"{path}: {len(page):,} bytes; {_format_summary(preview)}", file=sys.stderr)
    return ExitCode.DONE


def _share(args: argparse.Namespace, session: SessionInfo, terms: ShareTerms, preview: SharePreview) -> int:
    if not args.yes:  # refuse before asking, not after the answer
        asyncio.run(_check_share(args, session, terms))
    print(_format_summary(preview), file=sys.stderr)
    title = sanitize(session.title).replace("\n", " ")
    if not confirm(f"Show the session “{title}” to others?", yes=args.yes):
        return ExitCode.DONE
    shared = asyncio.run(_share_live(args, session, terms))
    if args.format == "json":
        write_json(shared)
    elif shared.share is not None:
        print(shared.share.url)
    return ExitCode.DONE


async def _check_share(args: argparse.Namespace, session: SessionInfo, terms: ShareTerms) -> None:
    """Raise what sharing would raise before it sends anything. Warnings are printed when the session is shared."""
    server = await find_page_server(os.environ, args.store)
    async with open_directory(_to_options(args, session, server)) as api:
        await api.sharing.check_share(session.id, terms)


async def _share_live(args: argparse.Namespace, session: SessionInfo, terms: ShareTerms) -> SessionInfo:
    server = await find_page_server(os.environ, args.store)
    async with open_directory(replace(_to_options(args, session, server), warn=warn)) as api:
        shared = await api.sharing.share(session.id, terms)
        if server is not None and not await _is_visible(server, shared):
            await api.sharing.unshare(shared.id)
            raise SharingError(
                f"no server shows pages at {server.local}, and nothing is shared",
                hint="start one: weft serve --share",
            )
        return shared


def _to_options(args: argparse.Namespace, session: SessionInfo, server: PageServer | None) -> OpenOptions:
    return OpenOptions(
        directory=make_reader(args).choose_directory(session),
        env=os.environ,
        store=args.store,
        share_url=server.share_url if server else "",
    )


async def _is_visible(server: PageServer, shared: SessionInfo) -> bool:
    """Return False if the session is shared on our server and the server does not answer: it may have been killed."""
    url = shared.share.url if shared.share is not None else ""
    if not url.startswith(f"{server.share_url}/"):
        return True
    return await is_page_served(server.local + url.removeprefix(server.share_url))


async def is_page_served(url: str) -> bool:
    """Return True if a shared page can be reached at this address."""
    import httpx2  # noqa: PLC0415  most ways to share need no HTTP

    # Request the event stream of the page, because rendering the page of a long session takes a while.
    try:
        async with (
            httpx2.AsyncClient(timeout=PAGE_TIMEOUT_SECONDS, trust_env=False) as client,
            client.stream("GET", f"{url}/live") as response,
        ):
            return response.status_code == HTTP_OK
    except httpx2.HTTPError:
        return False


def _print_preview(preview: SharePreview, *, as_json: bool) -> None:
    if as_json:
        write_json(preview)
        return
    rows = [
        (secret.placeholder, secret.glimpse, str(secret.times), secret.where) for secret in preview.covered
    ]
    if rows:
        header = ("Redacted as", "Secret", "Times", "First in")
        print("\n".join(to_table(header, rows, Paint(sys.stdout), right="Times")))
    print(f"{_format_summary(preview)}; nothing was sent", file=sys.stderr)


def _format_summary(preview: SharePreview) -> str:
    kinds = ", ".join(f"{count} {kind}" for kind, count in preview.kinds.items())
    noun = "secret" if len(preview.covered) == 1 else "secrets"
    secrets = f"{len(preview.covered)} {noun} redacted ({kinds})" if kinds else "no secrets found"
    files = f"; {preview.pictures} files that were not searched" if preview.pictures else ""
    return f"{format_count(preview.messages, 'message')}, {format_count(preview.parts, 'part')}; {secrets}{files}"


def _print_shares(args: argparse.Namespace) -> int:
    shares = asyncio.run(_list_shares(args))
    if args.format == "json":
        write_json(shares)
    elif shares:
        now = read_clock()
        rows = [
            (share.id, share.session_id, share.target, _format_expiry(share, now), share.url)
            for share in shares
        ]
        print("\n".join(to_table(("share", "session", "where", "over", "address"), rows, Paint(sys.stdout))))
    else:
        print_note("nothing is shared: weft share --help says how to share a session")
    return ExitCode.DONE


async def _list_shares(args: argparse.Namespace) -> list[Share]:
    upgrade_existing_store(os.environ, args.store)
    async with open_offline_sessions(args.dir, os.environ, store=args.store) as offline:
        revoker = ShareRevoker(
            store=offline.store, journal=offline.journal, remote=LazyShareClient(offline.clock)
        )
        await revoker.revoke_expired(offline.clock.now())
        return await list_shares(offline.store)


def _format_expiry(share: Share, now: int) -> str:
    if share.expires is None:
        return "never"
    return (
        format_time_left(share.expires - now)
        if share.expires > now
        else "now, as soon as the server removes it"
    )


def add_unshare_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("share", metavar="ID", help="the session, or the id of the share")
    add(
        "--forget",
        action="store_true",
        help="do not ask the server to remove it; the server may continue to show it",
    )
    add_place(parser)


def unshare_session(args: argparse.Namespace) -> int:
    record = asyncio.run(_revoke(args))
    outcome = "is forgotten here" if args.forget and record.target == "remote" else "is no longer shown"
    print(f"{Paint(sys.stdout).bold(record.url)} {outcome}")
    return ExitCode.DONE


async def _revoke(args: argparse.Namespace) -> ShareRecord:
    upgrade_existing_store(os.environ, args.store)
    async with open_offline_sessions(args.dir, os.environ, store=args.store) as offline:
        revoker = ShareRevoker(
            store=offline.store, journal=offline.journal, remote=LazyShareClient(offline.clock)
        )
        record: ShareRecord | None = None
        with suppress(NotFoundError):
            record = await get_record(offline.store, args.share)
        if record is None:
            session = await asyncio.to_thread(lambda: make_reader(args).get_session(args.share))
            record = await ShareRecords(offline.store).find_for_session(session.id)
            if record is None:
                raise NotFoundError("share of session", session.id, hint="list the shares: weft share list")
        await revoker.revoke(record, forget=args.forget)
        return record
