"""Judge the programs that a command invokes, and in turn everything that these programs run."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from weft.tool.shell.arguments import Fields, has_hole, join_fields, split_names
from weft.tool.shell.patterns import name_argv, name_possible
from weft.tool.shell.program.builtins import list_assigned, makes_reference
from weft.tool.shell.program.dispatch import examine
from weft.tool.shell.program.effects import Inner, InnerAssignment, InnerCommand, InnerScript
from weft.tool.shell.program.environment import judge_assignment
from weft.tool.shell.state import ShellAction, ShellState, StreamContent

MAX_NESTING: Final = 8
MAX_INVOCATIONS: Final = 3000
TOO_DEEP: Final = "it is nested too deeply to be judged"
# No program has such a name. A command that uses one, in quotes or through another program, is suspicious.
_RESERVED: Final = split_names(
    "if then else elif fi for while until do done case esac select function in { } ! [[ ]] (( ))"
)


class NestingDepth:
    """How deeply scripts, functions and wrappers are nested at the moment."""

    def __init__(self) -> None:
        self.level = 0

    @property
    def is_reached(self) -> bool:
        return self.level >= MAX_NESTING

    @contextmanager
    def deeper(self) -> Iterator[None]:
        self.level += 1
        yield
        self.level -= 1


class JudgeScript(Protocol):
    """Judge a text as a shell script."""

    def __call__(self, text: str, stdin: StreamContent | None = None) -> None: ...


class InvocationJudge:
    """Judges the invocation of programs.

    `script` judges a script that a program runs. `call` judges the shell function of a name, and returns False if there
    is none.
    """

    def __init__(
        self,
        state: ShellState,
        depth: NestingDepth,
        script: JudgeScript,
        call: Callable[[str, StreamContent | None], bool],
    ) -> None:
        self._state = state
        self._depth = depth
        self._script = script
        self._call = call
        self._count = 0

    def judge(self, argv: Fields, named: list[ShellAction], stdin: StreamContent | None) -> None:
        """Judge one invocation. `named` are the actions under which the rules are asked about the command itself."""
        state, name = self._state, argv[0].text
        for action in named:
            state.add(action)
        self._count += 1
        if not argv[0].is_known or self._count > MAX_INVOCATIONS:
            why = "which program this is, is known only at run time"
            state.mark_unclear(join_fields(argv), why if not argv[0].is_known else "it has too many parts")
        elif name in _RESERVED or name.startswith("="):
            state.mark_unclear(join_fields(argv), "it is not shell syntax that we can read")
        elif not self._call(name, stdin) or self._state.location.has_program(name):
            # Judge the program as well: the function may not be defined at this point, or may be bypassed.
            self._judge_program(argv, named, stdin)

    def _judge_program(self, argv: Fields, named: list[ShellAction], stdin: StreamContent | None) -> None:
        state, name = self._state, argv[0].text
        strange = "/" in name and not state.location.is_program(name)
        if strange:
            state.touch(argv[0], "look")
        for variable, value in list_assigned(name, argv[1:]):
            self.assign(variable, value)
            state.variables.forget(variable)
        if makes_reference(name, argv[1:]):
            state.variables.forget_all()
        state.cwds_on_success = None
        found = examine(argv, state, stdin)
        if strange or not found.quiet:
            for action in named:
                state.mark_writer(action.pattern)
        if not found.known:
            for action in name_possible(argv):
                state.add(action)
        self._judge_inner(found.inner)

    def assign(self, name: str, value: str) -> None:
        """Judge the assignment of a variable, whose value may be the name of a program that is run later."""
        if has_hole(name):
            self._state.mark_unclear(f"{name}={value}", "which variable is set is known only at run time")
            self._state.variables.forget_all()
        self._judge_inner(judge_assignment(name, value, self._state))

    def _judge_inner(self, inner: Iterable[Inner]) -> None:
        for each in inner:
            match each:
                case InnerScript():
                    self._script(each.text, each.stdin)
                case InnerAssignment():
                    self.assign(each.name, each.value)
                case InnerCommand() if each.fields and not self._depth.is_reached:
                    with self._depth.deeper():
                        self.judge(each.fields, name_argv(each.fields), each.stdin)
                case InnerCommand():
                    if each.fields:
                        self._state.mark_unclear(join_fields(each.fields), TOO_DEEP)
