"""Unwrap programs that run another program. What they run is judged as if it stood alone."""

import re
import shlex
from collections.abc import Sequence
from typing import Final

from weft.model.permission import UNKNOWN_START, mark_unknown
from weft.tool.shell.arguments import (
    Field,
    Fields,
    ParsedArguments,
    parse_arguments,
    split_names,
    unknown_field,
)
from weft.tool.shell.program.effects import Inner, InnerAssignment, InnerCommand, InnerScript
from weft.tool.shell.state import ShellState, StreamContent

_SU: Final = split_names("-c --command -s --shell -g -G")
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)

# Each line: name, number of words before the command, and the options that take a value.
_TABLE = """
sudo 0 -u -g -h -p -C -c -r -t -T -U -D -R --user --group --host --prompt --chdir --close-from --role --type
doas 0 -u -C
timeout 1 -k -s --kill-after --signal
gtimeout 1 -k -s --kill-after --signal
nice 0 -n --adjustment
ionice 0 -c -n -p -t --class --classdata
chrt 1 -T -P -D --sched-runtime --sched-deadline --sched-period
taskset 1 -p
nohup 0
setsid 0
stdbuf 0 -i -o -e --input --output --error
unbuffer 0
time 0 -f -o --format --output
command 0
builtin 0
exec 0 -a
noglob 0
nocorrect 0
- 0
coproc 0
caffeinate 0 -t -w
watch 0 -n -d --interval
strace 0 -o -e -p -s -u -P -E -O -S -I -a -b -X
ltrace 0 -o -e -p -s -u -n -l -a -A -D -F
valgrind 0 --log-file --tool
proxychains 0 -f
proxychains4 0 -f
torsocks 0
faketime 1 -f
xvfb-run 0 -e -f -n -p -s -w
dbus-run-session 0
fakeroot 0 -l -f -i -s
chronic 0
ts 0
busybox 0
toybox 0
systemd-inhibit 0
choom 0 -n
prlimit 0 -p
numactl 0 -N -m -C
cpulimit 0 -l -p
firejail 0
bwrap 0
eatmydata 0
rlwrap 0
setpriv 0
setarch 1
linux64 0
linux32 0
dumb-init 0
tini 0
ssh-agent 0 -a -t
pkexec 0 --user
runcon 1 -u -r -t -l
trickle 0 -d -u
catchsegv 0
xterm 0 -e -T
npx 0 -p -c --package --call
bunx 0 -p --package
uvx 0 --from --with --python -p
pipx 0 --spec
direnv 2
dotenv 0 -e -f -c
cross-env 0
runuser 0 -u -g -G -c --user --group --command
unshare 0
nsenter 0 -t -S -G --target
chroot 1 --userspec --groups
gdb 0 -ex -x -iex -ix -p -cd -d
perf 1 -e -o -p -t -F
hyperfine 0 -w -r -m -M -p -c -n -i --warmup --runs --export-json --export-markdown --prepare --cleanup
entr 0
flock 1 -w -E -c --wait --timeout --command
script 0 -c --command -T -I -O -B -m -o -E
"""
_WRAPPERS: Final = {
    words[0]: (int(words[1]), frozenset(words[2:]))
    for line in _TABLE.strip().splitlines()
    if (words := line.split())
}
# Runners for the programs of a package: `uv run pytest` runs pytest.
_RUNNERS: Final = {
    "uv": "run", "poetry": "run", "pipenv": "run", "pdm": "run", "hatch": "run", "rye": "run", "pixi": "run",
    "bundle": "exec", "npm": "exec", "pnpm": "exec", "yarn": "exec", "conda": "run", "mamba": "run", "mise": "exec",
    "asdf": "exec", "rbenv": "exec", "pyenv": "exec", "dotnet": "exec", "devbox": "run", "pipx": "run", "op": "run",
}  # fmt: skip
_RUNNER_VALUES: Final = split_names("-n -p --name --prefix --with --from --python --package --extra --group")
WRAPPERS: Final = frozenset(_WRAPPERS) | split_names("env xargs")
# These download and store the program that they run, or parts of it.
FETCHING_PROGRAMS: Final = frozenset(_RUNNERS) | split_names(
    "npx bunx uvx pipx ssh perf valgrind script hyperfine gdb"
)
# These start processes that go on after the command has ended. They are unclear.
DETACHING_PROGRAMS: Final = split_names(
    "at batch crontab systemd-run tmux screen launchctl daemonize start-stop-daemon abduco dtach zellij"
)


