"""Render a comparison of sessions as one HTML page that loads nothing (pure)."""

from collections.abc import Sequence
from typing import Final

from weft.model.display import format_cost, format_count, format_tokens
from weft.model.session import CheckResult
from weft.model.trial import ComparedSession, Comparison, Divergence, TrialJudgement
from weft.page.document import render_file
from weft.page.html import EMPTY, Html, escape, join, tag

HEADER: Final = ("", "outcome", "check", "changes", "steps", "tokens", "cost", "time", "differs first")
MS_PER_SECOND: Final = 1000
SECONDS_PER_MINUTE: Final = 60


def render_comparison(comparison: Comparison) -> bytes:
    """Render a comparison: the table, the judge's opinion, what the checks printed, and where the sessions differ."""
    title = f"{format_count(len(comparison.sessions), 'session')} compared"
    return render_file(
        title,
        tag(
            "header", tag("h1", escape(title)), tag("p", escape(f"together {format_cost(comparison.spent)}"))
        ),
        tag(
            "main",
            _render_table(comparison),
            _render_judgement(comparison.judgement, comparison.sessions),
            *(_render_session(number, row) for number, row in enumerate(comparison.sessions, start=1)),
        ),
    )


def _render_table(comparison: Comparison) -> Html:
    head = tag("tr", *(tag("th", escape(name)) for name in HEADER))
    rows = [
        tag("tr", *(tag("td", escape(cell)) for cell in to_cells(number, row)))
        for number, row in enumerate(comparison.sessions, start=1)
    ]
    return tag("table", tag("thead", head), tag("tbody", *rows))


def to_cells(number: int, row: ComparedSession) -> tuple[str, ...]:
    """Return the facts about a session in the order of `HEADER`."""
    return (
        f"{number} {row.model}",
        row.outcome,
        format_check(row.check),
        f"{format_count(row.files, 'file')} +{row.additions} -{row.deletions}",
        str(row.spent.steps),
        format_tokens(row.spent),
        format_cost(row.spent),
        format_seconds(row.ms),
        format_divergence(row.divergence),
    )


def format_check(check: CheckResult | None) -> str:
    """Return the result of a check in a few words."""
    if check is None:
        return "-"
    code = f" ({check.code})" if check.outcome == "failed" and check.code is not None else ""
    dirtied = f", changed {format_count(len(check.dirtied), 'file')}" if check.dirtied else ""
    return f"{check.outcome}{code} {format_seconds(check.ms)}{dirtied}"


def format_divergence(divergence: Divergence | None) -> str:
    return "-" if divergence is None else f"step {divergence.step}: {divergence.what}"


def format_seconds(ms: int) -> str:
    """Return a duration with a tenth of a second if it is short."""
    seconds = round(ms / MS_PER_SECOND, 1)
    if seconds < SECONDS_PER_MINUTE:
        return f"{seconds:.1f}s"
    return f"{int(seconds) // SECONDS_PER_MINUTE}m{int(seconds) % SECONDS_PER_MINUTE:02}s"


def _render_judgement(judgement: TrialJudgement | None, sessions: Sequence[ComparedSession]) -> Html:
    if judgement is None:
        return EMPTY
    numbers = {row.session: number for number, row in enumerate(sessions, start=1)}
    items = [
        tag("li", tag("b", escape(f"session {numbers[each.session]}")), escape(f": {each.reasons}"))
        for each in judgement.rankings
    ]
    cost = f"{judgement.model} ranks them; that cost {format_cost(judgement.spent)}"
    return join((tag("h2", escape("The judge")), tag("p", escape(cost)), tag("ol", *items)))


def _render_session(number: int, row: ComparedSession) -> Html:
    pieces = [tag("h2", escape(f"{number} {row.title}"))]
    facts = " · ".join(fact for fact in (row.session, row.agent, row.worktree, row.detail) if fact)
    pieces.append(tag("p", escape(facts)))
    if row.changed:
        pieces.append(tag("ul", *(tag("li", tag("code", escape(path))) for path in row.changed)))
    if row.divergence is not None:
        where = f"step {row.divergence.step} differs from the first session"
        pieces += [
            tag("h3", escape(where)),
            tag("pre", escape(row.divergence.one)),
            tag("pre", escape(row.divergence.other)),
        ]
    if row.check is not None:
        pieces += [tag("h3", escape(row.check.command)), tag("pre", escape(row.check.output))]
    return tag("section", *pieces)
