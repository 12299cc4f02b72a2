"""Examine sed, awk, dd and jq, which can also read and write files and run programs."""

import re
from collections.abc import Iterator
from typing import Final, Literal

from weft.tool.shell.arguments import Field, Fields, has_hole, may_mean, parse_arguments, split_names
from weft.tool.shell.program.effects import ProgramEffects
from weft.tool.shell.program.table import PROGRAMS, touch_files
from weft.tool.shell.state import ShellState

SedAction = tuple[Literal["read", "write", "run"], str]

_ADDRESS: Final = re.compile(r"\d+(?:~\d+)?|\$|[+~]\d+")
_PLAIN: Final = frozenset("=dDgGhHnNpPxzFqQl{}")
_LABELS: Final = frozenset(":btT")
_TEXTS: Final = frozenset("aic")
_FILES: Final[dict[str, Literal["read", "write"]]] = {"r": "read", "R": "read", "w": "write", "W": "write"}


def parse_sed_script(script: str) -> list[SedAction] | None:
    """Return what a sed script does with files and programs, or None if it cannot be read."""
    try:
        return list(_SedParser(script).read())
    except (IndexError, _UnreadableScriptError):
        return None


class _UnreadableScriptError(Exception):
    pass


class _SedParser:
    """Reads a sed script command by command."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._place = 0

    def read(self) -> Iterator[SedAction]:
        while self._skip(" \t\n;"):
            self._addresses()
            command = self._next()
            if command == "#":
                self._line()
            elif command in _PLAIN:
                self._match(r"[ \t]*\d*")
            elif command in _LABELS:
                self._match(r"[ \t]*[^\s;}]*")
            elif command in _TEXTS:
                self._line(continued=True)
            elif command in _FILES:
                yield _FILES[command], self._line().strip()
            elif command == "e":
                yield "run", self._line().strip()
            elif command == "y":
                self._delimited(2)
            elif command == "s":
                self._delimited(2)
                yield from self._flags()
            else:
                raise _UnreadableScriptError

    def _flags(self) -> Iterator[SedAction]:
        while self._place < len(self._text) and self._text[self._place] not in " \t\n;}":
            flag = self._next()
            if flag == "e":
                yield "run", ""
            elif flag == "w":
                yield "write", self._line().strip()
            elif flag not in "gpiImM0123456789":
                raise _UnreadableScriptError

    def _addresses(self) -> None:
        while True:
            self._skip(" \t")
            if found := _ADDRESS.match(self._text, self._place):
                self._place = found.end()
            elif self._text[self._place] == "/":
                self._delimited(1)
                self._match(r"[IM]*")
            elif self._text[self._place] == "\\":
                self._place += 1
                self._delimited(1)
                self._match(r"[IM]*")
            elif self._text[self._place] in ",!":
                self._place += 1
            else:
                return

    def _delimited(self, parts: int) -> None:
        """Skip this many parts that are separated by a delimiter."""
        delimiter, first = self._next(), parts
        while parts:
            char = self._next()
            if char == "\\":
                self._place += 1
            elif char == "[" and parts == first and self._hides(delimiter):
                raise _UnreadableScriptError  # whether this is the delimiter depends on the implementation
            elif char == delimiter:
                parts -= 1

    def _hides(self, delimiter: str) -> bool:
        """Return True if the bracket expression that starts here contains the delimiter."""
        found = re.compile(r"\^?\]?[^\]\n]*\]").match(self._text, self._place)
        return found is not None and delimiter in found[0]

    def _skip(self, chars: str) -> bool:
        while self._place < len(self._text) and self._text[self._place] in chars:
            self._place += 1
        return self._place < len(self._text)

    def _match(self, pattern: str) -> None:
        found = re.compile(pattern).match(self._text, self._place)
        self._place = found.end() if found else self._place

    def _next(self) -> str:
        char = self._text[self._place]
        self._place += 1
        return char

    def _line(self, *, continued: bool = False) -> str:
        start = self._place
        while self._place < len(self._text) and self._text[self._place] != "\n":
            self._place += 2 if continued and self._text[self._place] == "\\" else 1
        return self._text[start : self._place]


_TOKEN: Final = re.compile(
    r"""(?P<blank>[ \t]+|\\\n|\#[^\n]*)|(?P<string>"(?:[^"\\\n]|\\.)*")|(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"""
    r"""|(?P<name>[A-Za-z_]\w*)|(?P<sign>\+\+|--|>>|\|\||&&|[<>=!+*/%^-]=|[^"])""",
    re.DOTALL,
)
_REGEX: Final = re.compile(r"/(?:[^/\\\n\[]|\\.|\[\^?\]?[^\]\n/]*\])*/")
# These read another file, run a program, or change which files are read. `@` calls and loads by name.
_DANGEROUS_TOKENS: Final = split_names("system getline ARGV ARGC @ |")
_BEFORE_REGEX: Final = split_names("print printf return in else do case")
_ENDS: Final = frozenset({";", "}", "\n", ""})


def examine_awk_program(program: str, state: ShellState) -> bool:
    """Note what an awk program does besides reading its input. Return True if it only prints."""
    try:
        saved = list(_list_awk_outputs(list(_tokenize_awk(program))))
    except _UnreadableScriptError:
        state.mark_unclear(f"awk {program}", "the awk program writes files or runs programs")
        return False
    for path in saved:
        state.touch(Field(path), "write")
    return not saved


