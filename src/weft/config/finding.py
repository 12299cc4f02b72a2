"""What a look at a configuration file turned up: never a value, which may be a secret."""

from msgspec import Struct

# The keys from the root down; an entry of a list by its number.
KeyPath = tuple[str, ...]


class Finding(Struct, frozen=True, kw_only=True):
    """Something in a file that was not taken as it stands. A `mild` one costs nothing that we know of."""

    path: KeyPath
    reason: str
    near: str = ""
    mild: bool = False
