"""Examine sed, awk, dd and jq, which can also read and write files and run programs."""

import os
import re
from collections.abc import Iterator, Sequence
from typing import Final, Literal

from weft.model.permission import has_hole
from weft.tool.shell.arguments import Field, Fields, may_mean, parse_arguments, split_names, unknown_field
from weft.tool.shell.program.effects import ProgramEffects
from weft.tool.shell.program.table import PROGRAMS, touch_files
from weft.tool.shell.program.touches import touch_path
from weft.tool.shell.state import ShellState

SedAction = tuple[Literal["read", "write", "run"], str]

_SED_ADDRESS: Final = re.compile(r"\d+(?:~\d+)?|\$|[+~]\d+")
_PLAIN_COMMANDS: Final = frozenset("=dDgGhHnNpPxzFqQl{}")
_LABEL_COMMANDS: Final = frozenset(":btT")
_TEXT_COMMANDS: Final = frozenset("aic")
_FILE_COMMANDS: Final[dict[str, Literal["read", "write"]]] = {
    "r": "read",
    "R": "read",
    "w": "write",
    "W": "write",
}


def parse_sed_script(script: str) -> list[SedAction] | None:
    """Return the files that a sed script uses and the programs that it runs, or None if it cannot be read."""
    try:
        return list(_SedParser(script).read())
    except (IndexError, _UnreadableScriptError):
        return None


class _UnreadableScriptError(Exception):
    """A script cannot be read with certainty, or does more than reading and printing."""


class _SedParser:
    """Reads a sed script command by command."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0

    def read(self) -> Iterator[SedAction]:
        while self._skip_chars(" \t\n;"):
            self._skip_addresses()
            command = self._read_char()
            if command == "#":
                self._read_line()
            elif command in _PLAIN_COMMANDS:
                self._skip_pattern(r"[ \t]*\d*")
            elif command in _LABEL_COMMANDS:
                self._skip_pattern(r"[ \t]*[^\s;}]*")
            elif command in _TEXT_COMMANDS:
                self._read_line(continued=True)
            elif command in _FILE_COMMANDS:
                yield _FILE_COMMANDS[command], self._read_line().strip()
            elif command == "e":
                yield "run", self._read_line().strip()
            elif command == "y":
                self._skip_delimited(2)
            elif command == "s":
                self._skip_delimited(2)
                yield from self._read_flags()
            else:
                raise _UnreadableScriptError

    def _read_flags(self) -> Iterator[SedAction]:
        while self._position < len(self._text) and self._text[self._position] not in " \t\n;}":
            flag = self._read_char()
            if flag == "e":
                yield "run", ""
            elif flag == "w":
                yield "write", self._read_line().strip()
            elif flag not in "gpiImM0123456789":
                raise _UnreadableScriptError

    def _skip_addresses(self) -> None:
        while True:
            self._skip_chars(" \t")
            if found := _SED_ADDRESS.match(self._text, self._position):
                self._position = found.end()
            elif self._text[self._position] == "/":
                self._skip_delimited(1)
                self._skip_pattern(r"[IM]*")
            elif self._text[self._position] == "\\":
                self._position += 1
                self._skip_delimited(1)
                self._skip_pattern(r"[IM]*")
            elif self._text[self._position] in ",!":
                self._position += 1
            else:
                return

    def _skip_delimited(self, parts: int) -> None:
        """Skip this many parts that are separated by a delimiter."""
        delimiter, total = self._read_char(), parts
        while parts:
            char = self._read_char()
            if char == "\\":
                self._position += 1
            elif char == "[" and parts == total and self._bracket_contains(delimiter):
                raise _UnreadableScriptError  # whether this is the delimiter depends on the implementation
            elif char == delimiter:
                parts -= 1

    def _bracket_contains(self, delimiter: str) -> bool:
        """Return True if the bracket expression that starts here contains the delimiter."""
        found = re.compile(r"\^?\]?[^\]\n]*\]").match(self._text, self._position)
        return found is not None and delimiter in found[0]

    def _skip_chars(self, chars: str) -> bool:
        while self._position < len(self._text) and self._text[self._position] in chars:
            self._position += 1
        return self._position < len(self._text)

    def _skip_pattern(self, pattern: str) -> None:
        found = re.compile(pattern).match(self._text, self._position)
        self._position = found.end() if found else self._position

    def _read_char(self) -> str:
        char = self._text[self._position]
        self._position += 1
        return char

    def _read_line(self, *, continued: bool = False) -> str:
        start = self._position
        while self._position < len(self._text) and self._text[self._position] != "\n":
            self._position += 2 if continued and self._text[self._position] == "\\" else 1
        return self._text[start : self._position]


_AWK_TOKEN: Final = re.compile(
    r"""(?P<blank>[ \t]+|\\\n|\#[^\n]*)|(?P<string>"(?:[^"\\\n]|\\.)*")|(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"""
    r"""|(?P<name>[A-Za-z_]\w*)|(?P<sign>\+\+|--|>>|\|\||&&|[<>=!+*/%^-]=|[^"])""",
    re.DOTALL,
)
_AWK_REGEX: Final = re.compile(r"/(?:[^/\\\n\[]|\\.|\[\^?\]?[^\]\n/]*\])*/")
# These read another file, run a program, or change which files are read. `@` calls and loads by name.
_DANGEROUS_TOKENS: Final = split_names("system getline ARGV ARGC @ |")
_BEFORE_REGEX: Final = split_names("print printf return in else do case")
_STATEMENT_ENDS: Final = frozenset({";", "}", "\n", ""})


