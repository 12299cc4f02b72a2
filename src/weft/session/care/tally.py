"""Tally: what a session consists of, in numbers and in one hash of all it says; the same in whatever store it lies."""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from weft.model.ids import SessionID
from weft.model.parcel import Parcel
from weft.model.session import Session
from weft.model.wire import encode, parse
from weft.store.contract import Store

Told = Callable[[int, int], None]

_encoder = msgspec.json.Encoder(order="sorted", decimal_format="number")


class Tally(Struct, frozen=True, kw_only=True):
    """A session in numbers, and the hash of its content."""

    session: SessionID
    messages: int
    parts: int
    diffs: int
    todos: int
    hash: str


def tally(parcel: Parcel) -> Tally:
    """Two sessions have the same hash if and only if they say the same; the order of keys says nothing."""
    digest = hashlib.sha256()
    for value in (parcel.info, *parcel.messages, list(parcel.diff), list(parcel.todos)):
        raw = _canonical(value)
        digest.update(b"%d " % len(raw) + raw)
    return Tally(
        session=parcel.info.id,
        messages=len(parcel.messages),
        parts=sum(len(message.parts) for message in parcel.messages),
        diffs=len(parcel.diff),
        todos=len(parcel.todos),
        hash=digest.hexdigest(),
    )


def _canonical(value: Any) -> bytes:
    plain = parse(encode(value))
    try:
        return _encoder.encode(plain)
    except UnicodeEncodeError:
        return encode(_sorted(plain))  # half a surrogate pair: only our own encoder can spell it


def _sorted(plain: Any) -> Any:
    if isinstance(plain, dict):
        return {key: _sorted(plain[key]) for key in sorted(plain)}
    return [_sorted(item) for item in plain] if isinstance(plain, list) else plain


async def read_parcel(store: Store, session: Session) -> Parcel:
    return Parcel(
        info=session,
        messages=tuple(await store.list_messages(session.id)),
        diff=tuple(await store.list_diff(session.id)),
        todos=tuple(await store.list_todos(session.id)),
    )


async def tally_all(store: Store, sessions: Sequence[Session], told: Told) -> list[Tally]:
    tallies: list[Tally] = []
    for number, session in enumerate(sessions):
        told(number, len(sessions))
        tallies.append(tally(await read_parcel(store, session)))
    return tallies
