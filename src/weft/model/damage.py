"""Stored documents that cannot be read."""

import msgspec


class Damage(msgspec.Struct, frozen=True, kw_only=True):
    """A stored document that cannot be read: its location and the reason."""

    where: str
    reason: str
