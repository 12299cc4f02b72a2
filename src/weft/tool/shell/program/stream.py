"""sed, awk, dd and jq: editors of streams that also read, write and run."""

import re
from typing import Final

from weft.tool.shell.field import Field, Reading, has_hole
from weft.tool.shell.options import is_meant, names, split
from weft.tool.shell.program.awk import look_at_awk
from weft.tool.shell.program.inner import Found
from weft.tool.shell.program.sed import deeds
from weft.tool.shell.program.table import PROGRAMS
from weft.tool.shell.program.uses import use_files
from weft.tool.shell.scene import Scene

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
