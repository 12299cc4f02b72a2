"""Entries of the log: one for each decision, chained so that none can be changed or taken out unseen (pure)."""

import hashlib
from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from weft.model.permission import Grant, PermissionRequest, Rule
from weft.model.wire import Wire, encode
from weft.permission.asked import Answer, Asked

# allowed and denied by a rule, a grant or a setting; asked of a person, answered by one, answered by nobody in time;
# withdrawn when the run was aborted; granted and revoked for longer; dropped when old files went.
What = Literal[
    "allowed",
    "denied",
    "asked",
    "answered",
    "unanswered",
    "withdrawn",
    "granted",
    "revoked",
    "dropped",
    "lost",
]
BEGINNING = "0" * 64
LONGEST = 2000


class Entry(Wire, frozen=True, kw_only=True):
    """What was decided, of what, for whom, and on whose word. `count` is how many entries were dropped or lost."""

    time: int
    what: What
    session_id: str = ""
    agent: str = ""
    permission: str = ""
    patterns: tuple[str, ...] = ()
    rule: str = ""
    grants: tuple[str, ...] = ()
    request_id: str = ""
    reply: str = ""
    scope: str = ""
    message: str = ""
    by: str = ""
    count: int = 0


def of_request(
    what: What, request: PermissionRequest, agent: str, time: int, *, why: Rule | str | Sequence[Grant] = ""
) -> Entry:
    """What became of a request. `why` is the rule, the setting or the grants that decided."""
    granted = () if isinstance(why, str | Rule) else tuple(grant.id for grant in why)
    rule = f"{why.permission} {why.pattern} {why.action}" if isinstance(why, Rule) else why
    return Entry(
        time=time,
        what=what,
        session_id=request.session_id,
        agent=agent,
        permission=request.permission,
        patterns=request.patterns,
        rule=rule if isinstance(rule, str) else "",
        grants=granted,
        request_id=request.id,
    )


def of_answer(asked: Asked, request: PermissionRequest, answer: Answer, scope: str) -> Entry:
    return replace(
        of_request("answered", request, asked.agent, answer.time),
        reply=answer.reply,
        scope=scope,
        message=answer.message,
        by=answer.by,
    )


def of_grant(what: What, grant: Grant, time: int, by: str) -> Entry:
    return Entry(
        time=time,
        what=what,
        session_id=grant.session_id or "",
        agent=grant.agent or "",
        permission=grant.permission,
        patterns=grant.patterns,
        grants=(grant.id,),
        scope=grant.scope,
        by=by,
    )


class Record(Wire, frozen=True, kw_only=True):
    """An entry in its place: its number, and the hash of the line before it."""

    seq: int
    prev: str
    entry: Entry


class Link(Wire, frozen=True, kw_only=True):
    """The end of a chain: the last number, and the hash of that line."""

    seq: int
    hash: str


START = Link(seq=0, hash=BEGINNING)
_decoder = msgspec.json.Decoder(Record)


def add(end: Link, entry: Entry) -> tuple[bytes, Link]:
    """The line for an entry, without its newline, and the chain's new end."""
    line = encode(Record(seq=end.seq + 1, prev=end.hash, entry=entry))
    return line, Link(seq=end.seq + 1, hash=hash_of(line))


def read_line(line: bytes) -> Record | None:
    """The record of a line, None if it is none."""
    try:
        return _decoder.decode(line)
    except msgspec.DecodeError:
        return None


def hash_of(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()