def _tokenize_awk(program: str) -> Iterator[str]:
    """Yield the tokens of a program without regular expressions.

    Raise `_UnreadableScriptError` if a slash cannot be told from the start of one.
    """
    place, before = 0, "\n"
    loops = re.search(r"\b(?:if|while|for|switch)\b", program) is not None
    while place < len(program):
        found = _TOKEN.match(program, place)
        if found is None:
            raise _UnreadableScriptError
        token = found[0]
        if token in ("/", "/=") and not _is_division(before, loops=loops):
            regex = _REGEX.match(program, place)
            if regex is None:
                raise _UnreadableScriptError
            place, before = regex.end(), "0"
            continue
        place = found.end()
        if not found["blank"]:
            yield token
            before = token


def _is_division(before: str, *, loops: bool) -> bool:
    """Return True if a slash after this token means division."""
    if before in ("++", "--", "length") or (before == ")" and loops):
        raise _UnreadableScriptError
    operand = before[0] in '"$)]' or before[0].isalnum() or before[0] in "._"
    return operand and before not in _BEFORE_REGEX


def _list_awk_outputs(tokens: list[str]) -> Iterator[str]:
    """Yield the files that a program prints to. Raise `_UnreadableScriptError` if it does more."""
    depth, printing = 0, False
    for place, token in enumerate(tokens):
        if token in _DANGEROUS_TOKENS:
            raise _UnreadableScriptError
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(token, 0)
        if token in ("print", "printf"):
            printing, depth = True, 0
        elif token in (";", "{", "}") or (token == "\n" and tokens[place - 1] not in (",", "&&", "||")):
            printing = False
        elif printing and depth <= 0 and token in (">", ">>"):
            path, end = (*tokens[place + 1 : place + 3], "", "")[:2]
            if not path.startswith('"') or "\\" in path or end not in _ENDS:
                raise _UnreadableScriptError
            yield path[1:-1]


# After any letters that do not take a value.
_IN_PLACE: Final = re.compile(r"(-[a-dghjkm-zA-Z]*)i.*", re.DOTALL)


def examine_sed(rest: Fields, state: ShellState) -> ProgramEffects:
    # A suffix may follow `-i` directly, but never as the next word, except on macOS.
    cut = [_IN_PLACE.fullmatch(field.text) for field in rest]
    left = [Field(found[1]) if found else field for field, found in zip(rest, cut, strict=True)]
    given = parse_arguments(
        [field for field, found in zip(left, cut, strict=True) if not found or found[1] != "-"], _SED
    )
    in_place = any(cut) or given.has("--in-place")
    scripts = given.values("-e", "--expression")
    words = given.words
    if not scripts and not given.has("-f", "--file"):
        scripts, words = list(words[:1]), words[1:]
    for field in given.values("-f", "--file"):
        state.touch(field, "read")
        state.mark_unclear(f"sed -f {field.text}", "a script of sed may write files and run programs")
    quiet = not in_place
    for script in scripts:
        quiet &= _examine_sed_script(script, state)
    for field in words:
        state.touch(field, "read")
        if in_place:
            state.touch(field, "write")
    return ProgramEffects(quiet=quiet)


_SED: Final = split_names("-e -f -l --expression --file --line-length")


def _examine_sed_script(script: Field, state: ShellState) -> bool:
    found = parse_sed_script(script.text) if not has_hole(script.text) else None
    if found is None:
        state.mark_unclear(f"sed {script.text}", "a script of sed that may write files and run programs")
        return False
    for what, text in found:
        if what == "run":
            state.mark_unclear(f"sed {script.text}", "the script of sed runs programs")
        else:
            state.touch(Field(text), what)
    return all(what == "read" for what, _ in found)


_AWK: Final = split_names("-F -v -f -i -e -E -l -W -d -o -p -D -L --field-separator --assign")
# Options of the various awks that only affect how a program is read. Any other may run, load or write something.
_QUIET_AWK: Final = split_names(
    "-F -v -V -h -b -c -C -n -N -O -P -r -s -S -t -M --field-separator --assign --version --help --posix --traditional"
    " --re-interval --sandbox --lint --characters-as-bytes --csv -k --bignum"
)


def examine_awk(rest: Fields, state: ShellState) -> ProgramEffects:
    given = parse_arguments(rest, _AWK, until_word=True)
    odd = [option for option, _ in given.options if not any(may_mean(option, quiet) for quiet in _QUIET_AWK)]
    for option, value in given.options:
        if option in odd:
            for file in [value] if value is not None else []:
                state.touch(file, "read")
            state.mark_unclear(
                " ".join(["awk", *(field.text for field in rest)]),
                f"{option} may write files and run programs",
            )
    quiet = not odd
    for program in given.words[:1]:
        if has_hole(program.text):
            state.mark_unclear(f"awk {program.text}", "an awk program may write files and run programs")
        quiet &= examine_awk_program(program.text, state)
    for field in given.words[1:]:
        if not re.match(r"[A-Za-z_]\w*=", field.text):
            state.touch(field, "read")
    return ProgramEffects(quiet=quiet)


def examine_dd(rest: Fields, state: ShellState) -> ProgramEffects:
    quiet = True
    for field in rest:
        name, _, value = field.text.partition("=")
        if name == "if":
            state.touch(field.ending(value), "read")
        elif name == "of":
            quiet = False
            state.touch(field.ending(value), "write")
    return ProgramEffects(quiet=quiet)


_NAMED: Final = frozenset({"--arg", "--argjson", "--slurpfile", "--rawfile"})


def examine_jq(rest: Fields, state: ShellState) -> ProgramEffects:
    """Examine jq, some of whose options take two words: a name, and a value or file."""
    left: list[Field] = []
    waiting = list(reversed(rest))
    while waiting:
        field = waiting.pop()
        if field.text not in _NAMED:
            left.append(field)
            continue
        values = [waiting.pop() for _ in range(min(2, len(waiting)))]
        if field.text.endswith("file"):
            for value in values[1:]:
                state.touch(value, "read")
    touch_files("jq", PROGRAMS["jq"], tuple(left), state)
    return ProgramEffects()
