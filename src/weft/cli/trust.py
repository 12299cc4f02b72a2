"""`weft trust`: show what a project brings along, and decide whether it may act."""

import argparse
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from weft.cli.arguments import add_format, add_yes
from weft.cli.exit import ExitCode
from weft.cli.output import Paint, confirm, sanitize, write_json
from weft.config.trust import HeldItem
from weft.errors import ConflictError, WeftError
from weft.host.now import now
from weft.host.paths import paths_from
from weft.trust.decision import Fingerprint, ProjectTrust, TrustStatus, get_trust
from weft.trust.records import TrustRecord, TrustRecords

NAME_LENGTH = 100
# Commands are shown almost in full: what matters may be at their end.
TEXT_LENGTH = 2000
REASONS = {
    "environment": "trusted for this once: WEFT_TRUST=1 is set",
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


def trust_command(chosen: argparse.Namespace) -> int:
    as_json = chosen.format == "json"
    if chosen.list:
        return list_trusted(as_json=as_json)
    trusting = get_trust(chosen.path, os.environ)
    if chosen.show:
        return show_trust(trusting, as_json=as_json)
    return revoke_trust(trusting) if chosen.revoke else give_trust(trusting, yes=chosen.yes, as_json=as_json)


def show_trust(trusting: ProjectTrust, *, as_json: bool) -> int:
    standing, held = trusting.get_status(), trusting.list_held_back()
    if as_json:
        write_json(to_report(trusting.root, standing, held))
        return ExitCode.DONE
    for line in to_lines(trusting.root, held, standing, Paint(sys.stdout)):
        print(line)
    if not held and not standing.trusted:
        print("nothing is held back")
    return ExitCode.DONE


def to_report(root: str, standing: TrustStatus, held: Iterable[HeldItem]) -> dict[str, Any]:
    return {
        "path": root,
        "trusted": standing.trusted,
        "why": standing.why,
        "changes": [{"what": each.what, "name": each.name} for each in standing.changes],
        "held": [
            {"kind": each.kind, "name": each.name, "path": each.path, "does": each.does} for each in held
        ],
    }


def to_lines(root: str, held: Iterable[HeldItem], standing: TrustStatus, paint: Paint) -> Iterator[str]:
    """Yield whether a project is trusted, what changed since it was, and what it brings along."""
    yield f"{paint.bold(sanitize(root))}: {REASONS[standing.why]}"
    for change in standing.changes:
        yield f"  {paint.yellow(change.what.ljust(7))} {sanitize(change.name)}"
    found = list(held)
    if found:
        yield "it brings along:" if standing.trusted else "held back, until you trust it:"
    width = max((len(each.kind) for each in found), default=0)
    for each in found:
        where = os.path.relpath(each.path, root) if each.path.startswith(f"{root}{os.sep}") else each.path
        what = f"{sanitize(_shorten(each.name, root, NAME_LENGTH))} {sanitize(_shorten(each.does, root, TEXT_LENGTH))}"
        yield f"  {each.kind:<{width}}  {what}  {paint.dim('# ' + sanitize(where))}"


def _shorten(text: str, root: str, most: int) -> str:
    line = " ".join(text.replace(f"{root}{os.sep}", "").split())
    return line if len(line) <= most else f"{line[:most]}… and {len(line) - most:,} characters more"


def give_trust(trusting: ProjectTrust, *, yes: bool, as_json: bool) -> int:
    # The fingerprint is taken before the content is shown: what changes while the person reads is not trusted.
    seen = trusting.take_fingerprint()
    standing, held = trusting.get_status(), trusting.list_held_back()
    if standing.why != "given":
        for line in to_lines(trusting.root, held, standing, Paint(sys.stderr)) if not as_json else ():
            print(line, file=sys.stderr)
        if not confirm("Trust this project, as it is now?", yes=yes):
            return ExitCode.REFUSED
        trusting.trust(now(), seen)
        if trusting.get_status().why == "changed":
            raise ConflictError(
                "project", trusting.root, "has changed since it was shown", hint="look again: weft trust"
            )
    if as_json:
        write_json(to_report(trusting.root, trusting.get_status(), held))
    else:
        print(f"{sanitize(trusting.root)} is trusted as it is now; weft trust --revoke takes it back")
    return ExitCode.DONE


def revoke_trust(trusting: ProjectTrust) -> int:
    said = "is trusted no more" if trusting.revoke() else "was not trusted"
    print(f"{sanitize(trusting.root)} {said}")
    standing = trusting.get_status()
    if standing.trusted:
        still = "WEFT_TRUST=1" if standing.why == "environment" else "experimental.weft.trusted"
        print(f"but {still} goes on trusting it", file=sys.stderr)
    return ExitCode.DONE


def list_trusted(*, as_json: bool) -> int:
    found = TrustRecords(paths_from(os.environ)).list_all()
    if as_json:
        write_json([_to_row(each) for each in found])
        return ExitCode.DONE
    for each in found:
        said = "refused" if each.refused else "trusted"
        print(f"{said}  {sanitize(each.path)}  ({len(each.files)} file{'s' * (len(each.files) != 1)})")
    return ExitCode.DONE


def _to_row(vouched: TrustRecord) -> dict[str, Any]:
    return {
        "path": vouched.path,
        "trusted": not vouched.refused,
        "time": vouched.time,
        "files": vouched.files,
    }


def offer_trust(directory: str, env: Mapping[str, str]) -> None:
    """Ask the person whether to trust a project, unless that is decided or nothing is held back.

    The answer is valid for the present content of the project.
    """
    trusting = get_trust(directory, env)
    standing = trusting.get_status()
    if standing.trusted or standing.why == "refused":
        return
    if not trusting.list_held_back():
        return
    paint = Paint(sys.stderr)
    try:
        # The fingerprint is taken before the content is shown: what changes while the person reads is not trusted.
        seen = trusting.take_fingerprint()
        _ask(trusting, standing, seen, paint)
    except (OSError, WeftError) as error:
        print(f"{paint.yellow('warning:')} this could not be remembered: {error}", file=sys.stderr)


def _ask(trusting: ProjectTrust, standing: TrustStatus, seen: Fingerprint, paint: Paint) -> None:
    for line in to_lines(trusting.root, trusting.list_held_back(), standing, paint):
        print(line, file=sys.stderr)
    print("Trust this project, as it is now? [y/N] ", end="", file=sys.stderr, flush=True)
    typed = sys.stdin.readline()
    if not typed:
        return  # the input was closed: nobody is there
    if typed.strip().lower() in ("y", "yes"):
        trusting.trust(now(), seen)
    else:
        trusting.refuse(now(), seen)
