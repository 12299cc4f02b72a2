"""sed, awk, dd and jq: stream editors that also read, write and run."""

import re
from collections.abc import Iterator
from typing import Final, Literal

from weft.tool.shell.field import Field, Reading, has_hole, is_meant, names, split
from weft.tool.shell.program.inner import Found
from weft.tool.shell.program.table import PROGRAMS, use_files
from weft.tool.shell.scene import Scene

Deed = tuple[Literal["read", "write", "run"], str]

_ADDRESS: Final = re.compile(r"\d+(?:~\d+)?|\$|[+~]\d+")
_PLAIN: Final = frozenset("=dDgGhHnNpPxzFqQl{}")
_LABELS: Final = frozenset(":btT")
_TEXTS: Final = frozenset("aic")
_FILES: Final[dict[str, Literal["read", "write"]]] = {"r": "read", "R": "read", "w": "write", "W": "write"}


def deeds(script: str) -> list[Deed] | None:
    """What the script does with files and programs; None when it cannot be read."""
    try:
        return list(_Script(script).read())
    except (IndexError, _OddError):
        return None


class _OddError(Exception):
    pass


class _Script:
    def __init__(self, text: str) -> None:
        self._text = text
        self._place = 0

    def read(self) -> Iterator[Deed]:
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
                raise _OddError

    def _flags(self) -> Iterator[Deed]:
        while self._place < len(self._text) and self._text[self._place] not in " \t\n;}":
            flag = self._next()
            if flag == "e":
                yield "run", ""
            elif flag == "w":
                yield "write", self._line().strip()
            elif flag not in "gpiImM0123456789":
                raise _OddError

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
        """From a delimiter over so many parts to the last delimiter."""
        delimiter, first = self._next(), parts
        while parts:
            char = self._next()
            if char == "\\":
                self._place += 1
            elif char == "[" and parts == first and self._hides(delimiter):
                raise _OddError  # sometimes that is the delimiter, and sometimes not
            elif char == delimiter:
                parts -= 1

    def _hides(self, delimiter: str) -> bool:
        """Whether the brackets that have just been opened hold the delimiter."""
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
# They read another file, run a program, or let the program choose what it is given. `@` calls and loads by name.
_WAYS: Final = names("system getline ARGV ARGC @ |")
_BEFORE_REGEX: Final = names("print printf return in else do case")
_ENDS: Final = frozenset({";", "}", "\n", ""})


def look_at_awk(program: str, scene: Scene) -> bool:
    """Note what an awk program does beside reading lines. Gives whether it only tells."""
    try:
        saved = list(_saved(list(_tokens(program))))
    except _OddError:
        scene.unclear(f"awk {program}", "the awk program writes files or runs programs")
        return False
    for path in saved:
        scene.touch(Field(path), "write")
    return not saved


def _tokens(program: str) -> Iterator[str]:
    """The program in pieces, regular expressions left out. Raises where it cannot be told what a slash is."""
    place, before = 0, "\n"
    loops = re.search(r"\b(?:if|while|for|switch)\b", program) is not None
    while place < len(program):
        found = _TOKEN.match(program, place)
        if found is None:
            raise _OddError
        token = found[0]
        if token in ("/", "/=") and not _divides(before, loops=loops):
            regex = _REGEX.match(program, place)
            if regex is None:
                raise _OddError
            place, before = regex.end(), "0"
            continue
        place = found.end()
        if not found["blank"]:
            yield token
            before = token


def _divides(before: str, *, loops: bool) -> bool:
    """Whether a slash behind this is for dividing."""
    if before in ("++", "--", "length") or (before == ")" and loops):
        raise _OddError
    operand = before[0] in '"$)]' or before[0].isalnum() or before[0] in "._"
    return operand and before not in _BEFORE_REGEX


def _saved(tokens: list[str]) -> Iterator[str]:
    """The files that are printed to. Raises for what does more."""
    depth, printing = 0, False
    for place, token in enumerate(tokens):
        if token in _WAYS:
            raise _OddError
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(token, 0)
        if token in ("print", "printf"):
            printing, depth = True, 0
        elif token in (";", "{", "}") or (token == "\n" and tokens[place - 1] not in (",", "&&", "||")):
            printing = False
        elif printing and depth <= 0 and token in (">", ">>"):
            path, end = (*tokens[place + 1 : place + 3], "", "")[:2]
            if not path.startswith('"') or "\\" in path or end not in _ENDS:
                raise _OddError
            yield path[1:-1]


