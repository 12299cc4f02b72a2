"""Findings of the doctor: known problems of a store, what each means and what cures it."""

from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

Severity = Literal["problem", "warning", "note"]

# What can be put right without anybody's judgement, each by a function of `session.care.cure`.
Cure = Literal[
    "", "lock-up", "recover", "lay-aside", "rebuild", "uproot", "unite", "adopt", "unindex", "drop-lease"
]


class Item(Struct, frozen=True, kw_only=True):
    """One thing a finding is about: where it is, and what is the matter with it."""

    where: str
    reason: str = ""


class Finding(Struct, frozen=True, kw_only=True):
    """What is the matter, what that means, and the command that puts it right.

    A problem costs something now, a warning may, a note is for information.
    """

    severity: Severity
    area: str
    what: str
    means: str = ""
    repair: str = ""
    cure: Cure = ""
    items: tuple[Item, ...] = ()


AREA: Final = "store"
FIX: Final = "weft doctor --fix"
GC: Final = "weft storage gc"

UNREADABLE: Final = Finding(
    severity="problem",
    area=AREA,
    what="documents that cannot be read: {}",
    means="each is left out, and hides nothing else; --fix moves them to .weft/backup, where they can be looked at, "
    "and makes a session whose own document is lost anew from its messages",
    repair=FIX,
    cure="lay-aside",
)
STRANGE: Final = Finding(
    severity="warning",
    area=AREA,
    what="files among the documents that are none: {}",
    means="weft leaves them alone; OpenCode takes them for documents and fails",
    repair="move them elsewhere",
)
TWINS: Final = Finding(
    severity="warning",
    area=AREA,
    what="sessions recorded in two projects: {}",
    means="a move was cut short; the one changed last counts",
    repair=FIX,
    cure="unite",
)
MISPLACED: Final = Finding(
    severity="warning",
    area=AREA,
    what="documents that lie elsewhere than they say: {}",
    means="where they lie counts; they may have been copied by hand",
)
ORPHANED: Final = Finding(
    severity="warning",
    area=AREA,
    what="sessions whose parent is gone: {}",
    means="they are in no list, because lists show the sessions that others were started from",
    repair=FIX,
    cure="uproot",
)
ASTRAY: Final = Finding(
    severity="warning",
    area=AREA,
    what="references that lead nowhere, or times that cannot be: {}",
    means="everything can be read; what is referred to is missing",
)
HEADLESS: Final = Finding(
    severity="problem",
    area=AREA,
    what="conversations whose session is lost: {}",
    means="the messages are there and cannot be opened; --fix makes the session anew from them",
    repair=FIX,
    cure="rebuild",
)
LOST: Final = Finding(
    severity="warning",
    area=AREA,
    what="parts, diffs and todos of something that is gone: {}",
    means="OpenCode leaves them behind when it removes; they only take up room",
    repair=GC,
)
UNFINISHED: Final = Finding(
    severity="warning",
    area=AREA,
    what="changes that were being written when a process ended: {}",
    means="what was promised is finished and the rest swept away as soon as anybody writes there",
    repair=FIX,
    cure="recover",
)
LEFT: Final = Finding(
    severity="note",
    area=AREA,
    what="files left from earlier: {}",
    means="they do no harm",
    repair=GC,
)
OVERSIZED: Final = Finding(
    severity="note",
    area=AREA,
    what="summaries that hold whole files: {}",
    means="they are read again and again, and only take up room",
    repair="weft storage gc --compact-summaries",
)
CUT_SHORT: Final = Finding(
    severity="note",
    area=AREA,
    what="runs that were cut short: {}",
    means="they are settled the next time weft is opened",
    repair="weft run --session ID",
)
BEREFT: Final = Finding(
    severity="warning",
    area=AREA,
    what="dead runs of sessions that are gone: {}",
    means="nothing is left of the session; the next opening, or --fix, removes the mark of its run",
    repair=FIX,
    cure="drop-lease",
)
BAD_INDEX: Final = Finding(
    severity="warning",
    area="index",
    what="the index of sessions cannot be used",
    means="searching and figures are slow until it is made anew; it holds nothing that the store does not",
    repair=FIX,
    cure="unindex",
)
UNLABELLED: Final = Finding(
    severity="warning",
    area=AREA,
    what="bundles in the trash that cannot be brought back by command: {}",
    means="their label is missing or cannot be read; what is in them lies below `tree` as it lay in the store",
    repair="move what lies below `tree` back by hand, or remove the bundle",
)
OUTDATED: Final = Finding(
    severity="note",
    area=AREA,
    what="the store is of an older format",
    means="it is brought up to date, and the originals are kept, the next time it is opened",
    repair="weft session list",
)


NEWER_HOME: Final = Finding(
    severity="warning",
    area=AREA,
    what="OpenCode 1.2 or later keeps its sessions in {}, which weft does not work in",
    means="nothing of it is shown or changed here; importing brings its sessions here and leaves it as it is",
    repair="weft import --from opencode-sqlite {}",
)


def about(ailment: Finding, items: list[Item]) -> list[Finding]:
    """One finding about all of them, none about nothing."""
    return [replace(ailment, what=ailment.what.format(len(items)), items=tuple(items))] if items else []
