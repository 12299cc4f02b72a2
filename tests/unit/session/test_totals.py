"""What a session spent: the same whether counted as it runs or afterwards."""

from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from weft.model.ids import MessageID, SessionID
from weft.model.message import AnyMessage, AssistantMessage, AssistantTime, UserMessage
from weft.model.part import CacheTokens, Moment, Tokens
from weft.model.session import SessionInfo, SessionTime, get_ledger, get_weft_data
from weft.model.spending import Ledger, Spending, Spent, add_spent
from weft.session.totals import (
    count_messages,
    count_spending,
    to_message_spent,
    total_spending,
    with_ledger,
)

START = 1000


def session(name: str = "ses_a", **more: Any) -> SessionInfo:
    return SessionInfo(id=SessionID(name), time=SessionTime(created=START, updated=START), **more)


def answer(at: int, cost: str = "0", *, priced: bool = True, tokens: int = 1) -> AssistantMessage:
    used = Tokens(input=tokens, output=tokens, reasoning=tokens, cache=CacheTokens(read=tokens, write=tokens))
    return AssistantMessage(
        id=MessageID(f"msg_{at}"), session_id=SessionID("ses_a"), time=AssistantTime(created=at, completed=at),
        cost=Decimal(cost), tokens=used, priced=priced,
    )  # fmt: skip


def prompt(at: int) -> UserMessage:
    return UserMessage(id=MessageID(f"msg_{at}"), session_id=SessionID("ses_a"), time=Moment(created=at))


MESSAGES = st.lists(
    st.tuples(st.booleans(), st.decimals(0, 10, places=9), st.booleans(), st.integers(0, 10**9)), max_size=30
).map(
    lambda rows: [
        prompt(START + at) if is_prompt else answer(START + at, str(cost), priced=priced, tokens=tokens)
        for at, (is_prompt, cost, priced, tokens) in enumerate(rows)
    ]
)


@given(messages=MESSAGES, crashes=st.sets(st.integers(0, 30)))
def test_totals_updated_step_by_step_equal_the_sum_of_the_messages(
    messages: list[AnyMessage], crashes: set[int]
) -> None:
    kept = session()
    for number in range(len(messages)):
        if number not in crashes:  # a crash after the message was stored, and before it was counted
            kept = with_ledger(kept, count_messages(get_ledger(kept), messages[: number + 1]))
    by_hand = add_spent(to_message_spent(each) for each in messages if isinstance(each, AssistantMessage))

    assert total_spending(kept, [], lambda _: messages).own == by_hand
    assert total_spending(session(), [], lambda _: messages).own == by_hand
    assert count_messages(get_ledger(kept), messages) == count_messages(
        count_messages(get_ledger(kept), messages), messages
    )


def test_an_answer_without_an_end_and_what_follows_it_are_counted_later() -> None:
    first, last = answer(START + 1, "1"), answer(START + 3, "4")
    unfinished = replace(answer(START + 2, "2"), time=AssistantTime(created=START + 2))
    counted = count_spending(session(), [first, unfinished, last])
    assert get_ledger(counted).own.cost == 1
    counted = count_spending(counted, [first, answer(START + 2, "2"), last])
    assert get_ledger(counted).own.cost == 7


def test_an_answer_without_an_end_makes_the_total_unknown() -> None:
    unfinished = replace(answer(START + 1, tokens=0), time=AssistantTime(created=START + 1))
    spent = total_spending(session(), [], lambda _: [answer(START, "1"), unfinished]).own
    assert (spent.cost, spent.priced, spent.counted) == (Decimal(1), False, False)


def test_a_removed_message_stays_counted() -> None:
    kept = with_ledger(
        session(), count_messages(get_ledger(session()), [answer(START + 1, "1"), answer(START + 2, "2")])
    )
    assert total_spending(kept, [], lambda _: [answer(START + 1, "1")]).own.cost == 3


def test_messages_copied_by_a_fork_are_not_counted_again() -> None:
    assert total_spending(session(), [], lambda _: [answer(START - 1, "5"), answer(START, "1")]).own.cost == 1


def test_an_unknown_price_makes_the_total_unknown_and_keeps_the_known_part() -> None:
    spent = total_spending(session(), [], lambda _: [answer(START, "1"), answer(START + 1, priced=False)]).own
    assert (spent.cost, spent.priced) == (Decimal(1), False)


def test_a_tree_includes_children_and_removed_ones_and_ends_at_a_cycle() -> None:
    gone, here = SessionID("ses_gone"), SessionID("ses_b")
    ledger = Ledger(until=START - 1, below={gone: Spent(cost=Decimal(4)), here: Spent(cost=Decimal(999))})
    root = with_ledger(session("ses_a", parent_id=SessionID("ses_c")), ledger)
    child = session("ses_b", parent_id=root.id)
    grandchild = session("ses_c", parent_id=child.id)
    costs = {"ses_a": "1", "ses_b": "0.5", "ses_c": "0.25"}

    found = total_spending(root, [root, child, grandchild], lambda each: [answer(START, costs[each.id])])

    one = to_message_spent(answer(START, "1"))
    assert found == Spending(own=one, tree=replace(add_spent([one] * 3), cost=Decimal("5.75")))
    assert get_weft_data(child).spent is None


def test_a_sum_has_no_trailing_zeros() -> None:
    costs = ("0.01234", "0.00890"), ("60", "40"), ("0.0", "0")
    sums = [add_spent(Spent(cost=Decimal(cost)) for cost in each).cost for each in costs]
    assert [str(cost) for cost in sums] == ["0.02124", "100", "0"]


def test_a_cost_of_more_digits_than_can_be_added_exactly_is_counted() -> None:
    assert add_spent([Spent(cost=Decimal("1e400")), Spent(cost=Decimal(1))]).cost == Decimal("1e400")
    assert str(add_spent([Spent(cost=Decimal("1e3"))]).cost) == "1000"
