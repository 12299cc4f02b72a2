"""`weft storage verify|anchor`: check every document and its chain, and keep heads elsewhere."""

import argparse
import os
import sys
from typing import Any

from weft.cli.arguments import add_format, add_store
from weft.cli.exit import ExitCode
from weft.cli.output import Paint, ProgressLine, format_time, sanitize, to_table, write_json
from weft.errors import InvalidInputError
from weft.host.now import now as read_clock
from weft.local.reader import resolve_existing_store
from weft.maintenance.anchor import AnchorCheck, add_anchor, check_anchors, list_heads
from weft.maintenance.migrate import SessionDigest
from weft.maintenance.verify import VerifyResult, verify_store
from weft.model.display import format_count
from weft.model.ids import SessionID
from weft.model.proof import ProofFinding, SessionProof
from weft.store.maintenance import StoreMaintenance, open_maintenance

HASH_SHOWN = 12


def add_verify_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "session",
        metavar="SESSION",
        nargs="?",
        help="verify this session only; the beginning of its id is enough",
    )
    add(
        "--anchor",
        metavar="PLACE",
        help="also check against heads that `weft storage anchor` wrote: a file, or git for the notes of this repository",
    )
    add(
        "--signed-by",
        metavar="FILE",
        help="accept only heads that were signed by somebody in this file of allowed signers (see ssh-keygen)",
    )
    add(
        "--strict",
        action="store_true",
        help="fail also on changes that were made outside weft, such as those of OpenCode",
    )
    add_format(parser)
    add_store(parser)


def verify_command(args: argparse.Namespace) -> int:
    if args.signed_by is not None and args.anchor is None:
        raise InvalidInputError(
            "--signed-by", "it needs --anchor, which names the signed heads", hint="add --anchor PLACE"
        )
    store = open_maintenance(resolve_existing_store(os.environ, args.store))
    store.check_format()
    anchors = AnchorCheck(heads=())
    if args.anchor is not None:
        anchors = check_anchors(args.anchor, environ=os.environ, allowed=args.signed_by)
    only = None if args.session is None else _find_session(store, args.session)
    with ProgressLine("reading sessions") as progress:
        result = verify_store(
            store,
            now=read_clock(),
            only=only,
            anchored=anchors.heads,
            strict=args.strict,
            on_progress=progress,
        )
    if args.format == "json":
        write_json(_to_report(result, anchors))
    else:
        _print_result(result, anchors)
    return ExitCode.DONE if result.is_sound and not anchors.problems else ExitCode.FAILED


def _find_session(store: StoreMaintenance, name: str) -> SessionID:
    """Return the session whose id begins with a name. Raise `InvalidInputError` if there is none, or several."""
    found = sorted({id for id in (*store.list_session_ids(), *store.list_chains()) if id.startswith(name)})
    if name in found:
        return SessionID(name)
    if len(found) != 1:
        count = "no session has an id" if not found else f"{len(found)} sessions have ids"
        raise InvalidInputError(
            "SESSION", f"{count} that begins with {name!r}", hint="list them: weft session list"
        )
    return found[0]


def _to_report(result: VerifyResult, anchors: AnchorCheck) -> dict[str, Any]:
    problems = [
        {"session": fault.session, "where": fault.where, "reason": fault.reason} for fault in result.faults
    ]
    problems += [{"session": None, "where": "anchor", "reason": reason} for reason in anchors.problems]
    return {
        "sound": result.is_sound and not anchors.problems,
        "sessions": result.digests,
        "proofs": result.proofs,
        "problems": problems,
        "anchored": {"heads": len(anchors.heads), "signers": anchors.signers},
        "totals": _count_totals(result, anchors),
    }


def _count_totals(result: VerifyResult, anchors: AnchorCheck) -> dict[str, int]:
    faults = sum(finding.is_fault for proof in result.proofs for finding in proof.findings)
    return {
        "sessions": len(result.digests),
        "messages": sum(each.messages for each in result.digests),
        "parts": sum(each.parts for each in result.digests),
        "problems": len(result.faults) + faults + len(anchors.problems),
    }


VERDICTS = {
    "intact": "intact",
    "outside": "changed outside weft",
    "faulty": "FAULTY",
    "unproven": "not proven",
}


def _print_result(result: VerifyResult, anchors: AnchorCheck) -> None:
    paint = Paint(sys.stdout)
    head = ("session", "messages", "parts", "diffs", "todos", "hash", "entries", "head", "verdict")
    proofs = {proof.session: proof for proof in result.proofs}
    rows = [
        (each.session, *_format_counts(each), *_format_proof(proofs[each.session])) for each in result.digests
    ]
    if rows:
        print("\n".join(to_table(head, rows, paint, right="messages parts diffs todos entries")))
    for proof in result.proofs:
        for finding in proof.findings:
            print(_format_finding(proof.session, finding, paint))
    for fault in result.faults:
        print(f"{paint.red('problem:')} {sanitize(fault.where)}: {sanitize(fault.reason)}")
    for reason in anchors.problems:
        print(f"{paint.red('problem:')} {sanitize(reason)}")
    if anchors.heads:
        by = f", signed by {sanitize(', '.join(anchors.signers))}" if anchors.signers else ""
        print(f"checked against {format_count(len(anchors.heads), 'anchored head')}{by}")
    totals = _count_totals(result, anchors)
    print(", ".join(format_count(count, name.removesuffix("s")) for name, count in totals.items()))
    if result.faults:
        print(paint.dim("weft doctor says what they mean and what to do"))


def _format_proof(proof: SessionProof) -> tuple[str, ...]:
    return str(proof.entries), proof.head[:HASH_SHOWN], VERDICTS[proof.verdict]


def _format_finding(session: SessionID, finding: ProofFinding, paint: Paint) -> str:
    label = paint.red(f"{finding.kind}:") if finding.is_fault else paint.yellow(f"{finding.kind}:")
    at = "" if finding.at is None else f" at {format_time(finding.at, now=read_clock())}"
    return f"{label} {sanitize(session)} {sanitize(finding.where)}: {sanitize(finding.reason)}{at}"


def add_anchor_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "place",
        metavar="PLACE",
        help="a file to append to, or git for a note at the last commit of this repository",
    )
    add("--session", metavar="ID", help="anchor this session only")
    add(
        "--sign",
        metavar="KEY",
        help="sign the heads with this SSH key (a file; a public key if an agent has the private one)",
    )
    add_store(parser)


def anchor_command(args: argparse.Namespace) -> int:
    store = open_maintenance(resolve_existing_store(os.environ, args.store))
    store.check_format()
    only = None if args.session is None else _find_session(store, args.session)
    heads = list_heads(store, only)
    if not heads and only is not None:
        raise InvalidInputError(
            "--session", f"{only} has no chain yet", hint=f"weft storage verify {only} says more"
        )
    if not heads:
        raise InvalidInputError(
            "PLACE", "no session has a chain yet", hint="weft writes one with every session"
        )
    where = add_anchor(args.place, heads, now=read_clock(), environ=os.environ, key=args.sign)
    how = "signed and written" if args.sign else "written"
    print(f"{format_count(len(heads), 'head')} {how} to {where}")
    return ExitCode.DONE


def _format_counts(each: SessionDigest) -> tuple[str, ...]:
    numbers = (each.messages, each.parts, each.diffs, each.todos)
    return (*(str(number) for number in numbers), each.hash[:HASH_SHOWN])
