"""Put a wall around this process, and become the command: `python -I -S launch.py WALL COMMAND...`.

A script that imports nothing of ours: it is started for every command, and by any Python. Mounts of its own leave the
command with a view of the files in which only some can be written and some are not there; Landlock, which works where
mounts are not allowed, says the same once more; a filter of system calls cuts off the network. If any of it fails that
is known to work here, nothing is run. Without a command it tells what worked.
"""

import ctypes
import json
import os
import stat
import struct
import sys
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

FAILED = 125
NOT_FOUND = 127

libc = ctypes.CDLL(None, use_errno=True)


class WallError(Exception):
    """The wall cannot be put up."""


def main(words: list[str]) -> NoReturn:
    wall, command = json.loads(words[0]), words[1:]
    try:
        mounted = try_mounts(wall)
        if command and wall["mounted"] and not mounted:
            raise WallError("mounts that were allowed are not any more")
        drop_powers()
        enclose(wall)
        if not wall["network"]:
            cut_off()
    except (OSError, WallError) as error:
        sys.exit(complain(f"the sandbox could not be put up: {error}", FAILED))
    if not command:
        json.dump({"mounted": mounted}, sys.stdout)
        sys.exit(0)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(complain(f"{command[0]}: {error.strerror}", NOT_FOUND))


def complain(said: str, code: int) -> int:
    sys.stderr.write(f"weft: {said}\n")
    return code


def call(number: int, *given: Any) -> int:
    """A system call by its number; raises `OSError` when it fails."""
    answer = int(libc.syscall(ctypes.c_long(number), *given))
    if answer < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return answer


def check(answer: int, path: str = "") -> None:
    if answer != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path or None)


def control(option: int, *given: Any) -> None:
    """Set an option of this process. What is not given goes as nothing, which the kernel insists on."""
    rest = [ctypes.c_ulong(0)] * (4 - len(given))
    check(libc.prctl(ctypes.c_int(option), *given, *rest))


# --- a view of the files: mounts that this process alone sees ---

NEW_MOUNTS, NEW_USER = 0x20000, 0x10000000
NO_SUID, NO_DEVICES, BIND, RECURSIVE, PRIVATE = 0x2, 0x4, 0x1000, 0x4000, 0x40000
MOUNT_SETATTR, ALL_BELOW, READ_ONLY = 442, 0x8000, 1

# Where sockets of other programs lie: Docker's, the bus of the desktop, keyrings; and what is needed of it.
SOCKETS = "/run"
STILL_THERE = (
    *(
        "/run/systemd/resolve",
        "/run/resolvconf",
        "/run/NetworkManager/resolv.conf",
        "/run/connman/resolv.conf",
    ),
    *("/run/current-system", "/run/opengl-driver"),
)
ALWAYS_WRITABLE = ("/dev/shm", "/dev/pts")


def try_mounts(wall: Any) -> bool:
    """Gives whether they are all in place. Where they cannot be, Landlock has to do."""
    here = os.getcwd()
    try:
        leave()
        check(libc.mount(None, b"/", None, ctypes.c_ulong(RECURSIVE | PRIVATE), None))
        lay_out(wall)
        os.chdir(here)
    except OSError:
        return False
    # A link can be put in the place of another, whatever is mounted where it leads.
    return not any(os.path.islink(path) for path in wall["kept"])


def leave() -> None:
    """Into a namespace of mounts of our own; who may not do that may in a namespace of users of their own."""
    user, group = os.getuid(), os.getgid()
    if libc.unshare(NEW_MOUNTS) == 0:
        return
    check(libc.unshare(NEW_USER | NEW_MOUNTS))
    for name, said in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(said)


