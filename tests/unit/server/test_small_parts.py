"""Requests for screens, tickets, and keys for repeats."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from given.house import open_house, say
from weft.errors import ConflictError, InvalidInputError
from weft.model.ids import checked
from weft.model.input import SessionInput
from weft.provider.scripted import Say
from weft.server import control as controls
from weft.server import route as tickets_module
from weft.server.control import Asked, Control
from weft.server.route import Repeats, Tickets, to_letters

NOW = 1_790_000_000_000


async def test_a_screen_that_asks_is_given_what_comes_after_it_first_asked() -> None:
    control = Control(patience=0.001)
    control.put("/work", Asked(path="/tui/early"))
    assert await control.next("/work") is None
    control.put("/work", Asked(path="/tui/open-help"))
    control.put("/other", Asked(path="/tui/elsewhere"))
    assert await control.next("/work") == Asked(path="/tui/open-help")
    control.forget("/work")
    control.put("/work", Asked(path="/tui/late"))
    assert await control.next("/work") is None


async def test_requests_that_nobody_takes_do_not_pile_up() -> None:
    control = Control(patience=0.001)
    await control.next("/work")
    for number in range(controls.MOST + 5):
        control.put("/work", Asked(path=str(number)))
    assert await control.next("/work") == Asked(path="5")


async def test_a_ticket_is_good_once_and_for_one_address() -> None:
    tickets = Tickets()
    one, other = tickets.give("/pty/a/connect"), tickets.give("/pty/a/connect")
    assert tickets.take(one, "/pty/a/connect") is True
    assert tickets.take(one, "/pty/a/connect") is False
    assert tickets.take(other, "/pty/b/connect") is False
    assert tickets.take("", "/pty/a/connect") is False


async def test_tickets_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tickets_module, "MOST", 3)
    tickets = Tickets()
    given = [tickets.give("/x") for _ in range(5)]
    assert [tickets.take(ticket, "/x") for ticket in given] == [False, False, True, True, True]


@given(st.binary())
def test_letters_are_always_those_of_an_id(raw: bytes) -> None:
    assert to_letters(raw) == to_letters(raw)
    checked("message", f"msg_000000000001{to_letters(raw)}{to_letters(raw)}")


async def test_a_key_stands_for_one_prompt_in_one_session() -> None:
    async with open_house([Say(text="hello")]) as house:
        one = (await house.api.create_session(SessionInput())).id
        other = (await house.api.create_session(SessionInput())).id
        repeats = Repeats(lambda: NOW)
        first = await repeats.id_for(house.api, one, "key", b"body")
        again = await asyncio.gather(*(repeats.id_for(house.api, one, "key", b"body") for _ in range(3)))
        assert set(again) == {first}
        assert await repeats.id_for(house.api, other, "key", b"body") != first
        assert await repeats.id_for(house.api, one, "other", b"body") != first
        with pytest.raises(ConflictError):
            await repeats.id_for(house.api, one, "key", b"another body")
        with pytest.raises(InvalidInputError):
            await repeats.id_for(house.api, one, "", b"body")

        await house.api.prompt(one, say("hi", message_id=first))
        restarted = Repeats(lambda: NOW)
        assert await restarted.id_for(house.api, one, "key", b"body") == first
        a_day_later = Repeats(lambda: NOW + 25 * 60 * 60 * 1000)
        assert await a_day_later.id_for(house.api, one, "key", b"body") != first
