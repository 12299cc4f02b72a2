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


MAX_NESTING_DEPTH: Final = 40

_BARE_TEXT: Final = re.compile(r"[^ \t\n;&|<>()\\'\"$`]+")
_QUOTED_TEXT: Final = re.compile(r"[^\\\"$`]+")
_BODY_TEXT: Final = re.compile(r"[^\\$`]+")
_RAW_STRING: Final = re.compile(r"'[^']*'")
# `\c` and `\x{` are not accepted because their meaning differs between shells, nor are escapes that do not yield an
# ASCII character.
_ANSI_C_STRING: Final = re.compile(
    r"\$'(?:[^'\\]|\\(?:[abeEfnrtv\\'\"?]|0[0-7]{0,2}|1[0-7]{0,2}|[2-7](?![0-7])|[2-7][0-7](?![0-7])|x[0-7]?[0-9A-Fa-f](?![0-9A-Fa-f])"
    r"|u00[0-7][0-9A-Fa-f]|U000000[0-7][0-9A-Fa-f]))*'"
)
_NAME: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_PARAMETER: Final = re.compile(r"[A-Za-z_]\w*|[0-9]+|[@*#?$!-]", re.ASCII)
_SPECIAL_PARAMETER: Final = re.compile(r"[0-9@*#?$!-]")
_OPERATOR: Final = re.compile(r":[-=?+]|[-=?+]|##?|%%?|//?|\^\^?|,,?|@[QEPAKakuUL](?=\})")
_LENGTH_PREFIX: Final = re.compile(r"#(?=(?:[A-Za-z_]\w*|[0-9]+|[@*])[\[}])", re.ASCII)
_PLAIN_SUBSCRIPT: Final = re.compile(r"\[[@*]\]")
_BRACE_TEXT: Final = re.compile(r"[^\\'\"$`}<>]+")
_ARITHMETIC_TEXT: Final = re.compile(r"[^\\'\"$`()\[\]}A-Za-z_]+")
_NOT_ARITHMETIC: Final = re.compile(r"[\w)\]}`]\s+[\w$(`]|[;&|]\s*[;&|]\s*[;&|]")
_BACKTICK_ESCAPE: Final = re.compile(r"\\[\\$`\n]")


class UnparsableError(Exception):
    """The text cannot be read with certainty. The message says why."""


class HereDocument(Struct, frozen=True, kw_only=True):
    """A here-document whose body is still to be read. The body will be appended to `parts`."""

    parts: list[Node]
    delimiter: str
    quoted: bool
    strips_tabs: bool


