"""Find out which files archivers, `find`, `fd`, `make` and editors read and write, and which programs they run."""

import re
from itertools import pairwise
from typing import Final

from weft.model.permission import has_hole, mark_unknown
from weft.tool.shell.arguments import (
    Field,
    Fields,
    FileListing,
    ParsedArguments,
    parse_arguments,
    split_names,
    unknown_field,
)
from weft.tool.shell.program.effects import Inner, InnerAssignment, InnerCommand, ProgramEffects
from weft.tool.shell.program.output import find_listing, skip_find_options
from weft.tool.shell.state import ShellState, StreamContent

_REMOTE_PATH: Final = re.compile(r"(?:[\w.-]+@)?[\w.-]+:")
_RUNNING_OPTION: Final = re.compile("command|program|action|script")
_TAR_VALUE_OPTIONS: Final = split_names(
    "-f -C -T -X -b -g -I -F --file --directory --files-from --exclude-from --to-command --use-compress-program"
    " --checkpoint-action --info-script --new-volume-script --rsh-command --rmt-command --exclude --transform"
    " --strip-components --add-file --index-file --listed-incremental --volno-file --label --newer --after-date --newer-mtime"
    " --tape-length --format --starting-file --owner --group --mode --mtime --sort --level --blocking-factor --record-size"
    " --pax-option --suffix --owner-map --group-map --exclude-tag --exclude-tag-all --exclude-tag-under --exclude-ignore"
    " --exclude-ignore-recursive --quoting-style --quote-chars --set-mtime-command -g -V -K -N -L -H"
)
_ZIP_VALUE_OPTIONS: Final = split_names(
    "-x -i -b -n -t -tt -TT -O -P -Z -s -ds -lf --exclude --include --temp-path --suffixes --from-date --before-date --unzip-command"
    " --output-file --password --compression-method --split-size --dot-size --logfile-path"
)
_ZIP_WRITTEN_OPTIONS: Final = ("-O", "--output-file", "-lf", "--logfile-path", "-b", "--temp-path")
_EXTRACT_OPTIONS: Final = ("-x", "--extract", "--get")


def examine_tar(arguments: Fields, state: ShellState) -> ProgramEffects:
    if arguments and has_hole(arguments[0].text):
        # The first word is not fully known, so its letters must not be read as options. It may even turn out to be empty: then
        # the next word has the options.
        text = " ".join(["tar", *(field.text for field in arguments)])
        state.mark_unclear(text, "its first word says what tar does")
        return ProgramEffects(may_write=True)
    if arguments and not arguments[0].text.startswith("-"):
        arguments = (Field(f"-{arguments[0].text}"), *arguments[1:])  # `tar xzf x`
    parsed = parse_arguments(arguments, _TAR_VALUE_OPTIONS)
    for option, value in parsed.options:
        if option in ("-I", "-F") or (option.startswith("--") and _RUNNING_OPTION.search(option)):
            state.mark_unclear(
                f"tar {option} {value.text if value else ''}", "an option of tar runs a program"
            )
    for field in parsed.values("-T", "-X", "--files-from", "--exclude-from", "--add-file"):
        state.touch(field, "read")
    written = parsed.values("-g", "--listed-incremental", "--index-file", "--volno-file")
    for field in written:
        state.touch(field, "write")
    lists, extracts = parsed.has("-t", "--list"), parsed.has(*_EXTRACT_OPTIONS)
    for field in parsed.values("-f", "--file"):
        if not _REMOTE_PATH.match(field.text):
            state.touch(field, "read" if lists or extracts else "write")
    if extracts:
        _touch_unpacked(parsed.values("-C", "--directory", "--one-top-level"), state)
    elif not lists:
        _touch_packed(parsed, state)
    return ProgramEffects(may_write=bool(written) or not lists)


def _touch_packed(parsed: ParsedArguments, state: ShellState) -> None:
    for directory in parsed.values("-C", "--directory"):
        state.touch_all(directory, "read")
    for field in parsed.words:
        # bsdtar adds the content of an archive for `@archive`.
        packed = field.ending(field.text[1:]) if field.text.startswith("@") else field
        state.touch_all(packed, "read", links=parsed.has("-h", "--dereference"))
        if parsed.has("--remove-files"):
            state.touch_all(packed, "write")
    if parsed.has("-T", "--files-from"):
        state.touch(unknown_field("files named in a list"), "read")


