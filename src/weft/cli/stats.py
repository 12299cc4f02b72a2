"""`weft stats`: statistics of sessions: cost and tokens by model, day and project, and the use of tools."""

import argparse
import sys
from collections.abc import Iterable, Sequence
from decimal import Decimal

from weft.cli.arguments import add_format, add_place, parse_count
from weft.cli.output import Paint, ProgressLine, format_cost, sanitize, write_json
from weft.cli.session import make_reader, report_damage
from weft.errors import NotFoundError
from weft.host.now import now as read_clock
from weft.local.reader import SessionReader
from weft.model.ids import ProjectID
from weft.model.search import Figures, UsageShare
from weft.store.statistics import to_statistics_query

BOX_WIDTH = 56
BAR_WIDTH = 20
MAX_DAYS = 14
MAX_PROJECTS = 10
THOUSAND = 1_000

Lines = Iterable[str]


def add_stats_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--days", type=parse_count, metavar="N", help="only the last N days; 0 is today")
    add("--tools", type=parse_count, metavar="N", help="show at most N tools")
    add(
        "--models",
        type=parse_count,
        nargs="?",
        const=sys.maxsize,
        metavar="N",
        help="show models, at most N of them",
    )
    add(
        "--project",
        nargs="?",
        const="",
        metavar="ID",
        help="only this project; without a value, the current one",
    )
    add_format(parser)
    add_place(parser)


def show_stats(args: argparse.Namespace) -> int:
    reader = make_reader(args)
    query = to_statistics_query(read_clock(), days=args.days, project=_choose_project(reader, args.project))
    with ProgressLine("reading sessions for the figures") as progress:
        figures = reader.store.figures(query, progress=progress)
    if args.format == "json":
        write_json(figures)
    else:
        names = {project.id: project.worktree for project in reader.store.list_projects()}
        print("\n".join(_draw_page(figures, args, BoxDrawing(Paint(sys.stdout)), names)))
    report_damage(reader)
    return 0


def _choose_project(reader: SessionReader, id: str | None) -> ProjectID | None:
    """Return the project that was named, the current one if the flag has no value, or None for all.

    Raise `NotFoundError` if there is no project with this id: figures of zero would look like an answer.
    """
    if id is None:
        return None
    if not id:
        return reader.project()
    if not any(project.id == id for project in reader.store.list_projects()):
        raise NotFoundError("project", id[:80], hint="weft project list shows the ids of all projects")
    return ProjectID(id)


class BoxDrawing:
    """Draws boxes and bars of the width that OpenCode uses."""

    def __init__(self, paint: Paint) -> None:
        self._paint = paint

    def box(self, title: str, rows: Lines) -> Lines:
        yield f"┌{'─' * BOX_WIDTH}┐"
        yield f"│{self._paint.bold(title.center(BOX_WIDTH))}│"
        yield f"├{'─' * BOX_WIDTH}┤"
        for row in rows:
            yield f"│{row}│"
        yield f"└{'─' * BOX_WIDTH}┘"

    def row(self, label: str, value: str) -> str:
        width = BOX_WIDTH - len(value) - 3
        return f" {shorten_name(label, width):<{width}} {value} "

    def bar(self, label: str, share: Decimal | float, value: str) -> str:
        """Draw a label, a bar whose length is the share of the longest one, and the value."""
        filled = max(1, round(share * BAR_WIDTH)) if share > 0 else 0
        width = BOX_WIDTH - BAR_WIDTH - len(value) - 4
        bar = self._paint.blue("█" * filled) + " " * (BAR_WIDTH - filled)
        return f" {shorten_name(label, width):<{width}} {bar} {value} "


def _draw_page(
    figures: Figures, args: argparse.Namespace, drawing: BoxDrawing, names: dict[ProjectID, str]
) -> Lines:
    yield from drawing.box("OVERVIEW", _draw_overview(figures, drawing))
    yield ""
    yield from drawing.box("COST & TOKENS", _draw_cost(figures, drawing))
    if args.models:
        yield ""
        yield from drawing.box("MODEL USAGE", _draw_models(figures.models[: args.models], drawing))
    if len(figures.by_day) > 1:
        yield ""
        yield from drawing.box("BY DAY", _draw_shares(figures.by_day[-MAX_DAYS:], drawing))
    if len(figures.projects) > 1:
        yield ""
        shares = [(names.get(ProjectID(share.name), share.name), share) for share in figures.projects]
        yield from drawing.box("BY PROJECT", _draw_named_shares(shares[:MAX_PROJECTS], drawing))
    if figures.tools and args.tools != 0:  # for OpenCode, 0 is no limit
        yield ""
        yield from drawing.box("TOOL USAGE", _draw_tools(figures, args.tools, drawing))


