"""What a word of a command may turn out to be when the command runs."""

import glob
import os
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, product
from typing import Final

from msgspec import Struct

from weft.model.permission import HOLE, hole
from weft.tool.shell.field import Field, Listing, Number, Reading, Value, unknown
from weft.tool.shell.lexer import Node, text_of
from weft.tool.shell.variables import NUMBERS

BRACES_MOST: Final = 64


class Atom(Struct, frozen=True):
    """A piece of a word: text, or the name of a variable, or what a command puts out (`values`), or some number."""

    text: str
    quoted: bool = False
    name: str = ""
    number: bool = False
    values: tuple[Value, ...] = ()

    @property
    def is_text(self) -> bool:
        return not self.name and not self.values and not self.number


Atoms = tuple[Atom, ...]


def expand(atoms: Atoms) -> list[Atoms] | None:
    """The words that a word stands for; None when there are too many to look at."""
    if not any(atom.is_text and not atom.quoted and "{" in atom.text for atom in atoms):
        return [atoms]
    words = _expand(_split(atoms))
    return words if len(words) <= BRACES_MOST else None


def _split(atoms: Atoms) -> Atoms:
    """With every bare character for itself, so that braces and commas can be found."""
    return tuple(
        piece
        for atom in atoms
        for piece in ([Atom(char) for char in atom.text] if atom.is_text and not atom.quoted else [atom])
    )


def _expand(atoms: Atoms) -> list[Atoms]:
    opened = next((place for place, atom in enumerate(atoms) if _is(atom, "{")), None)
    if opened is None:
        return [atoms]
    closed, commas = _close(atoms, opened)
    head, inside = atoms[:opened], atoms[opened + 1 : closed]
    if closed is None:
        return [(*atoms[: opened + 1], *rest) for rest in _expand(atoms[opened + 1 :])]
    tails = _expand(atoms[closed + 1 :])
    if commas:
        ends = [opened, *commas, closed]
        choices = [choice for start, end in pairwise(ends) for choice in _expand(atoms[start + 1 : end])]
    else:
        choices = _sequence(inside) or [(atoms[opened], *each, atoms[closed]) for each in _expand(inside)]
    if len(choices) * len(tails) > BRACES_MOST:
        return [head] * (BRACES_MOST + 1)
    return [(*head, *choice, *tail) for choice in choices for tail in tails]


def _close(atoms: Atoms, opened: int) -> tuple[int | None, list[int]]:
    depth = 0
    commas: list[int] = []
    for place in range(opened, len(atoms)):
        if _is(atoms[place], "{"):
            depth += 1
        elif _is(atoms[place], "}"):
            depth -= 1
            if depth == 0:
                return place, commas
        elif depth == 1 and _is(atoms[place], ","):
            commas.append(place)
    return None, []


def _sequence(inside: Atoms) -> list[Atoms]:
    if not all(atom.is_text and not atom.quoted for atom in inside):
        return []
    ends = "".join(atom.text for atom in inside).split("..")
    try:
        first, last = int(ends[0]), int(ends[1])
        step = abs(int(ends[2])) if len(ends) > 2 else 1  # noqa: PLR2004  {1..9..2}
    except (ValueError, IndexError):
        return _letters(ends)
    way = (step or 1) if first <= last else -(step or 1)
    numbers = range(first, last + (1 if way > 0 else -1), way)
    return [(Atom(str(number)),) for number in numbers[: BRACES_MOST + 1]]


def _letters(ends: list[str]) -> list[Atoms]:
    if [len(end) for end in ends] != [1, 1]:
        return []
    first, last = sorted(map(ord, ends))
    return [(Atom(chr(code)),) for code in range(first, last + 1)]


def _is(atom: Atom, char: str) -> bool:
    return atom.is_text and not atom.quoted and atom.text == char


WORDS_MOST: Final = 24

# All that a variable, or what a command puts out, may be; the words that stand for it are given for the holes.
Lookup = Callable[[str], Sequence[Value] | None]
Output = Callable[[Node], Sequence[Value] | None]

