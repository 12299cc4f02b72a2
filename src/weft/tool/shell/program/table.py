"""A table of what common programs do with their arguments. A program that is not listed may do anything.

`dispatch.py` looks here last. The line of a program that a function examines, such as jq, counts for unknown options, and otherwise
only if that function reads it.
"""

import os
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final, Literal, get_args

from msgspec import Struct

from weft.model.permission import UNKNOWN_START, has_hole
from weft.tool.shell.arguments import (
    Field,
    Fields,
    FileListing,
    ParsedArguments,
    parse_arguments,
    remove_holes,
    unknown_field,
)
from weft.tool.shell.paths import is_secret
from weft.tool.shell.program.special_cases import (
    STDOUT_OPTIONS,
    rewrite_options,
    touch_by_name,
    touch_parts,
    touch_unpacked,
)
from weft.tool.shell.program.touches import append_suffix, join_names, touch_path, touch_written
from weft.tool.shell.state import ShellState
from weft.tool.shell.words import has_wildcard

ArgumentRole = Literal["none", "look", "read", "write", "copy", "link", "move", "out", "pack", "patch"]

# The columns are: names | role of the words | words before the files | options with a value.
# Roles: `none` they are not files; `look` only their names matter; `read`; `write`; `copy`, `link`, `move` to the last word;
# `out` the first is read and the second written; `pack` each is replaced by another file; `patch` changes files that a file names.
# Marks of an option: `<` its value is a file that is read; `>` one that is written; `*` one that names files which are read;
# `!` something that is run; `^` with it, there are no words before the files; `?` not every version of it takes a value, so that
# the next word may be a file as well.
_TABLE = """
true false : pwd whoami id groups uname arch uptime nproc lscpu free tty logname users w | none
echo printf yes seq sleep expr factor numfmt basename dirname cal tput stty clear reset | none
which whereis type hash printenv locale getconf umask ulimit times jobs wait fg bg shift return exit break continue | none
set export declare local readonly unset getopts read let enable shopt help disown | none
fc | none || -e
mapfile readarray | none || -d -n -O -s -u -c !-C
history | none || -d -s -p
kill killall top htop vmstat iostat pidof netstat ping host nslookup | none
test [ [[ | none
pkill pgrep | none || <-F <--pidfile -d -g -G -P -s -t -u -U -O
who last users | read || <-f <--file -n -s -t -p
ss | none || >-D >--diag <-F <--filter -f -A -N
dig | none || <-f <-k -b -p -q -t -x -c
lsof | none || >-D -a -c -d -F -g -i -k -m -o -p -P -r -s -S -T -u
date | none || <-f <--file <-r <--reference -d --date !-s !--set
ls dir vdir exa eza | look || -I -w -T --ignore --hide --width ?--color --format --sort --time --time-style -L --level
tree | look || -L -P -I >-o -H -T --filelimit --charset --timefmt --sort <--gitfile <--infofile <--hintro <--houtro
stat | look || -c -f --format --printf -t
du df | look || -d -t -B --max-depth --exclude --threshold <-X <--exclude-from *--files0-from --block-size
realpath readlink | look || --relative-to --relative-base
cat rev cksum sum md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum | read
tac | read || -s --separator
nl | read || -b -d -f -h -i -l -n -s -v -w
head tail | read || -n -c -s --lines --bytes --pid --sleep-interval
wc | read || *--files0-from
od | read || -A -j -N -S -t
hexdump hd | read || -e <-f <--format-file -n -s --format --length --skip
strings | read || -n -t -e -s -T
xxd | out || -c -g -l -s -o -n
less more most | read || -p -P -x -y -z -j -b -h >-o >-O >--log-file !-t !--tag !-T !--tag-file !-k !--lesskey-file !--lesskey-src !--lesskey-content !--cmd
bat batcat | read || !--pager >--target <--source --style --theme --color --paging --wrap --tabs --file-name -l --language -m --map-syntax -r --line-range -H --highlight-line
sort | read || -k -t -S -T --key --field-separator >-o >--output --parallel --buffer-size !--compress-program *--files0-from <--random-source --temporary-directory --batch-size --sort
uniq | out || -f -s -w --skip-fields --skip-chars --check-chars
cut | read || -b -c -d -f --bytes --characters --delimiter --fields --output-delimiter
paste | read || -d --delimiters
join | read || -t -1 -2 -j -o -e -a -v
comm tsort look | read || --output-delimiter
fold fmt | read || -w --width -p -g
expand unexpand | read || -t --tabs
ptx | out || <-b <--break-file <-i <--ignore-file <-o <--only-file -F -M -S -W -g -w
pr | read || -h -l -w -o -e -i -n -N -D -s -S -W
column | read || -s -o -c -N -O -R -H -T --separator --output-separator --table-columns
diff cmp colordiff diff3 sdiff | read || !--diff-program >--output <--from-file <--to-file <-S <--starting-file -D -C -U -I ?-x -F ?-W ?-i ?-n -j >-o <-X --exclude <--exclude-from --label -L --width --palette
grep egrep fgrep rgrep zgrep bzgrep xzgrep | read | 1 | ^-e ^<-f ^--regexp ^<--file -m -A -B -C -D -d --directories --max-count --include --exclude --exclude-dir <--exclude-from --label --after-context --before-context ?--context
rg | read | 1 | ^-e ^<-f ^--regexp ^<--file -m -A -B -C -g -t -T -j -M -r -E -d --glob --iglob --type --type-not --max-count --max-depth --replace --sort --color --context --threads !--pre !--hostname-bin !--pager !--output *--files-from --pre-glob --type-add ^--files ^--type-list <--ignore-file
ag | read | 1 | ^-g ?-A ?-B ?-C -G -m -W --file-search-regex --max-count --width --depth --ignore --ignore-dir --workers <-p <--path-to-ignore !--pager
ack | read | 1 | ^--match ^--lines -A -B -m -t -T --type --type-add --type-set --type-del --max-count --ignore-dir --ignore-file !--ackrc !--pager !--output *--files-from
jq gojq jaq | read | 1 | ^<-f ^<--from-file -L --library-path --indent --arg --argjson --slurpfile --rawfile
yq | read | 1 | -o -p -s -f -w --split-exp <--split-exp-file ^<--from-file ^--expression --output-format --input-format --front-matter --width --indent -I
file | read || *-f *--files-from *-m *--magic-file -F -P -e --exclude --separator --parameter
base64 base32 basenc uuencode | read || -w --wrap -b <-i <--input >-o >--output
zstdcat | read || >-o <-D <--patch-from *--filelist >--trace >--output-dir-flat >--output-dir-mirror -M
zcat bzcat xzcat gzcat | read || *--files *--files0 -S -T
iconv | read || -f -t --from-code --to-code >-o >--output
tr | none
tee sponge | write
touch | write || -d -t <-r --date --time <--reference
mkdir | write || -m --mode
rmdir unlink | write
rm | write
shred | write || -n -s --iterations --size --random-source
truncate | write || -s -r --size --reference
chmod chown chgrp | write | 1 | ^--reference
setfacl | write || <-M <-X <--modify-file <--remove-file <--set-file !--restore -m -x --modify --remove --set
chattr chcon | write || --reference
mkfifo mknod | write || -m
mktemp | none || >-p >--tmpdir --suffix
cp gcp | copy || --no-preserve ?-S --suffix --sparse -t --target-directory
install ginstall | copy || !--strip-program --suffix -m -o -g ?-S -t --target-directory --mode --owner --group
ln gln | link || ?-S --suffix -t --target-directory
mv gmv | move || ?-S --suffix -t --target-directory
rename | write | 1 | -e
csplit | none || >-f >--prefix -b -n --suffix-format --digits
split | out || -t --separator -a -b -C -l -n --bytes --lines --number --suffix-length --additional-suffix !--filter
gzip gunzip bzip2 bunzip2 xz unxz zstd unzstd lz4 unlz4 compress uncompress | pack || -S --suffix -T >-o <-D >--trace *--filelist >--output-dir-flat >--output-dir-mirror <--patch-from *--files *--files0
shuf | read || --input-range --head-count >--output -n -i <--random-source >-o
xmllint | read || --xpath <--schema <--relaxng <--schematron >--output >-o <--dtdvalid --dtdvalidfpi --encode --pattern --pretty --maxmem --path
ping6 traceroute | none
openssl | none || <-in <-inkey >-out >-keyout >-writerand >-keylogfile >-sess_out >-msgfile >-respout >-reqout >-certsout >-outcerts >-outdir >-CAserial >-newkeyout >-certout >-chainout >-cacertsout >-extracertsout >-crlout >-rspout <>-signer <-early_data <-rand <-cert <-key <-sign <-signkey <-CA <-CAkey <-CAfile <-CApath <-certfile <-config <-kfile !-engine !-provider-path !-pre !-post -subj -connect -servername -pass -passin -passout -k -K -iv -days -set_serial -newkey -addext -nameopt
man | none || !-P !--pager !-H !--html !-X !--gxditview !-T !--troff-device !-C !--config-file <-l --local-file -s -S -M -m -L -e -r -R -E -p
info | none || >-o >--output >--dribble <-f <--file !--restore !--init-file -n --node -k -d
tldr | none || <-r <--render
cloc | read || *--list-file <--config <--force-lang-def <--read-lang-def >--out >--report-file >--write-lang-def >--counted >--ignored >--found >--categorized >--sql >--sdir !--vcs !--extract-with !--strip-comments !--strip-code >--diff-alignment >--write-lang-def-incl-dup <--exclude-list-file --exclude-dir --include-lang --exclude-lang
tokei scc shellcheck | read || -e -s -f >--output !--format-multi
nm objdump readelf size otool | read || !--plugin -b -m ?-I ?-P ?-t ?-f ?-R --target -j -M ?-x ?-p
patch | patch || >--reject-file >-B >--prefix >-Y >--basename-prefix -z --suffix -F -D -V -g -x <-i <--input -p -d >-o >--output >-r --strip --directory
dos2unix unix2dos | write
"""


