"""Redaction of a session that goes on: what was looked at is not looked at again, until there is one more secret to cover.

A secret that gives itself away only later is covered from then on wherever it stands, also in what was shown before.
"""

from msgspec.structs import replace

from weft.model.ids import MessageID
from weft.model.message import MessageWithParts
from weft.model.parcel import Parcel
from weft.model.session import Session
from weft.session.transfer.redact import Finding, Redactor


class Covering:
    """Of one session. Without `redact` everything passes as it is."""

    def __init__(self, *, redact: bool = True) -> None:
        self._redactor = Redactor() if redact else None
        self._known = 0
        self._seen: dict[MessageID, MessageWithParts] = {}
        self._covered: dict[MessageID, MessageWithParts] = {}
        self._frame: tuple[Parcel, Parcel] | None = None

    def cover(self, parcel: Parcel) -> Parcel:
        """The session with its secrets covered."""
        if self._redactor is None:
            return parcel
        fresh = [each for each in parcel.messages if self._seen.get(each.info.id) != each]
        frame = replace(parcel, messages=())
        if self._frame is None or self._frame[0] != frame:
            self._redactor.look(frame)
            self._frame = None
        for each in fresh:
            self._redactor.look(_alone(parcel, each))
            self._seen[each.info.id] = each
        found = len(self._redactor.findings())
        if found > self._known:
            self._known, self._frame, fresh = found, None, list(parcel.messages)
        for each in fresh:
            [self._covered[each.info.id]] = self._redactor.cover(_alone(parcel, each)).messages
        if self._frame is None:
            self._frame = frame, self._redactor.cover(frame)
        messages = tuple(self._covered[each.info.id] for each in parcel.messages)
        return replace(self._frame[1], messages=messages)

    def findings(self) -> list[Finding]:
        return [] if self._redactor is None else self._redactor.findings()


def _alone(parcel: Parcel, message: MessageWithParts) -> Parcel:
    """One message. What the session itself says is looked at once, and not with each."""
    return Parcel(info=Session(id=parcel.info.id, time=parcel.info.time), messages=(message,))
