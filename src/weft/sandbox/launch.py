"""Restrict this process by a sandbox policy, then become the command: `python -I -S launch.py POLICY COMMAND...`.

This script runs before every command, with any Python, and so imports nothing of weft. It restricts the process in
three ways. Mounts in a private namespace hide some files and make others read-only. Landlock enforces most of these rules
once more, and works where mounts are not allowed; only mounts make a file read-only in a directory that is writable. A
seccomp filter blocks the network. If a restriction that is known to work here fails, the command is not run. Without a
command, the script prints which restrictions work.
"""

import ctypes
import json
import os
import stat
import struct
import sys
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

EXIT_FAILED = 125
EXIT_NOT_FOUND = 127

libc = ctypes.CDLL(None, use_errno=True)


class SandboxError(Exception):
    """The policy cannot be enforced."""


def main(arguments: list[str]) -> NoReturn:
    policy, command = json.loads(arguments[0]), arguments[1:]
    try:
        mounted = try_mounts(policy)
        if command and policy["needs_mounts"] and not mounted:
            raise SandboxError("mounts are no longer allowed")
        drop_capabilities()
        restrict_files(policy)
        if not policy["network"]:
            block_network()
    except (OSError, SandboxError) as error:
        sys.exit(print_error(f"the sandbox could not be set up: {error}", EXIT_FAILED))
    if not command:
        json.dump({"mounted": mounted}, sys.stdout)
        sys.exit(0)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(print_error(f"{command[0]}: {error.strerror}", EXIT_NOT_FOUND))


def print_error(text: str, code: int) -> int:
    """Print an error for the person and return the exit code."""
    sys.stderr.write(f"weft: {text}\n")
    return code


def call_system(number: int, *arguments: Any) -> int:
    """Make a system call by its number. Raise `OSError` if it fails."""
    result = int(libc.syscall(ctypes.c_long(number), *arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def check(result: int, path: str = "") -> None:
    """Raise `OSError` for the last error unless the C function returned 0."""
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path or None)


def set_process_option(option: int, *arguments: Any) -> None:
    """Set an option of this process by prctl. The kernel requires unused arguments to be zero."""
    rest = [ctypes.c_ulong(0)] * (4 - len(arguments))
    check(libc.prctl(ctypes.c_int(option), *arguments, *rest))


# --- files: mounts in a private namespace ---

NEW_MOUNTS, NEW_USER = 0x20000, 0x10000000
NO_SUID, NO_DEVICES, BIND, RECURSIVE, PRIVATE = 0x2, 0x4, 0x1000, 0x4000, 0x40000
MOUNT_SETATTR, ALL_BELOW, READ_ONLY = 442, 0x8000, 1

# /run contains sockets of other programs, such as Docker, the desktop bus and keyrings. The paths after it remain
# readable.
RUNTIME_DIRECTORY = "/run"
RUNTIME_READABLE = (
    *(
        "/run/systemd/resolve",
        "/run/resolvconf",
        "/run/NetworkManager/resolv.conf",
        "/run/connman/resolv.conf",
    ),
    *("/run/current-system", "/run/opengl-driver"),
)
ALWAYS_WRITABLE = ("/dev/shm", "/dev/pts")


def try_mounts(policy: Any) -> bool:
    """Set up the mounts. Return False if they are not allowed or cannot protect everything: Landlock then works alone."""
    directory = os.getcwd()
    try:
        enter_mount_namespace()
        check(libc.mount(None, b"/", None, ctypes.c_ulong(RECURSIVE | PRIVATE), None))
        mount_view(policy)
        os.chdir(directory)
    except OSError:
        return False
    # A link can be replaced, no matter what is mounted at its target.
    return not any(os.path.islink(path) for path in policy["protected"])


def enter_mount_namespace() -> None:
    """Enter a private mount namespace, within a new user namespace if we lack the privilege."""
    user, group = os.getuid(), os.getgid()
    if libc.unshare(NEW_MOUNTS) == 0:
        return
    check(libc.unshare(NEW_USER | NEW_MOUNTS))
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def mount_view(policy: Any) -> None:
    """Mount what this process sees of the files.

    Everything becomes read-only, empty directories are mounted over the hidden ones, and then the readable and writable
    exceptions are mounted.
    """
    outside_runtime = [path for path in policy["hidden"] if not path.startswith(f"{RUNTIME_DIRECTORY}/")]
    hidden = [path for path in (*outside_runtime, RUNTIME_DIRECTORY) if os.path.isdir(path)]
    writable = {*policy["writable"], *ALWAYS_WRITABLE}
    # Open these before they are hidden, so that they can be mounted afterwards.
    descriptors = {
        path: descriptor
        for path in (*RUNTIME_READABLE, *policy["readable"], *writable)
        if (descriptor := open_path(path)) >= 0
    }
    set_writable("/", to=False)
    for path in hidden:
        options = ctypes.c_ulong(NO_SUID | NO_DEVICES)
        check(libc.mount(b"none", os.fsencode(path), b"tmpfs", options, b"mode=0755"), path)
    for path in sorted(descriptors, key=lambda path: (path.count("/"), path)):
        make_mount_point(path, descriptors[path])
        bind(f"/proc/self/fd/{descriptors[path]}", path)
        if path in writable:
            set_writable(path, to=True)
        os.close(descriptors[path])
    protect_paths(
        [path for path in policy["protected"] if os.path.exists(path) and not os.path.islink(path)], writable
    )
    for path in hidden:
        set_mount_attributes(path, 0, READ_ONLY, 0)


def protect_paths(paths: list[str], writable: set[str]) -> None:
    """Make paths read-only, so that they can be neither changed nor replaced."""
    # A directory that contains a mount can be moved away and recreated. A mount itself cannot, so mount the parent, too.
    for path in dict.fromkeys(os.path.dirname(path) for path in paths):
        if path not in writable:
            bind(path, path)
    for path in paths:
        bind(path, path)
        set_writable(path, to=False)


def open_path(path: str) -> int:
    """Return a descriptor for a path, or -1 if it cannot be opened."""
    try:
        return os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return -1


def make_mount_point(path: str, descriptor: int) -> None:
    """Create the mount point where a hidden directory covers the original."""
    if os.path.lexists(path):
        return
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        os.makedirs(path, exist_ok=True)
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))