class ProgramEntry(Struct, frozen=True, kw_only=True):
    """A line of the table.

    `skip` is the number of words before the files, and `unskipping_options` are those with which there are none.
    `value_options` are all options with a value. The value of a reading or writing option is a file, that of a naming
    option is a file with the names of further files, and that of a running option is a command. The next word after one of the
    `doubtful_options` may be its value or a file.
    """

    role: ArgumentRole
    skip: int = 0
    value_options: frozenset[str] = frozenset()
    reading_options: frozenset[str] = frozenset()
    writing_options: frozenset[str] = frozenset()
    running_options: frozenset[str] = frozenset()
    naming_options: frozenset[str] = frozenset()
    doubtful_options: frozenset[str] = frozenset()
    unskipping_options: frozenset[str] = frozenset()


def _select_by_mark(words: list[str], sign: str) -> frozenset[str]:
    return frozenset(word.lstrip("^<>!*?") for word in words if not sign or sign in word[: word.index("-")])


def _parse_entry(role: ArgumentRole, skip: str, words: list[str]) -> ProgramEntry:
    return ProgramEntry(
        role=role,
        skip=int(skip or 0),
        value_options=_select_by_mark(words, ""),
        reading_options=_select_by_mark(words, "<"),
        writing_options=_select_by_mark(words, ">"),
        running_options=_select_by_mark(words, "!"),
        naming_options=_select_by_mark(words, "*"),
        doubtful_options=_select_by_mark(words, "?"),
        unskipping_options=_select_by_mark(words, "^"),
    )