def unwrap_command(argv: Fields, state: ShellState, stdin: StreamContent | None) -> list[Inner] | None:
    """Return what a wrapper runs, or None if the program is not a wrapper."""
    name, rest = argv[0].text.rpartition("/")[2], argv[1:]
    match name:
        case "env":
            return _unwrap_env(rest, state, stdin)
        case "xargs":
            return _unwrap_xargs(rest, state, stdin)
        case "parallel":
            return _unwrap_parallel(rest, state, stdin)
        case "eval":
            return [InnerScript(text=" ".join(field.text for field in rest), stdin=stdin)] if rest else []
        case "trap":
            return [InnerScript(text=field.text) for field in parse_arguments(rest).words[:1]]
        case "jobs":
            given = parse_arguments(rest, until_word=True)
            return [InnerCommand(fields=given.words)] if given.has("-x") else []
        case "alias":
            return _unwrap_alias(rest, state)
        case "su":
            return [
                InnerScript(text=field.text) for field in parse_arguments(rest, _SU).values("-c", "--command")
            ]
        case "ssh":
            return _examine_ssh(rest, state)
        case _ if name in _RUNNERS:
            return _unwrap_runner(name, rest, stdin)
        case _ if name in _WRAPPERS:
            return _unwrap_plain(name, rest, state, stdin)
        case _:
            return None


def _unwrap_alias(rest: Fields, state: ShellState) -> list[Inner]:
    named = [field.text for field in rest if "=" in field.text]
    for text in named:
        state.mark_unclear(f"alias {text}", "some shells substitute it in what follows")
    return [InnerScript(text=text.partition("=")[2]) for text in named]


def _unwrap_plain(name: str, rest: Fields, state: ShellState, stdin: StreamContent | None) -> list[Inner]:
    skipped, taking = _WRAPPERS[name]
    given = _parse_options(name, rest, taking, state)
    inner: list[Inner] = [InnerScript(text=field.text) for field in _list_scripts(name, given)]
    _touch_files(name, given, state)
    if name == "command" and given.has("-v", "-V"):
        return []
    words = given.words
    if skipped:
        behind = _parse_options(name, words[skipped:], taking, state)
        inner += [InnerScript(text=field.text) for field in _list_scripts(name, behind)]
        words = behind.words
    if name == "hyperfine":
        return [*inner, *(InnerScript(text=field.text) for field in words)]
    if name == "watch" and words:
        return [*inner, InnerScript(text=" ".join(field.text for field in words))]
    return [*inner, *_split_assignments(words, stdin)]


def _parse_options(name: str, rest: Fields, taking: frozenset[str], state: ShellState) -> ParsedArguments:
    """Parse the options before a command. With an abbreviated option, it is uncertain which word is the command."""
    given = parse_arguments(rest, taking, until_word=True)
    if given.guessed:
        state.mark_unclear(
            " ".join([name, *(field.text for field in rest)]), "which program it runs is not known"
        )
    return given


def _list_scripts(name: str, given: ParsedArguments) -> list[Field]:
    """Return the option values that a wrapper runs as a script."""
    if name in ("runuser", "flock", "script", "npx", "hyperfine"):
        return given.values("-c", "--command", "--call", "--prepare", "--cleanup")
    return given.values("-e") if name == "xterm" else []


def _touch_files(name: str, given: ParsedArguments, state: ShellState) -> None:
    match name:
        case "script" | "flock":
            for field in given.words[:1]:
                state.touch(field, "write")
        case "time" | "strace" | "ltrace" | "perf":
            for field in given.values("-o", "--output"):
                if field.text.startswith(("|", "!")):
                    state.mark_unclear(f"{name} -o {field.text}", "its output goes to a program")
                state.touch(field, "write")
        case "chroot" | "unshare" | "nsenter" | "gdb":
            state.mark_unclear(name, f"{name} changes what the command sees")
        case "sudo":
            if given.has("-e", "--edit"):
                for field in given.words:
                    state.touch(field, "write")
        case "dotenv":
            for field in given.values("-e", "-f"):
                state.touch(field, "read")
        case _:
            pass


def _split_assignments(words: Sequence[Field], stdin: StreamContent | None) -> list[Inner]:
    """Split off the assignments before a command."""
    settings: list[Inner] = []
    words = list(words)
    while words and (found := _ASSIGNMENT.fullmatch(words[0].text)):
        settings.append(InnerAssignment(name=found[1], value=found[2]))
        words.pop(0)
    return [*settings, InnerCommand(fields=tuple(words), stdin=stdin)] if words else settings


_ENV: Final = split_names("-u --unset -C --chdir -S --split-string -P -a --argv0")


def _unwrap_env(rest: Fields, state: ShellState, stdin: StreamContent | None) -> list[Inner]:
    given = _parse_options("env", rest, _ENV, state)
    words = list(given.words)
    for text in given.values("-S", "--split-string"):
        words = [*map(Field, _split_words(text.text)), *words]
    for directory in given.values("-C", "--chdir"):
        state.touch(directory, "look")
        state.mark_unclear(f"env -C {directory.text}", "it runs in another directory")
    if any("=" in field.text and not _ASSIGNMENT.fullmatch(field.text) for field in words[:1]):
        state.mark_unclear(words[0].text, "it sets something other than a variable in the environment")
        words = words[1:]
    return _split_assignments(words, stdin)


def _split_words(text: str) -> list[str]:
    if UNKNOWN_START in text:
        return [text]
    try:
        return shlex.split(text)
    except ValueError:
        return [mark_unknown(text)]


