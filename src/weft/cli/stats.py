"""`weft stats`: sessions in numbers: what they cost, which models and tools they used, day by day."""

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import TypeVar

from weft.cli.paint import Paint, plain, write_json
from weft.cli.progress import Progress
from weft.cli.search import warn_of_index
from weft.cli.sessions import warn_of_damage
from weft.cli.spent import dollars
from weft.host.now import now as read_clock
from weft.host.paths import paths_from
from weft.local.reader import Reading
from weft.model.ids import ProjectID
from weft.model.search import Figures, Share
from weft.search.library import Library
from weft.search.sessions import want

WIDTH = 56
BAR = 20
DAYS_SHOWN = 14
PROJECTS_SHOWN = 10
THOUSAND = 1_000

Lines = Iterable[str]
T = TypeVar("T")


def show_stats(chosen: argparse.Namespace) -> int:
    reading = Reading(chosen.dir, os.environ, store=chosen.store)
    library = Library(reading.tree, paths_from(os.environ).cache, warn=warn_of_index)
    wanted = want(read_clock(), days=chosen.days, project=_project(reading, chosen.project))
    with Progress("reading sessions for the figures") as progress:
        found = library.figures(wanted, progress=progress)
    if chosen.format == "json":
        write_json(found)
    else:
        names = {project.id: project.worktree for project in reading.tree.list_projects()}
        print("\n".join(_page(found, chosen, Drawing(Paint(sys.stdout)), names)))
    warn_of_damage(reading)
    return 0


def _project(reading: Reading, named: str | None) -> ProjectID | None:
    """The one named, this directory's when the flag has no value, all when it is not there."""
    if named is None:
        return None
    return ProjectID(named) if named else reading.project()


class Drawing:
    """Boxes and bars, as wide as OpenCode draws them."""

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
        return f" {cut(label, room):<{room}} {value} "

    def bar(self, label: str, share: Decimal | float, value: str) -> str:
        """A label, a bar as long as its share of the longest, and what it stands for."""
        filled = max(1, round(share * BAR)) if share > 0 else 0
        room = WIDTH - BAR - len(value) - 4
        painted = self._paint.blue("█" * filled) + " " * (BAR - filled)
        return f" {cut(label, room):<{room}} {painted} {value} "


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
    yield draw.row("Avg Tokens/Session", short(found.average_tokens))
    yield draw.row("Median Tokens/Session", short(found.median_tokens))
    yield draw.row("Input", short(spent.input))
    yield draw.row("Output", short(spent.output + spent.reasoning))
    yield draw.row("Cache Read", short(spent.cache_read))
    yield draw.row("Cache Write", short(spent.cache_write))
    if not spent.counted:
        yield draw.row("", "and more: not every answer was counted")


def _models(models: Sequence[Share], draw: Drawing) -> Lines:
    for number, model in enumerate(models):
        if number:
            yield "─" * WIDTH
        yield draw.row(plain(model.name), dollars(model.spent))
        yield draw.row("  Messages", f"{model.messages:,}")
        yield draw.row("  Input Tokens", short(model.spent.input))
        yield draw.row("  Output Tokens", short(model.spent.output + model.spent.reasoning))
        yield draw.row("  Cache Read", short(model.spent.cache_read))
        yield draw.row("  Cache Write", short(model.spent.cache_write))
        if not model.spent.counted:
            yield draw.row("", "and more: not every answer was counted")


def _shares(shares: Sequence[Share], draw: Drawing) -> Lines:
    return _named_shares([(share.name, share) for share in shares], draw)


def _named_shares(named: Sequence[tuple[str, Share]], draw: Drawing) -> Lines:
    """Bars of dollars; of messages where nothing has a known price."""
    dearest = max(share.spent.cost for _, share in named)
    most = max(share.messages for _, share in named)
    values = [f"${share.spent.cost:.2f}" if dearest else f"{share.messages:,}" for _, share in named]
    width = max(len(value) for value in values)
    for (name, share), value in zip(named, values, strict=True):
        length = share.spent.cost / dearest if dearest else Decimal(share.messages) / most
        yield draw.bar(plain(name), length, value.rjust(width))


def _tools(found: Figures, limit: int | None, draw: Drawing) -> Lines:
    total = sum(tool.calls for tool in found.tools)
    most = found.tools[0].calls
    for tool in _first(found.tools, limit):
        share = f"{tool.calls:>5,} ({100 * tool.calls / total:4.1f}%)"
        yield draw.bar(plain(tool.name), tool.calls / most, share)


def _first(items: Sequence[T], limit: int | None) -> Sequence[T]:
    return items[:limit] if limit else items


def short(count: int) -> str:
    """Thousands and millions with one decimal, as OpenCode writes them."""
    if count >= THOUSAND**2:
        return f"{count / THOUSAND**2:.1f}M"
    return f"{count / THOUSAND:.1f}K" if count >= THOUSAND else str(count)


def cut(text: str, room: int) -> str:
    """As much of a name as there is room for; of a path the end says more."""
    return text if len(text) <= room else "…" + text[len(text) - room + 1 :]
