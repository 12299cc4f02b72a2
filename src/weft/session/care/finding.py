"""Finding: something a look at the machine, the configuration or the store turned up, and the way out."""

from typing import Literal

from msgspec import Struct

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
