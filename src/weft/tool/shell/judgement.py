"""Judge a shell command: list everything that the permission rules are asked about before it runs.

The judgement is a list of actions. Each has a permission and a pattern: a program that is run (`bash`), a file that is
read (`read`) or changed (`edit`), or a path outside of the project (`external_directory`). Nothing is decided here; the
rules decide about each action, with the questions that `add_questions` of `permission/rules.py` adds. The command is
*denied* if a rule denies one of them. Otherwise it is *asked*, which means that a person decides, if a rule or the lack
of one says so for any of them. It is *harmless*, and runs without a question, only if every action is allowed.

A part of a command that cannot be judged is *unclear*: it is listed under every permission with a pattern that consists
of a hole (a text that is not known before the command runs, shown as ⟦…⟧), so that only a rule that allows everything
allows it.

`program/dispatch.py` finds out what a program does with its arguments. For most programs a line of `program/table.py`
says which of them are read, changed or run; the modules beside it examine the others.
"""

from collections.abc import Iterable
from itertools import groupby

from msgspec import Struct

from weft.tool.shell.grammar import reads_like_bash
from weft.tool.shell.paths import CommandLocation
from weft.tool.shell.state import PERMISSIONS, ShellAction, ShellState
from weft.tool.shell.walk import ScriptWalker


class ShellRequest(Struct, frozen=True, kw_only=True):
    """The request for one permission: its patterns, the patterns that an "always" reply would allow, and reasons.

    `may_write` are the patterns of programs that may change files which their arguments do not name. `perhaps` are
    commands that some unknown program may run. They are not asked about, but if a rule for one of them by name says ask or deny, weft
    asks about the whole command.
    `why` says why a pattern is listed where that is not obvious.
    """

    permission: str
    patterns: tuple[str, ...]
    always: tuple[str, ...]
    may_write: tuple[str, ...] = ()
    perhaps: tuple[str, ...] = ()
    why: tuple[str, ...] = ()


class Judgement(Struct, frozen=True, kw_only=True):
    """The actions of a command in the order in which they were found."""

    actions: tuple[ShellAction, ...]

    @property
    def in_order(self) -> tuple[ShellAction, ...]:
        """The actions in the order in which they are asked about: by permission, paths outside of the project first."""
        return tuple(sorted(self.actions, key=lambda action: PERMISSIONS.index(action.permission)))

    @property
    def requests(self) -> tuple[ShellRequest, ...]:
        """The actions as one request for each permission."""
        return tuple(
            _to_request(name, actions)
            for name, actions in groupby(self.in_order, key=lambda action: action.permission)
        )


def judge_command(command: str, location: CommandLocation) -> Judgement:
    """Judge a command that runs at a location.

    This never raises, for any text. It blocks, because it follows links on the disk.

    OpenCode asks about each simple command, and about the paths of nine programs. Here, a command is listed as written
    and as expanded. What a wrapper, a substitution or a script runs is listed as well. Every path of every program and
    redirection is listed, as read or as changed. What cannot be determined is unclear.
    """
    state = ShellState(location)
    shell = location.environment.get("SHELL", "")
    if not reads_like_bash(command, shell):
        state.mark_unclear(command.strip(), f"{shell} may read it differently than bash")
    try:
        ScriptWalker(state).walk_script(command)
        if state.variables.learned_late:
            # Walk again. A variable that `eval` or a disguised program has set counts from the beginning, because of
            # loops.
            first = state.actions
            state.variables.restart()
            state = ShellState(location, state.variables)
            ScriptWalker(state).walk_script(command)
            state.actions = first | state.actions
    except RecursionError:
        state.mark_unclear(command.strip(), "it is nested too deeply to be judged")
    if not any(action.permission == "bash" and not action.perhaps for action in state.actions.values()):
        # Only assignments, redirections or a change of directory. OpenCode runs these without a question, whatever the
        # rules say.
        text = command.strip()
        state.add(
            ShellAction(
                permission="bash", pattern=text, always=text if "*" not in text and "?" not in text else ""
            )
        )
    return Judgement(actions=tuple(state.actions.values()))


def _to_request(permission: str, actions: Iterable[ShellAction]) -> ShellRequest:
    all_actions = tuple(actions)
    certain_actions = [action for action in all_actions if not action.perhaps]
    return ShellRequest(
        perhaps=tuple(action.pattern for action in all_actions if action.perhaps),
        permission=permission,
        patterns=tuple(action.pattern for action in certain_actions),
        always=tuple(dict.fromkeys(action.always for action in certain_actions if action.always)),
        may_write=tuple(action.pattern for action in certain_actions if action.may_write),
        why=tuple(dict.fromkeys(action.why for action in certain_actions if action.why)),
    )
