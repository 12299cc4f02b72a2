"""Programs run by a command: what each does is noted, and what it runs in its turn is judged as if it stood there alone."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from weft.tool.shell.field import Reading, has_hole, names, spelled
from weft.tool.shell.naming import name_argv, name_perhaps
from weft.tool.shell.program.builtins import list_filled, renames_variables
from weft.tool.shell.program.environment import assign
from weft.tool.shell.program.inner import Argv, Inner, Script, Setting
from weft.tool.shell.program.look import look_at
from weft.tool.shell.scene import Feed, Part, Scene

DEEPEST: Final = 8
MOST_COMMANDS: Final = 3000
TOO_DEEP: Final = "it is nested too deeply to be judged"
# No program is called so: whoever runs one by such a name, in quotes or through another program, has something in mind.
_RESERVED: Final = names(
    "if then else elif fi for while until do done case esac select function in { } ! [[ ]] (( ))"
)


class Depth:
    """How deep scripts, functions and wrappers are nested right now."""

    def __init__(self) -> None:
        self.now = 0

    @property
    def is_reached(self) -> bool:
        return self.now >= DEEPEST

    @contextmanager
    def deeper(self) -> Iterator[None]:
        self.now += 1
        yield
        self.now -= 1


class RunScript(Protocol):
    """Judge a text as shell."""

    def __call__(self, text: str, stdin: Feed | None = None) -> None: ...


class Running:
    """`call` has a function of that name judged; false when there is none."""

    def __init__(
        self, scene: Scene, depth: Depth, script: RunScript, call: Callable[[str, Feed | None], bool]
    ) -> None:
        self._scene = scene
        self._depth = depth
        self._script = script
        self._call = call
        self._count = 0

    def run(self, argv: Reading, named: list[Part], stdin: Feed | None) -> None:
        """`named` is how the rules are asked about this command itself."""
        scene, name = self._scene, argv[0].text
        for part in named:
            scene.add(part)
        self._count += 1
        if not argv[0].is_known or self._count > MOST_COMMANDS:
            why = "which program this is, is known only when it runs"
            scene.unclear(spelled(argv), why if not argv[0].is_known else "there is too much of it")
        elif name in _RESERVED or name.startswith("="):
            scene.unclear(spelled(argv), "it is not shell as we can read it")
        elif not self._call(name, stdin) or self._scene.where.has_program(name):
            # A function may not be there when it is called, or be passed over.
            self._run_program(argv, named, stdin)

    def _run_program(self, argv: Reading, named: list[Part], stdin: Feed | None) -> None:
        scene, name = self._scene, argv[0].text
        strange = "/" in name and not scene.where.is_program(name)
        if strange:
            scene.touch(argv[0], "look")
        for variable, value in list_filled(name, argv[1:]):
            self.set(variable, value)
            scene.variables.forget(variable)
        if renames_variables(name, argv[1:]):
            scene.variables.forget_all()
        scene.landed = None
        found = look_at(argv, scene, stdin)
        if strange or not found.quiet:
            for part in named:
                scene.mark_writer(part.pattern)
        if not found.known:
            for part in name_perhaps(argv):
                scene.add(part)
        self._obey(found.inner)

    def set(self, name: str, value: str) -> None:
        """A variable gets a value, which may be the name of a program that is run later."""
        if has_hole(name):
            self._scene.unclear(f"{name}={value}", "which variable is set is known only when it runs")
            self._scene.variables.forget_all()
        self._obey(assign(name, value, self._scene))

    def _obey(self, inner: Iterable[Inner]) -> None:
        for each in inner:
            match each:
                case Script():
                    self._script(each.text, each.stdin)
                case Setting():
                    self.set(each.name, each.value)
                case Argv() if each.fields and not self._depth.is_reached:
                    with self._depth.deeper():
                        self.run(each.fields, name_argv(each.fields), each.stdin)
                case Argv():
                    if each.fields:
                        self._scene.unclear(spelled(each.fields), TOO_DEEP)