def _touch_unpacked(into: list[Field], state: ShellState) -> None:
    for directory in into:
        state.touch_all(directory, "write")
    if not into:
        state.touch_below(*(state.cwds or ()))


def examine_zip(arguments: Fields, state: ShellState, stdin: StreamContent | None) -> ProgramEffects:
    parsed = parse_arguments(arguments, _ZIP_VALUE_OPTIONS)
    for field in parsed.values("-TT", "--unzip-command"):
        state.mark_unclear(f"zip -TT {field.text}", "an option of zip runs a program")
    for field in (*parsed.words[:1], *parsed.values(*_ZIP_WRITTEN_OPTIONS)):
        state.touch(field, "write")
    for field in parsed.words[1:]:
        state.touch_all(field, "read", links=not parsed.has("-y", "--symlinks"))
        if parsed.has("-m", "--move"):
            state.touch_all(field, "write")
    if stdin is not None and (
        parsed.has("-@", "--names-stdin") or "-@" in (field.text for field in arguments)
    ):
        _touch_named_files(stdin, state)
    return ProgramEffects(may_write=True)


def examine_unzip(arguments: Fields, state: ShellState) -> ProgramEffects:
    parsed = parse_arguments(arguments, split_names("-d -x -P"))
    for field in parsed.words[:1]:
        state.touch(field, "read")
    only_lists = parsed.has("-l", "-p", "-Z", "-t", "-v")
    if not only_lists:
        _touch_unpacked(parsed.values("-d"), state)
    return ProgramEffects(may_write=not only_lists)


def examine_cpio(arguments: Fields, state: ShellState, stdin: StreamContent | None) -> ProgramEffects:
    """Examine cpio or pax, which read the names of files from their input."""
    parsed = parse_arguments(arguments, split_names("-f -F -I -O -E -H -R"))
    for field in parsed.words:
        state.touch_all(field, "read")
    for field in parsed.values("-O", "-F"):
        state.touch(field, "write")
    if stdin is not None:
        _touch_named_files(stdin, state)
    if parsed.has("-i", "-p", "-r", "--extract", "--pass-through"):
        state.touch_below(*(state.cwds or ()))
    return ProgramEffects(may_write=True)


def _touch_named_files(stdin: StreamContent, state: ShellState) -> None:
    if stdin.listing is not None:
        state.touch_tree(stdin.listing, "read", links=True)
        return
    for name in stdin.text.split() if stdin.text is not None else ():
        state.touch(Field(name), "read")
    if stdin.text is None:
        state.touch(unknown_field("names from the input"), "read")


_FIND_VALUE_OPTIONS: Final = split_names(
    "-name -iname -path -ipath -wholename -iwholename -regex -iregex -lname -ilname -type -xtype -size -perm -user -group -uid"
    " -gid -mtime -mmin -atime -amin -ctime -cmin -newer -anewer -cnewer -newermt -samefile -inum -links -maxdepth -mindepth"
    " -fstype -printf -regextype"
)
_FIND_OPERATORS: Final = frozenset({"-o", "-or", "-not", "!", ","})
_FIND_EXECDIR_OPTIONS: Final = frozenset({"-execdir", "-okdir"})
_FIND_EXEC_OPTIONS: Final = frozenset({"-exec", "-execdir", "-ok", "-okdir"})


def examine_find(arguments: Fields, state: ShellState) -> ProgramEffects:
    arguments = skip_find_options(arguments)
    for field in arguments:
        if field.text.startswith(("-", "(", "!")):
            break
        state.touch(field, "look")
    texts = [field.text for field in arguments]
    _mark_unknown_tests(arguments, state)
    _mark_execdir(arguments, state)
    listing = _find_acted_on(arguments, state)
    may_write = False
    for index, text in enumerate(texts):
        value = arguments[index + 1] if index + 1 < len(arguments) else None
        if text == "-delete":
            may_write = True
            _touch_deleted(listing, state)
        elif text in ("-fprint", "-fprint0", "-fls", "-fprintf") and value is not None:
            may_write = True
            state.touch(value, "write")
        elif text == "-files0-from" and value is not None:
            state.touch(value, "read")
    return ProgramEffects(inner=tuple(_list_find_commands(arguments, listing)), may_write=may_write)