def _draw_overview(figures: Figures, drawing: BoxDrawing) -> Lines:
    yield drawing.row("Sessions", f"{figures.sessions:,}")
    yield drawing.row("Messages", f"{figures.messages:,}")
    yield drawing.row("Days", f"{figures.days:,}")


def _draw_cost(figures: Figures, drawing: BoxDrawing) -> Lines:
    spent = figures.spent
    yield drawing.row("Total Cost", f"${spent.cost:.2f}")
    if not spent.priced:
        yield drawing.row("", "and more: not all of the cost is known")
    yield drawing.row("Avg Cost/Day", f"${spent.cost / max(figures.days, 1):.2f}")
    yield drawing.row("Avg Tokens/Session", abbreviate(figures.average_tokens))
    yield drawing.row("Median Tokens/Session", abbreviate(figures.median_tokens))
    yield drawing.row("Input", abbreviate(spent.input))
    yield drawing.row("Output", abbreviate(spent.output + spent.reasoning))
    yield drawing.row("Cache Read", abbreviate(spent.cache_read))
    yield drawing.row("Cache Write", abbreviate(spent.cache_write))
    if not spent.counted:
        yield drawing.row("", "and more: not every answer was counted")


def _draw_models(models: Sequence[UsageShare], drawing: BoxDrawing) -> Lines:
    for number, model in enumerate(models):
        if number:
            yield "─" * BOX_WIDTH
        yield drawing.row(sanitize(model.name), format_cost(model.spent))
        yield drawing.row("  Messages", f"{model.messages:,}")
        yield drawing.row("  Input Tokens", abbreviate(model.spent.input))
        yield drawing.row("  Output Tokens", abbreviate(model.spent.output + model.spent.reasoning))
        yield drawing.row("  Cache Read", abbreviate(model.spent.cache_read))
        yield drawing.row("  Cache Write", abbreviate(model.spent.cache_write))
        if not model.spent.counted:
            yield drawing.row("", "and more: not every answer was counted")


def _draw_shares(shares: Sequence[UsageShare], drawing: BoxDrawing) -> Lines:
    return _draw_named_shares([(share.name, share) for share in shares], drawing)


def _draw_named_shares(shares: Sequence[tuple[str, UsageShare]], drawing: BoxDrawing) -> Lines:
    """Draw bars of dollars, or of messages if no price is known."""
    max_cost = max(share.spent.cost for _, share in shares)
    max_messages = max(share.messages for _, share in shares)
    values = [f"${share.spent.cost:.2f}" if max_cost else f"{share.messages:,}" for _, share in shares]
    width = max(len(value) for value in values)
    for (name, share), value in zip(shares, values, strict=True):
        fraction = share.spent.cost / max_cost if max_cost else Decimal(share.messages) / max_messages
        yield drawing.bar(sanitize(name), fraction, value.rjust(width))


def _draw_tools(figures: Figures, limit: int | None, drawing: BoxDrawing) -> Lines:
    total = sum(tool.calls for tool in figures.tools)
    max_calls = figures.tools[0].calls
    for tool in figures.tools[:limit]:
        value = f"{tool.calls:>5,} ({100 * tool.calls / total:4.1f}%)"
        yield drawing.bar(sanitize(tool.name), tool.calls / max_calls, value)


def abbreviate(count: int) -> str:
    """Format thousands and millions with one decimal, as OpenCode does."""
    if count >= THOUSAND**2:
        return f"{count / THOUSAND**2:.1f}M"
    return f"{count / THOUSAND:.1f}K" if count >= THOUSAND else str(count)


def shorten_name(text: str, width: int) -> str:
    """Cut off the start of a name that is too long: the end of a path says more."""
    return text if len(text) <= width else "…" + text[len(text) - width + 1 :]
