"""Evaluate the words of a command: list every text that a word may expand to."""

import glob
import os
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, product
from typing import Final

from msgspec import Struct

from weft.model.permission import UNKNOWN_START, mark_unknown
from weft.tool.shell.arguments import Field, Fields, FileListing, Number, Value, unknown_field
from weft.tool.shell.lexer import Node
from weft.tool.shell.variables import NUMERIC_VARIABLES

MAX_BRACE_WORDS: Final = 64


class Atom(Struct, frozen=True):
    """A piece of a word.

    It is a text, the name of a variable, the output of a command (`values`), or a number of unknown value.
    """

    text: str
    quoted: bool = False
    name: str = ""
    number: bool = False
    values: tuple[Value, ...] = ()

    @property
    def is_text(self) -> bool:
        return not self.name and not self.values and not self.number


Atoms = tuple[Atom, ...]


def expand_braces(atoms: Atoms) -> list[Atoms] | None:
    """Return the words that brace expansion makes of a word, or None if there are too many or shells differ."""
    if not any(atom.is_text and not atom.quoted and "{" in atom.text for atom in atoms):
        return [atoms]
    words = _expand_braces(_split_characters(atoms))
    return [_join_characters(word) for word in words] if len(words) <= MAX_BRACE_WORDS else None


def _split_characters(atoms: Atoms) -> Atoms:
    """Split unquoted text into single characters, so that braces and commas can be found."""
    return tuple(
        piece
        for atom in atoms
        for piece in ([Atom(char) for char in atom.text] if atom.is_text and not atom.quoted else [atom])
    )


def _join_characters(atoms: Atoms) -> Atoms:
    """Join unquoted text again, so that a tilde and the name after it are together."""
    joined: list[Atom] = []
    for atom in atoms:
        if joined and all(each.is_text and not each.quoted for each in (joined[-1], atom)):
            joined[-1] = Atom(joined[-1].text + atom.text)
        else:
            joined.append(atom)
    return tuple(joined)


def _expand_braces(atoms: Atoms) -> list[Atoms]:
    """Return the words, or more than `MAX_BRACE_WORDS` of anything if it is not certain which they are."""
    opening = next((index for index, atom in enumerate(atoms) if _is_bare(atom, "{")), None)
    if opening is None:
        return [atoms]
    closing, commas = _find_closing_brace(atoms, opening)
    head, inside = atoms[:opening], atoms[opening + 1 : closing]
    if closing is None:
        return [(*atoms[: opening + 1], *rest) for rest in _expand_braces(atoms[opening + 1 :])]
    tails = _expand_braces(atoms[closing + 1 :])
    if commas:
        ends = [opening, *commas, closing]
        choices = [
            choice for start, end in pairwise(ends) for choice in _expand_braces(atoms[start + 1 : end])
        ]
    else:
        sequence = _expand_sequence(inside)
        if sequence is None:
            return [head] * (MAX_BRACE_WORDS + 1)
        choices = sequence or [
            (atoms[opening], *expansion, atoms[closing]) for expansion in _expand_braces(inside)
        ]
    if len(choices) * len(tails) > MAX_BRACE_WORDS:
        return [head] * (MAX_BRACE_WORDS + 1)
    return [(*head, *choice, *tail) for choice in choices for tail in tails]


def _find_closing_brace(atoms: Atoms, opening: int) -> tuple[int | None, list[int]]:
    """Return the index of the closing brace, or None, and the indexes of the commas directly inside."""
    depth = 0
    commas: list[int] = []
    for index in range(opening, len(atoms)):
        if _is_bare(atoms[index], "{"):
            depth += 1
        elif _is_bare(atoms[index], "}"):
            depth -= 1
            if depth == 0:
                return index, commas
        elif depth == 1 and _is_bare(atoms[index], ","):
            commas.append(index)
    return None, []


