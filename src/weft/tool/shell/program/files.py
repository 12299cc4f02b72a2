"""Examine archivers, `find`, `make`, editors and pagers."""

import re
from itertools import pairwise
from typing import Final

from weft.model.permission import mark_unknown
from weft.tool.shell.arguments import (
    Field,
    Fields,
    FileListing,
    ParsedArguments,
    has_hole,
    parse_arguments,
    split_names,
    unknown_field,
)
from weft.tool.shell.program.effects import Inner, InnerAssignment, InnerCommand, ProgramEffects
from weft.tool.shell.program.output import find_listing
from weft.tool.shell.state import ShellState, StreamContent

_REMOTE: Final = re.compile(r"(?:[\w.-]+@)?[\w.-]+:")
_RUNNING: Final = re.compile("command|program|action|script")
_TAR: Final = split_names(
    "-f -C -T -X -b -g -I -F --file --directory --files-from --exclude-from --to-command --use-compress-program"
    " --checkpoint-action --info-script --new-volume-script --rsh-command --rmt-command --exclude --transform"
    " --strip-components --one-top-level"
)
_ZIP: Final = split_names("-x -i -b -n -t -TT --unzip-command")
_EXTRACT: Final = ("-x", "--extract", "--get")


def examine_tar(rest: Fields, state: ShellState) -> ProgramEffects:
    if rest and not rest[0].text.startswith("-"):
        rest = (Field(f"-{rest[0].text}"), *rest[1:])  # `tar xzf x`
    given = parse_arguments(rest, _TAR)
    for option, value in given.options:
        if option in ("-I", "-F") or (option.startswith("--") and _RUNNING.search(option)):
            state.mark_unclear(
                f"tar {option} {value.text if value else ''}", "an option of tar runs a program"
            )
    for field in given.values("-T", "-X", "--files-from", "--exclude-from"):
        state.touch(field, "read")
    lists, extracts = given.has("-t", "--list"), given.has(*_EXTRACT)
    for field in given.values("-f", "--file"):
        if not _REMOTE.match(field.text):
            state.touch(field, "read" if lists or extracts else "write")
    if extracts:
        _unpack(given.values("-C", "--directory", "--one-top-level"), state)
    elif not lists:
        _pack(given, state)
    return ProgramEffects(quiet=lists)


def _pack(given: ParsedArguments, state: ShellState) -> None:
    for directory in given.values("-C", "--directory"):
        state.touch_all(directory, "read")
    for field in given.words:
        state.touch_all(field, "read", links=given.has("-h", "--dereference"))
    if given.has("-T", "--files-from"):
        state.touch(unknown_field("files named in a list"), "read")


def _unpack(into: list[Field], state: ShellState) -> None:
    for directory in into:
        state.touch_all(directory, "write")
    if not into:
        state.touch_below(*(state.cwds or ()))


def examine_zip(rest: Fields, state: ShellState) -> ProgramEffects:
    given = parse_arguments(rest, _ZIP)
    for field in given.values("-TT", "--unzip-command"):
        state.mark_unclear(f"zip -TT {field.text}", "an option of zip runs a program")
    for field in given.words[:1]:
        state.touch(field, "write")
    for field in given.words[1:]:
        state.touch_all(field, "read", links=not given.has("-y", "--symlinks"))
    return ProgramEffects(quiet=False)


def examine_unzip(rest: Fields, state: ShellState) -> ProgramEffects:
    given = parse_arguments(rest, split_names("-d -x"))
    for field in given.words[:1]:
        state.touch(field, "read")
    tells = given.has("-l", "-p", "-Z", "-t", "-v")
    if not tells:
        _unpack(given.values("-d"), state)
    return ProgramEffects(quiet=tells)


def examine_cpio(rest: Fields, state: ShellState, stdin: StreamContent | None) -> ProgramEffects:
    """Examine cpio or pax, which read the names of files from their input."""
    given = parse_arguments(rest, split_names("-f -F -I -O -E -H -R"))
    for field in given.words:
        state.touch_all(field, "read")
    for field in given.values("-O", "-F"):
        state.touch(field, "write")
    if stdin is not None:
        _read_named(stdin, state)
    if given.has("-i", "-p", "-r", "--extract", "--pass-through"):
        state.touch_below(*(state.cwds or ()))
    return ProgramEffects(quiet=False)


