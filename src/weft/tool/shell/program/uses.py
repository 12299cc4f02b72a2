"""Which files a command line uses, and how: by the table for programs that are in it, by looks for the others."""

import os
import re
from collections.abc import Iterator, Sequence
from typing import Final

from weft.model.permission import HOLE
from weft.tool.shell.field import Field, Listing, Reading, has_hole, unknown, without_holes
from weft.tool.shell.options import Given, split
from weft.tool.shell.places import is_secret
from weft.tool.shell.program.table import Program
from weft.tool.shell.scene import Scene, Use
from weft.tool.shell.words import is_wild

_URL: Final = re.compile(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]*://")
# Programs that read whole directories when told to, and those that do unless told otherwise.
_RECURSIVE: Final = frozenset({"grep", "egrep", "fgrep", "diff", "colordiff", "zcat", "gzcat"})
_COMPARING: Final = frozenset({"diff", "colordiff"})
# They give each file to another program as its input, which then goes through the directory that it is in.
_FEEDING: Final = frozenset({"zgrep", "bzgrep", "xzgrep"})
_SEARCHING: Final = frozenset({"rg", "ag", "ack"})
_HIDDEN: Final = ("-u", "-.", "--hidden", "--no-ignore", "--unrestricted")
_ALL_BELOW: Final = ("-r", "-R", "-a", "--recursive", "--archive")
# They make names up if they are given none.
_BINARY: Final = frozenset({"nm", "objdump", "readelf", "size", "strings"})
_NAMING: Final = frozenset({"split", "csplit"})
_TO_STDOUT: Final = ("-c", "--stdout", "--to-stdout")
_TELLING: Final = ("-t", "--test", "--list")
# Of several modes the last counts.
_PACKING: Final = ("-z", "--compress", "-d", "--decompress", "--uncompress", "--train", "-b")


def use_files(name: str, program: Program, rest: Reading, scene: Scene) -> None:
    """Note the files of a program in the table."""
    odd = name == "xxd"
    given = split(_apart(rest) if odd else rest, program.taking, until_word=odd)
    words = given.words[0 if given.has(*program.instead) else program.skip :]
    _use_options(name, given, program, scene)
    _use_words(program, words, given, scene)
    if program.role == "read":
        _read_trees(name, given, words, scene)
    if name.endswith("sum") and given.has("-c", "--check"):
        scene.touch(unknown("files named in a list of sums"), "read")
    if name in _BINARY and any(field.text.startswith("@") for field in words):
        scene.unclear(" ".join([name, *(field.text for field in rest)]), "it takes options from a file")
    if name in _NAMING and len(words) <= 1:
        scene.touch(Field("xaa"), "write")


def _apart(rest: Reading) -> Reading:
    """The options of xxd: their first letter says it all, and only some of them take a value."""
    return tuple(
        Field(field.text[:2]) if re.match(r"-[abCdeEiprtuv]", field.text) else field for field in rest
    )


def _use_options(name: str, given: Given, program: Program, scene: Scene) -> None:
    for option, value in given.options:
        if value is None:
            continue
        if option in program.running:
            scene.unclear(f"{name} {option} {value.text}", "an option of it runs a program")
        elif option in program.naming:
            scene.touch(value, "read")
            scene.touch(unknown(f"files named in {value.text}"), "read")
        elif option in program.writing:
            _write([value], scene, below=False)
        elif option in program.reading:
            scene.touch(value, "read")
        elif option not in program.taking:
            use_look(value, scene)
        elif is_secret(value.text.rpartition("/")[2]) or scene.exists(value.text):
            # Not every version of a program takes a value there.
            scene.touch(value, "read")


def _use_words(program: Program, words: Sequence[Field], given: Given, scene: Scene) -> None:
    match program.role:
        case "none":
            # The shell looks for names all the same.
            for field in words:
                if field.wild and is_wild(without_holes(field.text)):
                    scene.touch(field, "look")
        case "look" | "read":
            for field in words:
                scene.touch(field, program.role)
        case "write":
            _write(words, scene, below=given.has(*_ALL_BELOW))
        case "out":
            _use_out(words, scene)
        case "pack":
            _pack(words, given, scene)
        case "patch":
            for directory in given.values("-d", "--directory"):
                scene.touch_all(directory, "write")
            _write(words[:1], scene, below=False)
            if not words and not given.has("-d", "--directory"):
                scene.touch_below(*(scene.cwds or ()))
        case "copy" | "link" | "move":
            _use_copies(program, words, given, scene)


def _pack(words: Sequence[Field], given: Given, scene: Scene) -> None:
    quiet = given.has(*_TO_STDOUT) or (given.has(*_TELLING) and not given.has(*_PACKING))
    below = given.has("-r", "--recursive")
    for field in words:
        if below:
            scene.touch_all(field, "read", links=True)
        else:
            scene.touch(field, "read")
        if not quiet:
            _write([field], scene, below=below)
    if given.has("--train"):
        scene.touch(Field("dictionary"), "write")


