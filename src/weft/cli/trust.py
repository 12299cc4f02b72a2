"""`weft trust`: show what a project brings along, and decide whether it may act."""

import argparse
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import asdict

from weft.cli.arguments import add_format, add_yes
from weft.cli.exit import ExitCode
from weft.cli.output import Paint, ask, confirm, sanitize, warn, write_json
from weft.errors import ConflictError, DirectoryError, WeftError
from weft.host.now import now
from weft.host.paths import paths_from
from weft.model.trust import HeldItem
from weft.trust.decision import ProjectTrust, TrustStatus, get_trust
from weft.trust.records import TrustRecord, TrustRecords

MAX_NAME_LENGTH = 100
# Commands are shown almost in full, because the harmful part may be at their end.
MAX_COMMAND_LENGTH = 2000
STATUS_TEXTS = {
    "environment": "trusted this once: WEFT_TRUST=1 is set",
    "configured": "trusted: it is named under experimental.weft.trusted in your configuration",
    "given": "trusted",
    "refused": "not trusted: you said no to what is there now",
    "changed": "not trusted: it has changed since you were asked",
    "unknown": "not trusted: you have not been asked",
}


def add_trust_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "path",
        nargs="?",
        default=".",
        metavar="PATH",
        help="a directory of the project (default: the current one)",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--show", action="store_true", help="only show what is held back and what changed")
    what.add_argument("--list", action="store_true", help="list the projects that were trusted or refused")
    what.add_argument("--revoke", action="store_true", help="stop trusting the project")
    add_yes(parser)
    add_format(parser)


def trust_command(args: argparse.Namespace) -> int:
    as_json = args.format == "json"
    if args.list:
        return list_trusted(as_json=as_json)
    project = get_trust(args.path, os.environ)
    if args.show:
        return show_trust(project, as_json=as_json)
    return revoke_trust(project) if args.revoke else give_trust(project, yes=args.yes, as_json=as_json)


def show_trust(project: ProjectTrust, *, as_json: bool) -> int:
    status, held, looser = project.get_status(), project.list_held_back(), project.list_looser()
    if as_json:
        write_json(to_report(project.root, status, held, looser))
        return ExitCode.DONE
    for line in to_lines(project.root, held, looser, status, Paint(sys.stdout)):
        print(line)
    if not held and not looser and not status.trusted:
        print("nothing is held back")
    return ExitCode.DONE


def to_report(
    root: str, status: TrustStatus, held: Iterable[HeldItem], looser: Iterable[HeldItem]
) -> dict[str, Any]:
    return {
        "path": root,
        "trusted": status.trusted,
        "why": status.why,
        "changes": [{"what": item.what, "name": item.name} for item in status.changes],
        "held": [asdict(item) for item in held],
        "looser": [asdict(item) for item in looser],
    }


def to_lines(
    root: str, held: Sequence[HeldItem], looser: Sequence[HeldItem], status: TrustStatus, paint: Paint
) -> Iterator[str]:
    """Yield whether a project is trusted, what changed since it was, what it brings along, and what it sets looser than the person."""
    yield f"{paint.bold(sanitize(root))}: {STATUS_TEXTS[status.why]}"
    for change in status.changes:
        yield f"  {paint.yellow(change.what.ljust(7))} {sanitize(change.name)}"
    if held:
        yield "it brings along:" if status.trusted else "held back, until you trust it:"
    yield from _format_items(root, held, paint)
    if looser:
        yield (
            "looser than your settings:"
            if status.trusted
            else "looser than your settings, and without effect until you trust it:"
        )
    yield from _format_items(root, looser, paint)


