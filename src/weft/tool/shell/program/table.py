"""What common programs do with the files they are given; a program that is not listed may do anything."""

import os
import re
from collections.abc import Iterator, Sequence
from typing import Final, Literal, get_args

from msgspec import Struct

from weft.model.permission import HOLE
from weft.tool.shell.field import Field, Given, Listing, Reading, has_hole, split, unknown, without_holes
from weft.tool.shell.places import is_secret
from weft.tool.shell.scene import Scene, Use
from weft.tool.shell.words import is_wild

Role = Literal["none", "look", "read", "write", "copy", "link", "move", "out", "pack", "patch"]

# names | what the words are: none of them files, looked at by name, read, written, copied, linked or moved to the last,
# `out` read the first and write the second, `pack` put a file in the place of each, `patch` change files that others name
# | words before the files | options that take a value; with `<` a file that is read, with `>` one that is written, with
# `*` one that names files which are read, with `!` something that is run; with `^` the words before the files fall away.
_TABLE = """
true false : pwd whoami id groups uname arch uptime nproc lscpu free tty logname users w | none
echo printf yes seq sleep expr factor numfmt basename dirname cal tput stty clear reset | none
which whereis type hash printenv locale getconf umask ulimit times jobs wait fg bg shift return exit break continue | none
set export declare local readonly unset getopts read let enable shopt help disown | none
fc | none || !-e !-s
mapfile readarray | none || -d -n -O -s -u -c !-C
history | none || -d -s -p <-r <-n >-w >-a
kill killall ps top htop vmstat iostat pidof netstat ping host nslookup | none
test [ [[ | none
pkill pgrep | none || <-F <--pidfile -d -g -G -P -s -t -u -U -O
who last | read || <-f <--file -n -s -t -p
ss | none || >-D >--diag <-F <--filter -f -A -N
dig | none || <-f <-k -b -p -q -t -x -c
lsof | none || >-D -a -c -d -F -g -i -k -m -o -p -P -r -s -S -T -u
date | none || <-f <--file <-r <--reference -d --date !-s !--set
ls dir vdir exa eza | look || -I -w -T --ignore --hide --width --color --format --sort --time --time-style -L --level
tree | look || -L -P -I >-o --filelimit --charset
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
less more most bat batcat | read || -p -P -x -y -z -j -b -h >-o >-O >--log-file -t <-T <-k --style --theme -l --language -r --line-range -H
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
diff cmp colordiff diff3 sdiff | read || !--diff-program >--output <--from-file <--to-file <-S <--starting-file -D -C -U -I -x -F -W -i -n -j >-o <-X --exclude <--exclude-from --label -L --width --color --palette
grep egrep fgrep zgrep bzgrep xzgrep | read | 1 | ^-e ^<-f ^--regexp ^<--file -m -A -B -C -D -d --max-count --include --exclude --exclude-dir <--exclude-from --color --label --after-context --before-context --context
rg ag ack | read | 1 | ^-e ^<-f ^--regexp ^<--file -m -A -B -C -g -t -T -j -M -r -E -d --glob --iglob --type --type-not --max-count --max-depth --replace --sort --color --context --threads !--pre !--hostname-bin --pre-glob ^--files ^--type-list <--ignore-file
jq gojq jaq | read | 1 | ^<-f ^<--from-file -L --indent --tab --arg --argjson --slurpfile --rawfile
yq | read | 1 | >-i >--inplace >--in-place -o -p --output-format --input-format -I
file | read || *-f *--files-from *-m *--magic-file -F -P -e --exclude --separator --parameter
base64 base32 basenc uuencode | read || -w --wrap -b <-i >-o
zcat bzcat xzcat gzcat | read || *--files *--files0 -S -T
iconv | read || -f -t --from-code --to-code >-o >--output
tr | none
tee | write
touch | write || -d -t <-r --date --time <--reference
mkdir | write || -m --mode
rmdir unlink | write
rm | write
shred | write || -n -s --iterations --size --random-source
truncate | write || -s -r --size --reference
chmod chown chgrp setfacl chattr chcon | write | 1 | ^--reference
mkfifo mknod | write || -m
mktemp | none || >-p >--tmpdir --suffix
cp gcp | copy || --no-preserve -S --suffix --backup --reflink --sparse -t --target-directory
install ginstall | copy || !--strip-program --suffix -m -o -g -S -t --target-directory --mode --owner --group
ln gln | link || -S -t --target-directory
mv gmv | move || -S --suffix -t --target-directory
rename | write | 1 |
csplit | out || >-f >--prefix -b -n --suffix-format --digits
split | out || -t --separator -a -b -C -l -n --bytes --lines --number !--filter
gzip gunzip bzip2 bunzip2 xz unxz zstd unzstd zstdcat lz4 unlz4 compress uncompress | pack || -S -T >-o <-D >--trace *--filelist >--output-dir-flat >--output-dir-mirror <--patch-from *--files *--files0
shuf | read || --input-range --head-count >--output -n -i <--random-source >-o
xmllint | read || --xpath <--schema >--output <--dtdvalid
ping6 traceroute | none
openssl | none || <-in <-inkey >-out >-keyout >-writerand <-cert <-key <-CAfile <-config !-engine !-provider-path
man | none || !-P !--pager !-H !--html !-X !--gxditview !-T !--troff-device !-C !--config-file <-l --local-file -s -S -M -m -L -e -r -R -E -p
info | none || >-o >--output >--dribble <-f <--file <--restore -n --node -k -d
tldr | none
cloc tokei scc shellcheck | read || -e -s -f
nm objdump readelf size ldd otool | read || !--plugin -b -m -I -P -t -f -R --target -j -M -x -p
patch | patch || >--reject-file >-B >--prefix >-Y >--basename-prefix -z --suffix -F -D -V -g -x <-i <--input -p -d >-o >--output >-r --strip --directory
dos2unix unix2dos | write
"""


