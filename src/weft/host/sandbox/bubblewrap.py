"""A wall by bubblewrap, where it is installed: the command sees only what was mounted for it."""

import os
import shutil
from collections.abc import Iterator

from weft.host.sandbox.launch import SOCKETS, STILL_THERE
from weft.host.sandbox.wall import Wall


def find_bubblewrap(path: str) -> str | None:
    """Where it is installed; never in the project, to which a relative entry of PATH leads."""
    found = shutil.which("bwrap", path=path)
    return found if found and os.path.isabs(found) else None


def to_words(program: str, wall: Wall) -> tuple[str, ...]:
    network = () if wall.network else ("--unshare-net",)
    return (
        *(program, "--die-with-parent", "--unshare-pid", "--unshare-ipc", *network),
        *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
        *(word for words in _mounts(wall) for word in words),
        "--",
    )


def _mounts(wall: Wall) -> Iterator[tuple[str, ...]]:
    """What is above comes first: a mount hides whatever was mounted below its place before."""
    hidden = [path for path in (*wall.hidden, SOCKETS) if os.path.isdir(path)]
    above = dict.fromkeys(os.path.dirname(path) for path in wall.kept)
    wanted: dict[str, tuple[str, ...]] = {path: ("--tmpfs", path) for path in hidden}
    wanted |= {path: ("--ro-bind-try", path, path) for path in (*STILL_THERE, *wall.readable)}
    # A directory with a mount in it can be moved away and made anew; one that is a mount cannot.
    wanted |= {path: ("--bind-try", path, path) for path in (*above, *wall.writable)}
    wanted |= {path: ("--ro-bind-try", path, path) for path in wall.kept}
    yield from (wanted[path] for path in sorted(wanted, key=lambda path: (path.count("/"), path)))
    # Not before all is in place. What is written there would be gone with the command, unnoticed.
    yield from (("--remount-ro", path) for path in hidden)