# What bash and zsh expand alike: whole numbers, perhaps with zeros in front, and letters of the same case.
_NUMBER: Final = "([0-9]{1,18}|-0{0,16}[1-9][0-9]{0,16})"
_NUMBERS: Final = re.compile(rf"{_NUMBER}\.\.{_NUMBER}(?:\.\.([1-9][0-9]{{0,17}}))?")
_LETTERS: Final = re.compile(r"([a-z])\.\.([a-z])|([A-Z])\.\.([A-Z])")
_PADDED: Final = re.compile("-?0[0-9]+")
# What at least one of them may expand.
_ANY_SEQUENCE: Final = re.compile(r"[+-]?[0-9]+\.\..*|.\.\..(?:\.\..*)?", re.DOTALL)


def _expand_sequence(inside: Atoms) -> list[Atoms] | None:
    """Return the words of `{1..9}`, `{01..10}`, `{1..9..2}` or `{a..e}`, and none for what is no sequence.

    Return None for a sequence that shells read differently.
    """
    if not all(atom.is_text and not atom.quoted for atom in inside):
        return []
    text = "".join(atom.text for atom in inside)
    if (found := _NUMBERS.fullmatch(text)) is not None:
        is_padded = any(_PADDED.fullmatch(end) for end in found.group(1, 2))
        width = max(len(found[1]), len(found[2])) if is_padded else 0
        numbers = _list_numbers(int(found[1]), int(found[2]), int(found[3] or 1))
        return [(Atom(f"{number:0{width}d}"),) for number in numbers]
    if (found := _LETTERS.fullmatch(text)) is not None:
        first, last = (each for each in found.groups() if each)
        return [(Atom(chr(code)),) for code in _list_numbers(ord(first), ord(last), 1)]
    return None if _ANY_SEQUENCE.fullmatch(text) else []


def _list_numbers(first: int, last: int, step: int) -> range:
    """Return the numbers from the first to the last, upwards or downwards, but only as many as show that they are too many."""
    numbers = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
    return numbers[: MAX_BRACE_WORDS + 1]


def _is_bare(atom: Atom, char: str) -> bool:
    return atom.is_text and not atom.quoted and atom.text == char


MAX_WORD_EXPANSIONS: Final = 24

# Functions that return all possible values of a variable, or of the output of a command. None means unknown.
LookupVariable = Callable[[str], Sequence[Value] | None]
PredictOutput = Callable[[Node], Sequence[Value] | None]

_PLAIN_WORD: Final = re.compile(r"[A-Za-z0-9_@%+=:,./^-]+")
_ESCAPE: Final = re.compile(r"\\(?:\n|(.))", re.DOTALL)
_QUOTED_ESCAPE: Final = re.compile(r"\\(?:\n|([$`\"\\]))")
_ANSI_ESCAPE: Final = re.compile(
    r"\\(x[0-9A-Fa-f]{1,2}|u[0-9A-Fa-f]{1,4}|U[0-9A-Fa-f]{1,8}|[0-7]{1,3}|c.|.)", re.DOTALL
)
_ANSI_LETTERS: Final = dict(zip("abeEfnrtv", "\a\b\x1b\x1b\f\n\r\t\v", strict=True))
_BLANKS: Final = re.compile(r"[ \t\n]+")
_WILDCARDS: Final = frozenset("*?[")


