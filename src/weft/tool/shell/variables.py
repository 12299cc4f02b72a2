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
_GIVEN: Final = re.compile(r"[@*_0-9-]|[0-9]+")
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
_IMPLICIT: Final = re.compile(
    r"BASH\w*|COMP_\w+|READLINE_\w+|REPLY|MAPFILE|OPTARG|OPTIND|PIPESTATUS|COPROC\w*|DIRSTACK|FUNCNAME|GROUPS|HISTCMD|OLDPWD|PS[0-4]"
)
# Builtins that set the variables named by their arguments.
ASSIGNING_BUILTINS: Final = frozenset(
    {"read", "mapfile", "readarray", "getopts", "let", "printf", "wait", "vared", "unset"}
)

_COUNTS: Final = re.compile(r"(?<![=!<>])=(?!=)|<<=|>>=|\+\+|--")
_NUMBER: Final = Node(type="arithmetic_expansion", source="", start=0, end=0)

# Returns the possible values of a word. The flag is set for a word in the head of a loop, which is expanded to fields.
EvaluateWord = Callable[[Node, bool], Sequence[Value]]


class Variables:
    """The values that variables may hold.

    An assignment counts everywhere, because loops and functions may reorder commands.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._assigned: dict[str, list[tuple[Node, bool] | None]] = {}
        self._found: dict[str, Sequence[Value] | None] = {}
        self._evaluating: set[str] = set()
        self._all_unknown = False
        self._overwritten: set[str] = set()
        self._listed: dict[str, FileListing] = {}
        self._started = False
        # An assignment was found after the walk began, so earlier findings may be wrong.
        self.learned_late = False

    def collect(self, root: Node) -> None:
        """Note every assignment below a node."""
        before = self._size()
        waiting = [root]
        while waiting:
            node = waiting.pop()
            self._note(node)
            waiting.extend(node.named_children)
        self._found.clear()
        self.learned_late |= self._started and self._size() > before
        self._started = True

    def _size(self) -> int:
        return sum(len(each) + 1 for each in self._assigned.values())

    def restart(self) -> None:
        """Prepare for a second walk with all assignments that were learned."""
        self._overwritten.clear()
        self._found.clear()
        self._started = self.learned_late = False

    def forget(self, name: str) -> None:
        """Note that a variable was set to an unknown value."""
        assigned = self._assigned.setdefault(name.partition("[")[0], [])
        if None not in assigned:
            assigned.append(None)
            self._found.clear()
            self.learned_late |= self._started

    def is_unset(self, name: str) -> bool:
        """Return True if neither the command nor its environment sets the variable."""
        return not (
            self._all_unknown
            or name in self._assigned
            or name in self._environment
            or name in self._listed
            or _GIVEN.fullmatch(name)
            or _IMPLICIT.fullmatch(name)
        )

    @contextmanager
    def bind_listing(self, name: str, listing: FileListing | None) -> Iterator[None]:
        """While the loop is walked, let a variable hold one of a list of files."""
        if name and listing is not None:
            self._listed[name] = listing
        yield
        self._listed.pop(name, None)

    def overwrite(self, name: str) -> None:
        """Note that the value from before the command no longer counts."""
        if name not in self._overwritten:
            self._overwritten.add(name)
            self._found.pop(name, None)

    @contextmanager
    def overwritten(self, name: str) -> Iterator[None]:
        """While the loop is walked, let its variable hold only values that the loop or an assignment sets."""
        new = name not in self._overwritten
        self.overwrite(name)
        yield
        if new:
            self._overwritten.discard(name)
            self._found.pop(name, None)

    def forget_all(self) -> None:
        """Note that any variable may have been set to an unknown value."""
        self.learned_late |= self._started and not self._all_unknown
        self._all_unknown = True
        self._found.clear()

    def lookup(self, name: str, values: EvaluateWord) -> Sequence[Value] | None:
        """Return all values that a variable may hold, or None if they are unknown."""
        if name in self._listed:
            return [self._listed[name]]
        if name not in self._found:
            if name in self._evaluating:
                return None
            self._evaluating.add(name)
            try:
                self._found[name] = self._evaluate(name, values)
            finally:
                self._evaluating.discard(name)
        return self._found[name]

    def _evaluate(self, name: str, values: EvaluateWord) -> Sequence[Value] | None:
        assigned = self._assigned.get(name)
        if self._all_unknown or _GIVEN.fullmatch(name) or _IMPLICIT.fullmatch(name):
            return None
        if assigned is None:
            return [self._environment[name]] if name in self._environment else None
        found: list[Value] = [] if name in self._overwritten else [self._environment.get(name, "")]
        for each in assigned:
            if each is None:
                return None
            found.extend(values(*each))
        known = list(dict.fromkeys(found))
        too_long = any(isinstance(value, str) and len(value) > MAX_VALUE_LENGTH for value in known)
        return None if too_long or len(known) > MAX_VALUES else known

    def _note(self, node: Node) -> None:
        match node.type:
            case "variable_assignment":
                self._note_assignment(node)
            case "for_statement":
                self._note_loop(node)
            case "command":
                self._note_filled(node)
            case "declaration_command":
                self._note_declared(node)
            case "unset_command":
                for name in _NAME.findall(node.text):
                    self._assigned.setdefault(name, []).append(None)
            case "expansion" if "=" in node.text:
                for child in node.named_children[:1]:
                    self._assigned.setdefault(child.text.partition("[")[0], []).append(None)
            case "arithmetic_expansion" | "arithmetic_command" | "subscript" if _COUNTS.search(node.text):
                for child in node.named_children:
                    if child.type == "variable_name":
                        self._assigned.setdefault(child.text, []).append((_NUMBER, False))

    def _note_assignment(self, node: Node) -> None:
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name is None:
            return
        whole = name.type == "variable_name" and not any(child.type == "+=" for child in node.children)
        at = self._assigned.setdefault(name.text.partition("[")[0], [])
        if not whole or (value is not None and value.type == "array"):
            at.append(None)
        elif value is not None:
            at.append((value, False))

    def _note_loop(self, node: Node) -> None:
        name = node.child_by_field_name("variable")
        words = node.children_by_field_name("value")
        if name is not None:
            self._assigned.setdefault(name.text, []).extend([(word, True) for word in words] or [None])

    def _note_filled(self, node: Node) -> None:
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
            for found in _NAME.findall(word[2:] if word.startswith("-") else word):
                self._assigned.setdefault(found, []).append(None)

    def _note_declared(self, node: Node) -> None:
        for child in node.named_children:
            if child.type in ("variable_assignment", "variable_name"):
                continue
            text = child.text
            # `declare -n`, and names or values that are composed of parts.
            if child.type != "word" or (text.startswith("-") and "n" in text):
                self.forget_all()