def examine_awk_program(program: str, state: ShellState) -> bool:
    """Note what an awk program does besides reading its input. Return True if it only prints."""
    try:
        paths = list(_list_awk_outputs(list(_tokenize_awk(program))))
    except _UnreadableScriptError:
        state.mark_unclear(f"awk {program}", "the awk program writes files or runs programs")
        return False
    for path in paths:
        state.touch(Field(path), "write")
    return not paths


def _tokenize_awk(program: str) -> Iterator[str]:
    """Yield the tokens of a program without regular expressions.

    Raise `_UnreadableScriptError` if a slash cannot be told from the start of one.
    """
    position, previous = 0, "\n"
    has_conditions = re.search(r"\b(?:if|while|for|switch)\b", program) is not None
    while position < len(program):
        match = _AWK_TOKEN.match(program, position)
        if match is None:
            raise _UnreadableScriptError
        token = match[0]
        if token in ("/", "/=") and not _is_division(previous, has_conditions=has_conditions):
            regex = _AWK_REGEX.match(program, position)
            if regex is None:
                raise _UnreadableScriptError
            position, previous = regex.end(), "0"
            continue
        position = match.end()
        if not match["blank"]:
            yield token
            previous = token


def _is_division(previous: str, *, has_conditions: bool) -> bool:
    """Return True if a slash after this token means division."""
    if previous in ("++", "--", "length") or (previous == ")" and has_conditions):
        raise _UnreadableScriptError
    is_operand = previous[0] in '"$)]' or previous[0].isalnum() or previous[0] in "._"
    return is_operand and previous not in _BEFORE_REGEX


def _list_awk_outputs(tokens: list[str]) -> Iterator[str]:
    """Yield the files that a program prints to. Raise `_UnreadableScriptError` if it does more."""
    depth, printing = 0, False
    for index, token in enumerate(tokens):
        if token in _DANGEROUS_TOKENS:
            raise _UnreadableScriptError
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(token, 0)
        if token in ("print", "printf"):
            printing, depth = True, 0
        elif token in (";", "{", "}") or (token == "\n" and tokens[index - 1] not in (",", "&&", "||")):
            printing = False
        elif printing and depth <= 0 and token in (">", ">>"):
            path, end = (*tokens[index + 1 : index + 3], "", "")[:2]
            if not path.startswith('"') or "\\" in path or end not in _STATEMENT_ENDS:
                raise _UnreadableScriptError
            yield path[1:-1]


_SED_VALUE_OPTIONS: Final = split_names("-e -f -l --expression --file --line-length")
# `-i`, alone or after short options that do not take a value.
_IN_PLACE_OPTION: Final = re.compile(r"(-[a-dghjkm-zA-HJ-Z]*)[iI](.*)", re.DOTALL)
# What the sed of macOS takes for the suffix if it is a word of its own. No script looks like that.
_SUFFIX_WORD: Final = re.compile(r"(?:[.~_-]\w*)?")


