"""`weft session cost`: show what a session and its child sessions cost."""

import argparse
import os
import sys
from collections.abc import Iterable

from weft.cli.arguments import add_format, add_place, add_session
from weft.cli.output import Paint, format_cost, format_tokens, sanitize, write_json
from weft.cli.session import make_reader, report_damage
from weft.config.store_address import find_own_setting
from weft.host.paths import paths_from
from weft.model.message import AnyMessage
from weft.model.session import SessionInfo, SessionTree
from weft.model.spending import Spending, Spent
from weft.session.selection import build_tree
from weft.session.totals import total_spending
from weft.store.reader import StoreReader

BUDGET_SETTING = ("experimental", "weft", "budget")


def add_cost_arguments(parser: argparse.ArgumentParser) -> None:
    add_session(parser)
    parser.add_argument("--tree", action="store_true", help="show each child session, too")
    add_format(parser)
    add_place(parser)


def show_cost(args: argparse.Namespace) -> int:
    reader = make_reader(args)
    session = reader.get_session(args.session)
    sessions = [session, *reader.list_descendants(session.id)]
    costs = add_up_costs(sessions, reader.store)
    if args.format == "json":
        write_json(_make_report(session, sessions, costs, tree=args.tree))
    elif args.tree:
        print("\n".join(_format_tree_lines(build_tree(sessions, session), costs, Paint(sys.stdout))))
    else:
        print("\n".join(_format_cost_lines(costs[session.id], Paint(sys.stdout))))
    report_damage(reader)
    return 0


def add_up_costs(sessions: list[SessionInfo], store: StoreReader) -> dict[str, Spending]:
    """Return what each session spent, alone and with those below it."""
    cache: dict[str, list[AnyMessage]] = {}

    def list_infos(session: SessionInfo) -> list[AnyMessage]:
        if session.id not in cache:
            cache[session.id] = [message.info for message in store.list_messages(session.id)]
        return cache[session.id]

    return {session.id: total_spending(session, sessions, list_infos) for session in sessions}


def _make_report(
    session: SessionInfo, sessions: list[SessionInfo], costs: dict[str, Spending], *, tree: bool
) -> dict[str, object]:
    report: dict[str, object] = {
        "id": session.id,
        "own": costs[session.id].own,
        "tree": costs[session.id].tree,
    }
    budget = find_own_setting(paths_from(os.environ), BUDGET_SETTING)
    if budget is not None:
        report["budget"] = budget
    if tree:
        report["sessions"] = [
            {"id": each.id, "parentID": each.parent_id, "title": each.title, "own": costs[each.id].own}
            for each in sessions
        ]
    return report


def _format_cost_lines(cost: Spending, paint: Paint) -> Iterable[str]:
    yield f"{paint.bold('itself')}   {format_spent(cost.own)}"
    if cost.tree != cost.own:
        yield f"{paint.bold('in all')}   {format_spent(cost.tree)} {paint.dim('with its child sessions')}"


def _format_tree_lines(tree: SessionTree, costs: dict[str, Spending], paint: Paint) -> Iterable[str]:
    stack = [(tree, 0)]
    while stack:
        node, depth = stack.pop()
        cost, name = costs[node.session.id], sanitize(node.session.title).replace("\n", " ")
        yield f"{'  ' * depth}{paint.bold(format_cost(cost.tree))}  {name}  {paint.dim(node.session.id)}"
        if depth == 0 or node.children:
            yield f"{'  ' * depth}  {paint.dim('itself ' + format_spent(cost.own))}"
        stack += [(child, depth + 1) for child in reversed(node.children)]


def format_spent(spent: Spent) -> str:
    return f"{format_cost(spent)} · {format_tokens(spent)}"