def _read_table() -> dict[str, ProgramEntry]:
    roles: dict[str, ArgumentRole] = {role: role for role in get_args(ArgumentRole)}
    programs = {}
    for line in _TABLE.strip().splitlines():
        names, role, skip, options = (*map(str.strip, line.split("|")), "", "")[:4]
        program = _parse_entry(roles[role], skip, options.split())
        programs.update(dict.fromkeys(names.split(), program))
    return programs


PROGRAMS: Final = _read_table()

_READING_VERB_LINES = """
npm ls list view outdated explain why root prefix ping help
pnpm ls list why outdated root
yarn list why info
pip list show freeze check
pip3 list show freeze check
cargo tree metadata search
go version env list doc
docker ps images logs inspect version info top stats port diff history
podman ps images logs inspect version info
kubectl get describe logs version explain top
gh status
brew list info search
apt list show search policy
systemctl status list-units is-active show cat
helm list status get history
terraform version show output
rustup show
conda list info
dotnet --info --list-sdks
"""
_READING_VERBS: Final = {
    words[0]: frozenset(words[1:])
    for line in _READING_VERB_LINES.strip().splitlines()
    if (words := line.split())
}
_HELP_OPTIONS: Final = frozenset({"--version", "-V", "-v", "--help", "-h", "version", "help"})