def examine_sed(arguments: Fields, state: ShellState) -> ProgramEffects:
    # A suffix may follow `-i` directly, but never as the next word, except on macOS.
    in_place_matches = [_IN_PLACE_OPTION.fullmatch(field.text) for field in arguments]
    others = [
        Field(match[1]) if match else field
        for field, match in zip(arguments, in_place_matches, strict=True)
        if not match or match[1] != "-"
    ]
    parsed = parse_arguments(others, _SED_VALUE_OPTIONS)
    in_place = any(in_place_matches) or parsed.has("--in-place")
    suffixes = [
        *(match[2] for match in in_place_matches if match),
        *(field.text for field in parsed.values("--in-place")),
    ]
    scripts = parsed.values("-e", "--expression")
    words = parsed.words
    has_suffix_word = in_place and bool(words) and _SUFFIX_WORD.fullmatch(words[0].text) is not None
    if has_suffix_word:
        suffixes.append(words[0].text)
    if not scripts and not parsed.has("-f", "--file"):
        scripts, words = (list(words[1:2]), words) if has_suffix_word else (list(words[:1]), words[1:])
    # For macOS, `-l` takes no value.
    scripts += [field for field in parsed.values("-l") if not field.text.isdecimal()]
    for field in parsed.values("-f", "--file"):
        state.touch(field, "read")
        state.mark_unclear(f"sed -f {field.text}", "a script of sed may write files and run programs")
    may_write = in_place
    for script in scripts:
        may_write |= not _examine_sed_script(script, state)
    for field in words:
        state.touch(field, "read")
        if in_place:
            state.touch(field, "write")
            touch_backups(field, suffixes, state)
    return ProgramEffects(may_write=may_write)


def touch_backups(field: Field, suffixes: Sequence[str], state: ShellState) -> None:
    """Note the copies of a file that is changed in place. A star in the suffix stands for its name: `-i'old/*'`."""
    for suffix in filter(None, suffixes):
        if has_hole(suffix) or ("/" in suffix and field.listing is not None):
            state.touch(unknown_field(suffix), "write")
            continue
        for path in state.resolve_roots(field):
            directory, name = os.path.split(path)
            backup = suffix.replace("*", name) if "*" in suffix else name + suffix
            state.touch(Field(os.path.join(directory, backup)), "write")
            if "/" in backup:
                state.touch(Field(backup), "write")


def _examine_sed_script(script: Field, state: ShellState) -> bool:
    """Note the files that a sed script uses. Return True if it only reads."""
    actions = parse_sed_script(script.text) if not has_hole(script.text) else None
    if actions is None:
        state.mark_unclear(f"sed {script.text}", "a script of sed that may write files and run programs")
        return False
    for action, text in actions:
        if action == "run":
            state.mark_unclear(f"sed {script.text}", "the script of sed runs programs")
        else:
            state.touch(Field(text), action)
    return all(action == "read" for action, _ in actions)


_AWK_VALUE_OPTIONS: Final = split_names("-F -v -f -i -e -E -l -W -d -o -p -D -L --field-separator --assign")
# Options of the various awks that only affect how a program is read. Any other may run, load or write something.
_HARMLESS_AWK_OPTIONS: Final = split_names(
    "-F -v -V -h -b -c -C -n -N -O -P -r -s -S -t -M --field-separator --assign --version --help --posix --traditional"
    " --re-interval --sandbox --lint --characters-as-bytes --csv -k --bignum"
)


