"""Amounts as people type and read them: `90d`, `2G`, `1.2 GB`. No patterns: this is loaded by every command."""

import argparse
from typing import Final

DAY_MS: Final = 24 * 60 * 60 * 1000
_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": DAY_MS, "w": 7 * DAY_MS, "y": 365 * DAY_MS}
_BYTES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
STEP: Final = 1024
FEW: Final = 10


def age(text: str) -> int:
    """`90d` in ms. A bare 0 is 0; any other number needs its unit, for guessing it could cost somebody's sessions."""
    number, unit = text.strip().lower()[:-1], text.strip().lower()[-1:]
    if text.strip() == "0":
        return 0
    if not number.isdecimal() or unit not in _MS:
        raise argparse.ArgumentTypeError(f"{text!r} is no age: write 90d, 12h, 8w or 1y")
    return int(number) * _MS[unit]


def size(text: str) -> int:
    """`2G` in bytes; `2GB` and `2GiB` are the same."""
    bare = text.strip().lower().removesuffix("b").removesuffix("i")
    number = bare.rstrip("kmgt")
    unit = bare[len(number) :]
    if not number.replace(".", "", 1).isdecimal() or unit not in _BYTES:
        raise argparse.ArgumentTypeError(f"{text!r} is no size: write 500M or 2G")
    return int(float(number) * _BYTES[unit])


def told_size(count: int) -> str:
    """Bytes in the largest unit that fits."""
    amount, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if amount < STEP:
            break
        amount, unit = amount / STEP, larger
    return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}" if amount < FEW else f"{amount:.0f} {unit}"