def asks_for_help(argv: Fields) -> bool:
    """Return True if a program is only asked for its version or its usage."""
    return len(argv) == 2 and "/" not in argv[0].text and argv[1].text in _HELP_OPTIONS  # noqa: PLR2004  the program and the option


# Options of theirs that write a file, or name settings or a program that is run.
_ACTING_OPTION: Final = re.compile(
    r"--?(?:log(?!s)|logs-dir|config|cache|python|script-|node-options|userconfig|globalconfig|prefix|toolexec|exec|overlay|modfile"
    r"|vettool|post-renderer|target-dir|manifest-path|kubeconfig|plugin|profile-output|export|compiled|mod=mod|http$|viewer|browser|git="
    r"|onload|pnpmfile|global-pnpmfile|use-yarnrc|modules-folder|mutex)"
    # What npm and pip take for these.
    r"|--(?:lo|cach?|pyt|pyth|pytho|script|scr|node-o|node-op|userc|globalc|pref|prefi)(?:=|$)"
)
_ACTING_LETTERS: Final = {"go": ("-w", "-u", "-C"), "apt": ("-o", "-c", "--option"), "npm": ("-C",)}


def only_reads(argv: Fields) -> bool:
    """Return True if a program that may do anything is only asked for information here."""
    if len(argv) == 1 or "/" in argv[0].text:
        return False
    letters = _ACTING_LETTERS.get(argv[0].text, ())
    if any(_ACTING_OPTION.match(field.text) or field.text.startswith(letters) for field in argv[2:]):
        return False
    return argv[1].text in _READING_VERBS.get(argv[0].text, ()) or asks_for_help(argv)


# Programs that read whole directories with an option.
_RECURSIVE_PROGRAMS: Final = frozenset(
    {"grep", "egrep", "fgrep", "rgrep", "diff", "colordiff", "zcat", "gzcat"}
)
_COMPARING_PROGRAMS: Final = frozenset({"diff", "colordiff"})
# These pipe each file into grep, which then searches the working directory.
_PIPING_PROGRAMS: Final = frozenset({"zgrep", "bzgrep", "xzgrep"})
_SEARCHING_PROGRAMS: Final = frozenset({"rg", "ag", "ack"})
_HIDDEN_OPTIONS: Final = ("-u", "-.", "--hidden", "--no-ignore", "--unrestricted", "--type-add")
# Names that a glob of ripgrep may select although they begin with a dot.
_HIDDEN_EXAMPLES: Final = (".env", ".env.local", ".env.production")
_CHMOD_MODE: Final = tuple(f"-{char}" for char in "rwxXstugoa,=+01234567NECiI")
_RECURSIVE_OPTIONS: Final = ("-r", "-R", "-a", "--recursive", "--archive")
# With `@`, these read options from a file.
_OPTION_FILE_PROGRAMS: Final = frozenset({"nm", "objdump", "readelf", "size", "strings", "otool"})
# These make up the names of their output files.
SPLITTING_PROGRAMS: Final = frozenset({"split", "csplit"})
_LISTING_OPTIONS: Final = ("-t", "--test", "--list")
# The last of several modes counts.
_PACKING_OPTIONS: Final = ("-z", "--compress", "-d", "--decompress", "--uncompress", "--train", "-b")


