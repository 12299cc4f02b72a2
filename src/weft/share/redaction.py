"""Redact a growing session without reading old text again, and preview a share."""

from collections import Counter

from msgspec.structs import replace

from weft.model.ids import MessageID
from weft.model.message import MessageWithParts
from weft.model.session import SessionInfo
from weft.model.share import SharePreview, ShareRedaction, ShareTerms
from weft.model.transfer import SessionExport
from weft.share.view import count_binary_files, to_shared_view
from weft.transfer.redact import RedactedSecret, Redactor


class SessionRedactor:
    """Redacts one session as it grows. With `redact=False`, it returns everything unchanged.

    Only new messages are scanned. If they contain a new secret, all messages are redacted again.
    """

    def __init__(self, *, redact: bool = True) -> None:
        self._redactor = Redactor() if redact else None
        self._secret_count = 0
        self._scanned: dict[MessageID, MessageWithParts] = {}
        self._redacted: dict[MessageID, MessageWithParts] = {}
        self._header: tuple[SessionExport, SessionExport] | None = None

    def redact(self, export: SessionExport) -> SessionExport:
        """Return the session with its secrets redacted."""
        if self._redactor is None:
            return export
        changed = [message for message in export.messages if self._scanned.get(message.info.id) != message]
        header = replace(export, messages=())
        if self._header is None or self._header[0] != header:
            self._redactor.scan(header)
            self._header = None
        for message in changed:
            self._redactor.scan(_to_single(export, message))
            self._scanned[message.info.id] = message
        secret_count = len(self._redactor.findings())
        if secret_count > self._secret_count:
            self._secret_count, self._header, changed = secret_count, None, list(export.messages)
        for message in changed:
            [self._redacted[message.info.id]] = self._redactor.redact(_to_single(export, message)).messages
        if self._header is None:
            self._header = header, self._redactor.redact(header)
        messages = tuple(self._redacted[message.info.id] for message in export.messages)
        return replace(self._header[1], messages=messages)

    def findings(self) -> list[RedactedSecret]:
        return [] if self._redactor is None else self._redactor.findings()


def _to_single(export: SessionExport, message: MessageWithParts) -> SessionExport:
    """Return a session with one message only, so that the rest of the session is not searched with each message."""
    return SessionExport(info=SessionInfo(id=export.info.id, time=export.info.time), messages=(message,))


def to_preview(export: SessionExport, terms: ShareTerms) -> SharePreview:
    """Return what a share on these terms would show and redact."""
    view = to_shared_view(export, attachments=terms.attachments)
    redactor = SessionRedactor(redact=terms.redact)
    redactor.redact(view)
    covered = tuple(_to_redaction(redaction) for redaction in redactor.findings())
    return SharePreview(
        to=terms.to,
        messages=len(view.messages),
        parts=_count_parts(view),
        pictures=count_binary_files(view),
        left_out=_count_parts(export) - _count_parts(view),
        kinds=dict(Counter(redaction.kind for redaction in covered)),
        covered=covered,
    )


def _count_parts(export: SessionExport) -> int:
    return sum(len(message.parts) for message in export.messages)


def _to_redaction(secret: RedactedSecret) -> ShareRedaction:
    return ShareRedaction(
        kind=secret.kind,
        where=secret.where,
        placeholder=secret.placeholder,
        glimpse=secret.glimpse,
        times=secret.times,
    )
