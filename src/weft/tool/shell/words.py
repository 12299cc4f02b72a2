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
    """Return the words that brace expansion makes of a word, or None if there are too many."""
    if not any(atom.is_text and not atom.quoted and "{" in atom.text for atom in atoms):
        return [atoms]
    words = _expand_braces(_split_characters(atoms))
    return words if len(words) <= MAX_BRACE_WORDS else None


def _split_characters(atoms: Atoms) -> Atoms:
    """Split unquoted text into single characters, so that braces and commas can be found."""
    return tuple(
        piece
        for atom in atoms
        for piece in ([Atom(char) for char in atom.text] if atom.is_text and not atom.quoted else [atom])
    )


def _expand_braces(atoms: Atoms) -> list[Atoms]:
    opened = next((place for place, atom in enumerate(atoms) if _is_bare(atom, "{")), None)
    if opened is None:
        return [atoms]
    closed, commas = _find_closing_brace(atoms, opened)
    head, inside = atoms[:opened], atoms[opened + 1 : closed]
    if closed is None:
        return [(*atoms[: opened + 1], *rest) for rest in _expand_braces(atoms[opened + 1 :])]
    tails = _expand_braces(atoms[closed + 1 :])
    if commas:
        ends = [opened, *commas, closed]
        choices = [
            choice for start, end in pairwise(ends) for choice in _expand_braces(atoms[start + 1 : end])
        ]
    else:
        choices = _expand_sequence(inside) or [
            (atoms[opened], *each, atoms[closed]) for each in _expand_braces(inside)
        ]
    if len(choices) * len(tails) > MAX_BRACE_WORDS:
        return [head] * (MAX_BRACE_WORDS + 1)
    return [(*head, *choice, *tail) for choice in choices for tail in tails]


def _find_closing_brace(atoms: Atoms, opened: int) -> tuple[int | None, list[int]]:
    depth = 0
    commas: list[int] = []
    for place in range(opened, len(atoms)):
        if _is_bare(atoms[place], "{"):
            depth += 1
        elif _is_bare(atoms[place], "}"):
            depth -= 1
            if depth == 0:
                return place, commas
        elif depth == 1 and _is_bare(atoms[place], ","):
            commas.append(place)
    return None, []


def _expand_sequence(inside: Atoms) -> list[Atoms]:
    if not all(atom.is_text and not atom.quoted for atom in inside):
        return []
    ends = "".join(atom.text for atom in inside).split("..")
    try:
        first, last = int(ends[0]), int(ends[1])
        step = abs(int(ends[2])) if len(ends) > 2 else 1  # noqa: PLR2004  {1..9..2}
    except (ValueError, IndexError):
        return _expand_letters(ends)
    way = (step or 1) if first <= last else -(step or 1)
    numbers = range(first, last + (1 if way > 0 else -1), way)
    return [(Atom(str(number)),) for number in numbers[: MAX_BRACE_WORDS + 1]]


def _expand_letters(ends: list[str]) -> list[Atoms]:
    if [len(end) for end in ends] != [1, 1]:
        return []
    first, last = sorted(map(ord, ends))
    return [(Atom(chr(code)),) for code in range(first, last + 1)]


def _is_bare(atom: Atom, char: str) -> bool:
    return atom.is_text and not atom.quoted and atom.text == char


MAX_WORD_READINGS: Final = 24

# Return all possible values of a variable, or of the output of a substitution. None means unknown.
LookupVariable = Callable[[str], Sequence[Value] | None]
PredictOutput = Callable[[Node], Sequence[Value] | None]

_PLAIN: Final = re.compile(r"[A-Za-z0-9_@%+=:,./^-]+")
_ESCAPED: Final = re.compile(r"\\(?:\n|(.))", re.DOTALL)
_ESCAPED_IN_QUOTES: Final = re.compile(r"\\(?:\n|([$`\"\\]))")
_ANSI: Final = re.compile(
    r"\\(x[0-9A-Fa-f]{1,2}|u[0-9A-Fa-f]{1,4}|U[0-9A-Fa-f]{1,8}|[0-7]{1,3}|c.|.)", re.DOTALL
)
_ANSI_LETTERS: Final = dict(zip("abeEfnrtv", "\a\b\x1b\x1b\f\n\r\t\v", strict=True))
_BLANKS: Final = re.compile(r"[ \t\n]+")
_WILD: Final = frozenset("*?[")


