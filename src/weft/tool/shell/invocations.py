"""Judge the programs that a command invokes, and in turn everything that these programs run."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from weft.model.permission import has_hole
from weft.tool.shell.arguments import Fields, join_fields, split_names
from weft.tool.shell.patterns import list_argv_actions, list_possible_actions
from weft.tool.shell.program.assignments import judge_assignment
from weft.tool.shell.program.builtins import list_assigned, makes_reference
from weft.tool.shell.program.dispatch import examine
from weft.tool.shell.program.effects import Inner, InnerAssignment, InnerCommand, InnerScript
from weft.tool.shell.state import ShellAction, ShellState, StreamContent

MAX_NESTING_DEPTH: Final = 8
MAX_INVOCATIONS: Final = 3000
# These run a command in the shell itself. Every other program that runs one does so in a process of its own.
_IN_SHELL: Final = split_names("command builtin eval")
TOO_DEEP_REASON: Final = "it is nested too deeply to be judged"
# No program has such a name. A command that uses one, in quotes or through another program, is suspicious.
_RESERVED_WORDS: Final = split_names(
    "if then else elif fi for while until do done case esac select function in { } ! [[ ]] (( ))"
)


class NestingDepth:
    """How deeply scripts, functions and wrappers are nested at the moment."""

    def __init__(self) -> None:
        self.level = 0

    @property
    def is_at_limit(self) -> bool:
        return self.level >= MAX_NESTING_DEPTH

    @contextmanager
    def nest(self) -> Iterator[None]:
        self.level += 1
        yield
        self.level -= 1


class JudgeScript(Protocol):
    """Judge a text as a shell script."""

    def __call__(self, text: str, stdin: StreamContent | None = None) -> None: ...


class InvocationJudge:
    """Judges the invocation of programs.

    `judge_script` judges a script that a program runs. `judge_call` judges the shell function of a name, and returns
    False if there is none.
    """

    def __init__(
        self,
        state: ShellState,
        depth: NestingDepth,
        judge_script: JudgeScript,
        judge_call: Callable[[str, StreamContent | None], bool],
    ) -> None:
        self._state = state
        self._depth = depth
        self._judge_script = judge_script
        self._judge_call = judge_call
        self._count = 0

    def judge(self, argv: Fields, actions: list[ShellAction], stdin: StreamContent | None) -> None:
        """Judge one invocation. `actions` are those of the command itself."""
        state, name = self._state, argv[0].text
        for action in actions:
            state.add(action)
        self._count += 1
        if not argv[0].is_known or self._count > MAX_INVOCATIONS:
            why = "which program this is, is known only at run time"
            state.mark_unclear(join_fields(argv), why if not argv[0].is_known else "it has too many parts")
        elif name in _RESERVED_WORDS or name.startswith("="):
            state.mark_unclear(join_fields(argv), "it is not shell syntax that we can read")
        elif not self._judge_call(name, stdin) or self._state.location.has_program(name):
            # Judge the program as well: the function may not be defined at this point, or may be bypassed.
            self._judge_program(argv, actions, stdin)

    def _judge_program(self, argv: Fields, actions: list[ShellAction], stdin: StreamContent | None) -> None:
        state, name = self._state, argv[0].text
        is_custom_program = "/" in name and not state.location.is_in_program_directory(name)
        if is_custom_program:
            state.touch(argv[0], "look")
        for variable, value in list_assigned(name, argv[1:]):
            self.assign(variable, value)
            state.variables.forget(variable)
        if makes_reference(name, argv[1:]):
            state.variables.forget_all()
        state.cwds_on_success = None
        before = state.cwds
        effects = examine(argv, state, stdin)
        if is_custom_program or effects.may_write:
            for action in actions:
                state.mark_writer(action.pattern)
        if not effects.understood:
            for action in list_possible_actions(argv):
                state.add(action)
        self._judge_inner(effects.inner)
        if "/" in name or (effects.inner and name not in _IN_SHELL):
            # A `cd` in another process does not move the shell. `time` may be a program or a word of the shell.
            state.add_directories(before)
            state.cwds_on_success = None

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
                    self._judge_script(each.text, each.stdin)
                case InnerAssignment():
                    self.assign(each.name, each.value)
                case InnerCommand() if each.fields and not self._depth.is_at_limit:
                    with self._depth.nest():
                        self.judge(each.fields, list_argv_actions(each.fields), each.stdin)
                case InnerCommand():
                    if each.fields:
                        self._state.mark_unclear(join_fields(each.fields), TOO_DEEP_REASON)