def touch_files(name: str, program: ProgramEntry, arguments: Fields, state: ShellState) -> None:
    """Note the files that a program in the table uses."""
    parsed = parse_arguments(
        rewrite_options(name, arguments, program.value_options),
        program.value_options,
        until_word=name == "xxd",
    )
    no_skip = parsed.has(*program.unskipping_options) or (name == "chmod" and parsed.has(*_CHMOD_MODE))
    words = (*parsed.values(*program.doubtful_options), *parsed.words)[0 if no_skip else program.skip :]
    _touch_options(name, parsed, program, state)
    _touch_words(program, words, parsed, state)
    if program.role == "read":
        _touch_trees(name, parsed, words, state)
    if name.endswith("sum") and parsed.has("-c", "--check"):
        state.touch(unknown_field("files named in a list of sums"), "read")
    if name in _OPTION_FILE_PROGRAMS and any(field.text.startswith("@") for field in arguments):
        state.mark_unclear(
            " ".join([name, *(field.text for field in arguments)]), "it takes options from a file"
        )
    if name in SPLITTING_PROGRAMS:
        touch_parts(name, parsed, words, state)
    if program.role == "pack":
        touch_unpacked(name, parsed, words, state)
    touch_by_name(name, parsed, words, state)


def _touch_options(name: str, parsed: ParsedArguments, program: ProgramEntry, state: ShellState) -> None:
    for option, value in parsed.options:
        if value is None:
            continue
        if value.text.startswith("=") and not option.startswith("--"):
            value = value.ending(value.text[1:])  # noqa: PLW2901  some programs take `-o=file`
        if option in program.running_options:
            state.mark_unclear(f"{name} {option} {value.text}", "an option of it runs a program")
        elif option in program.naming_options:
            state.touch(value, "read")
            state.touch(unknown_field(f"files named in {value.text}"), "read")
        elif option in program.writing_options:
            touch_written([value], state, recursive=False)
            if option in program.reading_options:
                state.touch(value, "read")
        elif option in program.reading_options:
            state.touch(value, "read")
        elif option not in program.value_options:
            touch_path(value, state)
        elif (
            is_secret(value.text.rpartition("/")[2])
            or state.exists(value.text)
            or (value.glob_pattern and has_wildcard(remove_holes(value.text)))
        ):
            # Not every version of the program takes a value here.
            state.touch(value, "read")


def _touch_words(
    program: ProgramEntry, words: Sequence[Field], parsed: ParsedArguments, state: ShellState
) -> None:
    match program.role:
        case "none":
            # The shell expands globs in any case.
            for field in words:
                if field.glob_pattern and has_wildcard(remove_holes(field.text)):
                    state.touch(field, "look")
        case "look" | "read":
            for field in words:
                state.touch(field, program.role)
        case "write":
            touch_written(words, state, recursive=parsed.has(*_RECURSIVE_OPTIONS))
        case "out":
            _touch_output(words, state)
        case "pack":
            _touch_packed(words, parsed, state)
        case "patch":
            for directory in parsed.values("-d", "--directory"):
                state.touch_all(directory, "write")
            touch_written(words[:1], state, recursive=False)
            for field in words[1:2]:  # the patch itself
                state.touch(field, "read")
            if not words and not parsed.has("-d", "--directory"):
                state.touch_below(*(state.cwds or ()))
        case "copy" | "link" | "move":
            _touch_copies(program, words, parsed, state)