def bind(source: str, path: str) -> None:
    check(
        libc.mount(os.fsencode(source), os.fsencode(path), None, ctypes.c_ulong(BIND | RECURSIVE), None), path
    )


def set_writable(path: str, *, to: bool) -> None:
    if not to:
        set_mount_attributes(path, ALL_BELOW, READ_ONLY, 0)
        return
    try:
        set_mount_attributes(path, ALL_BELOW, 0, READ_ONLY)
    except OSError:  # a mount below is read-only for another reason
        set_mount_attributes(path, 0, 0, READ_ONLY)


def set_mount_attributes(path: str, flags: int, set: int, clear: int) -> None:
    arguments = struct.pack("=QQQQ", set, clear, 0, 0)
    path_pointer = ctypes.c_char_p(os.fsencode(path))
    size = ctypes.c_size_t(len(arguments))
    call_system(
        MOUNT_SETATTR, ctypes.c_int(-1), path_pointer, ctypes.c_uint(flags), ctypes.c_char_p(arguments), size
    )


# --- privileges: capabilities of root ---

DROP_CAPABILITY = 24
# Keep the capabilities for file ownership, signals, users and low ports. Drop those for mounts, devices and other
# processes.
KEPT_CAPABILITIES = {0, 1, 3, 4, 5, 6, 7, 8, 10}
LAST_CAPABILITY = 63


def drop_capabilities() -> None:
    """Drop capabilities from the bounding set, so that the next program does not have them. Only root has any."""
    for capability in set(range(LAST_CAPABILITY + 1)) - KEPT_CAPABILITIES:
        libc.prctl(ctypes.c_int(DROP_CAPABILITY), ctypes.c_ulong(capability), *[ctypes.c_ulong(0)] * 3)


# --- files: Landlock ---

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
NO_NEW_PRIVS = 38
MIN_LANDLOCK_ABI = 3  # earlier versions could not restrict truncating

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = (1 << bit for bit in range(4))
REFER, TRUNCATE, IOCTL_DEV, RESOLVE_UNIX = (1 << bit for bit in range(13, 17))
READ = EXECUTE | READ_FILE | READ_DIR
# The rights of the first version of Landlock, and those that later versions added.
FIRST_RIGHTS = (1 << 13) - 1
LATER_RIGHTS = ((2, REFER), (3, TRUNCATE), (5, IOCTL_DEV), (9, RESOLVE_UNIX))
FILE_RIGHTS = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV | RESOLVE_UNIX
# Abstract sockets and signals must not reach processes outside of the sandbox.
SCOPES_SINCE_ABI, SCOPES = 6, 0b11

