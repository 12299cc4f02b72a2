"""`weft session cost`: show what a session and its child sessions cost."""

import argparse
import os
import sys
from collections.abc import Iterable

from weft.cli.arguments import add_format, add_place, add_session
from weft.cli.output import Paint, format_cost, format_tokens, sanitize, write_json
from weft.cli.session import open_reading, report_damage
from weft.config.store_address import find_own_setting
from weft.host.paths import paths_from
from weft.model.message import AnyMessage
from weft.model.session import Session, SessionTree
from weft.model.spending import Spending, Spent
from weft.session.totals import total_spending
from weft.session.tree import build_tree, list_descendants
from weft.store.reader import StoreReader

BUDGET = ("experimental", "weft", "budget")


def add_cost_arguments(parser: argparse.ArgumentParser) -> None:
    add_session(parser)
    parser.add_argument("--tree", action="store_true", help="show each child session, too")
    add_format(parser)
    add_place(parser)


def show_cost(chosen: argparse.Namespace) -> int:
    reading = open_reading(chosen)
    session = reading.get_session(chosen.session)
    related = reading.store.list_sessions(session.project_id)
    family = [session, *list_descendants(related, session.id)]
    costs = _add_up_costs(family, reading.store)
    if chosen.format == "json":
        write_json(_to_report(session, family, costs, tree=chosen.tree))
    elif chosen.tree:
        print("\n".join(_tree_lines(build_tree(related, session), costs, Paint(sys.stdout))))
    else:
        print("\n".join(_lines(costs[session.id], Paint(sys.stdout))))
    report_damage(reading)
    return 0


def _add_up_costs(family: list[Session], store: StoreReader) -> dict[str, Spending]:
    read: dict[str, list[AnyMessage]] = {}

    def infos(session: Session) -> list[AnyMessage]:
        if session.id not in read:
            read[session.id] = [message.info for message in store.list_messages(session.id)]
        return read[session.id]

    return {session.id: total_spending(session, family, infos) for session in family}


def _to_report(
    session: Session, family: list[Session], costs: dict[str, Spending], *, tree: bool
) -> dict[str, object]:
    document: dict[str, object] = {
        "id": session.id,
        "own": costs[session.id].own,
        "tree": costs[session.id].tree,
    }
    budget = find_own_setting(paths_from(os.environ), BUDGET)
    if budget is not None:
        document["budget"] = budget
    if tree:
        document["sessions"] = [
            {"id": each.id, "parentID": each.parent_id, "title": each.title, "own": costs[each.id].own}
            for each in family
        ]
    return document


def _lines(cost: Spending, paint: Paint) -> Iterable[str]:
    yield f"{paint.bold('itself')}   {format_spent(cost.own)}"
    if cost.tree != cost.own:
        yield f"{paint.bold('in all')}   {format_spent(cost.tree)} {paint.dim('with the sessions below it')}"


def _tree_lines(tree: SessionTree, costs: dict[str, Spending], paint: Paint) -> Iterable[str]:
    waiting = [(tree, 0)]
    while waiting:
        each, depth = waiting.pop()
        cost, name = costs[each.session.id], sanitize(each.session.title).replace("\n", " ")
        yield f"{'  ' * depth}{paint.bold(format_cost(cost.tree))}  {name}  {paint.dim(each.session.id)}"
        if depth == 0 or each.children:
            yield f"{'  ' * depth}  {paint.dim('itself ' + format_spent(cost.own))}"
        waiting += [(child, depth + 1) for child in reversed(each.children)]


def format_spent(spent: Spent) -> str:
    return f"{format_cost(spent)} · {format_tokens(spent)}"
