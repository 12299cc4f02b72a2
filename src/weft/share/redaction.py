"""Redact a growing session without looking at old text again, and preview what a share would show."""

from collections import Counter

from msgspec.structs import replace

from weft.model.ids import MessageID
from weft.model.message import MessageWithParts
from weft.model.parcel import Parcel
from weft.model.session import Session
from weft.model.share import Covered, SharePreview, ShareTerms
from weft.share.view import count_pictures, to_shown
from weft.transfer.redact import Finding, Redactor


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


def to_preview(parcel: Parcel, terms: ShareTerms) -> SharePreview:
    shown = to_shown(parcel, attachments=terms.attachments)
    covering = Covering(redact=terms.redact)
    covering.cover(shown)
    covered = tuple(_to_covered(each) for each in covering.findings())
    return SharePreview(
        to=terms.to,
        messages=len(shown.messages),
        parts=_count(shown),
        pictures=count_pictures(shown),
        left_out=_count(parcel) - _count(shown),
        kinds=dict(Counter(each.kind for each in covered)),
        covered=covered,
    )


def _count(parcel: Parcel) -> int:
    return sum(len(message.parts) for message in parcel.messages)


def _to_covered(found: Finding) -> Covered:
    return Covered(
        kind=found.kind,
        where=found.where,
        placeholder=found.placeholder,
        glimpse=found.glimpse,
        times=found.times,
    )