def _touch_packed(words: Sequence[Field], parsed: ParsedArguments, state: ShellState) -> None:
    keeps_files = (parsed.has(*STDOUT_OPTIONS) and not parsed.has("--rm")) or (
        parsed.has(*_LISTING_OPTIONS) and not parsed.has(*_PACKING_OPTIONS)
    )
    recursive = parsed.has("-r", "--recursive")
    for field in words:
        if recursive:
            state.touch_all(field, "read", links=True)
        else:
            state.touch(field, "read")
        if not keeps_files:
            touch_written([field], state, recursive=recursive)
    if parsed.has("--train"):
        state.touch(Field("dictionary"), "write")


def _touch_output(words: Sequence[Field], state: ShellState) -> None:
    # Without a certain option, ptx reads all of its arguments.
    for field in words:
        state.touch(field, "read")
    touch_written(words[1:], state, recursive=False)


def _touch_copies(
    program: ProgramEntry, words: Sequence[Field], parsed: ParsedArguments, state: ShellState
) -> None:
    directories = parsed.values("-t", "--target-directory")
    sources, targets = (
        (words, directories) if directories or len(words) == 1 else (words[:-1], list(words[-1:]))
    )
    targets = targets or [Field(".")]
    all_recursive = parsed.has(*_RECURSIVE_OPTIONS)
    makes_links = program.role != "copy" or parsed.has("-l", "--link", "-s", "--symbolic-link")
    keeps_links = all_recursive or parsed.has("-P", "-d", "--no-dereference")
    suffixes = parsed.values("-S", "--suffix")
    for source in sources:
        recursive = all_recursive or (program.role == "move" and state.is_directory(source))
        if recursive:
            state.touch_all(source, "read", links=parsed.has("-L", "--dereference"))
        else:
            state.touch(source, "read")
        if makes_links or (keeps_links and any(map(os.path.islink, state.resolve_roots(source)))):
            # A link is another name for its target, through which the target can be changed.
            touch_written([source], state, recursive=recursive)
        for target in targets:
            into_directory = bool(directories) or (
                state.is_directory(target) and not parsed.has("-T", "--no-target-directory")
            )
            _touch_copy(source, target, state, into_directory=into_directory, recursive=recursive)
            touch_written([append_suffix(target, suffix) for suffix in suffixes], state, recursive=False)
            if program.role == "link" and parsed.has("-s", "--symbolic") and target.is_known:
                # It leads there from its own directory.
                place = target if into_directory else Field(os.path.dirname(target.text) or ".")
                touch_written([join_names(place, source)], state, recursive=False)


def _touch_copy(
    source: Field, target: Field, state: ShellState, *, into_directory: bool, recursive: bool
) -> None:
    name = os.path.basename(source.text.rstrip("/"))
    if not into_directory:
        touch_written([target], state, recursive=recursive)
    elif name in ("", ".", ".."):
        state.touch_all(target, "write")
    elif not target.is_known:
        state.touch(target, "write")
    else:
        glob_pattern = (
            os.path.join(target.text, os.path.basename(source.glob_pattern)) if source.glob_pattern else ""
        )
        touch_written([Field(os.path.join(target.text, name), glob_pattern)], state, recursive=recursive)