class WordReader(Struct, frozen=True, kw_only=True):
    """Reads words, given the possible values of variables and the predicted output of commands."""

    lookup: LookupVariable
    output: PredictOutput
    home: str

    def list_expansions(self, node: Node) -> list[Fields]:
        """Return every possible expansion of a word. Each is a tuple of fields: none, one or several."""
        if node.type == "word" and _PLAIN_WORD.fullmatch(node.text):
            return [(Field(node.text),)]
        words = expand_braces(tuple(self._split_atoms(node)))
        if words is None:
            return [(unknown_field(node.text),)]
        expansions = [self._expand_atoms(atoms) for atoms in words]
        if _count_combinations(expansions) > MAX_WORD_EXPANSIONS:
            return [(unknown_field(node.text),)]
        return [tuple(field for part in parts for field in part) for parts in product(*expansions)]

    def list_values(self, node: Node) -> list[Value]:
        """Return every possible value of a word in a place where it is not split, such as an assignment."""
        expansions = self._expand_atoms(tuple(self._split_atoms(node)))
        return [_to_value(fields) for fields in expansions]

    def _expand_atoms(self, atoms: Atoms) -> list[Fields]:
        """Return the fields for every combination of the values of the atoms, or one unknown field if there are too many."""
        choices = [self._list_choices(atom) for atom in atoms]
        if _count_combinations(choices) > MAX_WORD_EXPANSIONS:
            return [(unknown_field("".join(atom.text for atom in atoms)),)]
        return list(dict.fromkeys(self._join_values(atoms, values) for values in product(*choices)))

    def _list_choices(self, atom: Atom) -> Sequence[Value]:
        if atom.name:
            values = self.lookup(atom.name)
            return [mark_unknown(atom.text)] if values is None else values
        return atom.values or (atom.text,)

    def _join_values(self, atoms: Atoms, values: tuple[Value, ...]) -> Fields:
        builder = _FieldBuilder()
        for index, (atom, value) in enumerate(zip(atoms, values, strict=True)):
            if isinstance(value, FileListing):
                return (_to_listed_file(value, atoms, index),)
            if atom.number or isinstance(value, Number):
                builder.add(mark_unknown(atom.text), "*")
            elif atom.is_text and not atom.quoted:
                text = (
                    self._expand_tilde(value, alone=len(atoms) == 1)
                    if not index and value[:1] == "~"
                    else value
                )
                builder.add(text, text if has_wildcard(value) else "")
            elif atom.quoted or UNKNOWN_START in value:
                builder.add(value)
            else:
                builder.split(value)
        return builder.build()

    def _expand_tilde(self, text: str, *, alone: bool) -> str:
        """Return text that begins with a tilde as the shell expands it. `alone` says that it is the whole word."""
        if text.startswith("~/"):
            return self.home + text[1:]
        if "/" not in text and not alone:  # `~"/x"` or `~$name`: zsh expands it, and bash does not
            return mark_unknown(text)
        if text == "~":
            return self.home
        user = os.path.expanduser(text)
        return mark_unknown(text) if user == text else user

    # --- splitting words into atoms ---

    def _split_atoms(self, node: Node, *, quoted: bool = False) -> Iterator[Atom]:
        text = node.text
        match node.type:
            case "word" | "variable_name":
                yield from _split_bare(text)
            case "raw_string":
                yield Atom(text[1:-1], True)
            case "ansi_c_string":
                yield Atom(_decode_ansi(text[2:-1]), True)
            case "string":
                yield from self._split_quoted(node)
            case "concatenation" | "translated_string":
                yield from (atom for child in node.named_children for atom in self._split_atoms(child))
            case "simple_expansion" | "expansion":
                name = _find_variable(node)
                if name in NUMERIC_VARIABLES or _is_length(node):
                    yield Atom(text, True, number=True)
                else:
                    yield Atom(text, quoted, name=name) if name else Atom(mark_unknown(text), True)
            case "command_substitution":
                values = self.output(node)
                yield Atom(text, quoted, values=(mark_unknown(text),) if values is None else tuple(values))
            case "process_substitution":
                yield Atom("/dev/fd/63", True)
            case "arithmetic_expansion":
                yield Atom(text, True, number=True)
            case _:
                yield Atom(mark_unknown(text), True)

    def _split_quoted(self, node: Node) -> Iterator[Atom]:
        """Yield the atoms of a quoted string, including the text between its expansions."""
        source, start = node.text, node.start
        position = 1
        yield Atom("", True)
        for child in node.named_children:
            yield _to_quoted_atom(source[position : child.start - start])
            yield from self._split_atoms(child, quoted=True)
            position = child.end - start
        yield _to_quoted_atom(source[position:-1])