def examine_awk(arguments: Fields, state: ShellState) -> ProgramEffects:
    parsed = parse_arguments(arguments, _AWK_VALUE_OPTIONS, until_word=True)
    unclear_options = [
        option
        for option, _ in parsed.options
        if not any(may_mean(option, harmless) for harmless in _HARMLESS_AWK_OPTIONS)
    ]
    for option, value in parsed.options:
        if option in unclear_options:
            for file in [value] if value is not None else []:
                state.touch(file, "read")
            state.mark_unclear(
                " ".join(["awk", *(field.text for field in arguments)]),
                f"{option} may write files and run programs",
            )
    may_write = bool(unclear_options)
    for program in parsed.words[:1]:
        if has_hole(program.text):
            state.mark_unclear(f"awk {program.text}", "an awk program may write files and run programs")
        may_write |= not examine_awk_program(program.text, state)
    for field in parsed.words[1:]:
        if not re.match(r"[A-Za-z_]\w*=", field.text):
            state.touch(field, "read")
    return ProgramEffects(may_write=may_write)


def examine_dd(arguments: Fields, state: ShellState) -> ProgramEffects:
    may_write = False
    for field in arguments:
        name, _, value = field.text.partition("=")
        if name == "if":
            state.touch(field.ending(value), "read")
        elif name == "of":
            may_write = True
            state.touch(field.ending(value), "write")
        elif has_hole(name):  # it may end in `if` or `of`, or be all of the word
            may_write = True
            file = field.ending(value) if value else field
            state.touch(file, "read")
            state.touch(file, "write")
    return ProgramEffects(may_write=may_write)


_TWO_VALUE_OPTIONS: Final = frozenset({"--arg", "--argjson", "--slurpfile", "--rawfile"})


_JQ_IMPORT: Final = re.compile(r"(?<![.$\w\"])(?:import|include)\s*(?:\"|#)")
_YQ_LOAD: Final = re.compile(r"(?<![.$\w])(?:str_?)?load(?:_?\w+)?\b")


def examine_yq(arguments: Fields, state: ShellState) -> ProgramEffects:
    """Examine yq: one program of this name has operators that read files, and splits documents into files."""
    parsed = parse_arguments(arguments, PROGRAMS["yq"].value_options)
    in_place = parsed.has("-i", "--inplace", "--in-place")
    for field in parsed.words if in_place else ():
        # The first word that is no verb is the expression, unless an option has it.
        if field is not parsed.words[0] or state.looks_like_path(field.text):
            state.touch(field, "write")
    if parsed.has("-s", "--split-exp", "--split-exp-file"):
        state.touch_below(*(state.cwds or ()))
    for field in parsed.values("--from-file", "--split-exp-file"):
        state.touch(field, "read")
    if parsed.has("--from-file", "--security-enable-system-operator"):
        state.mark_unclear(
            " ".join(["yq", *(field.text for field in arguments)]), "it may load other files and run programs"
        )
    expressions = (*parsed.words, *parsed.values("--expression"))
    if any(_YQ_LOAD.search(field.text) or _JQ_IMPORT.search(field.text) for field in expressions):
        state.mark_unclear(" ".join(["yq", *(field.text for field in arguments)]), "it loads other files")
    if len(parsed.words) == 1 and state.exists(parsed.words[0].text):  # then it is no expression
        touch_path(parsed.words[0], state)
    touch_files("yq", PROGRAMS["yq"], arguments, state)
    return ProgramEffects(may_write=in_place)


def examine_jq(arguments: Fields, state: ShellState) -> ProgramEffects:
    """Examine jq, some of whose options take two words: a name, and a value or file."""
    others: list[Field] = []
    remaining = list(reversed(arguments))
    while remaining:
        field = remaining.pop()
        if field.text not in _TWO_VALUE_OPTIONS:
            others.append(field)
            continue
        values = [remaining.pop() for _ in range(min(2, len(remaining)))]
        if field.text.endswith("file"):
            for value in values[1:]:
                state.touch(value, "read")
    parsed = parse_arguments(others, PROGRAMS["jq"].value_options)
    for field in parsed.values("-L", "--library-path"):
        state.touch(field, "look")
    in_place = parsed.has("-i", "--in-place")  # of jaq
    for field in parsed.words[1:] if in_place else ():
        state.touch(field, "write")
    if any(_JQ_IMPORT.search(field.text) for field in parsed.words):
        state.mark_unclear(" ".join(["jq", *(field.text for field in arguments)]), "it imports other files")
    touch_files("jq", PROGRAMS["jq"], tuple(others), state)
    return ProgramEffects(may_write=in_place)
