"""`weft share` and `weft unshare`: show a session to others, see what is shown, and take it back."""

import argparse
import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

from msgspec.structs import replace

from weft.cli.confirm import confirmed
from weft.cli.exit import Exit
from weft.cli.paint import Paint, plain, write_json
from weft.cli.permission.when import within
from weft.cli.serving.announced import Announced, find_announced
from weft.cli.session.read import read
from weft.cli.share.reached import is_seen
from weft.cli.table import to_table
from weft.errors import NotFoundError, SharingError, StoreError, WeftError
from weft.host.files import write_atomic
from weft.host.now import now as read_clock
from weft.local.open import Opening, open_app
from weft.local.reader import open_resting
from weft.model.ids import SessionID
from weft.model.parcel import Parcel
from weft.model.readable import plural
from weft.model.session import Session
from weft.model.share import Share, SharePreview, ShareTerms, Shown
from weft.page import to_page
from weft.share.contract import Afar, get_record, list_shares
from weft.share.records import Book, Record
from weft.share.redaction import Covering, to_preview
from weft.share.revoke import TakingBack
from weft.share.view import is_busy, to_shown
from weft.store.files.messages import Messages

LIST = "list"
PAGES = (".html", ".htm")

Unshare = Callable[[SessionID], Awaitable[Session]]


def share(chosen: argparse.Namespace) -> int:
    if chosen.session == LIST:
        return _list(chosen)
    parcel = _read(chosen)
    terms = ShareTerms(
        to=chosen.to,
        expires=None if chosen.expires is None else read_clock() + chosen.expires,
        redact=not chosen.no_redact,
        attachments=not chosen.no_attachments,
    )
    preview = to_preview(parcel, terms)
    if chosen.preview:
        _show(preview, as_json=chosen.format == "json")
        return Exit.DONE
    if chosen.to.lower().endswith(PAGES):
        return _write_page(chosen.to, parcel, terms, preview)
    return _share(chosen, parcel.info, terms, preview)


def _read(chosen: argparse.Namespace) -> Parcel:
    reading = read(chosen.dir, chosen.store)
    session = reading.get_session(chosen.session)
    return Parcel(
        info=session,
        messages=tuple(Messages(reading.tree).list_messages(session.id)),
        diff=tuple(reading.tree.list_diff(session.id)),
    )


def _write_page(path: str, parcel: Parcel, terms: ShareTerms, preview: SharePreview) -> int:
    shown = to_shown(replace(parcel, info=replace(parcel.info, share=None)), attachments=terms.attachments)
    covered = Covering(redact=terms.redact).cover(shown)
    page = to_page(Shown(id="", parcel=covered, busy=is_busy(parcel)), kind="file")
    at = os.path.abspath(path)
    try:
        write_atomic(at, page, temp=f"{at}.{os.getpid()}.part")
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror or error}") from error
    print(f"{path}: {len(page):,} bytes; {_summed(preview)}", file=sys.stderr)
    return Exit.DONE


def _share(chosen: argparse.Namespace, session: Session, terms: ShareTerms, preview: SharePreview) -> int:
    print(_summed(preview), file=sys.stderr)
    title = plain(session.title).replace("\n", " ")
    if not confirmed(f"Show the session “{title}” to others?", yes=chosen.yes):
        return Exit.DONE
    shared = asyncio.run(_share_live(chosen, session, terms))
    if chosen.format == "json":
        write_json(shared)
    elif shared.share is not None:
        print(shared.share.url)
    return Exit.DONE


async def _share_live(chosen: argparse.Namespace, session: Session, terms: ShareTerms) -> Session:
    server = await find_announced(os.environ, chosen.store)
    opening = Opening(
        directory=read(chosen.dir, chosen.store).find_home(session),
        env=os.environ,
        store=chosen.store,
        pages=server.pages if server else "",
        warn=_warn,
    )
    async with open_app(opening) as api:
        shared = await api.sharing.share(session.id, terms)
        if server is not None and shared.share is not None:
            await _check_seen(api.sharing.unshare, server, shared)
        return shared


async def _check_seen(unshare: Unshare, server: Announced, shared: Session) -> None:
    """A server that was killed cannot say that it is gone."""
    url = shared.share.url if shared.share is not None else ""
    if url.startswith(f"{server.pages}/") and not await is_seen(server.here + url.removeprefix(server.pages)):
        await unshare(shared.id)
        raise SharingError(
            f"no server shows pages at {server.here}, and nothing is shared",
            hint="start one: weft serve --share",
        )


def _list(chosen: argparse.Namespace) -> int:
    shares = asyncio.run(_list_shares(chosen))
    if chosen.format == "json":
        write_json(shares)
    elif shares:
        now = read_clock()
        rows = [(each.id, each.session_id, each.target, _until(each, now), each.url) for each in shares]
        print("\n".join(to_table(("share", "session", "where", "over", "address"), rows, Paint(sys.stdout))))
    return Exit.DONE


def _until(share: Share, now: int) -> str:
    if share.expires is None:
        return "never"
    return within(share.expires - now) if share.expires > now else "now, if it can be taken back"


async def _list_shares(chosen: argparse.Namespace) -> list[Share]:
    async with open_resting(chosen.dir, os.environ, store=chosen.store) as resting:
        back = TakingBack(store=resting.store, journal=resting.journal, remote=Afar(resting.clock))
        await back.sweep(resting.clock.now())
        return await list_shares(resting.store)


def unshare(chosen: argparse.Namespace) -> int:
    record = asyncio.run(_take_back(chosen))
    gone = "is forgotten here" if chosen.forget and record.target == "remote" else "is shown no more"
    print(f"{Paint(sys.stdout).bold(record.url)} {gone}")
    return Exit.DONE


async def _take_back(chosen: argparse.Namespace) -> Record:
    async with open_resting(chosen.dir, os.environ, store=chosen.store) as resting:
        back = TakingBack(store=resting.store, journal=resting.journal, remote=Afar(resting.clock))
        record: Record | None = None
        with suppress(NotFoundError):
            record = await get_record(resting.store, chosen.share)
        if record is None:
            session = await asyncio.to_thread(
                lambda: read(chosen.dir, chosen.store).get_session(chosen.share)
            )
            record = await Book(resting.store).find_of(session.id)
            if record is None:
                raise NotFoundError(
                    "share of session", session.id, hint="see which there are: weft share list"
                )
        await back.take_back(record, forget=chosen.forget)
        return record


def _show(preview: SharePreview, *, as_json: bool) -> None:
    if as_json:
        write_json(preview)
        return
    rows = [(each.placeholder, each.glimpse, str(each.times), each.where) for each in preview.covered]
    if rows:
        head = ("Covered by", "Secret", "Times", "First in")
        _print(to_table(head, rows, Paint(sys.stdout), right="Times"))
    print(f"{_summed(preview)}; nothing has left", file=sys.stderr)


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)


def _summed(preview: SharePreview) -> str:
    kinds = ", ".join(f"{count} {kind}" for kind, count in preview.kinds.items())
    many = "secret" if len(preview.covered) == 1 else "secrets"
    covered = f"{len(preview.covered)} {many} covered ({kinds})" if kinds else "no secrets found"
    pictures = f"; {preview.pictures} files that nobody looked into" if preview.pictures else ""
    return f"{plural(preview.messages, 'message')}, {plural(preview.parts, 'part')}; {covered}{pictures}"


def _warn(warning: WeftError) -> None:
    print(f"{Paint(sys.stderr).yellow('warning:')} {warning}", file=sys.stderr)