def _find_acted_on(arguments: Fields, state: ShellState) -> FileListing | None:
    """Return the files that `find` deletes or passes to commands, None if they are not known.

    Tests restrict them only if they are before the first action and there are no alternatives.
    """
    texts = [field.text for field in arguments]
    first = next(
        (index for index, text in enumerate(texts) if text in _FIND_EXEC_OPTIONS or text == "-delete"),
        len(arguments),
    )
    listing = find_listing(arguments[:first], state)
    if listing is not None and not _FIND_OPERATORS.isdisjoint(texts):
        return FileListing(roots=listing.roots)
    return listing


def _mark_execdir(arguments: Fields, state: ShellState) -> None:
    """Mark `-execdir` as unclear if its arguments may name files, because the command runs in the directories that are found."""
    for before, field in pairwise(
        arguments[
            next(
                (index for index, each in enumerate(arguments) if each.text in _FIND_EXECDIR_OPTIONS),
                len(arguments),
            ) :
        ]
    ):
        if (
            before.text in _FIND_EXECDIR_OPTIONS
            or field.text in ("{}", ";", "+")
            or field.text.startswith("-")
        ):
            continue
        state.mark_unclear(
            " ".join(["find", *(each.text for each in arguments)]), "it runs in other directories"
        )
        return


def _mark_unknown_tests(arguments: Fields, state: ShellState) -> None:
    """Mark a word that is not fully known as unclear if it may turn out to be an action such as `-delete`."""
    running = False
    for before, field in pairwise(arguments):
        running = (running or before.text in _FIND_EXEC_OPTIONS) and before.text not in (";", "+")
        if (
            has_hole(field.text)
            and field.listing is None
            and not running
            and before.text not in _FIND_VALUE_OPTIONS
        ):
            state.mark_unclear(
                " ".join(["find", *(each.text for each in arguments)]), f"{field.text} may be an option"
            )


def _touch_deleted(listing: FileListing | None, state: ShellState) -> None:
    if listing is not None:
        state.touch_tree(listing, "write")
    else:
        state.touch(unknown_field("whatever it finds"), "write")


def _list_find_commands(arguments: Fields, listing: FileListing | None) -> list[Inner]:
    inner: list[Inner] = []
    found_file = Field(mark_unknown("{}"), listing=listing) if listing else unknown_field("{}")
    index = 0
    while index < len(arguments):
        if arguments[index].text in _FIND_EXEC_OPTIONS:
            end = next(
                (
                    position
                    for position in range(index + 1, len(arguments))
                    if arguments[position].text in (";", "+")
                ),
                len(arguments),
            )
            inner.append(
                InnerCommand(
                    fields=tuple(_substitute_name(field, found_file) for field in arguments[index + 1 : end])
                )
            )
            index = end
        index += 1
    return inner


def _substitute_name(field: Field, found_file: Field) -> Field:
    if field.text == "{}":
        return found_file
    return unknown_field(field.text) if "{}" in field.text else field


_FD_VALUE_OPTIONS: Final = split_names(
    "-e -t -d -E -S -o -c -j -C --extension --type --max-depth --exclude --base-directory --search-path --ignore-file --size --owner"
    " --changed-within --changed-before --color --threads --min-depth --exact-depth --max-results --format --path-separator"
)
# The command may be in the same word: `-xcat`, `-Hxcat`, `--exec=cat`.
_FD_COMMAND: Final = re.compile(
    r"(?P<flags>-[HIuLasplFigq0-9]*)(?P<short>[xX])(?P<command>.+)|(?P<long>--exec(?:-batch)?)=(?P<value>.+)",
    re.DOTALL,
)