class Program(Struct, frozen=True, kw_only=True):
    role: Role
    skip: int = 0
    taking: frozenset[str] = frozenset()
    reading: frozenset[str] = frozenset()
    writing: frozenset[str] = frozenset()
    running: frozenset[str] = frozenset()
    naming: frozenset[str] = frozenset()
    instead: frozenset[str] = frozenset()


def _options(words: list[str], sign: str) -> frozenset[str]:
    return frozenset(word.lstrip("^<>!*") for word in words if not sign or sign in word[: word.index("-")])


def _program(role: Role, skip: str, words: list[str]) -> Program:
    return Program(
        role=role,
        skip=int(skip or 0),
        taking=_options(words, ""),
        reading=_options(words, "<"),
        writing=_options(words, ">"),
        running=_options(words, "!"),
        naming=_options(words, "*"),
        instead=_options(words, "^"),
    )


def _read_table() -> dict[str, Program]:
    roles: dict[str, Role] = {role: role for role in get_args(Role)}
    programs = {}
    for line in _TABLE.strip().splitlines():
        names, role, skip, options = (*map(str.strip, line.split("|")), "", "")[:4]
        program = _program(roles[role], skip, options.split())
        programs.update(dict.fromkeys(names.split(), program))
    return programs


PROGRAMS: Final = _read_table()

_VERBS = """
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
    words[0]: frozenset(words[1:]) for line in _VERBS.strip().splitlines() if (words := line.split())
}
_ASKING: Final = frozenset({"--version", "-V", "-v", "--help", "-h", "version", "help"})


def is_asked(argv: Reading) -> bool:
    """Whether a program is only asked for its version, or how it is used."""
    return len(argv) == 2 and "/" not in argv[0].text and argv[1].text in _ASKING  # noqa: PLR2004  it and the question


def only_tells(argv: Reading) -> bool:
    """Whether a program that may do anything is only asked for something here."""
    if len(argv) == 1 or "/" in argv[0].text:
        return False
    return argv[1].text in _READING_VERBS.get(argv[0].text, ()) or is_asked(argv)


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
