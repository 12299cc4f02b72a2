"""`weft export`: one session as OpenCode exports it, or several in a bundle, with secrets covered if so asked."""

import argparse
import os
import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from typing import IO

from weft.cli.exit import Exit
from weft.cli.paint import Paint, escape, plain, write_json
from weft.cli.sessions import warn_of_damage
from weft.cli.table import to_table
from weft.errors import InvalidInputError, NotFoundError, StoreError
from weft.local.reader import Reading
from weft.model.ids import SessionID
from weft.model.parcel import Parcel
from weft.model.readable import plural
from weft.model.session import Session
from weft.store.files.messages import Messages
from weft.transfer.bundle import write_bundle
from weft.transfer.document import to_document
from weft.transfer.redact import Finding, Redactor

OFFERED = 10


def export_command(chosen: argparse.Namespace) -> int:
    if chosen.preview and not chosen.redact:
        raise InvalidInputError(
            "--preview", "it shows what --redact would cover", hint="say --redact --preview"
        )
    if chosen.all and not (chosen.bundle or chosen.preview):
        raise InvalidInputError("--all", "more than one session needs a bundle", hint="say --bundle FILE")
    reading = Reading(chosen.dir, os.environ, store=chosen.store)
    sessions = _chosen_sessions(chosen, reading)
    redactor = _looked(reading, sessions) if chosen.redact else None
    if redactor is not None and chosen.preview:
        _preview(redactor, reading, sessions, as_json=chosen.format == "json")
    elif chosen.bundle:
        _bundle(chosen.bundle, reading, sessions, redactor)
    else:
        _document(chosen.output, _packed(reading, sessions[0], redactor))
    warn_of_damage(reading)
    return Exit.DONE


def _chosen_sessions(chosen: argparse.Namespace, reading: Reading) -> list[Session]:
    """Parents before children. A document holds one session; a bundle, all below it too."""
    everything = reading.list_sessions(everywhere=False)
    if chosen.all:
        return sorted(everything, key=lambda session: session.parent_id is not None)
    root = reading.get_session(chosen.session) if chosen.session else _pick(reading, everything)
    return _with_children(root, reading.list_sessions(everywhere=True)) if chosen.bundle else [root]


def _with_children(root: Session, sessions: Iterable[Session]) -> list[Session]:
    below: dict[SessionID | None, list[Session]] = {}
    for session in sessions:
        below.setdefault(session.parent_id, []).append(session)
    found = [root]
    for session in found:  # it grows while we go through it
        found += [child for child in below.pop(session.id, []) if child.id != root.id]
    return found


def _pick(reading: Reading, sessions: list[Session]) -> Session:
    """The one a person chooses; without a person, the one last worked on here."""
    roots = [session for session in sessions if session.parent_id is None]
    roots.sort(key=lambda session: session.time.updated, reverse=True)
    if not roots:
        raise NotFoundError(
            "session", "", hint="this project has none; see them all: weft session list --all"
        )
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        last = reading.get_last_session()
        print(f"exporting the session last worked on: {last.id}", file=sys.stderr)
        return last
    for number, session in enumerate(roots[:OFFERED], 1):
        print(f"{number:>3}  {session.id}  {plain(session.title)}", file=sys.stderr)
    print("which one? [1] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline().strip() or "1"
    with suppress(ValueError, IndexError):
        return roots[:OFFERED][int(answer) - 1]
    raise InvalidInputError("choice", f"{answer!r} is none of these")


def _pack(reading: Reading, session: Session) -> Parcel:
    return Parcel(
        info=session,
        messages=tuple(Messages(reading.tree).list_messages(session.id)),
        todos=tuple(reading.tree.list_todos(session.id)),
        diff=tuple(reading.tree.list_diff(session.id)),
    )


def _packed(reading: Reading, session: Session, redactor: Redactor | None) -> Parcel:
    if sys.stderr.isatty():
        print(f"Exporting session: {session.id}", file=sys.stderr)
    parcel = _pack(reading, session)
    return parcel if redactor is None else redactor.cover(parcel)


def _looked(reading: Reading, sessions: list[Session]) -> Redactor:
    """All of it is looked at before anything leaves: what one message gives away, another may hold."""
    redactor = Redactor()
    for session in sessions:
        redactor.look(_pack(reading, session))
    return redactor


def _document(output: str | None, parcel: Parcel) -> None:
    raw = to_document(parcel)
    if output is None:
        sys.stdout.buffer.write(escape(raw.decode()).encode())
        sys.stdout.buffer.flush()
        return
    with _writing(output) as file:
        file.write(raw)


def _bundle(path: str, reading: Reading, sessions: list[Session], redactor: Redactor | None) -> None:
    with _writing(path) as file:
        parcels = (_packed(reading, session, redactor) for session in sessions)
        manifest = write_bundle(file, parcels, redacted=redactor is not None)
    messages = sum(session.counts.messages for session in manifest.sessions)
    files = len(manifest.attachments)
    print(
        f"{path}: {plural(len(manifest.sessions), 'session')}, {plural(messages, 'message')}, {plural(files, 'attachment')}",
        file=sys.stderr,
    )


@contextmanager
def _writing(path: str) -> Generator[IO[bytes]]:
    """A file that is there whole or not at all, and for its owner alone: conversations are nobody else's business."""
    temp = f"{path}.{os.getpid()}.part"
    try:
        with open(os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            yield file
        os.replace(temp, path)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            os.unlink(temp)


def _preview(redactor: Redactor, reading: Reading, sessions: list[Session], *, as_json: bool) -> None:
    for session in sessions:
        redactor.cover(_pack(reading, session))  # so that it is known how often each of them stands there
    found = redactor.findings()
    if as_json:
        write_json([_to_row(each) for each in found])
        return
    rows = [(each.placeholder, each.glimpse, str(each.times), each.where) for each in found]
    for line in to_table(
        ("Covered by", "Secret", "Times", "First in"), rows, Paint(sys.stdout), right="Times"
    ):
        print(line)
    print(f"\n{plural(len(found), 'secret')} would be covered; nothing was written", file=sys.stderr)


def _to_row(finding: Finding) -> dict[str, str | int]:
    return {
        "kind": finding.kind,
        "placeholder": finding.placeholder,
        "glimpse": finding.glimpse,
        "times": finding.times,
        "where": finding.where,
    }
