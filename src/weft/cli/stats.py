"""`weft stats`: statistics of sessions: cost and tokens by model, day and project, and the use of tools."""

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import TypeVar

from weft.cli.arguments import add_format, add_place, parse_count
from weft.cli.output import Paint, ProgressLine, format_cost, sanitize, write_json
from weft.cli.session import open_reading, report_damage
from weft.cli.session_search import warn_about_index
from weft.host.now import now as read_clock
from weft.host.paths import paths_from
from weft.local.reader import SessionReader
from weft.model.ids import ProjectID
from weft.model.search import Figures, UsageShare
from weft.search.library import SessionLibrary
from weft.search.sessions import to_statistics_query

WIDTH = 56
BAR = 20
DAYS_SHOWN = 14
PROJECTS_SHOWN = 10
THOUSAND = 1_000

Lines = Iterable[str]
T = TypeVar("T")


def add_stats_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--days", type=parse_count, metavar="N", help="only the last N days; 0 is today")
    add("--tools", type=parse_count, metavar="N", help="show at most N tools")
    add("--models", type=parse_count, nargs="?", const=0, metavar="N", help="show models, at most N of them")
    add(
        "--project",
        nargs="?",
        const="",
        metavar="ID",
        help="only this project; without a value, the current one",
    )
    add_format(parser)
    add_place(parser)


def show_stats(chosen: argparse.Namespace) -> int:
    reading = open_reading(chosen)
    library = SessionLibrary(reading.store, paths_from(os.environ).cache, warn=warn_about_index)
    wanted = to_statistics_query(read_clock(), days=chosen.days, project=_to_project(reading, chosen.project))
    with ProgressLine("reading sessions for the figures") as progress:
        found = library.figures(wanted, progress=progress)
    if chosen.format == "json":
        write_json(found)
    else:
        names = {project.id: project.worktree for project in reading.store.list_projects()}
        print("\n".join(_page(found, chosen, Drawing(Paint(sys.stdout)), names)))
    report_damage(reading)
    return 0


def _to_project(reading: SessionReader, named: str | None) -> ProjectID | None:
    """Return the project that was named, the current one if the flag has no value, or None for all."""
    if named is None:
        return None
    return ProjectID(named) if named else reading.project()


class Drawing:
    """Draws boxes and bars of the width that OpenCode uses."""

    def __init__(self, paint: Paint) -> None:
        self._paint = paint

    def box(self, title: str, rows: Lines) -> Lines:
        yield f"┌{'─' * WIDTH}┐"
        yield f"│{self._paint.bold(title.center(WIDTH))}│"
        yield f"├{'─' * WIDTH}┤"
        for row in rows:
            yield f"│{row}│"
        yield f"└{'─' * WIDTH}┘"

    def row(self, label: str, value: str) -> str:
        room = WIDTH - len(value) - 3
        return f" {shorten_name(label, room):<{room}} {value} "

    def bar(self, label: str, share: Decimal | float, value: str) -> str:
        """Draw a label, a bar whose length is the share of the longest one, and the value."""
        filled = max(1, round(share * BAR)) if share > 0 else 0
        room = WIDTH - BAR - len(value) - 4
        painted = self._paint.blue("█" * filled) + " " * (BAR - filled)
        return f" {shorten_name(label, room):<{room}} {painted} {value} "


def _page(found: Figures, chosen: argparse.Namespace, draw: Drawing, names: dict[ProjectID, str]) -> Lines:
    yield from draw.box("OVERVIEW", _overview(found, draw))
    yield ""
    yield from draw.box("COST & TOKENS", _cost(found, draw))
    if chosen.models is not None:
        yield ""
        yield from draw.box("MODEL USAGE", _models(_first(found.models, chosen.models), draw))
    if len(found.by_day) > 1:
        yield ""
        yield from draw.box("BY DAY", _shares(found.by_day[-DAYS_SHOWN:], draw))
    if len(found.projects) > 1:
        yield ""
        named = [(names.get(ProjectID(share.name), share.name), share) for share in found.projects]
        yield from draw.box("BY PROJECT", _named_shares(named[:PROJECTS_SHOWN], draw))
    if found.tools:
        yield ""
        yield from draw.box("TOOL USAGE", _tools(found, chosen.tools, draw))


