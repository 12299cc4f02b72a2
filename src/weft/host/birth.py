"""When a file was made: the kernel knows, and on Linux the standard library does not ask it."""

import ctypes
import os
from typing import Final

_AT_FDCWD: Final = -100
_NO_FOLLOW: Final = 0x100
_BIRTH: Final = 0x800


class _Time(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_int64), ("nanoseconds", ctypes.c_uint32), ("unused", ctypes.c_int32))


class _Statx(ctypes.Structure):
    """As the kernel fills it: 256 bytes, of which the beginning is of interest."""

    _fields_ = (
        ("mask", ctypes.c_uint32),
        ("before", ctypes.c_uint8 * 60),
        ("accessed", _Time),
        ("born", _Time),
        ("after", ctypes.c_uint8 * 160),
    )


def birth_of(path: bytes) -> int | None:
    """When what a path names was made, in ns since 1970; a link is not followed. None if nobody can tell."""
    told: object = getattr(os.lstat(path), "st_birthtime", None)
    if isinstance(told, float):
        return int(told * 1_000_000_000)
    try:
        statx = ctypes.CDLL(None, use_errno=True).statx
    except (OSError, AttributeError):
        return None
    found = _Statx()
    failed = statx(_AT_FDCWD, ctypes.c_char_p(path), _NO_FOLLOW, _BIRTH, ctypes.byref(found))
    if failed or not found.mask & _BIRTH:
        return None
    return int(found.born.seconds) * 1_000_000_000 + int(found.born.nanoseconds)
