"""State of a server: requests to a TUI, tickets, and idempotency keys."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from given.engine import open_engine, text_prompt
from weft.errors import ConflictError, InvalidInputError, NotFoundError
from weft.model.ids import SessionID, check_id
from weft.model.input import SessionInput
from weft.provider.scripted import Say
from weft.server import state as controls
from weft.server import state as tickets_module
from weft.server.state import (
    IdempotencyKeys,
    PasswordAttempts,
    Tickets,
    TuiControl,
    TuiRequest,
    hash_to_letters,
    to_attempt_address,
)

NOW = 1_790_000_000_000


async def test_a_polling_client_receives_what_came_after_its_first_request() -> None:
    control = TuiControl(poll_seconds=0.001)
    control.put("/work", TuiRequest(path="/tui/early"))
    assert await control.next("/work") is None
    control.put("/work", TuiRequest(path="/tui/open-help"))
    control.put("/other", TuiRequest(path="/tui/elsewhere"))
    assert await control.next("/work") == TuiRequest(path="/tui/open-help")
    control.forget("/work")
    control.put("/work", TuiRequest(path="/tui/late"))
    assert await control.next("/work") is None


async def test_requests_that_nobody_takes_are_bounded() -> None:
    control = TuiControl(poll_seconds=0.001)
    await control.next("/work")
    for number in range(controls.MAX_TUI_REQUESTS + 5):
        control.put("/work", TuiRequest(path=str(number)))
    assert await control.next("/work") == TuiRequest(path="5")


async def test_a_ticket_is_valid_once_and_for_one_path() -> None:
    tickets = Tickets()
    one, other = tickets.issue("/pty/a/connect"), tickets.issue("/pty/a/connect")
    assert tickets.take(one, "/pty/a/connect") is not None
    assert tickets.take(one, "/pty/a/connect") is None
    assert tickets.take(other, "/pty/b/connect") is None
    assert tickets.take("", "/pty/a/connect") is None


async def test_the_number_of_tickets_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tickets_module, "MAX_TICKETS", 3)
    tickets = Tickets()
    given = [tickets.issue("/x") for _ in range(5)]
    valid = [tickets.take(ticket, "/x") is not None for ticket in given]
    assert valid == [False, False, True, True, True]


@pytest.mark.parametrize(
    ("client", "address"),
    [
        (("192.0.2.7", 1234), "192.0.2.7"),
        (("::ffff:192.0.2.7", 1234), "::ffff:192.0.2.7"),
        (("2001:db8::17", 1234), "2001:db8::/64"),
        (("2001:db8::18", 1234), "2001:db8::/64"),
        (("fe80::1%eth0", 1234), "fe80::/64"),
        (None, ""),
    ],
)
def test_attempts_of_an_ipv6_network_count_as_one_address(
    client: tuple[str, int] | None, address: str
) -> None:
    assert to_attempt_address(client) == address


async def test_the_number_of_addresses_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controls, "MAX_ADDRESSES", 1)
    delays = list[float]()

    async def sleep(seconds: float) -> None:
        delays.append(seconds)

    attempts = PasswordAttempts(sleep)
    for address in ["192.0.2.7"] * 7 + ["192.0.2.8", "192.0.2.7"]:
        await attempts.fail(address)
    assert delays == pytest.approx([0.0] * 5 + [0.1, 0.2, 0.0, 0.0])


@given(st.binary())
def test_hashed_letters_are_valid_in_an_id(raw: bytes) -> None:
    check_id("message", f"msg_000000000001{hash_to_letters(raw)}{hash_to_letters(raw)}")


@given(st.lists(st.binary(), unique=True, max_size=20))
def test_different_bytes_give_different_letters(raws: list[bytes]) -> None:
    assert len({hash_to_letters(raw) for raw in raws}) == len(raws)


async def test_an_idempotency_key_stands_for_one_prompt_in_one_session() -> None:
    async with open_engine([Say(text="hello")]) as engine:
        one = (await engine.api.create_session(SessionInput())).id
        other = (await engine.api.create_session(SessionInput())).id
        repeats = IdempotencyKeys(lambda: NOW)
        first = await repeats.id_for(engine.api, one, "key", b"body")
        again = await asyncio.gather(*(repeats.id_for(engine.api, one, "key", b"body") for _ in range(3)))
        assert set(again) == {first}
        assert await repeats.id_for(engine.api, other, "key", b"body") != first
        assert await repeats.id_for(engine.api, one, "other", b"body") != first
        with pytest.raises(ConflictError):
            await repeats.id_for(engine.api, one, "key", b"another body")
        with pytest.raises(InvalidInputError):
            await repeats.id_for(engine.api, one, "", b"body")

        await engine.api.prompt(one, text_prompt("hi", message_id=first))
        restarted = IdempotencyKeys(lambda: NOW)
        assert await restarted.id_for(engine.api, one, "key", b"body") == first
        a_day_later = IdempotencyKeys(lambda: NOW + 25 * 60 * 60 * 1000)
        assert await a_day_later.id_for(engine.api, one, "key", b"body") != first


async def test_nothing_is_kept_of_a_prompt_to_a_session_that_does_not_exist() -> None:
    async with open_engine() as engine:
        keys = IdempotencyKeys(lambda: NOW)
        with pytest.raises(NotFoundError):
            await keys.id_for(engine.api, SessionID("ses_missing"), "key", b"body")
        assert len(keys._locks) == 0


async def test_the_keys_of_a_removed_session_are_forgotten() -> None:
    async with open_engine() as engine:
        one = (await engine.api.create_session(SessionInput())).id
        other = (await engine.api.create_session(SessionInput())).id
        now = NOW
        keys = IdempotencyKeys(lambda: now)
        first, second = [await keys.id_for(engine.api, each, "key", b"body") for each in (one, other)]
        keys.forget(one)
        now += 1
        assert await keys.id_for(engine.api, one, "key", b"body") != first
        assert await keys.id_for(engine.api, other, "key", b"body") == second
