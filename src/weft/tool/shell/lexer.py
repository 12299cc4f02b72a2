"""Read a shell command character by character, as bash does, into the nodes of a syntax tree."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from msgspec import Struct
from msgspec.structs import replace


class Node(Struct, frozen=True, kw_only=True, eq=False):
    """A piece of a command: the source from `start` up to, but not including, `end`.

    `field` is its role in the parent node. Operators, reserved words and quotes are not named; their type is their
    text.
    """

    type: str
    source: str
    start: int
    end: int
    children: Sequence["Node"] = ()
    is_named: bool = True
    field: str = ""

    @property
    def text(self) -> str:
        return self.source[self.start : self.end]

    @property
    def named_children(self) -> list["Node"]:
        return [child for child in self.children if child.is_named]

    def child_by_field_name(self, name: str) -> "Node | None":
        return next((child for child in self.children if child.field == name), None)

    def children_by_field_name(self, name: str) -> list["Node"]:
        return [child for child in self.children if child.field == name]


MAX_DEPTH: Final = 40

_BARE: Final = re.compile(r"[^ \t\n;&|<>()\\'\"$`]+")
_QUOTED: Final = re.compile(r"[^\\\"$`]+")
_IN_BODY: Final = re.compile(r"[^\\$`]+")
_RAW: Final = re.compile(r"'[^']*'")
# `\c` and `\x{` are not accepted because their meaning differs between shells, nor are escapes that do not yield an
# ASCII character.
_ANSI: Final = re.compile(
    r"\$'(?:[^'\\]|\\(?:[abeEfnrtv\\'\"?]|0[0-7]{0,2}|1[0-7]{0,2}|[2-7](?![0-7])|[2-7][0-7](?![0-7])|x[0-7]?[0-9A-Fa-f](?![0-9A-Fa-f])"
    r"|u00[0-7][0-9A-Fa-f]|U000000[0-7][0-9A-Fa-f]))*'"
)
_NAME: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_PARAMETER: Final = re.compile(r"[A-Za-z_]\w*|[0-9]+|[@*#?$!-]", re.ASCII)
_SPECIAL: Final = re.compile(r"[0-9@*#?$!-]")
_OPERATOR: Final = re.compile(r":[-=?+]|[-=?+]|##?|%%?|//?|\^\^?|,,?|@[QEPAKakuUL](?=\})")
_COUNT: Final = re.compile(r"#(?=(?:[A-Za-z_]\w*|[0-9]+|[@*])[\[}])", re.ASCII)
_PLAIN_SUBSCRIPT: Final = re.compile(r"\[[@*]\]")
_IN_BRACES: Final = re.compile(r"[^\\'\"$`}<>]+")
_IN_NUMBERS: Final = re.compile(r"[^\\'\"$`()\[\]}A-Za-z_]+")
_NO_NUMBERS: Final = re.compile(r"[\w)\]}`]\s+[\w$(`]|[;&|]\s*[;&|]\s*[;&|]")
_FOR_BACKTICKS: Final = re.compile(r"\\[\\$`\n]")


class UnparsableError(Exception):
    """The text cannot be read with certainty. The message says why."""


class HereDocument(Struct, frozen=True, kw_only=True):
    """A here-document whose body is still to be read. The body will be appended to `parts`."""

    parts: list[Node]
    delimiter: str
    quoted: bool
    tabs: bool


class Lexer:
    """Reads words from `place` on. `commands` reads the statements of a substitution up to its end."""

    def __init__(self, text: str, commands: Callable[[], list[Node]]) -> None:
        self.text = text
        self.place = 0
        self.limit = len(text)
        self._commands = commands
        self._depth = 0
        # Here-documents that were announced on the current line.
        self.pending: list[HereDocument] = []

    # --- primitives ---

    def node(self, type: str, start: int, children: list[Node] | None = None) -> Node:
        """Return a node from `start` to the current place."""
        return Node(type=type, source=self.text, start=start, end=self.place, children=tuple(children or ()))

    def mark(self, text: str) -> Node:
        """Read `text`, which must be here, and return its node."""
        if not self.sees(text):
            raise UnparsableError("it is not shell syntax that we can read")
        self.place += len(text)
        return replace(self.node(text, self.place - len(text)), is_named=False)

    def sees(self, text: str) -> bool:
        """Return True if the text is here."""
        return self.text.startswith(text, self.place) and self.place + len(text) <= self.limit

    def char(self, ahead: int = 0) -> str:
        """Return the character here, or further `ahead`, and "" at the end."""
        place = self.place + ahead
        return self.text[place] if place < self.limit else ""

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        return pattern.match(self.text, self.place, self.limit)

    def take(self, pattern: re.Pattern[str]) -> str:
        """Read what matches the pattern and return it, "" if nothing does."""
        found = self.match(pattern)
        self.place = found.end() if found else self.place
        return found[0] if found else ""

    def skip_continuation(self) -> None:
        """Skip a backslash at the end of a line.

        Within a word or operator it would join what we read separately, so refuse it there.
        """
        before = self.text[self.place - 1] if self.place else "\n"
        after = self.text[self.place + 2] if self.place + 2 < self.limit else "\n"
        if before not in " \t\n" and after not in " \t\n":
            raise UnparsableError("a line is broken in the middle of a word")
        self.place += 2

    # --- words ---

    def word(self) -> Node:
        """Read a word up to a blank or an operator. There must be one."""
        start, parts = self.place, list[Node]()
        while char := self.char():
            if char in "<>" and self.char(1) == "(" and not parts:
                parts.append(self._process())
                if self.char() not in ("", *" \t\n;&|)"):
                    raise UnparsableError("a process substitution is joined to a word")
                break
            if char in " \t\n;&|<>()":
                break
            parts.append(self._part())
        if (
            self.char() in ("<", ">")
            and self.char(1) == "("
            and parts
            and parts[-1].type != "process_substitution"
        ):
            raise UnparsableError("a process substitution is joined to a word")
        if self.char() == "(":
            raise UnparsableError("there is a parenthesis in the middle of a word")
        if not parts:
            raise UnparsableError("it is not shell syntax that we can read")
        if self.pending and "\n" in self.text[start : self.place]:
            raise UnparsableError("a word continues after a here-document begins")
        return parts[0] if len(parts) == 1 else self.node("concatenation", start, parts)

    def _part(self) -> Node:
        start = self.place
        match self.char():
            case "'":
                return self._raw()
            case '"':
                return self.string()
            case "`":
                return self._backticks(quoted=False)
            case "$":
                return self._dollar(quoted=False) or self._bare(start)
            case _:
                return self._bare(start)

    def _bare(self, start: int) -> Node:
        """Read unquoted text, including characters that a backslash quotes and a dollar that starts no expansion."""
        while True:
            if self.match(_BARE):
                self.take(_BARE)
            elif self.char() == "\\":
                self._escape()
            elif self.char() == "$" and not self._begins_expansion(quoted=False):
                self.place += 1
            else:
                return self.node("word", start)

    def _escape(self) -> None:
        if self.char(1) == "\n":
            self.skip_continuation()
        elif self.char(1) == "":
            raise UnparsableError("a backslash is the last character")
        else:
            self.place += 2

    def _raw(self) -> Node:
        start = self.place
        if not self.take(_RAW):
            raise UnparsableError("a quote is not closed")
        return self.node("raw_string", start)

    def string(self) -> Node:
        """Read a text in double quotes. The children are the expansions in it; everything between them is text."""
        start = self.place
        parts = [self.mark('"')]
        while self.char() != '"':
            self.take(_QUOTED)
            match self.char():
                case "":
                    raise UnparsableError("a quote is not closed")
                case "\\":
                    self._escape()
                case "`":
                    parts.append(self._backticks(quoted=True))
                case "$":
                    parts += self.quoted_dollar()
                case _:
                    pass
        parts.append(self.mark('"'))
        return self.node("string", start, parts)

    def quoted_dollar(self) -> list[Node]:
        """Read an expansion in a place where quotes have no meaning. A dollar that starts none is skipped."""
        found = self._dollar(quoted=True)
        if found is None:
            self.place += 1
        return [found] if found is not None else []

    def body(self) -> list[Node]:
        """Read the expansions in the body of a here-document."""
        parts: list[Node] = []
        while self.place < self.limit:
            self.take(_IN_BODY)
            match self.char():
                case "\\":
                    self.place = min(self.place + 2, self.limit)
                case "`":
                    parts.append(self._backticks(quoted=True))
                case "$":
                    parts += self.quoted_dollar()
                case _:
                    pass
        return parts

    # --- expansions ---

    def _begins_expansion(self, *, quoted: bool) -> bool:
        after = self.char(1)
        if after == "\\" and self.char(2) == "\n":
            raise UnparsableError("a line is broken in the middle of a word")
        return (
            after in ("(", "{", "[")
            or (after != "" and bool(_NAME.match(after) or _SPECIAL.match(after)))
            or (not quoted and after in ("'", '"'))
        )

    def _dollar(self, *, quoted: bool) -> Node | None:
        """Read the expansion that a dollar starts. Return None if it starts none."""
        if not self._begins_expansion(quoted=quoted):
            return None
        start = self.place
        match self.char(1):
            case "(" if self.char(2) == "(":
                return self._numbers("$((", "arithmetic_expansion")
            case "(":
                return self._nested("command_substitution", "$(")
            case "{":
                return self._braces(quoted=quoted)
            case "[":
                raise UnparsableError("it uses an obsolete form of arithmetic")
            case "'":
                if not self.take(_ANSI):
                    raise UnparsableError("shells read a quoted text differently")
                return self.node("ansi_c_string", start)
            case '"':
                dollar = self.mark("$")
                return self.node("translated_string", start, [dollar, self.string()])
            case _:
                dollar = self.mark("$")
                return self.node("simple_expansion", start, [dollar, self._parameter(single=True)])

    def _parameter(self, *, single: bool = False) -> Node:
        start = self.place
        if not self.take(_NAME):
            self.take(_SPECIAL if single else _PARAMETER)
        if self.place == start:
            raise UnparsableError("a variable has no name")
        named = self.text[start].isalnum() or self.text[start] == "_"
        return self.node("variable_name" if named else "special_variable_name", start)

    def _process(self) -> Node:
        return self._nested("process_substitution", self.char() + "(")

    def _nested(self, type: str, opening: str) -> Node:
        """Read the statements in parentheses."""
        start, outer = self.place, self.pending
        parts = [self.mark(opening)]
        self.pending = []
        with self.deeper():
            parts += self._commands()
        if self.pending:
            raise UnparsableError("a here-document is not there")
        self.pending = outer
        if outer and "\n" in self.text[start : self.place]:
            raise UnparsableError("a word continues after a here-document begins")
        return self.node(type, start, [*parts, self.mark(")")])

    @contextmanager
    def deeper(self) -> Iterator[None]:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise UnparsableError("it is nested too deeply to be judged")
        yield
        self._depth -= 1

    def _backticks(self, *, quoted: bool) -> Node:
        start, limit, outer = self.place, self.limit, self.pending
        parts = [self.mark("`")]
        end = self.text.find("`", self.place, limit)
        inside = self.text[self.place : end]
        if end < 0:
            raise UnparsableError("a quote is not closed")
        if inside.endswith("\\") or _FOR_BACKTICKS.search(inside) or (quoted and '\\"' in inside):
            raise UnparsableError("there are backslashes within backticks")
        if outer and "\n" in inside:
            raise UnparsableError("a word continues after a here-document begins")
        self.limit, self.pending = end, []
        with self.deeper():
            parts += self._commands()
        if self.pending or self.place != end:
            raise UnparsableError("it is not shell syntax that we can read")
        self.limit, self.pending = limit, outer
        return self.node("command_substitution", start, [*parts, self.mark("`")])

    def _braces(self, *, quoted: bool) -> Node:
        """Read `${…}`. Only the simplest form is evaluated later. In the others, we look for commands that run inside."""
        start = self.place
        parts = [self.mark("${")]
        if self.match(_COUNT):
            parts.append(self.mark("#"))
        elif self.char() == "!" and self.char(1) != "}":
            parts.append(self.mark("!"))
        prefix = parts[-1].type
        parts.append(self._subscripted())
        if prefix == "!" and self.char() in ("*", "@") and self.char(1) == "}":
            parts.append(self.mark(self.char()))
        elif prefix != "#" and self.char() != "}":
            parts += self._modified(quoted=quoted)
        return self.node("expansion", start, [*parts, self.mark("}")])

    def _modified(self, *, quoted: bool) -> list[Node]:
        operator = self.match(_OPERATOR)
        if operator is not None:
            if operator[0].startswith("@"):
                return [self.mark("@"), self.mark(operator[0][1])]
            return [self.mark(operator[0]), *self._alternative(quoted=quoted)]
        return [self.mark(":"), *self._count_until("}")]

    def _alternative(self, *, quoted: bool) -> list[Node]:
        """Read the word after the operator, up to the closing brace."""
        parts: list[Node] = []
        while self.char() != "}":
            self.take(_IN_BRACES)
            match self.char():
                case "":
                    raise UnparsableError("a brace is not closed")
                case "\\":
                    self._escape()
                case '"':
                    parts.append(self.string())
                case "'" if not quoted:
                    parts.append(self._raw())
                case "'":
                    raise UnparsableError("there are quotes within quotes")
                case "`":
                    parts.append(self._backticks(quoted=quoted))
                case "$":
                    found = self._dollar(quoted=quoted)
                    self.place += found is None
                    parts += [found] if found is not None else []
                case "<" | ">":
                    if self.char(1) == "(":
                        raise UnparsableError("a process substitution is joined to a word")
                    self.place += 1
                case _:
                    pass
        return parts

    def _subscripted(self) -> Node:
        """Read a variable, or an element of an array."""
        start = self.place
        name = self._parameter()
        return self.node("subscript", start, [name, *self.subscript()]) if self.char() == "[" else name

    def subscript(self) -> list[Node]:
        if self.match(_PLAIN_SUBSCRIPT):
            mark = self.mark(self.text[self.place : self.place + 3])
            return [mark]
        opening = self.mark("[")
        return [opening, *self._count_until("]"), self.mark("]")]

    def _key(self) -> Node:
        """Read a subscript in single quotes.

        Some shells expand it nevertheless, so it must not contain anything to expand.
        """
        raw = self._raw()
        if not set("$`\\").isdisjoint(raw.text):
            raise UnparsableError("there are quotes in an arithmetic expression")
        return raw

    # --- arithmetic ---

    def _numbers(self, opening: str, type: str) -> Node:
        start = self.place
        parts = [self.mark(opening), *self._count_until("))")]
        if self.pending and "\n" in self.text[start : self.place]:
            raise UnparsableError("a word continues after a here-document begins")
        if _NO_NUMBERS.search(self._without(parts, start)):
            raise UnparsableError("it may be arithmetic or a subshell")
        return self.node(type, start, [*parts, self.mark("))")])

    def _without(self, parts: list[Node], start: int) -> str:
        """Return the text from `start` on, with every named part replaced by a number."""
        text, place = "", start
        for part in parts:
            if part.is_named:
                text += self.text[place : part.start] + "0"
                place = part.end
        return text + self.text[place : self.place]

    def numbers(self) -> Node:
        """Read `((…))` as a command."""
        return self._numbers("((", "arithmetic_command")

    def _count_until(self, closing: str) -> list[Node]:
        """Read the variables and substitutions in an arithmetic expression."""
        parts: list[Node] = []
        open_ones: list[str] = []
        while open_ones or not self.sees(closing):
            self.take(_IN_NUMBERS)
            match self.char():
                case "(" | "[" as char:
                    open_ones.append({"(": ")", "[": "]"}[char])
                    self.place += 1
                case ")" | "]" | "}" as char:
                    if open_ones[-1:] == [char]:
                        open_ones.pop()
                        self.place += 1
                    elif open_ones or not self.sees(closing):
                        raise UnparsableError("it is not shell syntax that we can read")
                case "$":
                    found = self._dollar(quoted=True)
                    if found is None:
                        raise UnparsableError("it is not shell syntax that we can read")
                    parts.append(found)
                case "`":
                    parts.append(self._backticks(quoted=True))
                case "":
                    raise UnparsableError("a bracket is not closed")
                case char if _NAME.match(char):
                    parts.append(self._parameter())
                case '"' if closing == "]":
                    parts.append(self.string())
                case "'" if closing == "]":
                    parts.append(self._key())
                case _:
                    raise UnparsableError("there are quotes in an arithmetic expression")
        return parts