def _read_named(stdin: StreamContent, state: ShellState) -> None:
    if stdin.listing is not None:
        state.touch_tree(stdin.listing, "read", links=True)
        return
    for name in stdin.text.split() if stdin.text is not None else ():
        state.touch(Field(name), "read")
    if stdin.text is None:
        state.touch(unknown_field("names from the input"), "read")


_TAKING: Final = split_names(
    "-name -iname -path -ipath -wholename -iwholename -regex -iregex -lname -ilname -type -xtype -size -perm -user -group -uid"
    " -gid -mtime -mmin -atime -amin -ctime -cmin -newer -anewer -cnewer -newermt -samefile -inum -links -maxdepth -mindepth"
    " -fstype -printf -regextype"
)
_ALTERNATIVES: Final = frozenset({"-o", "-or", "-not", "!", ","})
_IN_FOUND_DIRECTORY: Final = frozenset({"-execdir", "-okdir"})
_RUNS: Final = frozenset({"-exec", "-execdir", "-ok", "-okdir"})


def examine_find(rest: Fields, state: ShellState) -> ProgramEffects:
    for field in rest:
        if field.text.startswith(("-", "(", "!")) and field.text not in ("-H", "-L", "-P"):
            break
        if field.text not in ("-H", "-L", "-P"):
            state.touch(field, "look")
    texts = [field.text for field in rest]
    _examine_unknown(rest, state)
    _examine_execdir(rest, state)
    listing = _list_before_action(rest, state)
    quiet = True
    for place, text in enumerate(texts):
        after = rest[place + 1] if place + 1 < len(rest) else None
        if text == "-delete":
            quiet = False
            _delete(listing, state)
        elif text in ("-fprint", "-fprint0", "-fls", "-fprintf") and after is not None:
            quiet = False
            state.touch(after, "write")
        elif text == "-files0-from" and after is not None:
            state.touch(after, "read")
    return ProgramEffects(inner=tuple(_list_executed(rest, listing)), quiet=quiet)


def _list_before_action(rest: Fields, state: ShellState) -> FileListing | None:
    """Return the files that `find` acts on.

    Only tests before the first action restrict them, and only without alternatives.
    """
    texts = [field.text for field in rest]
    first = next((place for place, text in enumerate(texts) if text in _RUNS or text == "-delete"), len(rest))
    listing = find_listing(rest[:first], state)
    if listing is not None and not _ALTERNATIVES.isdisjoint(texts):
        return FileListing(roots=listing.roots)
    return listing


def _examine_execdir(rest: Fields, state: ShellState) -> None:
    """Mark `-execdir` as unclear if its arguments name files: they are relative to the directories that are found."""
    for before, field in pairwise(
        rest[next((n for n, each in enumerate(rest) if each.text in _IN_FOUND_DIRECTORY), len(rest)) :]
    ):
        if before.text in _IN_FOUND_DIRECTORY or field.text in ("{}", ";", "+") or field.text.startswith("-"):
            continue
        state.mark_unclear(" ".join(["find", *(each.text for each in rest)]), "it runs in other directories")
        return


def _examine_unknown(rest: Fields, state: ShellState) -> None:
    """Mark words of unknown text as unclear where they may turn out to be `-delete`."""
    running = False
    for before, field in pairwise(rest):
        running = (running or before.text in _RUNS) and before.text not in (";", "+")
        if has_hole(field.text) and field.listing is None and not running and before.text not in _TAKING:
            state.mark_unclear(
                " ".join(["find", *(each.text for each in rest)]), f"{field.text} may be an option"
            )


def _delete(listing: FileListing | None, state: ShellState) -> None:
    if listing is not None:
        state.touch_tree(listing, "write")
    else:
        state.touch(unknown_field("whatever it finds"), "write")


