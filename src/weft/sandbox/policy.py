"""The sandbox policy: what tool processes may access, and the command prefix that enforces it."""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

SandboxKind = Literal["", "bubblewrap", "landlock"]


class SandboxPolicy(Struct, frozen=True, kw_only=True):
    """What a sandboxed process may access. All paths are real paths.

    Everything is readable except `hidden`, apart from the exceptions in `readable`. Nothing is writable except
    `writable`, apart from the exceptions in `protected`.
    """

    hidden: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()
    network: bool = True


class Sandbox(Struct, frozen=True, kw_only=True):
    """A sandbox that works on this system, or none.

    With a `refusal`, nothing may be run: a sandbox is required and there is none. `prefix` comes before every command.
    `lacks` lists what this sandbox cannot prevent, and `protected` the paths that sandboxed processes must neither change nor create.
    """

    kind: SandboxKind = ""
    prefix: tuple[str, ...] = ()
    refusal: str = ""
    lacks: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()

    def wrap(self, argv: Sequence[str]) -> tuple[str, ...]:
        """Return the command that runs another one in the sandbox."""
        return (*self.prefix, *argv)


NO_SANDBOX = Sandbox()