def _format_items(root: str, items: Sequence[HeldItem], paint: Paint) -> Iterator[str]:
    width = max((len(item.kind) for item in items), default=0)
    for item in items:
        where = os.path.relpath(item.path, root) if item.path.startswith(f"{root}{os.sep}") else item.path
        what = f"{sanitize(_shorten(item.name, root, MAX_NAME_LENGTH))} {sanitize(_shorten(item.does, root, MAX_COMMAND_LENGTH))}"
        yield f"  {item.kind:<{width}}  {what}  {paint.dim('# ' + sanitize(where))}"


def _shorten(text: str, root: str, limit: int) -> str:
    line = " ".join(text.replace(f"{root}{os.sep}", "").split())
    return line if len(line) <= limit else f"{line[:limit]}… and {len(line) - limit:,} characters more"


def give_trust(project: ProjectTrust, *, yes: bool, as_json: bool) -> int:
    # The fingerprint is taken before the content is shown: what changes while the person reads is not trusted.
    fingerprint = project.take_fingerprint()
    status, held, looser = project.get_status(), project.list_held_back(), project.list_looser()
    if status.why != "given":
        for line in to_lines(project.root, held, looser, status, Paint(sys.stderr)) if not as_json else ():
            print(line, file=sys.stderr)
        if not confirm("Trust this project, as it is now?", yes=yes):
            return ExitCode.REFUSED
        project.trust(now(), fingerprint)
        if project.get_status().why == "changed":
            raise ConflictError(
                "project", project.root, "has changed since it was shown", hint="look again: weft trust"
            )
    if as_json:
        write_json(to_report(project.root, project.get_status(), held, looser))
    else:
        print(f"{sanitize(project.root)} is trusted as it is now; weft trust --revoke takes it back")
    return ExitCode.DONE


def revoke_trust(project: ProjectTrust) -> int:
    outcome = "is no longer trusted" if project.revoke() else "was not trusted"
    print(f"{sanitize(project.root)} {outcome}")
    status = project.get_status()
    if status.trusted:
        source = "WEFT_TRUST=1" if status.why == "environment" else "experimental.weft.trusted"
        print(f"but {source} still trusts it", file=sys.stderr)
    return ExitCode.DONE


def list_trusted(*, as_json: bool) -> int:
    records = TrustRecords(paths_from(os.environ)).list_all()
    if as_json:
        write_json([_to_row(record) for record in records])
        return ExitCode.DONE
    for record in records:
        decision = "refused" if record.refused else "trusted"
        print(
            f"{decision}  {sanitize(record.path)}  ({len(record.files)} file{'s' * (len(record.files) != 1)})"
        )
    return ExitCode.DONE


def _to_row(record: TrustRecord) -> dict[str, Any]:
    return {
        "path": record.path,
        "trusted": not record.refused,
        "time": record.time,
        "files": record.files,
    }


def offer_trust(directory: str, env: Mapping[str, str]) -> None:
    """Ask the person whether to trust a project, unless that is decided or nothing is held back.

    The answer is valid for the present content of the project.
    """
    project = get_trust(directory, env)
    status = project.get_status()
    if status.trusted or status.why == "refused":
        return
    if not project.list_held_back():
        return
    paint = Paint(sys.stderr)
    try:
        _ask(project, status, paint)
    except DirectoryError as error:
        warn(error)  # it cannot be trusted by an answer, so nobody was asked
    except (OSError, WeftError) as error:
        print(f"{paint.yellow('warning:')} the answer could not be stored: {error}", file=sys.stderr)


def _ask(project: ProjectTrust, status: TrustStatus, paint: Paint) -> None:
    # The fingerprint is taken before the content is shown: what changes while the person reads is not trusted.
    fingerprint = project.take_fingerprint()
    for line in to_lines(project.root, project.list_held_back(), project.list_looser(), status, paint):
        print(line, file=sys.stderr)
    typed = ask("Trust this project, as it is now? [y/N] ")
    if not typed:
        return  # the input was closed: nobody is there
    if typed.strip().lower() in ("y", "yes"):
        project.trust(now(), fingerprint)
    else:
        project.refuse(now(), fingerprint)