_PLAIN: Final = re.compile(r"[A-Za-z0-9_@%+=:,./^-]+")
_ESCAPED: Final = re.compile(r"\\(?:\n|(.))", re.DOTALL)
_ESCAPED_IN_QUOTES: Final = re.compile(r"\\(?:\n|([$`\"\\]))")
_ANSI: Final = re.compile(
    r"\\(x[0-9A-Fa-f]{1,2}|u[0-9A-Fa-f]{1,4}|U[0-9A-Fa-f]{1,8}|[0-7]{1,3}|c.|.)", re.DOTALL
)
_ANSI_LETTERS: Final = dict(zip("abeEfnrtv", "\a\b\x1b\x1b\f\n\r\t\v", strict=True))
_BLANKS: Final = re.compile(r"[ \t\n]+")
_WILD: Final = frozenset("*?[")


class Words(Struct, frozen=True, kw_only=True):
    """Reads words with what is known of variables and of the output of commands."""

    lookup: Lookup
    output: Output
    home: str

    def readings(self, node: Node) -> list[Reading]:
        """Every way a word may turn out, each with the fields it becomes: none, one or several."""
        if node.type == "word" and _PLAIN.fullmatch(node.text):
            return [(Field(node.text),)]
        words = expand(tuple(self._atoms(node)))
        if words is None:
            return [(unknown(text_of(node)),)]
        ways = [self._ways(atoms) for atoms in words]
        if _count(ways) > WORDS_MOST:
            return [(unknown(text_of(node)),)]
        return [tuple(field for part in parts for field in part) for parts in product(*ways)]

    def values(self, node: Node) -> list[Value]:
        """Every value a word may have where it is not split, as in an assignment."""
        ways = self._ways(tuple(self._atoms(node)))
        return [_to_value(way) for way in ways]

    def _ways(self, atoms: Atoms) -> list[Reading]:
        choices = [self._choices(atom) for atom in atoms]
        if _count(choices) > WORDS_MOST:
            return [(unknown("".join(atom.text for atom in atoms)),)]
        return list(dict.fromkeys(self._join(atoms, values) for values in product(*choices)))

    def _choices(self, atom: Atom) -> Sequence[Value]:
        if atom.name:
            found = self.lookup(atom.name)
            return [hole(atom.text)] if found is None else found
        return atom.values or (atom.text,)

    def _join(self, atoms: Atoms, values: tuple[Value, ...]) -> Reading:
        joined = _Joined()
        for place, (atom, value) in enumerate(zip(atoms, values, strict=True)):
            if isinstance(value, Listing):
                return (_one_of(value, atoms, place),)
            if atom.number or isinstance(value, Number):
                joined.add(hole(atom.text), "*")
            elif atom.is_text and not atom.quoted:
                text = self._tilde(value, alone=len(atoms) == 1) if not place and value[:1] == "~" else value
                joined.add(text, text if is_wild(value) else "")
            elif atom.quoted or atom.is_text or HOLE in value:
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
        return hole(text) if user == text else user

    # --- taking words apart ---

    def _atoms(self, node: Node, *, quoted: bool = False) -> Iterator[Atom]:
        text = text_of(node)
        match node.type:
            case "word" | "variable_name":
                yield from _bare(text)
            case "raw_string":
                yield Atom(text[1:-1], True)
            case "ansi_c_string":
                yield Atom(_decode_ansi(text[2:-1]), True)
            case "string":
                yield from self._in_quotes(node)
            case "concatenation" | "translated_string":
                yield from (atom for child in node.named_children for atom in self._atoms(child))
            case "simple_expansion" | "expansion":
                name = _name_of(node)
                if name in NUMBERS or _is_count(node):
                    yield Atom(text, True, number=True)
                else:
                    yield Atom(text, quoted, name=name) if name else Atom(hole(text), True)
            case "command_substitution":
                found = self.output(node)
                yield Atom(text, quoted, values=(hole(text),) if found is None else tuple(found))
            case "process_substitution":
                yield Atom("/dev/fd/63", True)
            case "arithmetic_expansion":
                yield Atom(text, True, number=True)
            case _:
                yield Atom(hole(text), True)

    def _in_quotes(self, node: Node) -> Iterator[Atom]:
        """The inside of a string. What lies between its parts belongs to it as well."""
        source, start = node.text, node.start
        place = 1
        yield Atom("", True)
        for child in node.named_children:
            yield _quoted(source[place : child.start - start])
            yield from self._atoms(child, quoted=True)
            place = child.end - start
        yield _quoted(source[place:-1])


