"""Trust in a project: whether it is trusted and why, and what is held back until it is."""

from typing import Literal

from msgspec import Struct

from weft.model.wire import Wire, always

HeldKind = Literal[
    "provider",
    "mcp",
    "plugin",
    "hook",
    "tool",
    "command",
    "formatter",
    "lsp",
    "skill",
    "instructions",
    "setting",
    "substitution",
    "link",
]
TrustReason = Literal[
    # trusted
    "environment",  # WEFT_TRUST=1 is set
    "configured",  # the person's configuration names the project
    "given",  # the person trusts it as it is now
    # not trusted
    "refused",  # the person said no to it as it is now
    "changed",  # it changed since the person decided
    "unknown",  # the person has not decided
]


class HeldItem(Struct, frozen=True, kw_only=True):
    """A setting or file that has no effect while a project is not trusted.

    `path` is its file, `does` what it would do. Neither contains a secret, because placeholders are not resolved.
    """

    kind: HeldKind
    name: str
    path: str
    does: str


class TrustChange(Struct, frozen=True, kw_only=True):
    """A file that has changed since the person trusted the project."""

    what: Literal["new", "changed"]
    name: str


class TrustReport(Wire, frozen=True, kw_only=True):
    """Whether the project at `path` is trusted and why, what changed since, and what it brings along.

    `held` is what is held back of a project that is not trusted. `looser` are its settings that permit more than the person's own:
    they have no effect either, but for them alone nobody is asked to trust the project.

    `fingerprint` names the state that this report is about. A request to trust the project repeats it, so that only this state is
    trusted.
    """

    path: str
    trusted: bool
    why: TrustReason
    changes: tuple[TrustChange, ...] = always(())
    held: tuple[HeldItem, ...] = always(())
    looser: tuple[HeldItem, ...] = always(())
    fingerprint: str