def lay_out(wall: Any) -> None:
    """All read-only; what is hidden empty; and then back what may be read there, and what may be written."""
    covered = [path for path in wall["hidden"] if not path.startswith(f"{SOCKETS}/")]
    hidden = [path for path in (*covered, SOCKETS) if os.path.isdir(path)]
    writable = {*wall["writable"], *ALWAYS_WRITABLE}
    # Opened before anything is covered up: this is how they can be reached afterwards.
    back = {
        path: place for path in (*STILL_THERE, *wall["readable"], *writable) if (place := find(path)) >= 0
    }
    allow_writing("/", to=False)
    for path in hidden:
        options = ctypes.c_ulong(NO_SUID | NO_DEVICES)
        check(libc.mount(b"none", os.fsencode(path), b"tmpfs", options, b"mode=0755"), path)
    for path in sorted(back, key=lambda path: (path.count("/"), path)):
        make_place(path, back[path])
        bind(f"/proc/self/fd/{back[path]}", path)
        if path in writable:
            allow_writing(path, to=True)
        os.close(back[path])
    keep([path for path in wall["kept"] if os.path.exists(path) and not os.path.islink(path)], writable)
    for path in hidden:
        call_setattr(path, 0, READ_ONLY, 0)


def keep(paths: list[str], writable: set[str]) -> None:
    # A directory with a mount in it can be moved away and made anew; one that is a mount cannot.
    for path in dict.fromkeys(os.path.dirname(path) for path in paths):
        if path not in writable:
            bind(path, path)
    for path in paths:
        bind(path, path)
        allow_writing(path, to=False)


def find(path: str) -> int:
    try:
        return os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return -1


def make_place(path: str, place: int) -> None:
    """Something to mount on, where what was there has been covered up."""
    if os.path.lexists(path):
        return
    if stat.S_ISDIR(os.fstat(place).st_mode):
        os.makedirs(path, exist_ok=True)
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))


def bind(source: str, path: str) -> None:
    check(
        libc.mount(os.fsencode(source), os.fsencode(path), None, ctypes.c_ulong(BIND | RECURSIVE), None), path
    )


def allow_writing(path: str, *, to: bool) -> None:
    if not to:
        call_setattr(path, ALL_BELOW, READ_ONLY, 0)
        return
    try:
        call_setattr(path, ALL_BELOW, 0, READ_ONLY)
    except OSError:  # something below is read-only by another's will
        call_setattr(path, 0, 0, READ_ONLY)


def call_setattr(path: str, flags: int, set: int, clear: int) -> None:
    given = struct.pack("=QQQQ", set, clear, 0, 0)
    named = ctypes.c_char_p(os.fsencode(path))
    size = ctypes.c_size_t(len(given))
    call(MOUNT_SETATTR, ctypes.c_int(-1), named, ctypes.c_uint(flags), ctypes.c_char_p(given), size)


# --- what root could do besides ---

DROP_POWER = 24
# Owning files and changing whose they are, signals, users, small ports. Not: mounts, devices, other processes.
POWERS = {0, 1, 3, 4, 5, 6, 7, 8, 10}
LAST_POWER = 63


def drop_powers() -> None:
    """Only root has any, and what is dropped here is gone with the next program that is started."""
    for power in set(range(LAST_POWER + 1)) - POWERS:
        libc.prctl(ctypes.c_int(DROP_POWER), ctypes.c_ulong(power), *[ctypes.c_ulong(0)] * 3)


# --- what may be read and written: Landlock ---

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
NO_NEW_PRIVS = 38
OLDEST_ABI = 3  # before it, whatever can be named could be cut to nothing

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = (1 << bit for bit in range(4))
REFER, TRUNCATE, IOCTL_DEV, RESOLVE_UNIX = (1 << bit for bit in range(13, 17))
READ = EXECUTE | READ_FILE | READ_DIR
# All the rights there were at first, and what later versions of the interface added.
FIRST = (1 << 13) - 1
LATER = ((2, REFER), (3, TRUNCATE), (5, IOCTL_DEV), (9, RESOLVE_UNIX))
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV | RESOLVE_UNIX
# Sockets without a path, and signals: neither reaches out of the wall.
SCOPED_SINCE, SCOPES = 6, 0b11

_DEVICES = "null zero full random urandom tty ptmx pts shm"
DEVICES = tuple(f"/dev/{name}" for name in _DEVICES.split())


