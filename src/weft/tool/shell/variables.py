"""Variables of a command: all they may hold, whenever that was put there."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Final

from weft.tool.shell.field import Listing, Value
from weft.tool.shell.lexer import Node, text_of

LONGEST: Final = 4096
MOST: Final = 24
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_GIVEN: Final = re.compile(r"[@*_0-9-]|[0-9]+")
# They hold a number, nobody knows which.
NUMBERS: Final = frozenset(
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
# The shell itself puts something into these.
_IMPLICIT: Final = re.compile(
    r"BASH\w*|COMP_\w+|READLINE_\w+|REPLY|MAPFILE|OPTARG|OPTIND|PIPESTATUS|COPROC\w*|DIRSTACK|FUNCNAME|GROUPS|HISTCMD|OLDPWD|PS[0-4]"
)
# Builtins that put something into the variables they are given the names of.
FILLING: Final = frozenset(
    {"read", "mapfile", "readarray", "getopts", "let", "printf", "wait", "vared", "unset"}
)

_COUNTS: Final = re.compile(r"(?<![=!<>])=(?!=)|<<=|>>=|\+\+|--")
_NUMBER: Final = Node(type="arithmetic_expansion", source="", start=0, end=0)

# The values of a word; of one in the head of a loop, those it is made of in turn.
Values = Callable[[Node, bool], Sequence[Value]]


class Variables:
    """What is assigned anywhere counts everywhere: a loop, a function or a jump may bring it there."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._assigned: dict[str, list[tuple[Node, bool] | None]] = {}
        self._found: dict[str, Sequence[Value] | None] = {}
        self._under_way: set[str] = set()
        self._anything = False
        self._settled: set[str] = set()
        self._one_of: dict[str, Listing] = {}
        self._started = False
        # Something was learned after the first look at the command: what was told before may be wrong.
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
        """The command is gone through once more, with all that was learned about what it sets."""
        self._settled.clear()
        self._found.clear()
        self._started = self.learned_late = False

    def forget(self, name: str) -> None:
        """Something was run that set this one."""
        assigned = self._assigned.setdefault(name.partition("[")[0], [])
        if None not in assigned:
            assigned.append(None)
            self._found.clear()
            self.learned_late |= self._started

    def is_unset(self, name: str) -> bool:
        """Whether nobody gives it a value, neither the command nor its surroundings."""
        return not (
            self._anything
            or name in self._assigned
            or name in self._environment
            or name in self._one_of
            or _GIVEN.fullmatch(name)
            or _IMPLICIT.fullmatch(name)
        )

    @contextmanager
    def reading(self, name: str, listing: Listing | None) -> Iterator[None]:
        """While a loop goes on, a variable is one of a list of files after the other."""
        if name and listing is not None:
            self._one_of[name] = listing
        yield
        self._one_of.pop(name, None)

    def settle(self, name: str) -> None:
        """From here on what it was before the command is gone."""
        if name not in self._settled:
            self._settled.add(name)
            self._found.pop(name, None)

    @contextmanager
    def settled(self, name: str) -> Iterator[None]:
        """Within a loop its variable has one of the values that the loop gives it, or that are set there."""
        new = name not in self._settled
        self.settle(name)
        yield
        if new:
            self._settled.discard(name)
            self._found.pop(name, None)

    def forget_all(self) -> None:
        """Something was run that may have set any of them."""
        self.learned_late |= self._started and not self._anything
        self._anything = True
        self._found.clear()

    def lookup(self, name: str, values: Values) -> Sequence[Value] | None:
        """All that a variable may hold; None when that is not known."""
        if name in self._one_of:
            return [self._one_of[name]]
        if name not in self._found:
            if name in self._under_way:
                return None
            self._under_way.add(name)
            try:
                self._found[name] = self._look(name, values)
            finally:
                self._under_way.discard(name)
        return self._found[name]

    def _look(self, name: str, values: Values) -> Sequence[Value] | None:
        assigned = self._assigned.get(name)
        if self._anything or _GIVEN.fullmatch(name) or _IMPLICIT.fullmatch(name):
            return None
        if assigned is None:
            return [self._environment[name]] if name in self._environment else None
        found: list[Value] = [] if name in self._settled else [self._environment.get(name, "")]
        for each in assigned:
            if each is None:
                return None
            found.extend(values(*each))
        known = list(dict.fromkeys(found))
        too_long = any(isinstance(value, str) and len(value) > LONGEST for value in known)
        return None if too_long or len(known) > MOST else known

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
                for name in _NAME.findall(text_of(node)):
                    self._assigned.setdefault(name, []).append(None)
            case "expansion" if "=" in text_of(node):
                for child in node.named_children[:1]:
                    self._assigned.setdefault(text_of(child).partition("[")[0], []).append(None)
            case "arithmetic_expansion" | "arithmetic_command" | "subscript" if _COUNTS.search(text_of(node)):
                for child in node.named_children:
                    if child.type == "variable_name":
                        self._assigned.setdefault(text_of(child), []).append((_NUMBER, False))

    def _note_assignment(self, node: Node) -> None:
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name is None:
            return
        whole = name.type == "variable_name" and not any(child.type == "+=" for child in node.children)
        at = self._assigned.setdefault(text_of(name).partition("[")[0], [])
        if not whole or (value is not None and value.type == "array"):
            at.append(None)
        elif value is not None:
            at.append((value, False))

    def _note_loop(self, node: Node) -> None:
        name = node.child_by_field_name("variable")
        words = node.children_by_field_name("value")
        if name is not None:
            self._assigned.setdefault(text_of(name), []).extend([(word, True) for word in words] or [None])

    def _note_filled(self, node: Node) -> None:
        name = node.child_by_field_name("name")
        words = [text_of(word) for word in node.children_by_field_name("argument")]
        if name is None or text_of(name) not in FILLING:
            return
        if text_of(name) == "printf":
            words = (
                [word.removeprefix("-v") for word in words] if any(word[:2] == "-v" for word in words) else []
            )
        for before, word in pairwise(("", *words)):
            if before == "-p" and text_of(name) == "read":
                continue  # the words it asks with
            if "$" in word or "`" in word:
                self.forget_all()
            for found in _NAME.findall(word[2:] if word.startswith("-") else word):
                self._assigned.setdefault(found, []).append(None)

    def _note_declared(self, node: Node) -> None:
        for child in node.named_children:
            if child.type in ("variable_assignment", "variable_name"):
                continue
            text = text_of(child)
            # `declare -n`, and names or values put together from pieces.
            if child.type != "word" or (text.startswith("-") and "n" in text):
                self.forget_all()
