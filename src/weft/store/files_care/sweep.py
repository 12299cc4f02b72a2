"""Sweep: take leftovers away. Each is looked at once more under its lock; what may be missed is laid aside, not lost."""

import os
from collections.abc import Iterable

from msgspec import Struct

from weft.host.files import try_locked
from weft.model.ids import MessageID, PartID, SessionID
from weft.store.files_care.caretaker import Caretaker
from weft.store.files_care.heap import weigh
from weft.store.files_care.leftovers import Leftover, counts_for_nothing
from weft.store.layout import session_lock


class Swept(Struct, frozen=True, kw_only=True):
    """What was taken away, what was laid aside and where to, and what could not be taken away, with the reason."""

    removed: tuple[Leftover, ...]
    backup: str
    failed: tuple[tuple[str, str], ...] = ()


def sweep(caretaker: Caretaker, leftovers: Iterable[Leftover], *, before: int) -> Swept:
    removed: list[Leftover] = []
    failed: list[tuple[str, str]] = []
    caretaker.recover()
    for each in leftovers:
        try:
            if _take(caretaker, each, before):
                removed.append(each)
        except OSError as error:
            failed.append((each.path, error.strerror or str(error)))
    backup = caretaker.backup if any(each.keeping for each in removed) else ""
    return Swept(removed=tuple(removed), backup=backup, failed=tuple(failed))


def _take(caretaker: Caretaker, leftover: Leftover, before: int) -> bool:
    match leftover.kind:
        case "temp" | "redo":
            return not os.path.lexists(leftover.path)  # seen to when the caretaker recovered
        case "lock" | "lease":
            return _take_lock(caretaker, leftover)
        case "tool-output" | "backup":
            caretaker.disk.remove(leftover.path)
            return True
        case _:
            return _take_document(caretaker, leftover, before)


def _take_lock(caretaker: Caretaker, leftover: Leftover) -> bool:
    with try_locked(leftover.path) as mine:
        if mine:
            caretaker.disk.remove(leftover.path)
        return mine


def _take_document(caretaker: Caretaker, leftover: Leftover, before: int) -> bool:
    locks = [session_lock(SessionID(leftover.session))] if leftover.session else ["care"]
    with caretaker.holding(*locks):
        if weigh(leftover.path).changed >= before or _is_wanted(caretaker, leftover):
            return False
        if leftover.keeping:
            taken = caretaker.lay_aside(leftover.path)
        else:
            caretaker.disk.remove(leftover.path)
            caretaker.disk.prune(os.path.dirname(leftover.path))
            taken = True
        if leftover.session and not caretaker.tree.projects_of(SessionID(leftover.session)):
            caretaker.disk.remove(
                caretaker.layout.lock(locks[0])
            )  # last of all: it was made to be held just now
        return taken


def _is_wanted(caretaker: Caretaker, leftover: Leftover) -> bool:
    """Whether what it belongs to has come back, as it does out of the trash, or was never gone."""
    layout, session = caretaker.layout, SessionID(leftover.session)
    if leftover.kind == "growth":
        message, part = leftover.path.split("/")[-2:]
        return not counts_for_nothing(layout, MessageID(message), PartID(part))
    if leftover.message:
        return os.path.lexists(layout.message(session, MessageID(leftover.message)))
    return bool(caretaker.tree.projects_of(session))