class WordReader(Struct, frozen=True, kw_only=True):
    """Reads words, given the possible values of variables and the predicted output of commands."""

    lookup: LookupVariable
    output: PredictOutput
    home: str

    def readings(self, node: Node) -> list[Fields]:
        """Return every possible expansion of a word. Each is a tuple of fields: none, one or several."""
        if node.type == "word" and _PLAIN.fullmatch(node.text):
            return [(Field(node.text),)]
        words = expand_braces(tuple(self._atoms(node)))
        if words is None:
            return [(unknown_field(node.text),)]
        ways = [self._ways(atoms) for atoms in words]
        if _count_combinations(ways) > MAX_WORD_READINGS:
            return [(unknown_field(node.text),)]
        return [tuple(field for part in parts for field in part) for parts in product(*ways)]

    def values(self, node: Node) -> list[Value]:
        """Return every possible value of a word in a place where it is not split, such as an assignment."""
        ways = self._ways(tuple(self._atoms(node)))
        return [_to_value(way) for way in ways]

    def _ways(self, atoms: Atoms) -> list[Fields]:
        choices = [self._choices(atom) for atom in atoms]
        if _count_combinations(choices) > MAX_WORD_READINGS:
            return [(unknown_field("".join(atom.text for atom in atoms)),)]
        return list(dict.fromkeys(self._join(atoms, values) for values in product(*choices)))

    def _choices(self, atom: Atom) -> Sequence[Value]:
        if atom.name:
            found = self.lookup(atom.name)
            return [mark_unknown(atom.text)] if found is None else found
        return atom.values or (atom.text,)

    def _join(self, atoms: Atoms, values: tuple[Value, ...]) -> Fields:
        joined = _FieldBuilder()
        for place, (atom, value) in enumerate(zip(atoms, values, strict=True)):
            if isinstance(value, FileListing):
                return (_to_listed_file(value, atoms, place),)
            if atom.number or isinstance(value, Number):
                joined.add(mark_unknown(atom.text), "*")
            elif atom.is_text and not atom.quoted:
                text = self._tilde(value, alone=len(atoms) == 1) if not place and value[:1] == "~" else value
                joined.add(text, text if has_wildcard(value) else "")
            elif atom.quoted or atom.is_text or UNKNOWN_START in value:
                joined.add(value)
            else:
                joined.split(value)
        return joined.fields()

    def _tilde(self, text: str, *, alone: bool) -> str:
        if text == "~" and alone:
            return self.home
        if text.startswith("~/"):
            return self.home + text[1:]
        user = os.path.expanduser(text)
        return mark_unknown(text) if user == text else user

    # --- splitting words into atoms ---

    def _atoms(self, node: Node, *, quoted: bool = False) -> Iterator[Atom]:
        text = node.text
        match node.type:
            case "word" | "variable_name":
                yield from _split_bare(text)
            case "raw_string":
                yield Atom(text[1:-1], True)
            case "ansi_c_string":
                yield Atom(_decode_ansi(text[2:-1]), True)
            case "string":
                yield from self._in_quotes(node)
            case "concatenation" | "translated_string":
                yield from (atom for child in node.named_children for atom in self._atoms(child))
            case "simple_expansion" | "expansion":
                name = _find_variable(node)
                if name in NUMERIC_VARIABLES or _is_length(node):
                    yield Atom(text, True, number=True)
                else:
                    yield Atom(text, quoted, name=name) if name else Atom(mark_unknown(text), True)
            case "command_substitution":
                found = self.output(node)
                yield Atom(text, quoted, values=(mark_unknown(text),) if found is None else tuple(found))
            case "process_substitution":
                yield Atom("/dev/fd/63", True)
            case "arithmetic_expansion":
                yield Atom(text, True, number=True)
            case _:
                yield Atom(mark_unknown(text), True)

    def _in_quotes(self, node: Node) -> Iterator[Atom]:
        """Yield the atoms of a quoted string, including the text between its expansions."""
        source, start = node.text, node.start
        place = 1
        yield Atom("", True)
        for child in node.named_children:
            yield _to_quoted_atom(source[place : child.start - start])
            yield from self._atoms(child, quoted=True)
            place = child.end - start
        yield _to_quoted_atom(source[place:-1])


