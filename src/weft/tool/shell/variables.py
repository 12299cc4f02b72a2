"""The variables of a command, and all values they may hold."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Final

from weft.tool.shell.arguments import FileListing, Value
from weft.tool.shell.lexer import Node

MAX_VALUE_LENGTH: Final = 4096
MAX_VALUES: Final = 24
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_POSITIONAL: Final = re.compile(r"[@*_0-9-]|[0-9]+")
# Variables that hold a number of unknown value.
NUMERIC_VARIABLES: Final = frozenset(
    [
        "?",
        "$",
        "!",
        "#",
        "PPID",
        "RANDOM",
        "SRANDOM",
        "SECONDS",
        "LINENO",
        "BASHPID",
        "UID",
        "EUID",
        "EPOCHSECONDS",
    ]
)
# Variables that the shell itself sets.
_SET_BY_SHELL: Final = re.compile(
    r"BASH\w*|COMP_\w+|READLINE_\w+|REPLY|MAPFILE|OPTARG|OPTIND|PIPESTATUS|COPROC\w*|DIRSTACK|FUNCNAME|GROUPS|HISTCMD|OLDPWD|PS[0-4]"
)
# Builtins that set the variables named by their arguments.
ASSIGNING_BUILTINS: Final = frozenset(
    {"read", "mapfile", "readarray", "getopts", "let", "printf", "wait", "vared", "unset"}
)

_ARITHMETIC_ASSIGNMENT: Final = re.compile(r"(?<![=!<>])=(?!=)|<<=|>>=|\+\+|--")
_NUMBER_NODE: Final = Node(type="arithmetic_expansion", source="", start=0, end=0)

# Returns the possible values of a word. The flag is set for a word in the head of a loop, which is expanded to fields.
EvaluateWord = Callable[[Node, bool], Sequence[Value]]


class Variables:
    """The values that variables may hold.

    An assignment counts everywhere, because loops and functions may reorder commands.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        # The words that are assigned to each variable. None stands for an unknown value.
        self._assignments: dict[str, list[tuple[Node, bool] | None]] = {}
        self._cache: dict[str, Sequence[Value] | None] = {}
        self._evaluating: set[str] = set()
        self._all_unknown = False
        self._overwritten: set[str] = set()
        self._listings: dict[str, FileListing] = {}
        self._started = False
        # True if an assignment was found after the walk began, so that earlier findings may be wrong.
        self.learned_late = False

    def collect(self, root: Node) -> None:
        """Note every assignment below a node."""
        count = self._count_assignments()
        pending = [root]
        while pending:
            node = pending.pop()
            self._note_node(node)
            pending.extend(node.named_children)
        self._cache.clear()
        self.learned_late |= self._started and self._count_assignments() > count
        self._started = True

    def _count_assignments(self) -> int:
        return sum(len(assignments) + 1 for assignments in self._assignments.values())

    def restart(self) -> None:
        """Prepare for a second walk with all assignments that were learned."""
        self._overwritten.clear()
        self._cache.clear()
        self._started = self.learned_late = False

    def forget(self, name: str) -> None:
        """Note that a variable was set to an unknown value."""
        assignments = self._assignments.setdefault(name.partition("[")[0], [])
        if None not in assignments:
            assignments.append(None)
            self._cache.clear()
            self.learned_late |= self._started

    def is_unset(self, name: str) -> bool:
        """Return True if neither the command nor its environment sets the variable."""
        return not (
            self._all_unknown
            or name in self._assignments
            or name in self._environment
            or name in self._listings
            or _POSITIONAL.fullmatch(name)
            or _SET_BY_SHELL.fullmatch(name)
        )

    @contextmanager
    def bind_listing(self, name: str, listing: FileListing | None) -> Iterator[None]:
        """Let a variable hold one of a list of files in this context, in which the loop is walked."""
        if name and listing is not None:
            self._listings[name] = listing
        yield
        self._listings.pop(name, None)

    def overwrite(self, name: str) -> None:
        """Note that the value from before the command no longer counts."""
        if name not in self._overwritten:
            self._overwritten.add(name)
            self._cache.pop(name, None)

    @contextmanager
    def overwrite_in_loop(self, name: str) -> Iterator[None]:
        """Let the variable of a loop hold only values that the loop or an assignment sets, in this context."""
        is_new = name not in self._overwritten
        self.overwrite(name)
        yield
        if is_new:
            self._overwritten.discard(name)
            self._cache.pop(name, None)

    def forget_all(self) -> None:
        """Note that any variable may have been set to an unknown value."""
        self.learned_late |= self._started and not self._all_unknown
        self._all_unknown = True
        self._cache.clear()

    def lookup(self, name: str, evaluate: EvaluateWord) -> Sequence[Value] | None:
        """Return all values that a variable may hold, or None if they are unknown."""
        if name in self._listings:
            return [self._listings[name]]
        if name not in self._cache:
            if name in self._evaluating:
                return None
            self._evaluating.add(name)
            try:
                self._cache[name] = self._evaluate(name, evaluate)
            finally:
                self._evaluating.discard(name)
        return self._cache[name]

    def _evaluate(self, name: str, evaluate: EvaluateWord) -> Sequence[Value] | None:
        assignments = self._assignments.get(name)
        if self._all_unknown or _POSITIONAL.fullmatch(name) or _SET_BY_SHELL.fullmatch(name):
            return None
        if assignments is None:
            return [self._environment[name]] if name in self._environment else None
        values: list[Value] = [] if name in self._overwritten else [self._environment.get(name, "")]
        for assignment in assignments:
            if assignment is None:
                return None
            values.extend(evaluate(*assignment))
        distinct = list(dict.fromkeys(values))
        too_long = any(isinstance(value, str) and len(value) > MAX_VALUE_LENGTH for value in distinct)
        return None if too_long or len(distinct) > MAX_VALUES else distinct

    def _note_node(self, node: Node) -> None:
        match node.type:
            case "variable_assignment":
                self._note_assignment(node)
            case "for_statement":
                self._note_loop(node)
            case "command":
                self._note_builtin(node)
            case "declaration_command":
                self._note_declaration(node)
            case "unset_command":
                for name in _NAME.findall(node.text):
                    self._assignments.setdefault(name, []).append(None)
            case "expansion" if "=" in node.text:
                for child in node.named_children[:1]:
                    self._assignments.setdefault(child.text.partition("[")[0], []).append(None)
            case "arithmetic_expansion" | "arithmetic_command" | "subscript" if _ARITHMETIC_ASSIGNMENT.search(
                node.text
            ):
                for child in node.named_children:
                    if child.type == "variable_name":
                        self._assignments.setdefault(child.text, []).append((_NUMBER_NODE, False))

    def _note_assignment(self, node: Node) -> None:
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name is None:
            return
        is_plain = name.type == "variable_name" and not any(child.type == "+=" for child in node.children)
        assignments = self._assignments.setdefault(name.text.partition("[")[0], [])
        if not is_plain or (value is not None and value.type == "array"):
            assignments.append(None)
        elif value is not None:
            assignments.append((value, False))

    def _note_loop(self, node: Node) -> None:
        name = node.child_by_field_name("variable")
        words = node.children_by_field_name("value")
        if name is not None:
            self._assignments.setdefault(name.text, []).extend([(word, True) for word in words] or [None])

    def _note_builtin(self, node: Node) -> None:
        name = node.child_by_field_name("name")
        words = [word.text for word in node.children_by_field_name("argument")]
        if name is None or name.text not in ASSIGNING_BUILTINS:
            return
        if name.text == "printf":
            words = (
                [word.removeprefix("-v") for word in words] if any(word[:2] == "-v" for word in words) else []
            )
        for before, word in pairwise(("", *words)):
            if before == "-p" and name.text == "read":
                continue  # its prompt
            if "$" in word or "`" in word:
                self.forget_all()
            for variable in _NAME.findall(word[2:] if word.startswith("-") else word):
                self._assignments.setdefault(variable, []).append(None)

    def _note_declaration(self, node: Node) -> None:
        for child in node.named_children:
            if child.type in ("variable_assignment", "variable_name"):
                continue
            text = child.text
            # `declare -n`, and names or values that are composed of parts.
            if child.type != "word" or (text.startswith("-") and "n" in text):
                self.forget_all()
