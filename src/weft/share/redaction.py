"""Redact a growing session without reading old text again, and preview a share."""

from collections import Counter

from msgspec.structs import replace

from weft.model.ids import MessageID
from weft.model.message import MessageWithParts
from weft.model.session import Session
from weft.model.share import SharePreview, ShareRedaction, ShareTerms
from weft.model.transfer import SessionExport
from weft.share.view import count_binary_files, to_shared_view
from weft.transfer.redact import RedactedSecret, Redactor


class SessionRedactor:
    """Redacts one session. Without `redact` everything stays as it is."""

    def __init__(self, *, redact: bool = True) -> None:
        self._redactor = Redactor() if redact else None
        self._known = 0
        self._seen: dict[MessageID, MessageWithParts] = {}
        self._redacted: dict[MessageID, MessageWithParts] = {}
        self._frame: tuple[SessionExport, SessionExport] | None = None

    def redact(self, export: SessionExport) -> SessionExport:
        """Return the session with its secrets redacted."""
        if self._redactor is None:
            return export
        fresh = [each for each in export.messages if self._seen.get(each.info.id) != each]
        frame = replace(export, messages=())
        if self._frame is None or self._frame[0] != frame:
            self._redactor.scan(frame)
            self._frame = None
        for each in fresh:
            self._redactor.scan(_to_single(export, each))
            self._seen[each.info.id] = each
        found = len(self._redactor.findings())
        if found > self._known:
            self._known, self._frame, fresh = found, None, list(export.messages)
        for each in fresh:
            [self._redacted[each.info.id]] = self._redactor.redact(_to_single(export, each)).messages
        if self._frame is None:
            self._frame = frame, self._redactor.redact(frame)
        messages = tuple(self._redacted[each.info.id] for each in export.messages)
        return replace(self._frame[1], messages=messages)

    def findings(self) -> list[RedactedSecret]:
        return [] if self._redactor is None else self._redactor.findings()


def _to_single(export: SessionExport, message: MessageWithParts) -> SessionExport:
    """Return a session with one message only; the rest of the session is searched once, not with each message."""
    return SessionExport(info=Session(id=export.info.id, time=export.info.time), messages=(message,))


def to_preview(export: SessionExport, terms: ShareTerms) -> SharePreview:
    """Return what a share on these terms would show and redact."""
    shown = to_shared_view(export, attachments=terms.attachments)
    redactor = SessionRedactor(redact=terms.redact)
    redactor.redact(shown)
    covered = tuple(_to_covered(each) for each in redactor.findings())
    return SharePreview(
        to=terms.to,
        messages=len(shown.messages),
        parts=_count_parts(shown),
        pictures=count_binary_files(shown),
        left_out=_count_parts(export) - _count_parts(shown),
        kinds=dict(Counter(each.kind for each in covered)),
        covered=covered,
    )


def _count_parts(export: SessionExport) -> int:
    return sum(len(message.parts) for message in export.messages)


def _to_covered(found: RedactedSecret) -> ShareRedaction:
    return ShareRedaction(
        kind=found.kind,
        where=found.where,
        placeholder=found.placeholder,
        glimpse=found.glimpse,
        times=found.times,
    )