# Behind any letters but those that take a value.
_IN_PLACE: Final = re.compile(r"(-[a-dghjkm-zA-Z]*)i.*", re.DOTALL)


def look_at_sed(rest: Reading, scene: Scene) -> Found:
    # `-i` may have an ending right behind it, and never in the next word (but on a Mac).
    cut = [_IN_PLACE.fullmatch(field.text) for field in rest]
    left = [Field(found[1]) if found else field for field, found in zip(rest, cut, strict=True)]
    given = split(
        [field for field, found in zip(left, cut, strict=True) if not found or found[1] != "-"], _SED
    )
    in_place = any(cut) or given.has("--in-place")
    scripts = given.values("-e", "--expression")
    words = given.words
    if not scripts and not given.has("-f", "--file"):
        scripts, words = list(words[:1]), words[1:]
    for field in given.values("-f", "--file"):
        scene.touch(field, "read")
        scene.unclear(f"sed -f {field.text}", "a script of sed may write files and run programs")
    quiet = not in_place
    for script in scripts:
        quiet &= _look_at_script(script, scene)
    for field in words:
        scene.touch(field, "read")
        if in_place:
            scene.touch(field, "write")
    return Found(quiet=quiet)


_SED: Final = names("-e -f -l --expression --file --line-length")


def _look_at_script(script: Field, scene: Scene) -> bool:
    found = deeds(script.text) if not has_hole(script.text) else None
    if found is None:
        scene.unclear(f"sed {script.text}", "a script of sed that may write files and run programs")
        return False
    for what, text in found:
        if what == "run":
            scene.unclear(f"sed {script.text}", "the script of sed runs programs")
        else:
            scene.touch(Field(text), what)
    return all(what == "read" for what, _ in found)


_AWK: Final = names("-F -v -f -i -e -E -l -W -d -o -p -D -L --field-separator --assign")
# Options of the several awks that change only how a program is read. Any other may run, load or write something.
_QUIET_AWK: Final = names(
    "-F -v -V -h -b -c -C -n -N -O -P -r -s -S -t -M --field-separator --assign --version --help --posix --traditional"
    " --re-interval --sandbox --lint --characters-as-bytes --csv -k --bignum"
)


def look_at_awks(rest: Reading, scene: Scene) -> Found:
    given = split(rest, _AWK, until_word=True)
    odd = [option for option, _ in given.options if not any(is_meant(option, quiet) for quiet in _QUIET_AWK)]
    for option, value in given.options:
        if option in odd:
            for file in [value] if value is not None else []:
                scene.touch(file, "read")
            scene.unclear(
                " ".join(["awk", *(field.text for field in rest)]),
                f"{option} may write files and run programs",
            )
    quiet = not odd
    for program in given.words[:1]:
        if has_hole(program.text):
            scene.unclear(f"awk {program.text}", "an awk program may write files and run programs")
        quiet &= look_at_awk(program.text, scene)
    for field in given.words[1:]:
        if not re.match(r"[A-Za-z_]\w*=", field.text):
            scene.touch(field, "read")
    return Found(quiet=quiet)


def look_at_dd(rest: Reading, scene: Scene) -> Found:
    quiet = True
    for field in rest:
        name, _, value = field.text.partition("=")
        if name == "if":
            scene.touch(field.ending(value), "read")
        elif name == "of":
            quiet = False
            scene.touch(field.ending(value), "write")
    return Found(quiet=quiet)


_NAMED: Final = frozenset({"--arg", "--argjson", "--slurpfile", "--rawfile"})


def look_at_jq(rest: Reading, scene: Scene) -> Found:
    """Some of its options take two words: a name and a value, or a name and a file."""
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
                scene.touch(value, "read")
    use_files("jq", PROGRAMS["jq"], tuple(left), scene)
    return Found()