_DEVICES = "null zero full random urandom tty ptmx pts shm"
DEVICES = tuple(f"/dev/{name}" for name in _DEVICES.split())


def restrict_files(policy: Any) -> None:
    """Restrict the files that this process and its children can access from now on."""
    version = call_system(CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    if version < MIN_LANDLOCK_ABI:
        raise SandboxError(
            f"this kernel's Landlock is too old: version {version}, at least {MIN_LANDLOCK_ABI} is needed"
        )
    rights = FIRST_RIGHTS | sum(right for since, right in LATER_RIGHTS if version >= since)
    arguments = struct.pack("=QQQ", rights, 0, SCOPES if version >= SCOPES_SINCE_ABI else 0)
    rules = call_system(
        CREATE_RULESET, ctypes.c_char_p(arguments), ctypes.c_size_t(len(arguments)), ctypes.c_uint32(0)
    )
    for paths, allowed in (
        (iterate_visible(policy["hidden"]), READ),
        (policy["readable"], READ),
        (DEVICES, rights & ~EXECUTE),
        (policy["writable"], rights),
    ):
        for path in paths:
            add_rule(rules, path, allowed & rights)
    set_process_option(NO_NEW_PRIVS, ctypes.c_ulong(1))
    call_system(RESTRICT_SELF, ctypes.c_int(rules), ctypes.c_uint32(0))
    os.close(rules)


def add_rule(rules: int, path: str, rights: int) -> None:
    """Grant rights below a path. A path that does not exist or is a link needs no rule."""
    try:
        descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISLNK(mode):
            return
        arguments = struct.pack("=Qi", rights if stat.S_ISDIR(mode) else rights & FILE_RIGHTS, descriptor)
        call_system(
            ADD_RULE, ctypes.c_int(rules), ctypes.c_int(1), ctypes.c_char_p(arguments), ctypes.c_uint32(0)
        )
    finally:
        os.close(descriptor)


def iterate_visible(hidden: Iterable[str]) -> Iterator[str]:
    """Yield the topmost paths that contain nothing hidden. Landlock rules can only allow, and apply to everything below a path."""
    yield from iterate_visible_below("/", {*hidden, "/dev"})


def iterate_visible_below(directory: str, hidden: set[str]) -> Iterator[str]:
    try:
        names = os.listdir(directory)
    except OSError:
        return
    for name in names:
        path = os.path.join(directory, name)
        if path in hidden:
            continue
        if any(each.startswith(f"{path}/") for each in hidden):
            yield from iterate_visible_below(path, hidden)
        else:
            yield path


# --- network: a seccomp filter ---

SET_SECCOMP, FILTER = 22, 2
# The audit architecture and the number of `socket` on each machine.
MACHINES = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}
IO_URING_SETUP = 425
X32_ABI_BIT = 0x40000000
UNIX, NETLINK = 1, 16


def block_network() -> None:
    """Refuse all sockets except local ones from now on, including those created through io_uring."""
    machine = os.uname().machine
    if machine not in MACHINES:
        raise SandboxError(f"the network cannot be blocked on {machine}")
    program = b"".join(build_filter(*MACHINES[machine]))
    buffer = ctypes.create_string_buffer(program)
    program_header = struct.pack("@HP", len(program) // 8, ctypes.addressof(buffer))
    set_process_option(SET_SECCOMP, ctypes.c_ulong(FILTER), ctypes.c_char_p(program_header))


def build_filter(machine: int, socket: int) -> Iterator[bytes]:
    """Yield the instructions of the filter. Each row is the operation, the jumps for true and false, and the operand."""
    load, equal, has, end = 0x20, 0x15, 0x45, 0x06
    allowed, denied = 0x7FFF0000, 0x00050000 | 13
    for code, yes, no, value in (
        (load, 0, 0, 4),  # the architecture
        (equal, 0, 8, machine),
        (load, 0, 0, 0),  # the system call
        (has, 6, 0, X32_ABI_BIT),
        (equal, 5, 0, IO_URING_SETUP),
        (equal, 0, 3, socket),
        (load, 0, 0, 16),  # the socket family
        (equal, 1, 0, UNIX),
        (equal, 0, 1, NETLINK),
        (end, 0, 0, allowed),
        (end, 0, 0, denied),
    ):
        yield struct.pack("=HBBI", code, yes, no, value)


if __name__ == "__main__":
    main(sys.argv[1:])