def _write(words: Sequence[Field], scene: Scene, *, below: bool) -> None:
    for field in words:
        # To these a dash is a name like any other.
        named = Field("./-") if field.text == "-" else field
        if below:
            scene.touch_all(named, "write")
        else:
            scene.touch(named, "write")


def _use_out(words: Sequence[Field], scene: Scene) -> None:
    # Without one of its options, ptx reads them all.
    for field in words:
        scene.touch(field, "read")
    _write(words[1:], scene, below=False)


def _use_copies(program: Program, words: Sequence[Field], given: Given, scene: Scene) -> None:
    into = given.values("-t", "--target-directory")
    sources, targets = (words, into) if into or len(words) == 1 else (words[:-1], list(words[-1:]))
    targets = targets or [Field(".")]
    below = given.has(*_ALL_BELOW)
    for source in sources:
        whole = below or (program.role == "move" and scene.is_directory(source))
        if whole:
            scene.touch_all(source, "read")
        else:
            scene.touch(source, "read")
        if program.role != "copy":
            # A link gives another name to what it leads to, and with it every way to change that.
            _write([source], scene, below=whole)
        for target in targets:
            _write_copy(source, target, scene, within=bool(into) or scene.is_directory(target), below=whole)


def _write_copy(source: Field, target: Field, scene: Scene, *, within: bool, below: bool) -> None:
    name = os.path.basename(source.text.rstrip("/"))
    if not within:
        _write([target], scene, below=below)
    elif name in ("", ".", ".."):
        scene.touch_all(target, "write")
    elif not target.is_known:
        scene.touch(target, "write")
    else:
        wild = os.path.join(target.text, os.path.basename(source.wild)) if source.wild else ""
        _write([Field(os.path.join(target.text, name), wild)], scene, below=below)


def _read_trees(name: str, given: Given, words: Sequence[Field], scene: Scene) -> None:
    # Newer ones pass over what begins with a dot unless told not to.
    hidden = name in _SEARCHING and given.has(*_HIDDEN)
    recursive = name in _RECURSIVE | _FEEDING and given.has(
        "-r", "-R", "--recursive", "--dereference-recursive"
    )
    follow = given.has("-R", "--dereference-recursive", "-L", "--follow")
    links = follow
    if name in _COMPARING and any(map(scene.is_directory, words)):
        # Of directories the files are compared, those that links lead to as well.
        recursive, links = True, True
        follow = given.has("-N", "--new-file", "-P", "--unidirectional-new-file")
    if not hidden and not recursive and not (name in _SEARCHING and follow):
        return
    named = () if name in _FEEDING else tuple(root for field in words for root in scene.rooted(field))
    roots = named or scene.cwds or ()
    included = [field.text for field in given.values("--include")]
    if any(is_excluded(field.text) for field in given.values("--exclude")):
        return
    listing = Listing(
        roots=roots, name=included[0] if len(included) == 1 else None, hidden=hidden or recursive
    )
    scene.touch_tree(listing, "read", links=links, follow=follow)


def is_excluded(pattern: str) -> bool:
    return pattern in (".env*", "*.env*", ".*", ".env")


def hides_option(rest: Reading, program: Program | None) -> str:
    """A word of which it is not known which option it is, if there is one."""
    taking = program.taking if program is not None else frozenset()
    for field in rest:
        if field.text == "--":
            return ""
        option, sign, _ = field.text.partition(HOLE)
        if not sign or field.is_number or field.listing is not None:
            continue
        if not option.startswith("-"):
            # Where all its words are files, one that is not known is asked about as such.
            if not option and program is not None and (program.role == "none" or program.skip):
                return field.text
        elif not (option in taking or (option.startswith("--") and "=" in option) or field.wild):
            return field.text
    return ""


def use_looks(rest: Reading, scene: Scene) -> None:
    """For a program that is not in the table: whatever looks like a path is one."""
    for field in rest:
        use_look(field, scene)


def use_look(field: Field, scene: Scene, use: Use = "read") -> None:
    if field.listing is not None or field.wild:
        scene.touch(field, use)
        return
    for text in _candidates(field.text):
        if scene.looks_like_path(text):
            scene.touch(Field(_at_home(text, scene)), use)


def _candidates(text: str) -> Iterator[str]:
    """The pieces of an argument that may be a path: `--file=x`, `-Ix`, `@x`, `a:b`."""
    if has_hole(text) or _URL.match(text):
        return
    text = text.removeprefix("file://")
    if text.startswith("-"):
        _, equals, value = text.partition("=")
        text = value if equals else text[2:]
    yield text
    for sign in ("=", "@", ":", ","):
        if sign in text:
            yield from (piece for piece in text.split(sign) if piece)


def _at_home(text: str, scene: Scene) -> str:
    return scene.where.home + text[1:] if text == "~" or text.startswith("~/") else text