_XARGS: Final = split_names(
    "-I -n -P -L -d -E -s -a -J -R -S --process-slot-var --arg-file --replace --max-args --max-procs --max-lines --delimiter --eof --max-chars"
)


_SOME: Final = ("-n", "-L", "-l", "-s", "-P", "--max-args", "--max-lines", "--max-chars", "--max-procs")


def _unwrap_xargs(rest: Fields, state: ShellState, stdin: StreamContent | None) -> list[Inner]:
    given = _parse_options("xargs", rest, _XARGS, state)
    for field in given.values("-a", "--arg-file"):
        state.touch(field, "read")
        stdin = StreamContent()
    if given.has("-d", "--delimiter"):
        stdin = StreamContent()
    command = given.words or (Field("echo"),)
    marks = [field.text for field in given.values("-I", "-J", "--replace")] or (
        ["{}"] if given.has("-i") else []
    )
    if not marks:
        fed = _to_input_fields(stdin)
        # The command runs several times, and any argument may come first.
        starts = range(len(fed)) if given.has(*_SOME) else (0,)
        return [
            inner for start in starts or (0,) for inner in _split_assignments((*command, *fed[start:]), None)
        ]
    lines = _to_input_fields(stdin, lines=True) or (unknown_field(marks[-1]),)
    return [
        inner
        for each in lines
        for inner in _split_assignments(tuple(_substitute(field, marks[-1], each) for field in command), None)
    ]


def _unwrap_parallel(rest: Fields, state: ShellState, stdin: StreamContent | None) -> list[Inner]:
    given = parse_arguments(rest, split_names("-j -n -N -I -a --jobs --colsep -C --delay"), until_word=True)
    texts = [field.text for field in given.words]
    sources = [place for place, text in enumerate(texts) if re.fullmatch(r":{3,4}\+?", text)]
    command = given.words[: sources[0]] if sources else given.words
    fed = given.words[sources[0] + 1 :] if sources else _to_input_fields(stdin, lines=True)
    if any(text.startswith("::::") for text in texts) or given.values("-a"):
        fed = (unknown_field("{}"),)
    if not command:  # every line is a command
        return [InnerScript(text=field.text) for field in fed]
    if any(UNKNOWN_START in field.text for field in fed):
        state.mark_unclear(" ".join(texts), "parallel composes commands")
    marked = any("{}" in field.text for field in command)
    lines = [
        [_substitute(field, "{}", each) for field in command] + ([] if marked else [each]) for each in fed
    ]
    return [InnerScript(text=" ".join(field.text for field in line)) for line in lines]


def _to_input_fields(stdin: StreamContent | None, *, lines: bool = False) -> tuple[Field, ...]:
    """Return the words that a program makes of its input."""
    if stdin is None:
        return ()
    if stdin.listing is not None:
        return (Field(mark_unknown("files of the list"), listing=stdin.listing),)
    if stdin.text is None:
        return (unknown_field("words from the input"),)
    found = stdin.text.splitlines() if lines else _split_words(stdin.text.replace("\0", " "))
    return tuple(map(Field, found))


def _substitute(field: Field, mark: str, value: Field) -> Field:
    if field.text == mark:
        return value
    if mark not in field.text:
        return field
    return Field(field.text.replace(mark, value.text)) if value.is_known else unknown_field(field.text)


_SSH: Final = frozenset(f"-{char}" for char in "bcDEeFIiJLlmOopQRSWwB")


def _examine_ssh(rest: Fields, state: ShellState) -> list[Inner]:
    """Examine ssh. What runs on another machine cannot touch our files, but ssh itself may run a program here."""
    given = parse_arguments(rest, _SSH, until_word=True)
    for field in given.values("-o"):
        if re.match(r"(?i)(proxy|local|knownhosts|remote)\w*command|permitlocal", field.text):
            state.mark_unclear(f"ssh -o {field.text}", "an option of ssh runs a program")
    for field in given.values("-F"):
        state.mark_unclear(f"ssh -F {field.text}", "settings of ssh may run a program")
    for field in given.values("-i", "-E"):
        state.touch(field, "look")
    if any(
        re.search(r"(?:^|@)(?:localhost|127\.|::1|\[::1\])", field.text) or UNKNOWN_START in field.text
        for field in given.words[:1]
    ):
        state.mark_unclear(" ".join(field.text for field in given.words), "it runs on this machine after all")
    return []


def _unwrap_runner(name: str, rest: Fields, stdin: StreamContent | None) -> list[Inner] | None:
    given = parse_arguments(rest, _RUNNER_VALUES, until_word=True)
    if len(given.words) <= 1 or given.words[0].text not in (_RUNNERS[name], "dlx", "x"):
        return None
    inner = parse_arguments(given.words[1:], _RUNNER_VALUES | {"-c"}, until_word=True)
    scripts: list[Inner] = [InnerScript(text=field.text) for field in inner.values("-c", "--call")]
    return [*scripts, *([InnerCommand(fields=inner.words, stdin=stdin)] if inner.words else [])]
