"""`weft permission log`: every decision there was, and whether the log of them is whole."""

import argparse
import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime

from weft.cli.exit import Exit
from weft.cli.paint import Paint, write_json_line
from weft.cli.table import to_table
from weft.host.paths import paths_from
from weft.local.permissions import log_of, name_of, permission_directory
from weft.local.reader import Reading
from weft.model.wire import to_plain
from weft.permission.audit import Break, Entry, LogFiles, find_break, read_entries

HEAD = ("#", "when", "what", "agent", "permission", "why")


def show_log(chosen: argparse.Namespace) -> int:
    reading = Reading(chosen.dir, os.environ, store=chosen.store)
    files = log_of(permission_directory(paths_from(os.environ)), name_of(reading.place()))
    if chosen.verify:
        return _verify(files, chosen.format)
    found = [
        (number, entry)
        for number, entry in read_entries(files)
        if not chosen.session or entry.session_id.startswith(chosen.session)
    ]
    if chosen.max_count is not None:
        found = found[len(found) - min(len(found), max(chosen.max_count, 0)) :]
    if chosen.format == "json":
        for number, entry in found:
            write_json_line({"seq": number, **to_plain(entry)})
    elif found:
        print("\n".join(to_table(HEAD, list(_rows(found)), Paint(sys.stdout))))
    _, broken = find_break(files)
    if broken is not None:
        _warn(broken)
    return Exit.DONE


def _verify(files: LogFiles, format: str) -> int:
    held, broken = find_break(files)
    end = files.find_end()
    if format == "json":
        told = {"records": held, "end": to_plain(end), "broken": to_plain(broken) if broken else None}
        write_json_line(told)
    elif broken is not None:
        _warn(broken)
    else:
        note = f"; the end is {end.seq} {end.hash}" if end else ""
        print(f"{held} records, and the chain holds{note}")
    return Exit.DONE if broken is None else Exit.FAILED


def _warn(broken: Break) -> None:
    mark, where = Paint(sys.stderr).red("broken:"), f"{broken.file}:{broken.line}"
    print(f"{mark} {where}: record {broken.seq} {broken.reason}", file=sys.stderr)


def _rows(found: list[tuple[int, Entry]]) -> Iterator[tuple[str, ...]]:
    for number, entry in found:
        at = datetime.fromtimestamp(entry.time / 1000, UTC).astimezone()
        wanted = f"{entry.permission}: {', '.join(entry.patterns)}" if entry.permission else ""
        yield str(number), f"{at:%Y-%m-%d %H:%M:%S}", _what(entry), entry.agent, wanted, _why(entry)


def _what(entry: Entry) -> str:
    return f"{entry.what} {entry.reply}".strip()


def _why(entry: Entry) -> str:
    said = (
        entry.rule and f"rule {entry.rule}",
        ", ".join(entry.grants),
        entry.scope and f"for {entry.scope}",
        entry.by and f"by {entry.by}",
        entry.message and f"“{entry.message}”",
        str(entry.count) if entry.count else "",
    )
    return " ".join(part for part in said if part)