def enclose(wall: Any) -> None:
    """From here on, this process and all that it starts reach no further."""
    version = call(CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    if version < OLDEST_ABI:
        raise WallError(f"this kernel's Landlock is too old: version {version}, of at least {OLDEST_ABI}")
    rights = FIRST | sum(right for since, right in LATER if version >= since)
    given = struct.pack("=QQQ", rights, 0, SCOPES if version >= SCOPED_SINCE else 0)
    rules = call(CREATE_RULESET, ctypes.c_char_p(given), ctypes.c_size_t(len(given)), ctypes.c_uint32(0))
    for paths, allowed in (
        (list_open(wall["hidden"]), READ),
        (wall["readable"], READ),
        (DEVICES, rights & ~EXECUTE),
        (wall["writable"], rights),
    ):
        for path in paths:
            allow(rules, path, allowed & rights)
    control(NO_NEW_PRIVS, ctypes.c_ulong(1))
    call(RESTRICT_SELF, ctypes.c_int(rules), ctypes.c_uint32(0))
    os.close(rules)


def allow(rules: int, path: str, rights: int) -> None:
    """Allow this below a path; what is not there, or is a link, needs no rule."""
    try:
        place = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        found = os.fstat(place).st_mode
        if stat.S_ISLNK(found):
            return
        given = struct.pack("=Qi", rights if stat.S_ISDIR(found) else rights & OF_FILES, place)
        call(ADD_RULE, ctypes.c_int(rules), ctypes.c_int(1), ctypes.c_char_p(given), ctypes.c_uint32(0))
    finally:
        os.close(place)


def list_open(hidden: Iterable[str]) -> Iterator[str]:
    """All there is, but for what is hidden and what leads to it: rules can allow, and not forbid."""
    yield from list_beside("/", {*hidden, "/dev"})


def list_beside(directory: str, hidden: set[str]) -> Iterator[str]:
    try:
        names = os.listdir(directory)
    except OSError:
        return
    for name in names:
        path = os.path.join(directory, name)
        if path in hidden:
            continue
        if any(each.startswith(f"{path}/") for each in hidden):
            yield from list_beside(path, hidden)
        else:
            yield path


# --- the network: a filter of system calls ---

SET_SECCOMP, FILTER = 22, 2
# How each machine calls itself, and numbers `socket`.
MACHINES = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}
IO_URING_SETUP = 425
OTHER_NUMBERS = 0x40000000
UNIX, NETLINK = 1, 16


def cut_off() -> None:
    """No socket but a local one can be made from here on, by no way of making one."""
    machine = os.uname().machine
    if machine not in MACHINES:
        raise WallError(f"the network cannot be cut off on {machine}")
    program = b"".join(to_filter(*MACHINES[machine]))
    held = ctypes.create_string_buffer(program)
    described = struct.pack("@HP", len(program) // 8, ctypes.addressof(held))
    control(SET_SECCOMP, ctypes.c_ulong(FILTER), ctypes.c_char_p(described))


def to_filter(machine: int, socket: int) -> Iterator[bytes]:
    """Each line one step: what to do, how many steps to leave out if it holds and if not, and with what."""
    load, equal, has, end = 0x20, 0x15, 0x45, 0x06
    passed, refused = 0x7FFF0000, 0x00050000 | 13
    for code, yes, no, value in (
        (load, 0, 0, 4),  # whose numbers
        (equal, 0, 8, machine),
        (load, 0, 0, 0),  # which call
        (has, 6, 0, OTHER_NUMBERS),
        (equal, 5, 0, IO_URING_SETUP),
        (equal, 0, 3, socket),
        (load, 0, 0, 16),  # which family
        (equal, 1, 0, UNIX),
        (equal, 0, 1, NETLINK),
        (end, 0, 0, passed),
        (end, 0, 0, refused),
    ):
        yield struct.pack("=HBBI", code, yes, no, value)


if __name__ == "__main__":
    main(sys.argv[1:])
