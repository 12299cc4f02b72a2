"""What a shell command is held against the rules as: everything it runs, reads, writes, and every place it leaves to."""

from collections.abc import Iterable
from itertools import groupby

from msgspec import Struct

from weft.tool.shell.parse import reads_alike
from weft.tool.shell.places import Where
from weft.tool.shell.scene import PERMISSIONS, Part, Scene
from weft.tool.shell.walk import Walk


class Request(Struct, frozen=True, kw_only=True):
    """What is asked under one permission: the patterns, what a lasting yes would allow, and why where it is not plain.

    `may_write` are those of the patterns that may change files in ways their words do not tell; `perhaps` are commands
    that some of them may run.
    """

    permission: str
    patterns: tuple[str, ...]
    always: tuple[str, ...]
    may_write: tuple[str, ...] = ()
    perhaps: tuple[str, ...] = ()
    why: tuple[str, ...] = ()


class Judgement(Struct, frozen=True, kw_only=True):
    """The parts in the order found; asked about by permission, what leads out of the project first."""

    parts: tuple[Part, ...]

    @property
    def in_order(self) -> tuple[Part, ...]:
        """As they are asked for."""
        return tuple(sorted(self.parts, key=lambda part: PERMISSIONS.index(part.permission)))

    @property
    def requests(self) -> tuple[Request, ...]:
        return tuple(
            _request(name, parts) for name, parts in groupby(self.in_order, key=lambda part: part.permission)
        )


def judge(command: str, where: Where) -> Judgement:
    """Never raises, whatever the text. Blocks: it looks where paths lead.

    OpenCode asks for each simple command, and looks at the paths of nine programs. Here each command is asked for as it
    is written and as it is meant; what a wrapper, a substitution or a script runs is asked for as well; every path of
    every program and redirection counts, as reading or as writing; and what cannot be told counts as everything.
    """
    scene = Scene(where)
    shell = where.environment.get("SHELL", "")
    if not reads_alike(command, shell):
        scene.unclear(command.strip(), f"{shell} may read it in another way than bash does")
    try:
        Walk(scene).script(command)
        if scene.variables.learned_late:
            # What `eval`, or a program by another name, has set counts from the beginning: there are loops.
            first = scene.parts
            scene.variables.restart()
            scene = Scene(where, scene.variables)
            Walk(scene).script(command)
            scene.parts = first | scene.parts
    except RecursionError:
        scene.unclear(command.strip(), "it is nested too deeply to be judged")
    if not any(part.permission == "bash" and not part.perhaps for part in scene.parts.values()):
        # Assignments, a bare redirection, going elsewhere: OpenCode runs these unasked, whatever the rules.
        text = command.strip()
        scene.add(
            Part(permission="bash", pattern=text, always=text if "*" not in text and "?" not in text else "")
        )
    return Judgement(parts=tuple(scene.parts.values()))


def _request(permission: str, parts: Iterable[Part]) -> Request:
    every = tuple(parts)
    found = [part for part in every if not part.perhaps]
    return Request(
        perhaps=tuple(part.pattern for part in every if part.perhaps),
        permission=permission,
        patterns=tuple(part.pattern for part in found),
        always=tuple(dict.fromkeys(part.always for part in found if part.always)),
        may_write=tuple(part.pattern for part in found if part.may_write),
        why=tuple(dict.fromkeys(part.why for part in found if part.why)),
    )
