"""`weft trust`: what a project brings along, and whether it may act."""

import argparse
import os
import sys
from collections.abc import Iterable
from typing import Any

from weft.cli.confirm import confirmed
from weft.cli.exit import Exit
from weft.cli.paint import Paint, plain, write_json
from weft.cli.trust.telling import to_lines
from weft.config.trust import Held
from weft.errors import ConflictError
from weft.host.now import now
from weft.host.paths import paths_from
from weft.trust.decision import Standing, Trusting, trusting_in
from weft.trust.records import Book, Vouched


def trust_command(chosen: argparse.Namespace) -> int:
    as_json = chosen.format == "json"
    if chosen.list:
        return list_trusted(as_json=as_json)
    trusting = trusting_in(chosen.path, os.environ)
    if chosen.show:
        return show(trusting, as_json=as_json)
    return revoke(trusting) if chosen.revoke else give(trusting, yes=chosen.yes, as_json=as_json)


def list_trusted(*, as_json: bool) -> int:
    found = Book(paths_from(os.environ)).list_all()
    if as_json:
        _print_json([_to_row(each) for each in found])
        return Exit.DONE
    for each in found:
        said = "refused" if each.refused else "trusted"
        print(f"{said}  {plain(each.path)}  ({len(each.files)} file{'s' * (len(each.files) != 1)})")
    return Exit.DONE


def _to_row(vouched: Vouched) -> dict[str, Any]:
    return {
        "path": vouched.path,
        "trusted": not vouched.refused,
        "time": vouched.time,
        "files": vouched.files,
    }


def show(trusting: Trusting, *, as_json: bool) -> int:
    standing, held = trusting.standing(), trusting.held_back()
    if as_json:
        _print_json(to_report(trusting.root, standing, held))
        return Exit.DONE
    for line in to_lines(trusting.root, held, standing, Paint(sys.stdout)):
        print(line)
    if not held and not standing.trusted:
        print("nothing is held back")
    return Exit.DONE


def to_report(root: str, standing: Standing, held: Iterable[Held]) -> dict[str, Any]:
    return {
        "path": root,
        "trusted": standing.trusted,
        "why": standing.why,
        "changes": [{"what": each.what, "name": each.name} for each in standing.changes],
        "held": [
            {"kind": each.kind, "name": each.name, "path": each.path, "does": each.does} for each in held
        ],
    }


def give(trusting: Trusting, *, yes: bool, as_json: bool) -> int:
    seen = trusting.take_seal()  # before it is shown: what changes while somebody reads is not vouched for
    standing, held = trusting.standing(), trusting.held_back()
    if standing.why != "given":
        for line in to_lines(trusting.root, held, standing, Paint(sys.stderr)) if not as_json else ():
            print(line, file=sys.stderr)
        if not confirmed("Trust this project, as it is now?", yes=yes):
            return Exit.REFUSED
        trusting.trust(now(), seen)
        if trusting.standing().why == "changed":
            raise ConflictError(
                "project", trusting.root, "has changed since it was shown", hint="look again: weft trust"
            )
    if as_json:
        _print_json(to_report(trusting.root, trusting.standing(), held))
    else:
        print(f"{plain(trusting.root)} is trusted as it is now; weft trust --revoke takes it back")
    return Exit.DONE


def revoke(trusting: Trusting) -> int:
    said = "is trusted no more" if trusting.revoke() else "was not trusted"
    print(f"{plain(trusting.root)} {said}")
    standing = trusting.standing()
    if standing.trusted:
        still = "WEFT_TRUST=1" if standing.why == "environment" else "experimental.weft.trusted"
        print(f"but {still} goes on trusting it", file=sys.stderr)
    return Exit.DONE


def _print_json(value: Any) -> None:
    write_json(value)
