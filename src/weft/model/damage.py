"""Damage: what is stored and cannot be read."""

import msgspec


class Damage(msgspec.Struct, frozen=True, kw_only=True):
    """A stored document that cannot be read: where it is, and what is wrong with it."""

    where: str
    reason: str