def _touch_trees(name: str, parsed: ParsedArguments, words: Sequence[Field], state: ShellState) -> None:
    # ripgrep and ag skip dot files unless told otherwise; ack does not.
    hidden = name == "ack" or (
        name in _SEARCHING_PROGRAMS and (parsed.has(*_HIDDEN_OPTIONS) or _selects_hidden_files(parsed))
    )
    if name == "ack" and parsed.has("-x"):
        state.touch(unknown_field("files named in the input"), "read")
    recursive = name in _RECURSIVE_PROGRAMS | _PIPING_PROGRAMS and (
        name == "rgrep"
        or parsed.has("-r", "-R", "--recursive", "--dereference-recursive")
        or any(_may_recurse(field) for field in parsed.values("-d", "--directories"))
    )
    follow = parsed.has("-R", "--dereference-recursive", "-L", "--follow")
    links = follow
    words = (*words, *(parsed.values("--from-file", "--to-file") if name in _COMPARING_PROGRAMS else ()))
    if name in _COMPARING_PROGRAMS and any(map(state.is_directory, words)):
        # For directories, diff compares their files, including the targets of links.
        recursive, links = True, True
        follow = parsed.has("-N", "--new-file", "-P", "--unidirectional-new-file")
    if not hidden and not recursive and not (name in _SEARCHING_PROGRAMS and follow):
        return
    word_roots = (
        ()
        if name in _PIPING_PROGRAMS
        else tuple(root for field in words for root in state.resolve_roots(field))
    )
    roots = word_roots or state.cwds or ()
    included = [field.text for field in parsed.values("--include")]
    # The last of several patterns counts.
    excluded = [field.text for field in parsed.values("--exclude") if not included]
    listing = FileListing(
        roots=roots,
        name=included[0] if len(included) == 1 else None,
        hidden=hidden or recursive,
        excluded=tuple(text for text in excluded if re.fullmatch(r"[\w.*-]+", text)),
    )
    state.touch_tree(listing, "read", links=links, follow=follow)


def _may_recurse(field: Field) -> bool:
    """Return True if the value of `grep --directories` may be `recurse`, which may be abbreviated."""
    return not field.is_known or (bool(field.text) and "recurse".startswith(field.text))


def _selects_hidden_files(parsed: ParsedArguments) -> bool:
    """Return True if a glob selects files that the default rules protect: ripgrep then searches them, hidden or not."""
    return any(
        not field.text.startswith("!")
        and (
            has_hole(field.text)
            or any(
                fnmatchcase(example, name)
                for name in _list_alternatives(field.text.lower())
                for example in _HIDDEN_EXAMPLES
            )
        )
        for field in parsed.values("-g", "--glob", "--iglob")
    )


def _list_alternatives(pattern: str) -> list[str]:
    """Return the patterns for the names of files that a glob with alternatives stands for."""
    if "\\" in pattern:
        return _list_alternatives(re.sub(r"\\(.?)", _quote_for_glob, pattern))
    start, brace, rest = pattern.partition("{")
    inner, end_brace, end = rest.partition("}")
    if not brace:
        return [pattern.rpartition("/")[2].replace("[^", "[!")]
    if not end_brace or "{" in rest:
        return ["*"]
    return [name for each in inner.split(",") for name in _list_alternatives(f"{start}{each}{end}")]


def _quote_for_glob(escape: re.Match[str]) -> str:
    return f"[{escape[1]}]" if escape[1] in tuple("*?[") else escape[1]


def find_unknown_option(arguments: Fields, program: ProgramEntry | None) -> str:
    """Return an argument that may turn out to be any option, or "" if there is none."""
    value_options = program.value_options if program is not None else frozenset()
    for field in arguments:
        if field.text == "--":
            return ""
        option, sign, _ = field.text.partition(UNKNOWN_START)
        if not sign or field.is_number or field.listing is not None:
            continue
        if not option.startswith("-"):
            # If all words are files, an unknown one is listed as an unknown file.
            if not option and program is not None and (program.role == "none" or program.skip):
                return field.text
        elif not (
            option in value_options or (option.startswith("--") and "=" in option) or field.glob_pattern
        ):
            return field.text
    return ""
