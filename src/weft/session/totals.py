"""Count what sessions have spent.

Each session has a ledger in its document. The ledger records up to which message it has counted. So counting twice changes
nothing, messages that a crash left uncounted are counted the next time, and a message that is removed later still counts.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress

from msgspec.structs import replace

from weft.errors import NotFoundError
from weft.journal import Journal
from weft.model.failure import BudgetFailure
from weft.model.ids import SessionID
from weft.model.message import AnyMessage, AssistantMessage
from weft.model.part import Tokens
from weft.model.session import SessionInfo, get_ledger, get_weft_data, with_weft_data
from weft.model.spending import Ledger, Spending, Spent, add_spent, to_child_spent, to_spent, total_spent
from weft.session.lifecycle import list_descendants
from weft.store.contract import Store

ListMessages = Callable[[SessionInfo], Iterable[AnyMessage]]


def to_message_spent(message: AssistantMessage) -> Spent:
    """Return what an answer cost. It counts as one step if a request was made for it. Without an end, its cost is unknown."""
    time = message.time
    is_known = time.completed is not None or message.finish is not None
    # A budget failure without any cost means that no request was made.
    has_cost = message.tokens != Tokens() or not message.priced
    was_requested = has_cost or not isinstance(message.error, BudgetFailure)
    return replace(
        to_spent(message),
        priced=message.priced and is_known,
        counted=message.counted and is_known,
        steps=1 if was_requested else 0,
        ms=max(0, time.completed - time.created) if time.completed is not None else 0,
    )


def add_own_spending(session: SessionInfo, spent: Spent) -> SessionInfo:
    """Return the session with a cost in its ledger that no message contains."""
    ledger = get_ledger(session)
    return with_ledger(session, replace(ledger, own=add_spent((ledger.own, spent))))


def count_messages(ledger: Ledger, messages: Iterable[AnyMessage]) -> Ledger:
    """Return the ledger with all messages that it has not counted yet."""
    new = [
        message
        for message in messages
        if isinstance(message, AssistantMessage) and message.time.created > ledger.until
    ]
    if not new:
        return ledger
    own = add_spent((ledger.own, *(to_message_spent(message) for message in new)))
    return replace(ledger, own=own, until=max(message.time.created for message in new))


def is_behind(session: SessionInfo, messages: Iterable[AnyMessage]) -> bool:
    """Return True if the session's ledger has not counted all these messages."""
    ledger = get_ledger(session)
    return count_messages(ledger, messages) != ledger


def list_countable(messages: list[AnyMessage]) -> list[AnyMessage]:
    """Return the messages before the first answer without an end: what that one costs is not known yet."""
    open_answers = (
        message.time.created
        for message in messages
        if isinstance(message, AssistantMessage) and message.time.completed is None
    )
    first_open = min(open_answers, default=None)
    return [message for message in messages if first_open is None or message.time.created < first_open]


def count_spending(session: SessionInfo, messages: list[AnyMessage]) -> SessionInfo:
    """Return a session whose ledger has counted what these messages cost."""
    return with_ledger(session, count_messages(get_ledger(session), list_countable(messages)))


async def update_ledger(journal: Journal, session: SessionID, messages: list[AnyMessage]) -> None:
    """Update the ledger of a session, and those of its ancestors."""
    # A session that was removed meanwhile needs no ledger.
    with suppress(NotFoundError):
        child = await journal.edit(session, lambda stored: count_spending(stored, messages))
        visited = {child.id}
        while child.parent_id is not None and child.parent_id not in visited:
            visited.add(child.parent_id)
            child = await journal.edit(child.parent_id, _add_child_spending(child))


def _add_child_spending(child: SessionInfo) -> Callable[[SessionInfo], SessionInfo]:
    spent = to_child_spent(total_spent(get_ledger(child)))

    def edit(parent: SessionInfo) -> SessionInfo:
        ledger = get_ledger(parent)
        return with_ledger(parent, replace(ledger, below={**ledger.below, child.id: spent}))

    return edit


def with_ledger(session: SessionInfo, ledger: Ledger) -> SessionInfo:
    return with_weft_data(session, replace(get_weft_data(session), spent=ledger))


def total_spending(session: SessionInfo, others: Iterable[SessionInfo], messages: ListMessages) -> Spending:
    """Return what a session spent, alone and with all below it. For a removed child, use its parent's ledger."""
    children: dict[SessionID, list[SessionInfo]] = {}
    for other in others:
        if other.parent_id is not None and other.id != session.id:
            children.setdefault(other.parent_id, []).append(other)
    own = count_messages(get_ledger(session), messages(session))
    waiting, amounts = [(session, own)], []
    while waiting:
        current, ledger = waiting.pop()
        below = children.pop(current.id, [])  # popped, so that a cycle ends
        removed = ledger.below.keys() - {child.id for child in below}
        spent = ledger.own if current is session else to_child_spent(ledger.own)
        amounts += [spent, *(ledger.below[id] for id in removed)]
        waiting += [(child, count_messages(get_ledger(child), messages(child))) for child in below]
    return Spending(own=own.own, tree=add_spent(amounts))


async def get_spending(store: Store, session: SessionInfo) -> Spending:
    """Compute the spending of a session from the ledgers and the messages that they do not include yet.

    An answer under way is not counted.
    """
    descendants = await list_descendants(store, session.id)
    messages: dict[SessionID, list[AnyMessage]] = {}
    for each in (session, *descendants):
        infos = [message.info for message in await store.list_messages(each.id)]
        messages[each.id] = list_countable(infos)
    return total_spending(session, descendants, lambda each: messages[each.id])