class _FieldBuilder:
    """Builds fields piece by piece: their text, and their glob pattern if a piece contains a wildcard."""

    def __init__(self) -> None:
        self._fields: list[Field] = []
        self._text: str | None = None
        self._pattern = ""
        self._has_wildcard = False

    def add(self, text: str, glob_pattern: str = "") -> None:
        """Append a piece of text. `glob_pattern` is set if it contains a wildcard."""
        self._text = (self._text or "") + text
        self._pattern += glob_pattern or glob.escape(text)
        self._has_wildcard |= bool(glob_pattern)

    def split(self, value: str) -> None:
        """Append an unquoted value: blanks separate fields, and its wildcards count."""
        parts = [part for part in _BLANKS.split(value) if part]
        if _BLANKS.match(value):
            self._end_field()
        for index, part in enumerate(parts):
            if index:
                self._end_field()
            self.add(part, part if has_wildcard(part) else "")
        if parts and _BLANKS.match(value[-1:]):
            self._end_field()

    def _end_field(self) -> None:
        if self._text is not None:
            self._fields.append(Field(self._text, self._pattern if self._has_wildcard else ""))
        self._text, self._pattern, self._has_wildcard = None, "", False

    def build(self) -> Fields:
        """Return the finished fields."""
        self._end_field()
        return tuple(self._fields)


def _to_value(fields: Fields) -> Value:
    if len(fields) == 1 and fields[0].listing is not None:
        return fields[0].listing
    if len(fields) == 1 and fields[0].is_number:
        return Number.SOME
    return " ".join(field.text for field in fields)


def has_wildcard(text: str) -> bool:
    """Return True if a text contains a wildcard of the shell."""
    return not _WILDCARDS.isdisjoint(text)


def _to_listed_file(listing: FileListing, atoms: Atoms, index: int) -> Field:
    """Return a field for one of the listed files, or for a file beside it if a suffix follows."""
    source = "".join(atom.text for atom in atoms)
    before = "".join(atom.text for atom in atoms[:index])
    after = [atom for atom in atoms[index + 1 :] if atom.text]
    if before not in ("", "./") or not all(atom.is_text and "/" not in atom.text for atom in after):
        return unknown_field(source)
    return Field(
        mark_unknown(source),
        listing=FileListing(roots=listing.roots, hidden=listing.hidden) if after else listing,
    )


def _count_combinations(choices: Sequence[Sequence[object]]) -> int:
    count = 1
    for choice in choices:
        count *= max(1, len(choice))
    return count


def _split_bare(text: str) -> Iterator[Atom]:
    """Yield the atoms of unquoted text, in which a backslash quotes the next character."""
    position = 0
    for match in _ESCAPE.finditer(text):
        if match.start() > position:
            yield Atom(text[position : match.start()])
        if match[1] is not None:
            yield Atom(match[1], True)
        position = match.end()
    if position < len(text) or not text:
        yield Atom(text[position:])


def _to_quoted_atom(source: str) -> Atom:
    return Atom(_QUOTED_ESCAPE.sub(lambda found: found[1] or "", source), True)


def _find_variable(node: Node) -> str:
    """Return the variable of `$name` or `${name}`, and "" for any other expansion."""
    parts = [child for child in node.children if child.type not in ("$", "${", "}")]
    if len(parts) == 1 and parts[0].type in ("variable_name", "special_variable_name"):
        return parts[0].text
    return ""


def _is_length(node: Node) -> bool:
    """Return True for `${#name}`, the length of a value."""
    return node.type == "expansion" and node.children[1].type == "#"


def _decode_ansi(text: str) -> str:
    """Return the text of `$'…'`. The lexer accepts only escapes that all shells read alike."""

    def decode(match: re.Match[str]) -> str:
        code = match[1]
        if code[0] in "xuU" and len(code) > 1:
            return _to_character(int(code[1:], 16))
        if code[0] in "01234567":
            return _to_character(int(code, 8) & 0xFF)
        if code[0] == "c" and len(code) > 1:
            return _to_character(ord(code[1]) & 0x1F)
        return _ANSI_LETTERS.get(code, code)

    # The shell ends such a text at its first NUL.
    return _ANSI_ESCAPE.sub(decode, text).partition("\0")[0]


def _to_character(code: int) -> str:
    return chr(code) if code < 0x110000 and not 0xD800 <= code < 0xE000 else "\ufffd"  # noqa: PLR2004  not a character