class _FieldBuilder:
    """Builds fields piece by piece: their text, and the glob pattern that they are if a piece contains a wildcard."""

    def __init__(self) -> None:
        self._done: list[Field] = []
        self._text: str | None = None
        self._pattern = ""
        self._wild = False

    def add(self, text: str, wild: str = "") -> None:
        """Append a piece of text. `wild` is its glob pattern, if it contains a wildcard."""
        self._text = (self._text or "") + text
        self._pattern += wild or glob.escape(text)
        self._wild |= bool(wild)

    def split(self, value: str) -> None:
        """Append an unquoted value: blanks separate fields, and its wildcards count."""
        parts = [part for part in _BLANKS.split(value) if part]
        if _BLANKS.match(value):
            self._end()
        for place, part in enumerate(parts):
            if place:
                self._end()
            self.add(part, part if has_wildcard(part) else "")
        if parts and _BLANKS.match(value[-1:]):
            self._end()

    def _end(self) -> None:
        if self._text is not None:
            self._done.append(Field(self._text, self._pattern if self._wild else ""))
        self._text, self._pattern, self._wild = None, "", False

    def fields(self) -> Fields:
        self._end()
        return tuple(self._done)


def _to_value(way: Fields) -> Value:
    if len(way) == 1 and way[0].listing is not None:
        return way[0].listing
    if len(way) == 1 and way[0].is_number:
        return Number.SOME
    return " ".join(field.text for field in way)


def has_wildcard(text: str) -> bool:
    return not _WILD.isdisjoint(text)


def _to_listed_file(listing: FileListing, atoms: Atoms, place: int) -> Field:
    """Return a field for one of the listed files, or for a file beside it if a suffix follows."""
    source = "".join(atom.text for atom in atoms)
    before = "".join(atom.text for atom in atoms[:place])
    after = [atom for atom in atoms[place + 1 :] if atom.text]
    if before not in ("", "./") or not all(atom.is_text and "/" not in atom.text for atom in after):
        return unknown_field(source)
    return Field(
        mark_unknown(source),
        listing=FileListing(roots=listing.roots, hidden=listing.hidden) if after else listing,
    )


def _count_combinations(ways: Sequence[Sequence[object]]) -> int:
    count = 1
    for each in ways:
        count *= max(1, len(each))
    return count


def _split_bare(text: str) -> Iterator[Atom]:
    """Yield the atoms of unquoted text, in which a backslash quotes the next character."""
    place = 0
    for found in _ESCAPED.finditer(text):
        if found.start() > place:
            yield Atom(text[place : found.start()])
        if found[1] is not None:
            yield Atom(found[1], True)
        place = found.end()
    if place < len(text) or not text:
        yield Atom(text[place:])


def _to_quoted_atom(source: str) -> Atom:
    return Atom(_ESCAPED_IN_QUOTES.sub(lambda found: found[1] or "", source), True)


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
    def decoded(found: re.Match[str]) -> str:
        code = found[1]
        if code[0] in "xuU" and len(code) > 1:
            return _to_character(int(code[1:], 16))
        if code[0] in "01234567":
            return _to_character(int(code, 8) & 0xFF)
        if code[0] == "c" and len(code) > 1:
            return _to_character(ord(code[1]) & 0x1F)
        return _ANSI_LETTERS.get(code, code)

    # The shell ends such a text at its first NUL.
    return _ANSI.sub(decoded, text).partition("\0")[0]


def _to_character(code: int) -> str:
    return chr(code) if code < 0x110000 and not 0xD800 <= code < 0xE000 else "\ufffd"  # noqa: PLR2004  not a character