def examine_fd(arguments: Fields, state: ShellState) -> ProgramEffects:
    arguments = tuple(part for field in arguments for part in _split_fd_command(field))
    texts = [field.text for field in arguments]
    command_start = next(
        (index for index, text in enumerate(texts) if text in ("-x", "-X", "--exec", "--exec-batch")),
        len(arguments),
    )
    parsed = parse_arguments(arguments[:command_start], _FD_VALUE_OPTIONS)
    directories = (*parsed.words[1:], *parsed.values("-C", "--base-directory", "--search-path"))
    for field in directories:
        state.touch(field, "look")
    for field in parsed.values("--ignore-file"):
        state.touch(field, "read")
    roots = tuple(root for field in directories for root in state.resolve_roots(field)) or state.cwds or ()
    hidden = parsed.has("-H", "-I", "-u", "--hidden")
    found_file = Field(mark_unknown("{}"), listing=FileListing(roots=roots, hidden=hidden))
    command = tuple(_substitute_name(field, found_file) for field in arguments[command_start + 1 :])
    if command and not any("{}" in text for text in texts):
        command = (*command, found_file)
    return ProgramEffects(inner=(InnerCommand(fields=command),) if command else ())


def _split_fd_command(field: Field) -> tuple[Field, ...]:
    match = _FD_COMMAND.fullmatch(field.text)
    if match is None:
        return (field,)
    if match["long"]:
        return (Field(match["long"]), field.ending(match["value"]))
    flags = (Field(match["flags"]),) if match["flags"] != "-" else ()
    return (*flags, Field(f"-{match['short']}"), field.ending(match["command"]))


_MAKE_VALUE_OPTIONS: Final = split_names(
    "-f --file --makefile -C --directory -I --include-dir -j -l -o -W --eval -E"
)
_MAKE_VARIABLE: Final = re.compile(r"([A-Za-z_.]\w*)[:?+!]*=(.*)", re.DOTALL)
_UNKNOWN_MAKEFILES: Final = ("-", "/dev/")


def examine_make(arguments: Fields, state: ShellState) -> ProgramEffects:
    parsed = parse_arguments(arguments, _MAKE_VALUE_OPTIONS)
    for field in parsed.values("--eval", "-E"):
        state.mark_unclear(f"make --eval {field.text}", "the code that make is given to run cannot be judged")
    for field in parsed.values("-f", "--file", "--makefile"):
        if field.text.startswith(_UNKNOWN_MAKEFILES):
            state.mark_unclear(f"make -f {field.text}", "what make is given to run is not known")
        state.touch(field, "read")
    for field in parsed.values("-C", "--directory", "-I", "--include-dir"):
        state.touch(field, "look")
    matches = (_MAKE_VARIABLE.fullmatch(field.text) for field in parsed.words)
    settings = tuple(InnerAssignment(name=match[1], value=match[2]) for match in matches if match)
    return ProgramEffects(inner=settings, may_write=True)


_VIM_VALUE_OPTIONS: Final = split_names(
    "-c --cmd -S -s -w -W -u -U -i -t -T --listen --remote-expr --remote-send"
)
_EMACS_RUNNING_OPTIONS: Final = split_names("-l --load -f --funcall --eval --execute --script --batch -x")
_LINE_NUMBER: Final = re.compile(r"\+\d*")
_EDITOR_REASON: Final = "commands of an editor may write files and run programs"


def examine_vim(arguments: Fields, state: ShellState, stdin: StreamContent | None) -> ProgramEffects:
    """Examine vim, ex, ed and other editors with the same options."""
    parsed = parse_arguments(arguments, _VIM_VALUE_OPTIONS)
    commands = [
        field.text
        for field in parsed.words
        if field.text.startswith("+") and not _LINE_NUMBER.fullmatch(field.text)
    ]
    runs = parsed.has("-c", "--cmd", "-S", "-s", "-u", "-U", "--remote-expr", "--remote-send")
    if commands or runs or stdin is not None:
        state.mark_unclear(
            " ".join(field.text for field in arguments) or "commands from the input", _EDITOR_REASON
        )
    for field in parsed.words:
        if not field.text.startswith("+"):
            state.touch(field, "read")
    return ProgramEffects(may_write=True)


def examine_emacs(arguments: Fields, state: ShellState, stdin: StreamContent | None) -> ProgramEffects:
    parsed = parse_arguments(arguments, _EMACS_RUNNING_OPTIONS - {"--batch"})
    if parsed.has(*_EMACS_RUNNING_OPTIONS) or stdin is not None:
        state.mark_unclear(
            " ".join(field.text for field in arguments) or "commands from the input", _EDITOR_REASON
        )
    for field in parsed.words:
        state.touch(field, "read")
    return ProgramEffects(may_write=True)