class _Joined:
    """Fields as they grow: their text, and beside it the pattern that they are if something in them is wild."""

    def __init__(self) -> None:
        self._done: list[Field] = []
        self._text: str | None = None
        self._pattern = ""
        self._wild = False

    def add(self, text: str, wild: str = "") -> None:
        """With `wild`, that is the pattern which this piece of text is."""
        self._text = (self._text or "") + text
        self._pattern += wild or glob.escape(text)
        self._wild |= bool(wild)

    def split(self, value: str) -> None:
        """The value of a variable without quotes: its blanks end words, its stars are wild."""
        parts = [part for part in _BLANKS.split(value) if part]
        if _BLANKS.match(value):
            self._end()
        for place, part in enumerate(parts):
            if place:
                self._end()
            self.add(part, part if is_wild(part) else "")
        if parts and _BLANKS.match(value[-1:]):
            self._end()

    def _end(self) -> None:
        if self._text is not None:
            self._done.append(Field(self._text, self._pattern if self._wild else ""))
        self._text, self._pattern, self._wild = None, "", False

    def fields(self) -> Reading:
        self._end()
        return tuple(self._done)


def _to_value(way: Reading) -> Value:
    if len(way) == 1 and way[0].listing is not None:
        return way[0].listing
    if len(way) == 1 and way[0].is_number:
        return Number.SOME
    return " ".join(field.text for field in way)


def is_wild(text: str) -> bool:
    return not _WILD.isdisjoint(text)


def _one_of(listing: Listing, atoms: Atoms, place: int) -> Field:
    """One of a list of files, or, with an ending, a file beside it."""
    source = "".join(atom.text for atom in atoms)
    before = "".join(atom.text for atom in atoms[:place])
    after = [atom for atom in atoms[place + 1 :] if atom.text]
    if before not in ("", "./") or not all(atom.is_text and "/" not in atom.text for atom in after):
        return unknown(source)
    return Field(
        hole(source), listing=Listing(roots=listing.roots, hidden=listing.hidden) if after else listing
    )


def _count(ways: Sequence[Sequence[object]]) -> int:
    count = 1
    for each in ways:
        count *= max(1, len(each))
    return count


def _bare(text: str) -> Iterator[Atom]:
    """Text without quotes: a backslash quotes the next character."""
    place = 0
    for found in _ESCAPED.finditer(text):
        if found.start() > place:
            yield Atom(text[place : found.start()])
        if found[1] is not None:
            yield Atom(found[1], True)
        place = found.end()
    if place < len(text) or not text:
        yield Atom(text[place:])


def _quoted(source: str) -> Atom:
    return Atom(_ESCAPED_IN_QUOTES.sub(lambda found: found[1] or "", source), True)


def _name_of(node: Node) -> str:
    """The variable of `$name` and of `${name}`; nothing for anything more."""
    parts = [child for child in node.children if child.type not in ("$", "${", "}")]
    if len(parts) == 1 and parts[0].type in ("variable_name", "special_variable_name"):
        return text_of(parts[0])
    return ""


def _is_count(node: Node) -> bool:
    """`${#name}`: how long it is."""
    return node.type == "expansion" and node.children[1].type == "#"


def _decode_ansi(text: str) -> str:
    def decoded(found: re.Match[str]) -> str:
        code = found[1]
        if code[0] in "xuU" and len(code) > 1:
            return _char(int(code[1:], 16))
        if code[0] in "01234567":
            return _char(int(code, 8) & 0xFF)
        if code[0] == "c" and len(code) > 1:
            return _char(ord(code[1]) & 0x1F)
        return _ANSI_LETTERS.get(code, code)

    # The shell ends such a text at its first zero.
    return _ANSI.sub(decoded, text).partition("\0")[0]


def _char(code: int) -> str:
    return chr(code) if code < 0x110000 and not 0xD800 <= code < 0xE000 else "\ufffd"  # noqa: PLR2004  what is no character