class Lexer:
    """Reads words from `position` on, up to `limit`. `read_commands` reads the statements of a substitution."""

    def __init__(self, text: str, read_commands: Callable[[], list[Node]]) -> None:
        self.text = text
        self.position = 0
        self.limit = len(text)
        self._read_commands = read_commands
        self._depth = 0
        # Here-documents that begin on the current line. Their bodies follow on the next one.
        self.pending: list[HereDocument] = []

    # --- primitives ---

    def node(self, type: str, start: int, children: list[Node] | None = None) -> Node:
        """Return a node from `start` to the current position."""
        return Node(
            type=type, source=self.text, start=start, end=self.position, children=tuple(children or ())
        )

    def expect(self, text: str) -> Node:
        """Read `text` and return its node. Raise `UnparsableError` if something else comes next."""
        if not self.starts_with(text):
            raise UnparsableError("it is not shell syntax that we can read")
        self.position += len(text)
        return replace(self.node(text, self.position - len(text)), is_named=False)

    def starts_with(self, text: str) -> bool:
        """Return True if this text comes next."""
        return self.text.startswith(text, self.position) and self.position + len(text) <= self.limit

    def peek(self, ahead: int = 0) -> str:
        """Return the next character, or the one further `ahead`, and "" at the end."""
        position = self.position + ahead
        return self.text[position] if position < self.limit else ""

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Match a pattern at the current position, without reading it."""
        return pattern.match(self.text, self.position, self.limit)

    def read(self, pattern: re.Pattern[str]) -> str:
        """Read the text that matches a pattern, and return it. Return "" if it does not match."""
        found = self.match(pattern)
        self.position = found.end() if found else self.position
        return found[0] if found else ""

    def skip_continuation(self) -> None:
        """Skip a backslash at the end of a line.

        Within a word or operator it would join what we read separately, so refuse it there.
        """
        before = self.text[self.position - 1] if self.position else "\n"
        after = self.text[self.position + 2] if self.position + 2 < self.limit else "\n"
        if before not in " \t\n" and after not in " \t\n":
            raise UnparsableError("a line is broken in the middle of a word")
        self.position += 2

    # --- words ---

    def read_word(self) -> Node:
        """Read a word up to a blank or an operator. There must be one."""
        start, parts = self.position, list[Node]()
        while char := self.peek():
            if char in "<>" and self.peek(1) == "(" and not parts:
                parts.append(self._read_nested("process_substitution", f"{char}("))
                if self.peek() not in ("", *" \t\n;&|)"):
                    raise UnparsableError("a process substitution is joined to a word")
                break
            if char in " \t\n;&|<>()":
                break
            parts.append(self._read_part())
        if (
            self.peek() in ("<", ">")
            and self.peek(1) == "("
            and parts
            and parts[-1].type != "process_substitution"
        ):
            raise UnparsableError("a process substitution is joined to a word")
        if self.peek() == "(":
            raise UnparsableError("there is a parenthesis in the middle of a word")
        if not parts:
            raise UnparsableError("it is not shell syntax that we can read")
        if self.pending and "\n" in self.text[start : self.position]:
            raise UnparsableError("a word continues after a here-document begins")
        return parts[0] if len(parts) == 1 else self.node("concatenation", start, parts)

    def _read_part(self) -> Node:
        start = self.position
        match self.peek():
            case "'":
                return self._read_raw_string()
            case '"':
                return self.read_string()
            case "`":
                return self._read_backticks(quoted=False)
            case "$":
                return self._read_dollar(quoted=False) or self._read_bare(start)
            case _:
                return self._read_bare(start)

    def _read_bare(self, start: int) -> Node:
        """Read unquoted text, including characters that a backslash quotes and a dollar that starts no expansion."""
        while True:
            if self.match(_BARE_TEXT):
                self.read(_BARE_TEXT)
            elif self.peek() == "\\":
                self._read_escape()
            elif self.peek() == "$" and not self._starts_expansion(quoted=False):
                self.position += 1
            else:
                return self.node("word", start)

    def _read_escape(self) -> None:
        if self.peek(1) == "\n":
            self.skip_continuation()
        elif self.peek(1) == "":
            raise UnparsableError("a backslash is the last character")
        else:
            self.position += 2

    def _read_raw_string(self) -> Node:
        start = self.position
        if not self.read(_RAW_STRING):
            raise UnparsableError("a quote is not closed")
        return self.node("raw_string", start)

    def read_string(self) -> Node:
        """Read a text in double quotes. The children are the expansions in it; everything between them is text."""
        start = self.position
        parts = [self.expect('"')]
        while self.peek() != '"':
            self.read(_QUOTED_TEXT)
            match self.peek():
                case "":
                    raise UnparsableError("a quote is not closed")
                case "\\":
                    self._read_escape()
                case "`":
                    parts.append(self._read_backticks(quoted=True))
                case "$":
                    parts += self.read_quoted_dollar()
                case _:
                    pass
        parts.append(self.expect('"'))
        return self.node("string", start, parts)

    def read_quoted_dollar(self) -> list[Node]:
        """Read an expansion where quotes have no meaning. Skip a dollar that starts none."""
        found = self._read_dollar(quoted=True)
        if found is None:
            self.position += 1
        return [found] if found is not None else []

    def read_here_document_body(self) -> list[Node]:
        """Read the expansions in the body of a here-document."""
        parts: list[Node] = []
        while self.position < self.limit:
            self.read(_BODY_TEXT)
            match self.peek():
                case "\\":
                    self.position = min(self.position + 2, self.limit)
                case "`":
                    parts.append(self._read_backticks(quoted=True))
                case "$":
                    parts += self.read_quoted_dollar()
                case _:
                    pass
        return parts

    # --- expansions ---

    def _starts_expansion(self, *, quoted: bool) -> bool:
        after = self.peek(1)
        if after == "\\" and self.peek(2) == "\n":
            raise UnparsableError("a line is broken in the middle of a word")
        return (
            after in ("(", "{", "[")
            or (after != "" and bool(_NAME.match(after) or _SPECIAL_PARAMETER.match(after)))
            or (not quoted and after in ("'", '"'))
        )

    def _read_dollar(self, *, quoted: bool) -> Node | None:
        """Read the expansion that a dollar starts. Return None if it starts none."""
        if not self._starts_expansion(quoted=quoted):
            return None
        start = self.position
        match self.peek(1):
            case "(" if self.peek(2) == "(":
                return self._read_arithmetic("$((", "arithmetic_expansion")
            case "(":
                return self._read_nested("command_substitution", "$(")
            case "{":
                return self._read_braces(quoted=quoted)
            case "[":
                raise UnparsableError("it uses an obsolete form of arithmetic")
            case "$" if self.peek(2) in ("(", "{", "["):
                # In quotes, bash takes this for a substitution when it looks for the end of the text, and for a number when it expands it.
                raise UnparsableError("shells read a text differently that follows `$$`")
            case "'":
                if not self.read(_ANSI_C_STRING):
                    raise UnparsableError("shells read a quoted text differently")
                return self.node("ansi_c_string", start)
            case '"':
                dollar = self.expect("$")
                return self.node("translated_string", start, [dollar, self.read_string()])
            case _:
                dollar = self.expect("$")
                return self.node("simple_expansion", start, [dollar, self._read_parameter(single=True)])

    def _read_parameter(self, *, single: bool = False) -> Node:
        start = self.position
        if not self.read(_NAME):
            self.read(_SPECIAL_PARAMETER if single else _PARAMETER)
        if self.position == start:
            raise UnparsableError("a variable has no name")
        named = self.text[start].isalnum() or self.text[start] == "_"
        return self.node("variable_name" if named else "special_variable_name", start)

    def _read_nested(self, type: str, opening: str) -> Node:
        """Read the statements in parentheses."""
        start, outer = self.position, self.pending
        parts = [self.expect(opening)]
        self.pending = []
        with self.nest():
            parts += self._read_commands()
        if self.pending:
            raise UnparsableError("a here-document is not there")
        self.pending = outer
        if outer and "\n" in self.text[start : self.position]:
            raise UnparsableError("a word continues after a here-document begins")
        return self.node(type, start, [*parts, self.expect(")")])

    @contextmanager
    def nest(self) -> Iterator[None]:
        """Count one more level of nesting. Raise `UnparsableError` if there are too many."""
        self._depth += 1
        if self._depth > MAX_NESTING_DEPTH:
            raise UnparsableError("it is nested too deeply to be judged")
        yield
        self._depth -= 1

    def _read_backticks(self, *, quoted: bool) -> Node:
        start, limit, outer = self.position, self.limit, self.pending
        parts = [self.expect("`")]
        end = self.text.find("`", self.position, limit)
        inside = self.text[self.position : end]
        if end < 0:
            raise UnparsableError("a quote is not closed")
        if inside.endswith("\\") or _BACKTICK_ESCAPE.search(inside) or (quoted and '\\"' in inside):
            raise UnparsableError("there are backslashes within backticks")
        if outer and "\n" in inside:
            raise UnparsableError("a word continues after a here-document begins")
        self.limit, self.pending = end, []
        with self.nest():
            parts += self._read_commands()
        if self.pending or self.position != end:
            raise UnparsableError("it is not shell syntax that we can read")
        self.limit, self.pending = limit, outer
        return self.node("command_substitution", start, [*parts, self.expect("`")])

    def _read_braces(self, *, quoted: bool) -> Node:
        """Read `${…}`. Only the simplest form is evaluated later; the others are searched for commands that run inside."""
        start = self.position
        parts = [self.expect("${")]
        if self.match(_LENGTH_PREFIX):
            parts.append(self.expect("#"))
        elif self.peek() == "!" and self.peek(1) != "}":
            parts.append(self.expect("!"))
        prefix = parts[-1].type
        parts.append(self._read_variable())
        if prefix == "!" and self.peek() in ("*", "@") and self.peek(1) == "}":
            parts.append(self.expect(self.peek()))
        elif prefix != "#" and self.peek() != "}":
            parts += self._read_modifier(quoted=quoted)
        return self.node("expansion", start, [*parts, self.expect("}")])

    def _read_modifier(self, *, quoted: bool) -> list[Node]:
        operator = self.match(_OPERATOR)
        if operator is not None:
            if operator[0].startswith("@"):
                return [self.expect("@"), self.expect(operator[0][1])]
            return [self.expect(operator[0]), *self._read_operand(quoted=quoted)]
        return [self.expect(":"), *self._read_arithmetic_until("}")]

    def _read_operand(self, *, quoted: bool) -> list[Node]:
        """Read the word after the operator, up to the closing brace."""
        parts: list[Node] = []
        while self.peek() != "}":
            self.read(_BRACE_TEXT)
            match self.peek():
                case "":
                    raise UnparsableError("a brace is not closed")
                case "\\":
                    self._read_escape()
                case '"':
                    parts.append(self.read_string())
                case "'" if not quoted:
                    parts.append(self._read_raw_string())
                case "'":
                    raise UnparsableError("there are quotes within quotes")
                case "`":
                    parts.append(self._read_backticks(quoted=quoted))
                case "$":
                    found = self._read_dollar(quoted=quoted)
                    self.position += found is None
                    parts += [found] if found is not None else []
                case "<" | ">":
                    if self.peek(1) == "(":
                        raise UnparsableError("a process substitution is joined to a word")
                    self.position += 1
                case _:
                    pass
        return parts

    def _read_variable(self) -> Node:
        """Read a variable, or an element of an array."""
        start = self.position
        name = self._read_parameter()
        return self.node("subscript", start, [name, *self.read_subscript()]) if self.peek() == "[" else name

    def read_subscript(self) -> list[Node]:
        """Read the subscript of an array, with its brackets."""
        if self.match(_PLAIN_SUBSCRIPT):
            return [self.expect(self.text[self.position : self.position + len("[@]")])]
        opening = self.expect("[")
        return [opening, *self._read_arithmetic_until("]"), self.expect("]")]

    def _read_quoted_key(self) -> Node:
        """Read a subscript in single quotes.

        Some shells expand it nevertheless, so it must not contain anything to expand.
        """
        raw = self._read_raw_string()
        if not set("$`\\").isdisjoint(raw.text):
            raise UnparsableError("there are quotes in an arithmetic expression")
        return raw

    # --- arithmetic ---

    def _read_arithmetic(self, opening: str, type: str) -> Node:
        start = self.position
        parts = [self.expect(opening), *self._read_arithmetic_until("))")]
        if self.pending and "\n" in self.text[start : self.position]:
            raise UnparsableError("a word continues after a here-document begins")
        if _NOT_ARITHMETIC.search(self._replace_named_parts(parts, start)):
            raise UnparsableError("it may be arithmetic or a subshell")
        return self.node(type, start, [*parts, self.expect("))")])

    def _replace_named_parts(self, parts: list[Node], start: int) -> str:
        """Return the text from `start` on, with every named part replaced by a number."""
        text, position = "", start
        for part in parts:
            if part.is_named:
                text += self.text[position : part.start] + "0"
                position = part.end
        return text + self.text[position : self.position]

    def read_arithmetic_command(self) -> Node:
        """Read `((…))` as a command."""
        return self._read_arithmetic("((", "arithmetic_command")

    def _read_arithmetic_until(self, closing: str) -> list[Node]:
        """Read an arithmetic expression up to `closing`, and return the variables and substitutions in it."""
        parts: list[Node] = []
        open_brackets: list[str] = []
        while open_brackets or not self.starts_with(closing):
            self.read(_ARITHMETIC_TEXT)
            match self.peek():
                case "(" | "[" as char:
                    open_brackets.append({"(": ")", "[": "]"}[char])
                    self.position += 1
                case ")" | "]" | "}" as char:
                    if open_brackets[-1:] == [char]:
                        open_brackets.pop()
                        self.position += 1
                    elif open_brackets or not self.starts_with(closing):
                        raise UnparsableError("it is not shell syntax that we can read")
                case "$":
                    found = self._read_dollar(quoted=True)
                    if found is None:
                        raise UnparsableError("it is not shell syntax that we can read")
                    parts.append(found)
                case "`":
                    parts.append(self._read_backticks(quoted=True))
                case "":
                    raise UnparsableError("a bracket is not closed")
                case char if _NAME.match(char):
                    parts.append(self._read_parameter())
                case '"' if closing == "]":
                    parts.append(self.read_string())
                case "'" if closing == "]":
                    parts.append(self._read_quoted_key())
                case _:
                    raise UnparsableError("there are quotes in an arithmetic expression")
        return parts
