"""`weft import`: sessions from a file, a bundle, or what another program has kept."""

import argparse
import asyncio
import os
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

from weft.cli.exit import Exit
from weft.cli.paint import Paint, plain, write_json
from weft.cli.progress import Progress
from weft.cli.table import to_table
from weft.local.imports import Report, Wish, open_mover
from weft.model.parcel import Counts, Received
from weft.model.readable import plural
from weft.transfer.rebind import parse_rebind

ROWS = 50
DIGITS = 12
TITLE_WIDTH = 40


def import_command(chosen: argparse.Namespace) -> int:
    wish = Wish(
        path=chosen.path,
        kind=chosen.kind,
        rebinds=tuple(parse_rebind(text) for text in chosen.rebind),
        dry_run=chosen.dry_run,
    )
    report = asyncio.run(_bring(chosen, wish))
    if chosen.format == "json":
        write_json(_to_plain(report, wish))
    else:
        _print(report, wish, Paint(sys.stdout))
        _print_troubles(report, Paint(sys.stderr))
    return Exit.FAILED if report.troubles else Exit.DONE


async def _bring(chosen: argparse.Namespace, wish: Wish) -> Report:
    async with open_mover(chosen.dir, os.environ, store=chosen.store, dry_run=wish.dry_run) as mover:
        with Progress("importing") as tell:
            return await mover.bring(wish, tell)


def _print(report: Report, wish: Wish, paint: Paint) -> None:
    did = "Would import" if wish.dry_run else "Imported"
    if len(report.received) == 1 and not wish.kind:
        [one] = report.received
        print(f"{did} session: {one.id}")  # OpenCode's own words, for whoever reads them by machine
        print(paint.dim(_story(one)))
        return
    if len(report.received) <= ROWS:
        for line in _sessions(report, paint):
            print(line)
        print()
    for line in _totals(report, paint):
        print(line)
    verdicts = Counter(each.verdict for each in report.received)
    told = ", ".join(f"{verdicts[verdict]} {verdict}" for verdict in sorted(verdicts)) or "nothing found"
    print(f"\n{did}: {told}")
    if len(report.received) > ROWS:
        print(paint.dim("each session with its hash: --format json"))


def _sessions(report: Report, paint: Paint) -> Iterator[str]:
    rows = [
        (
            each.id,
            plain(each.title)[:TITLE_WIDTH],
            each.verdict,
            _arrow(each.before.messages, each.after.messages),
            _arrow(each.before.parts, each.after.parts),
            each.digest[:DIGITS],
        )
        for each in report.received
    ]
    return to_table(("Session", "Title", "", "Messages", "Parts", "Hash"), rows, paint)


def _totals(report: Report, paint: Paint) -> Iterator[str]:
    before, after, count = report.before, report.after, len(report.received)
    rows = [("sessions", f"{count + report.refused:,}", f"{count:,}")]
    rows += [
        (name, f"{getattr(before, name):,}", f"{getattr(after, name):,}")
        for name in ("messages", "parts", "todos", "diffs")
    ]
    return to_table(("", "Before", "After"), rows, paint, right="Before After")


def _arrow(before: int, after: int) -> str:
    return f"{before:,}" if before == after else f"{before:,} -> {after:,}"


def _story(one: Received) -> str:
    """What became of it, in a sentence."""
    counts: Counts = one.after
    size = f"{plural(counts.messages, 'message')}, {plural(counts.parts, 'part')}"
    match one.verdict:
        case "new":
            return f"new here: {size}"
        case "same":
            return f"it was here already, word for word: {size}"
        case "older":
            return f"nothing to do: what is here holds all of it and more ({size})"
        case "updated":
            return f"the one here was brought up to date: {size}"
        case "forked":
            return f"both had gone on, so it is kept beside {one.origin}: {size}"


def _print_troubles(report: Report, paint: Paint) -> None:
    for trouble in report.troubles:
        print(
            f"{paint.yellow('warning:')} {plain(trouble.where)}: {plain(trouble.reason)}; it is left out",
            file=sys.stderr,
        )


def _to_plain(report: Report, wish: Wish) -> dict[str, Any]:
    return {
        "dryRun": wish.dry_run,
        "refused": report.refused,
        "sessions": list(report.received),
        "before": report.before,
        "after": report.after,
        "troubles": [{"where": each.where, "reason": each.reason} for each in report.troubles],
    }
