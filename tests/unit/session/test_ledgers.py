"""Ledgers while sessions run: in the session's own document and in those of its ancestors."""

from decimal import Decimal

from msgspec.structs import replace

from given.engine import MODEL, Engine, open_engine, text_prompt
from weft.model.ids import SessionID
from weft.model.input import SessionInput
from weft.model.session import SessionInfo, get_weft_data
from weft.model.spending import Ledger
from weft.provider.scripted import Say
from weft.session.totals import with_ledger


async def ledger(engine: Engine, id: SessionID) -> Ledger:
    found = get_weft_data(await engine.api.get_session(id)).spent
    assert found is not None
    return found


async def test_a_step_is_counted_in_its_session_and_all_its_ancestors() -> None:
    async with open_engine(*[[Say(text="a word or two")]] * 4) as engine:
        root = await engine.api.create_session(SessionInput())
        child = await engine.api.create_session(SessionInput(parent_id=root.id))
        grandchild = await engine.api.create_session(SessionInput(parent_id=child.id))
        for session in (root, child, grandchild, grandchild):
            await engine.api.prompt(session.id, text_prompt("hello"))
        kept = [await ledger(engine, session.id) for session in (root, child, grandchild)]
        spending = [await engine.api.get_spending(session.id) for session in (root, child, grandchild)]

    assert [each.own for each in kept] == [each.own for each in spending]
    assert kept[2].own.output > kept[1].own.output > 0
    assert kept[0].below == {child.id: spending[1].tree}
    assert kept[1].below == {grandchild.id: spending[2].tree}
    assert kept[2].below == {}


async def test_a_removed_child_stays_counted() -> None:
    async with open_engine(*[[Say(text="a word or two")]] * 2) as engine:
        root = await engine.api.create_session(SessionInput())
        child = await engine.api.create_session(SessionInput(parent_id=root.id))
        for session in (root, child):
            await engine.api.prompt(session.id, text_prompt("hello"))
        before = await engine.api.get_spending(root.id)
        await engine.api.remove_session(child.id)
        after = await engine.api.get_spending(root.id)

    assert after == before
    assert after.tree != after.own


async def test_a_step_left_uncounted_by_a_crash_is_counted_by_the_next() -> None:
    async with open_engine(*[[Say(text="a word or two")]] * 3) as engine:
        session = await engine.api.create_session(SessionInput())
        await engine.api.prompt(session.id, text_prompt("one"))
        counted = await ledger(engine, session.id)
        await engine.api.prompt(session.id, text_prompt("two"))
        true = await engine.api.get_spending(session.id)

        def remove_step(it: SessionInfo) -> SessionInfo:
            return with_ledger(it, counted)

        await engine.store.edit(session.id, remove_step)
        assert await engine.api.get_spending(session.id) == true
        await engine.api.prompt(session.id, text_prompt("three"))
        assert (await ledger(engine, session.id)).own == (await engine.api.get_spending(session.id)).own


async def test_an_answer_that_was_undone_before_it_was_counted_is_still_counted() -> None:
    async with open_engine(*[[Say(text="a word or two")]] * 3) as engine:
        session = await engine.api.create_session(SessionInput())
        await engine.api.prompt(session.id, text_prompt("one"))
        counted = await ledger(engine, session.id)
        await engine.api.prompt(session.id, text_prompt("two"))
        second = (await engine.api.list_messages(session.id))[2].info
        true = await ledger(engine, session.id)
        await engine.store.edit(session.id, lambda it: with_ledger(it, counted))
        await engine.api.revert(session.id, second.id)
        await engine.api.prompt(session.id, text_prompt("three"))
        after = await ledger(engine, session.id)

    assert counted.own.steps < true.own.steps
    assert (after.own.steps, after.own.output) == (3, true.own.output + true.own.output // 2)


async def test_a_model_without_a_price_costs_an_unknown_amount() -> None:
    async with open_engine([Say(text="a word")], model=replace(MODEL, cost=None)) as engine:
        session = await engine.api.create_session(SessionInput())
        await engine.api.prompt(session.id, text_prompt("hello"))
        own = (await ledger(engine, session.id)).own

    assert (own.cost, own.priced) == (Decimal(0), False)
    assert own.output > 0
