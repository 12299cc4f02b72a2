"""Find out which files archivers, `find`, `fd`, `make` and editors read and write, and which programs they run."""

import re
from itertools import pairwise
from typing import Final

from msgspec.structs import replace

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
_GNU_TAR_LETTERS: Final = split_names("-g -V -K -N -L -H")
_ZIP_VALUE_OPTIONS: Final = split_names(
    "-x -i -b -n -t -tt -TT -O -P -Z -s -ds -lf --exclude --include --temp-path --suffixes --from-date --before-date --unzip-command"
    " --output-file --password --compression-method --split-size --dot-size --logfile-path"
)
# Options of zip with two letters, which may be written together with others.
_ZIP_LETTERS: Final = re.compile(
    r"(?:TT|tt|lf|la|li|ll|ds|db|dc|dd|dg|du|dv|df|DF|DC|FF|FI|FS|ic|mm|nw|RE|sb|sc|sd|sf|so|sp|su|sU|sv|ws|[^-])-?"
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
    may_write = False
    # On macOS, tar is bsdtar, which takes no value for some letters.
    for value_options in (_TAR_VALUE_OPTIONS, _TAR_VALUE_OPTIONS - _GNU_TAR_LETTERS | {"-s"}):
        split = arguments
        if arguments and not arguments[0].text.startswith("-"):
            split = _split_old_options(arguments, value_options)
        may_write |= _examine_tar_options(split, parse_arguments(split, value_options), state)
    return ProgramEffects(may_write=may_write)


def _examine_tar_options(arguments: Fields, parsed: ParsedArguments, state: ShellState) -> bool:
    """Note what tar does with these options. Return True if it may write."""
    text = " ".join(["tar", *(field.text for field in arguments)])
    if parsed.has("-M", "--multi-volume"):
        state.mark_unclear(text, "it takes commands from its input")
    if any("=" in after.text for before, after in pairwise(arguments) if re.fullmatch(r"-\w*W", before.text)):
        state.mark_unclear(text, "an option of tar may run a program")  # bsdtar takes `-W option=value`
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
        state.touch(field, "read" if lists or extracts else "write")
        if _REMOTE_PATH.match(field.text) and not parsed.has("--force-local"):
            state.mark_unclear(text, "it runs a program to reach another machine")
    if extracts and parsed.has("-P", "--absolute-names"):
        state.touch(unknown_field("files of the archive"), "write")
    if extracts:
        _touch_unpacked(parsed.values("-C", "--directory", "--one-top-level"), state)
    elif not lists:
        _touch_packed(parsed, state)
    return bool(written) or not lists


def _split_old_options(arguments: Fields, value_options: frozenset[str]) -> Fields:
    """Split the options of `tar xfC file directory`, whose values follow in their order."""
    parts: list[Field] = []
    values = list(reversed(arguments[1:]))
    for char in arguments[0].text:
        parts.append(Field(f"-{char}"))
        if f"-{char}" in value_options and values:
            parts.append(values.pop())
    return (*parts, *reversed(values))


def _touch_packed(parsed: ParsedArguments, state: ShellState) -> None:
    for directory in parsed.values("-C", "--directory"):
        state.touch_all(directory, "read")
    for field in parsed.words:
        # bsdtar adds the content of an archive for `@archive`.
        packed = field.ending(field.text[1:]) if field.text.startswith("@") else field
        state.touch_all(packed, "read", links=parsed.has("-h", "-L", "--dereference"))
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
    arguments = tuple(part for field in arguments for part in _split_zip_options(field))
    parsed = parse_arguments(arguments, _ZIP_VALUE_OPTIONS)
    for field in parsed.values("-TT", "--unzip-command"):
        state.mark_unclear(f"zip -TT {field.text}", "an option of zip runs a program")
    for field in (*parsed.words[:1], *parsed.values(*_ZIP_WRITTEN_OPTIONS)):
        state.touch(field, "write")
    if parsed.has("-R", "--recurse-patterns"):
        state.touch_all(Field("."), "read", links=True)
    for field in parsed.words[1:]:
        state.touch_all(field, "read", links=not parsed.has("-y", "--symlinks"))
        if parsed.has("-m", "--move"):
            state.touch_all(field, "write")
    if stdin is not None and (
        parsed.has("-@", "--names-stdin") or "-@" in (field.text for field in arguments)
    ):
        _touch_named_files(stdin, state)
    return ProgramEffects(may_write=True)


def _split_zip_options(field: Field) -> Fields:
    """Split `-qlfname` into `-q`, `-lf` and `name`. A value may follow an equals sign."""
    text = field.text
    if not text.startswith("-") or text.startswith("--") or len(text) < 3 or text in _ZIP_VALUE_OPTIONS:  # noqa: PLR2004  a dash and two letters
        return (field,)
    parts: list[Field] = []
    rest = text[1:]
    while rest and (match := _ZIP_LETTERS.match(rest)):
        option = f"-{match[0].rstrip('-')}"
        parts.append(Field(option))
        rest = rest[match.end() :]
        if option in _ZIP_VALUE_OPTIONS:
            value = rest.removeprefix("=")
            return (*parts, *([field.ending(value)] if value else []))
    return tuple(parts)


def examine_unzip(arguments: Fields, state: ShellState) -> ProgramEffects:
    parsed = parse_arguments(arguments, split_names("-d -x -P"))
    for field in parsed.words[:1]:
        state.touch(field, "read")
    # A dash takes back the letter after it: `-l-l`.
    has_negated = any(re.match(r"-+[^-]*-|--", field.text) for field in arguments)
    only_lists = parsed.has("-l", "-p", "-Z", "-t", "-v") and not has_negated
    if parsed.has("-:"):
        state.touch(unknown_field("files of the archive"), "write")
    if not only_lists:
        _touch_unpacked(parsed.values("-d"), state)
    return ProgramEffects(may_write=not only_lists)


def examine_cpio(arguments: Fields, state: ShellState, stdin: StreamContent | None) -> ProgramEffects:
    """Examine cpio, which reads the names of files from its input."""
    options = "-F -I -O -E -H -R -D -C -M --file --directory --rsh-command --pattern-file --format --owner --message"
    parsed = parse_arguments(arguments, split_names(options))
    return _examine_listed(parsed, state, stdin, copies=parsed.has("-p", "--pass-through"))


def examine_pax(arguments: Fields, state: ShellState, stdin: StreamContent | None) -> ProgramEffects:
    """Examine pax, which reads the names of files from its input, too."""
    parsed = parse_arguments(arguments, split_names("-b -B -f -o -p -s -x -E -G -T -U"))
    return _examine_listed(parsed, state, stdin, copies=parsed.has("-r") and parsed.has("-w"))


def _examine_listed(
    parsed: ParsedArguments, state: ShellState, stdin: StreamContent | None, *, copies: bool
) -> ProgramEffects:
    for field in parsed.words:
        state.touch_all(field, "read")
    if copies:
        for field in parsed.words[-1:]:
            state.touch_all(field, "write")
    for field in parsed.values("-O", "-F", "-f", "--file"):
        state.touch(field, "write")
    for field in parsed.values("-I", "-F", "-f", "-E", "--file", "--pattern-file"):
        state.touch(field, "read")
    for field in parsed.values("-D", "--directory"):
        state.touch_all(field, "write")
    for field in parsed.values("--rsh-command"):
        state.mark_unclear(f"cpio --rsh-command {field.text}", "an option of it runs a program")
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
    options, arguments = arguments, skip_find_options(arguments)
    follows = any(
        re.fullmatch(r"-[A-Za-z]*L[A-Za-z]*", field.text)
        for field in options[: len(options) - len(arguments)]
    )
    if follows:
        arguments = (*arguments, Field("-follow"))
    for field in arguments:
        if field.text.startswith(("-", "(", "!")):
            break
        state.touch(field, "look")
    texts = [field.text for field in arguments]
    _mark_unknown_tests(arguments, state)
    _mark_execdir(arguments, state)
    listing = _find_acted_on(arguments, state)
    if any(text == "-files0-from" for text in texts):
        listing = None  # it starts where a file says
        state.touch(unknown_field("files named in a list"), "look")
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
    if listing is not None and "-follow" in texts:
        listing = replace(listing, follow=True)
    if listing is not None and not _FIND_OPERATORS.isdisjoint(texts):
        return FileListing(roots=listing.roots, follow=listing.follow)
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
                    if arguments[position].text == ";"
                    or (arguments[position].text == "+" and arguments[position - 1].text == "{}")
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
    return unknown_field(field.text) if _FD_PLACEHOLDER.search(field.text) else field


_FD_VALUE_OPTIONS: Final = split_names(
    "-e -t -d -E -S -o -c -j -C --extension --type --max-depth --exclude --base-directory --search-path --ignore-file --size --owner"
    " --changed-within --changed-before --color --threads --min-depth --exact-depth --max-results --format --path-separator"
)
_FD_EXEC_OPTIONS: Final = frozenset({"-x", "-X", "--exec", "--exec-batch"})
# The command may be in the same word: `-xcat`, `-Hxcat`, `--exec=cat`.
_FD_COMMAND: Final = re.compile(
    r"(?P<flags>-[HIuLasplFigq0-9]*)(?P<short>[xX])(?P<command>.+)|(?P<long>--exec(?:-batch)?)=(?P<value>.+)",
    re.DOTALL,
)


def examine_fd(arguments: Fields, state: ShellState) -> ProgramEffects:
    arguments = tuple(part for field in arguments for part in _split_fd_command(field))
    texts = [field.text for field in arguments]
    command_start = next(
        (index for index, text in enumerate(texts) if text in _FD_EXEC_OPTIONS),
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
    if command_start < len(arguments) and parsed.has("-C", "--base-directory"):
        state.mark_unclear(" ".join(["fd", *texts]), "it runs in another directory")
    commands = [
        tuple(_substitute_name(field, found_file) for field in command)
        for command in _split_fd_commands(arguments[command_start + 1 :], state)
        if command
    ]
    if not any(_FD_PLACEHOLDER.search(text) for text in texts):
        commands = [(*command, found_file) for command in commands]
    return ProgramEffects(inner=tuple(InnerCommand(fields=command) for command in commands))


# The name that was found, or a part of it.
_FD_PLACEHOLDER: Final = re.compile(r"\{(?:|\.|//?|/\.)\}")


def _split_fd_commands(arguments: Fields, state: ShellState) -> list[Fields]:
    """Split several commands for what is found. Between them, after a semicolon, there may be more options and directories."""
    commands: list[Fields] = []
    remaining = arguments
    while remaining:
        texts = [field.text for field in remaining]
        end = texts.index(";") if ";" in texts else len(texts)
        commands.append(remaining[:end])
        remaining = remaining[end + 1 :]
        start = next(
            (index for index, field in enumerate(remaining) if field.text in _FD_EXEC_OPTIONS), len(remaining)
        )
        for field in parse_arguments(remaining[:start], _FD_VALUE_OPTIONS).words:
            state.touch(field, "look")
        remaining = remaining[start + 1 :]
    return commands


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
# Anything but the value of a variable: `$(shell …)`, `$(file …)`.
_MAKE_FUNCTION: Final = re.compile(r"\$[({](?!\s*[\w.@<^+?*%-]+\s*[)}])")
_UNKNOWN_MAKEFILES: Final = ("-", "/dev/")


def examine_make(arguments: Fields, state: ShellState) -> ProgramEffects:
    parsed = parse_arguments(arguments, _MAKE_VALUE_OPTIONS)
    for field in (*parsed.words, *parsed.values("-j", "-l")):
        name, equals, value = field.text.partition("=")
        if equals and (
            name.endswith("!") or name.startswith(".") or _MAKE_FUNCTION.search(f"{name} {value}")
        ):
            state.mark_unclear(f"make {field.text}", "make runs what the value of a variable says")
    for field in parsed.values("--eval", "-E"):
        state.mark_unclear(f"make --eval {field.text}", "the code that make is given to run cannot be judged")
    for field in parsed.values("-f", "--file", "--makefile"):
        if field.text.startswith(_UNKNOWN_MAKEFILES):
            state.mark_unclear(f"make -f {field.text}", "what make is given to run is not known")
        state.touch(field, "read")
    for field in parsed.values("-C", "--directory", "-I", "--include-dir"):
        state.touch(field, "look")
    # Of these, only a number is a value.
    matches = (_MAKE_VARIABLE.fullmatch(field.text) for field in (*parsed.words, *parsed.values("-j", "-l")))
    settings = tuple(InnerAssignment(name=match[1], value=match[2]) for match in matches if match)
    return ProgramEffects(inner=settings, may_write=True)


_VIM_VALUE_OPTIONS: Final = split_names(
    "-c --cmd -S -s -w -W -u -U -i -t -T --listen --remote-expr --remote-send --startuptime --log -l"
)
_EMACS_RUNNING_OPTIONS: Final = split_names(
    "-l --load -f --funcall -e --eval --execute --script --batch -x -a --alternate-editor --init-directory"
)
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
    runs = parsed.has("-c", "--cmd", "-S", "-s", "-u", "-U", "--remote-expr", "--remote-send", "-l")
    # To ed, this is a program whose output is edited.
    commands += [field.text for field in parsed.words if field.text.startswith("!")]
    logs = [
        Field(match[1])
        for field in arguments
        if (match := re.fullmatch(r"-V\d*(\D.*)", field.text, re.DOTALL))
    ]
    for field in (*logs, *parsed.values("-w", "-W", "-i", "--startuptime", "--log")):
        if field.text != "NONE":
            state.touch(field, "write")
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