def _overview(found: Figures, draw: Drawing) -> Lines:
    yield draw.row("Sessions", f"{found.sessions:,}")
    yield draw.row("Messages", f"{found.messages:,}")
    yield draw.row("Days", f"{found.days:,}")


def _cost(found: Figures, draw: Drawing) -> Lines:
    spent = found.spent
    yield draw.row("Total Cost", f"${spent.cost:.2f}")
    if not spent.priced:
        yield draw.row("", "and more: not all of the cost is known")
    yield draw.row("Avg Cost/Day", f"${spent.cost / max(found.days, 1):.2f}")
    yield draw.row("Avg Tokens/Session", abbreviate(found.average_tokens))
    yield draw.row("Median Tokens/Session", abbreviate(found.median_tokens))
    yield draw.row("Input", abbreviate(spent.input))
    yield draw.row("Output", abbreviate(spent.output + spent.reasoning))
    yield draw.row("Cache Read", abbreviate(spent.cache_read))
    yield draw.row("Cache Write", abbreviate(spent.cache_write))
    if not spent.counted:
        yield draw.row("", "and more: not every answer was counted")


def _models(models: Sequence[UsageShare], draw: Drawing) -> Lines:
    for number, model in enumerate(models):
        if number:
            yield "─" * WIDTH
        yield draw.row(sanitize(model.name), format_cost(model.spent))
        yield draw.row("  Messages", f"{model.messages:,}")
        yield draw.row("  Input Tokens", abbreviate(model.spent.input))
        yield draw.row("  Output Tokens", abbreviate(model.spent.output + model.spent.reasoning))
        yield draw.row("  Cache Read", abbreviate(model.spent.cache_read))
        yield draw.row("  Cache Write", abbreviate(model.spent.cache_write))
        if not model.spent.counted:
            yield draw.row("", "and more: not every answer was counted")


def _shares(shares: Sequence[UsageShare], draw: Drawing) -> Lines:
    return _named_shares([(share.name, share) for share in shares], draw)


def _named_shares(named: Sequence[tuple[str, UsageShare]], draw: Drawing) -> Lines:
    """Draw bars of dollars, or of messages if no price is known."""
    dearest = max(share.spent.cost for _, share in named)
    most = max(share.messages for _, share in named)
    values = [f"${share.spent.cost:.2f}" if dearest else f"{share.messages:,}" for _, share in named]
    width = max(len(value) for value in values)
    for (name, share), value in zip(named, values, strict=True):
        length = share.spent.cost / dearest if dearest else Decimal(share.messages) / most
        yield draw.bar(sanitize(name), length, value.rjust(width))


def _tools(found: Figures, limit: int | None, draw: Drawing) -> Lines:
    total = sum(tool.calls for tool in found.tools)
    most = found.tools[0].calls
    for tool in _first(found.tools, limit):
        share = f"{tool.calls:>5,} ({100 * tool.calls / total:4.1f}%)"
        yield draw.bar(sanitize(tool.name), tool.calls / most, share)


def _first(items: Sequence[T], limit: int | None) -> Sequence[T]:
    return items[:limit] if limit else items


def abbreviate(count: int) -> str:
    """Format thousands and millions with one decimal, as OpenCode does."""
    if count >= THOUSAND**2:
        return f"{count / THOUSAND**2:.1f}M"
    return f"{count / THOUSAND:.1f}K" if count >= THOUSAND else str(count)


def shorten_name(text: str, room: int) -> str:
    """Cut off the start of a name that is too long: the end of a path says more."""
    return text if len(text) <= room else "…" + text[len(text) - room + 1 :]
