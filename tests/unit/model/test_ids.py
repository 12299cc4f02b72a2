"""Ids are generated in order whatever the clock does, and are sorted correctly across wraps."""

import threading
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import InvalidIdError, NotFoundError
from weft.model.ids import (
    ALPHABET,
    PER_MS,
    PREFIXES,
    WRAP,
    Mint,
    check_file_name,
    check_file_names,
    check_id,
    check_new_id,
    id_sort_key,
    unwrap,
)
from weft.testing.clock import HandClock
from weft.testing.ids import seeded_mint

PERIOD = WRAP // PER_MS
YEAR = 366 * 24 * 3600 * 1000


def to_ms(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


WRAPS = [
    to_ms("2024-06-10T02:35:18.400"),
    to_ms("2026-08-14T11:19:55.136"),
    to_ms("2028-10-17T20:04:31.872"),
]


def zeros(count: int) -> bytes:
    return bytes(count)


def mint_at(now: int) -> Mint:
    return Mint(lambda: now, zeros)


# --- vectors ---


@pytest.mark.parametrize(
    ("when", "ascending", "descending"),
    [
        ("2026-01-23T00:00:00.000", "be8269000001", "417d96fffffe"),
        ("2026-08-14T11:19:55.135", "fffffffff001", "000000000ffe"),
        ("2026-08-14T11:19:55.136", "000000000001", "fffffffffffe"),
    ],
)
def test_ids_have_the_format_of_opencode(when: str, ascending: str, descending: str) -> None:
    assert mint_at(to_ms(when)).message() == f"msg_{ascending}{'0' * 14}"
    assert mint_at(to_ms(when)).session() == f"ses_{descending}{'0' * 14}"


def test_ids_after_the_second_wrap_match_a_known_value() -> None:
    now = WRAPS[1] + 8070600491
    assert mint_at(now).part() == "prt_1e10b972b001" + "0" * 14
    assert mint_at(now).session() == "ses_e1ef468d4ffe" + "0" * 14
    assert unwrap("prt_1e10b972b001" + "0" * 14, now) // PER_MS == now


def test_ids_of_one_millisecond_are_counted_up_or_down() -> None:
    rising, falling = mint_at(WRAPS[1]), mint_at(WRAPS[1])
    assert [rising.message()[4:16], rising.message()[4:16]] == ["000000000001", "000000000002"]
    assert [falling.session()[4:16], falling.session()[4:16]] == ["fffffffffffe", "fffffffffffd"]


def test_every_kind_has_its_prefix_and_all_share_one_counter() -> None:
    mint = mint_at(WRAPS[1])
    made = [
        mint.message(),
        mint.part(),
        mint.permission(),
        mint.question(),
        mint.pty(),
        mint.tool_output(),
        mint.session(),
    ]
    assert [one.partition("_")[0] for one in made] == ["msg", "prt", "per", "que", "pty", "tool", "ses"]
    assert [int(one.partition("_")[2][:12], 16) for one in made[:-1]] == [1, 2, 3, 4, 5, 6]


def test_the_tail_is_random_and_alphanumeric() -> None:
    mint = seeded_mint(lambda: WRAPS[1])
    tails = {mint.message()[16:] for _ in range(100)}
    assert len(tails) == 100
    assert all(len(tail) == 14 and set(tail) <= set(ALPHABET) for tail in tails)
    assert len(ALPHABET) == len(set(ALPHABET)) == 62


# --- order ---


def test_ten_thousand_ids_of_one_millisecond_are_distinct_and_in_order() -> None:
    rising, falling = mint_at(WRAPS[1]), mint_at(WRAPS[1])
    messages = [rising.message() for _ in range(10_000)]
    sessions = [falling.session() for _ in range(10_000)]
    assert messages == sorted(set(messages))
    assert sessions == sorted(set(sessions), reverse=True)


def test_a_clock_that_steps_back_does_not_make_an_earlier_id() -> None:
    clock = HandClock(WRAPS[1] + 5000)
    mint = Mint(clock.now, zeros)
    first = mint.message()
    clock.set(WRAPS[1])
    second = mint.message()
    clock.set(WRAPS[1] + 5001)
    assert first < second < mint.message()


@given(st.lists(st.integers(0, 60_000), min_size=2, max_size=50))
def test_every_id_is_later_than_the_one_before_whatever_the_clock_does(steps: list[int]) -> None:
    moments = iter(steps)
    mint = Mint(lambda: WRAPS[1] + next(moments), zeros)
    made = [mint.message() for _ in steps]
    assert all(earlier < later for earlier, later in pairwise(made))


def test_threads_never_create_the_same_id() -> None:
    mint, made = mint_at(WRAPS[1]), list[str]()

    def work() -> None:
        mine = [mint.part() for _ in range(500)]
        assert mine == sorted(mine)
        made.extend(mine)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 8 * 500


# --- the wrap ---


@pytest.mark.parametrize("wrap", WRAPS)
def test_ids_from_both_sides_of_a_wrap_are_sorted_by_creation(wrap: int) -> None:
    clock = HandClock(wrap - 3)
    mint = Mint(clock.now, zeros)
    made = []
    for _ in range(6):
        made.append(mint.message())
        clock.turn(1)
    assert sorted(made) != made, "raw ids would not do"
    assert sorted(made, key=lambda one: id_sort_key(one, wrap)) == made
    assert [unwrap(one, wrap) // PER_MS for one in made] == [wrap - 3 + step for step in range(6)]


@given(st.integers(WRAPS[0] - YEAR, WRAPS[2] + YEAR), st.integers(-YEAR, YEAR), st.integers(1, 3))
def test_an_id_and_its_year_give_the_exact_millisecond(now: int, off: int, count: int) -> None:
    mint = mint_at(now)
    made = [mint.message() for _ in range(count)]
    assert unwrap(made[-1], now + off) == now * PER_MS + count


@given(st.text(max_size=40), st.integers(0, 2**42))
def test_an_id_of_another_program_can_be_sorted(id: str, near: int) -> None:
    number, text = id_sort_key(id, near)
    assert abs(number - near * PER_MS) <= WRAP
    assert text == id


def test_handwritten_ids_of_equal_time_are_sorted_as_text() -> None:
    near = WRAPS[1]
    ids = ["msg_two", "msg_one", "msg_three"]
    assert sorted(ids, key=lambda one: id_sort_key(one, near)) == ["msg_one", "msg_three", "msg_two"]


# --- what comes from outside ---


@pytest.mark.parametrize("kind", sorted(PREFIXES))
def test_our_own_ids_are_accepted(kind: str) -> None:
    one = f"{PREFIXES[kind]}_{'0' * 26}"
    assert check_new_id(kind, one) == check_id(kind, one) == one
    assert check_file_name(kind, one) == one


HOSTILE = [
    "",
    "ses",
    "ses_",
    "sesame",
    "ses_..",
    "../ses_00000000000000000000000000",
    "ses_0000000000000/00000000000000",
    "ses_0000000000000\\00000000000000",
    "ses_00000000000000000000000000\n",
    "ses_00000000000000000000000000\x00",
    "ses_0000000000000000000000000é",
    "ses_" + "0" * 41,
    "msg_00000000000000000000000000",
    "SES_00000000000000000000000000",
    " ses_00000000000000000000000000",
    "ses_٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠",
]


@pytest.mark.parametrize("given", HOSTILE)
def test_an_invalid_session_id_cannot_be_chosen_for_a_new_session(given: str) -> None:
    with pytest.raises(InvalidIdError) as caught:
        check_new_id("session", given)
    assert (caught.value.kind, caught.value.given) == ("session", given)


# Other programs may have given a session such a name, and each names one file.
UNUSUAL = ["ses", "ses_", "sesame", "ses_..", "ses_" + "0" * 41]


@pytest.mark.parametrize("given", UNUSUAL)
def test_unusual_session_ids_of_other_programs_can_be_looked_up(given: str) -> None:
    assert check_id("session", given) == check_file_name("session", given) == given


@pytest.mark.parametrize("given", [each for each in HOSTILE if each not in UNUSUAL])
def test_an_impossible_session_id_is_not_found(given: str) -> None:
    with pytest.raises(NotFoundError) as caught:
        check_id("session", given)
    assert (caught.value.kind, caught.value.id) == ("session", given[:80])


@pytest.mark.parametrize(
    "name", ["", ".", "..", ".git", "a/b", "a\\b", "a\x00", "a\n", "-rf", "_", "a" * 129, "é"]
)
def test_an_invalid_file_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidIdError):
        check_file_name("message", name)
    with pytest.raises(InvalidIdError):
        check_file_names("message", ["msg_1", name, "msg_2"])


@given(st.text(max_size=200))
def test_every_accepted_file_name_names_one_file_in_the_directory(text: str) -> None:
    try:
        name = check_file_name("part", text)
    except InvalidIdError:
        return
    assert name == text
    assert name.isascii()
    assert not name.startswith((".", "-"))
    assert not set(name) & set("/\\:\0\n\r ")


@given(st.sampled_from(sorted(PREFIXES)), st.text(max_size=60))
def test_every_accepted_id_is_a_valid_file_name(kind: str, text: str) -> None:
    try:
        one = check_id(kind, text)
    except NotFoundError:
        return
    assert check_file_name(kind, one) == one


def test_an_error_does_not_repeat_a_long_id() -> None:
    for check, refusal in ((check_id, NotFoundError), (check_new_id, InvalidIdError)):
        with pytest.raises(refusal) as caught:
            check("session", "x" * 10_000)
        assert len(str(caught.value)) < 200