def _list_executed(rest: Fields, listing: FileListing | None) -> list[Inner]:
    inner: list[Inner] = []
    found = Field(mark_unknown("{}"), listing=listing) if listing else unknown_field("{}")
    place = 0
    while place < len(rest):
        if rest[place].text in _RUNS:
            end = next((n for n in range(place + 1, len(rest)) if rest[n].text in (";", "+")), len(rest))
            inner.append(
                InnerCommand(fields=tuple(_substitute_name(field, found) for field in rest[place + 1 : end]))
            )
            place = end
        place += 1
    return inner


def _substitute_name(field: Field, found: Field) -> Field:
    if field.text == "{}":
        return found
    return unknown_field(field.text) if "{}" in field.text else field


_FD: Final = split_names("-e -t -d -E --extension --type --max-depth --exclude")


def examine_fd(rest: Fields, state: ShellState) -> ProgramEffects:
    texts = [field.text for field in rest]
    run = next(
        (n for n, text in enumerate(texts) if text in ("-x", "-X", "--exec", "--exec-batch")), len(rest)
    )
    given = parse_arguments(rest[:run], _FD)
    for field in given.words[1:]:
        state.touch(field, "look")
    roots = (
        tuple(root for field in given.words[1:] for root in state.resolve_roots(field)) or state.cwds or ()
    )
    hidden = given.has("-H", "-I", "-u", "--hidden")
    found = Field(mark_unknown("{}"), listing=FileListing(roots=roots, hidden=hidden))
    command = tuple(_substitute_name(field, found) for field in rest[run + 1 :])
    if command and not any("{}" in text for text in texts):
        command = (*command, found)
    return ProgramEffects(inner=(InnerCommand(fields=command),) if command else ())


_MAKE: Final = split_names("-f --file --makefile -C --directory -I --include-dir -j -l -o -W --eval -E")
_VARIABLE: Final = re.compile(r"([A-Za-z_.]\w*)[:?+!]*=(.*)", re.DOTALL)
_ELSEWHERE: Final = ("-", "/dev/")


def examine_make(rest: Fields, state: ShellState) -> ProgramEffects:
    given = parse_arguments(rest, _MAKE)
    for field in given.values("--eval", "-E"):
        state.mark_unclear(f"make --eval {field.text}", "what it is given to run cannot be judged")
    for field in given.values("-f", "--file", "--makefile"):
        if field.text.startswith(_ELSEWHERE):
            state.mark_unclear(f"make -f {field.text}", "what it is given to run is not known")
        state.touch(field, "read")
    for field in given.values("-C", "--directory", "-I", "--include-dir"):
        state.touch(field, "look")
    found = (_VARIABLE.fullmatch(field.text) for field in given.words)
    settings = tuple(InnerAssignment(name=each[1], value=each[2]) for each in found if each)
    return ProgramEffects(inner=settings, quiet=False)


_VIM: Final = split_names("-c --cmd -S -s -w -W -u -U -i -t -T --listen --remote-expr --remote-send")
_EMACS: Final = split_names("-l --load -f --funcall --eval --execute --script --batch -x")
_LINE: Final = re.compile(r"\+\d*")
_WHY: Final = "commands of an editor may write files and run programs"


def examine_vim(rest: Fields, state: ShellState, stdin: StreamContent | None) -> ProgramEffects:
    """Examine vim, ex, ed and other editors with the same options."""
    given = parse_arguments(rest, _VIM)
    told = [
        field.text for field in given.words if field.text.startswith("+") and not _LINE.fullmatch(field.text)
    ]
    runs = given.has("-c", "--cmd", "-S", "-s", "-u", "-U", "--remote-expr", "--remote-send")
    if told or runs or stdin is not None:
        state.mark_unclear(" ".join(field.text for field in rest) or "commands from the input", _WHY)
    for field in given.words:
        if not field.text.startswith("+"):
            state.touch(field, "read")
    return ProgramEffects(quiet=False)


def examine_emacs(rest: Fields, state: ShellState, stdin: StreamContent | None) -> ProgramEffects:
    given = parse_arguments(rest, _EMACS - {"--batch"})
    if given.has(*_EMACS) or stdin is not None:
        state.mark_unclear(" ".join(field.text for field in rest) or "commands from the input", _WHY)
    for field in given.words:
        state.touch(field, "read")
    return ProgramEffects(quiet=False)
