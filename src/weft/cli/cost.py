"""`weft session cost`: what a session spent, itself and with all below it."""

import argparse
import os
import sys
from collections.abc import Iterable

from weft.cli.paint import Paint, plain, write_json
from weft.cli.sessions import warn_of_damage
from weft.cli.spent import dollars, tokens
from weft.config.store_address import find_own_setting
from weft.host.paths import paths_from
from weft.local.reader import Reading
from weft.model.message import AnyMessage
from weft.model.session import Session, SessionTree
from weft.model.spending import Spending, Spent
from weft.session.totals import spending
from weft.session.tree import below, grow_tree
from weft.store.files.messages import Messages

BUDGET = ("experimental", "weft", "budget")


def show_cost(chosen: argparse.Namespace) -> int:
    reading = Reading(chosen.dir, os.environ, store=chosen.store)
    session = reading.get_session(chosen.session)
    kin = reading.tree.list_sessions(session.project_id)
    family = [session, *below(kin, session.id)]
    costs = _costs(family, Messages(reading.tree))
    if chosen.format == "json":
        write_json(_document(session, family, costs, tree=chosen.tree))
    elif chosen.tree:
        print("\n".join(_tree_lines(grow_tree(kin, session), costs, Paint(sys.stdout))))
    else:
        print("\n".join(_lines(costs[session.id], Paint(sys.stdout))))
    warn_of_damage(reading)
    return 0


def _costs(family: list[Session], messages: Messages) -> dict[str, Spending]:
    read: dict[str, list[AnyMessage]] = {}

    def infos(session: Session) -> list[AnyMessage]:
        if session.id not in read:
            read[session.id] = [message.info for message in messages.list_messages(session.id)]
        return read[session.id]

    return {session.id: spending(session, family, infos) for session in family}


def _document(
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
    yield f"{paint.bold('itself')}   {to_line(cost.own)}"
    if cost.tree != cost.own:
        yield f"{paint.bold('in all')}   {to_line(cost.tree)} {paint.dim('with the sessions below it')}"


def _tree_lines(tree: SessionTree, costs: dict[str, Spending], paint: Paint) -> Iterable[str]:
    waiting = [(tree, 0)]
    while waiting:
        each, depth = waiting.pop()
        cost, name = costs[each.session.id], plain(each.session.title).replace("\n", " ")
        yield f"{'  ' * depth}{paint.bold(dollars(cost.tree))}  {name}  {paint.dim(each.session.id)}"
        if depth == 0 or each.children:
            yield f"{'  ' * depth}  {paint.dim('itself ' + to_line(cost.own))}"
        waiting += [(child, depth + 1) for child in reversed(each.children)]


def to_line(spent: Spent) -> str:
    return f"{dollars(spent)} · {tokens(spent)}"
