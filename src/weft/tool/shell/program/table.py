"""What common programs do with the files they are given. Whoever is not named here may do anything."""

from typing import Final, Literal, get_args

from msgspec import Struct

from weft.tool.shell.field import Reading

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
