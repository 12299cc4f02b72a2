"""Programs that run another program: what they run is judged as if it stood there alone."""

import re
import shlex
from collections.abc import Sequence
from typing import Final

from weft.model.permission import HOLE, hole
from weft.tool.shell.field import Field, Given, Reading, names, split, unknown
from weft.tool.shell.program.inner import Argv, Inner, Script, Setting
from weft.tool.shell.scene import Feed, Scene

_SU: Final = names("-c --command -s --shell -g -G")
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)

# name, how many words come before the command, and the options that take a value.
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
# Runners of a package's programs: `uv run pytest` runs pytest.
_RUNNERS: Final = {
    "uv": "run", "poetry": "run", "pipenv": "run", "pdm": "run", "hatch": "run", "rye": "run", "pixi": "run",
    "bundle": "exec", "npm": "exec", "pnpm": "exec", "yarn": "exec", "conda": "run", "mamba": "run", "mise": "exec",
    "asdf": "exec", "rbenv": "exec", "pyenv": "exec", "dotnet": "exec", "devbox": "run", "pipx": "run", "op": "run",
}  # fmt: skip
_RUNNER_VALUES: Final = names("-n -p --name --prefix --with --from --python --package --extra --group")
WRAPPING: Final = frozenset(_WRAPPERS) | names("env xargs")
# They fetch the program that they run, or what belongs to it, and keep it.
FETCHING: Final = frozenset(_RUNNERS) | names("npx bunx uvx pipx ssh perf valgrind script hyperfine gdb")
# They start what goes on after the command has ended, where nobody finds it.
LASTING: Final = names(
    "at batch crontab systemd-run tmux screen launchctl daemonize start-stop-daemon abduco dtach zellij"
)


def unwrap(argv: Reading, scene: Scene, stdin: Feed | None) -> list[Inner] | None:
    """What a wrapper runs; None when this is none."""
    name, rest = argv[0].text.rpartition("/")[2], argv[1:]
    match name:
        case "env":
            return _env(rest, scene, stdin)
        case "xargs":
            return _xargs(rest, scene, stdin)
        case "parallel":
            return _parallel(rest, scene, stdin)
        case "eval":
            return [Script(text=" ".join(field.text for field in rest), stdin=stdin)] if rest else []
        case "trap":
            return [Script(text=field.text) for field in split(rest).words[:1]]
        case "jobs":
            given = split(rest, until_word=True)
            return [Argv(fields=given.words)] if given.has("-x") else []
        case "alias":
            return _alias(rest, scene)
        case "su":
            return [Script(text=field.text) for field in split(rest, _SU).values("-c", "--command")]
        case "ssh":
            return _ssh(rest, scene)
        case _ if name in _RUNNERS:
            return _runner(name, rest, stdin)
        case _ if name in _WRAPPERS:
            return _plain(name, rest, scene, stdin)
        case _:
            return None


def _alias(rest: Reading, scene: Scene) -> list[Inner]:
    named = [field.text for field in rest if "=" in field.text]
    for text in named:
        scene.unclear(f"alias {text}", "some shells put it in the place of what follows")
    return [Script(text=text.partition("=")[2]) for text in named]


def _plain(name: str, rest: Reading, scene: Scene, stdin: Feed | None) -> list[Inner]:
    skipped, taking = _WRAPPERS[name]
    given = _split(name, rest, taking, scene)
    inner: list[Inner] = [Script(text=field.text) for field in _texts_run(name, given)]
    _touch_files(name, given, scene)
    if name == "command" and given.has("-v", "-V"):
        return []
    words = given.words
    if skipped:
        behind = _split(name, words[skipped:], taking, scene)
        inner += [Script(text=field.text) for field in _texts_run(name, behind)]
        words = behind.words
    if name == "hyperfine":
        return [*inner, *(Script(text=field.text) for field in words)]
    if name == "watch" and words:
        return [*inner, Script(text=" ".join(field.text for field in words))]
    return [*inner, *_settle(words, stdin)]


def _split(name: str, rest: Reading, taking: frozenset[str], scene: Scene) -> Given:
    """The options before a command. Where one is cut short, which word is the command is a guess."""
    given = split(rest, taking, until_word=True)
    if given.guessed:
        scene.unclear(
            " ".join([name, *(field.text for field in rest)]), "which program it runs cannot be told"
        )
    return given


def _texts_run(name: str, given: Given) -> list[Field]:
    """Options of wrappers whose value is itself run as shell."""
    if name in ("runuser", "flock", "script", "npx", "hyperfine"):
        return given.values("-c", "--command", "--call", "--prepare", "--cleanup")
    return given.values("-e") if name == "xterm" else []


def _touch_files(name: str, given: Given, scene: Scene) -> None:
    match name:
        case "script" | "flock":
            for field in given.words[:1]:
                scene.touch(field, "write")
        case "time" | "strace" | "ltrace" | "perf":
            for field in given.values("-o", "--output"):
                if field.text.startswith(("|", "!")):
                    scene.unclear(f"{name} -o {field.text}", "its output goes to a program")
                scene.touch(field, "write")
        case "chroot" | "unshare" | "nsenter" | "gdb":
            scene.unclear(name, f"{name} changes what the command sees")
        case "sudo":
            if given.has("-e", "--edit"):
                for field in given.words:
                    scene.touch(field, "write")
        case "dotenv":
            for field in given.values("-e", "-f"):
                scene.touch(field, "read")
        case _:
            pass


def _settle(words: Sequence[Field], stdin: Feed | None) -> list[Inner]:
    """The variables that stand before a command, and the command."""
    settings: list[Inner] = []
    words = list(words)
    while words and (found := _ASSIGNMENT.fullmatch(words[0].text)):
        settings.append(Setting(name=found[1], value=found[2]))
        words.pop(0)
    return [*settings, Argv(fields=tuple(words), stdin=stdin)] if words else settings


_ENV: Final = names("-u --unset -C --chdir -S --split-string -P -a --argv0")


def _env(rest: Reading, scene: Scene, stdin: Feed | None) -> list[Inner]:
    given = _split("env", rest, _ENV, scene)
    words = list(given.words)
    for text in given.values("-S", "--split-string"):
        words = [*map(Field, _words_of(text.text)), *words]
    for directory in given.values("-C", "--chdir"):
        scene.touch(directory, "look")
        scene.unclear(f"env -C {directory.text}", "it runs in another directory")
    if any("=" in field.text and not _ASSIGNMENT.fullmatch(field.text) for field in words[:1]):
        scene.unclear(words[0].text, "it puts something else than a variable into the environment")
        words = words[1:]
    return _settle(words, stdin)


def _words_of(text: str) -> list[str]:
    if HOLE in text:
        return [text]
    try:
        return shlex.split(text)
    except ValueError:
        return [hole(text)]


_XARGS: Final = names(
    "-I -n -P -L -d -E -s -a -J -R -S --process-slot-var --arg-file --replace --max-args --max-procs --max-lines --delimiter --eof --max-chars"
)


_SOME: Final = ("-n", "-L", "-l", "-s", "-P", "--max-args", "--max-lines", "--max-chars", "--max-procs")


def _xargs(rest: Reading, scene: Scene, stdin: Feed | None) -> list[Inner]:
    given = _split("xargs", rest, _XARGS, scene)
    for field in given.values("-a", "--arg-file"):
        scene.touch(field, "read")
        stdin = Feed()
    if given.has("-d", "--delimiter"):
        stdin = Feed()
    command = given.words or (Field("echo"),)
    marks = [field.text for field in given.values("-I", "-J", "--replace")] or (
        ["{}"] if given.has("-i") else []
    )
    if not marks:
        fed = _fed(stdin)
        # Some at a time: which of them comes first is not known.
        starts = range(len(fed)) if given.has(*_SOME) else (0,)
        return [inner for start in starts or (0,) for inner in _settle((*command, *fed[start:]), None)]
    lines = _fed(stdin, lines=True) or (unknown(marks[-1]),)
    return [
        inner
        for each in lines
        for inner in _settle(tuple(_put(field, marks[-1], each) for field in command), None)
    ]


def _parallel(rest: Reading, scene: Scene, stdin: Feed | None) -> list[Inner]:
    given = split(rest, names("-j -n -N -I -a --jobs --colsep -C --delay"), until_word=True)
    texts = [field.text for field in given.words]
    sources = [place for place, text in enumerate(texts) if re.fullmatch(r":{3,4}\+?", text)]
    command = given.words[: sources[0]] if sources else given.words
    fed = given.words[sources[0] + 1 :] if sources else _fed(stdin, lines=True)
    if any(text.startswith("::::") for text in texts) or given.values("-a"):
        fed = (unknown("{}"),)
    if not command:  # every line is a command
        return [Script(text=field.text) for field in fed]
    if any(HOLE in field.text for field in fed):
        scene.unclear(" ".join(texts), "parallel puts commands together")
    marked = any("{}" in field.text for field in command)
    lines = [[_put(field, "{}", each) for field in command] + ([] if marked else [each]) for each in fed]
    return [Script(text=" ".join(field.text for field in line)) for line in lines]


def _fed(stdin: Feed | None, *, lines: bool = False) -> tuple[Field, ...]:
    """The words that are made of an input."""
    if stdin is None:
        return ()
    if stdin.listing is not None:
        return (Field(hole("files of the list"), listing=stdin.listing),)
    if stdin.text is None:
        return (unknown("words from the input"),)
    found = stdin.text.splitlines() if lines else _words_of(stdin.text.replace("\0", " "))
    return tuple(map(Field, found))


def _put(field: Field, mark: str, value: Field) -> Field:
    if field.text == mark:
        return value
    if mark not in field.text:
        return field
    return Field(field.text.replace(mark, value.text)) if value.is_known else unknown(field.text)


_SSH: Final = frozenset(f"-{char}" for char in "bcDEeFIiJLlmOopQRSWwB")


def _ssh(rest: Reading, scene: Scene) -> list[Inner]:
    """What runs on another machine is no business of this one's files; what ssh itself runs is."""
    given = split(rest, _SSH, until_word=True)
    for field in given.values("-o"):
        if re.match(r"(?i)(proxy|local|knownhosts|remote)\w*command|permitlocal", field.text):
            scene.unclear(f"ssh -o {field.text}", "an option of ssh runs a program")
    for field in given.values("-F"):
        scene.unclear(f"ssh -F {field.text}", "settings of ssh may run a program")
    for field in given.values("-i", "-E"):
        scene.touch(field, "look")
    if any(
        re.search(r"(?:^|@)(?:localhost|127\.|::1|\[::1\])", field.text) or HOLE in field.text
        for field in given.words[:1]
    ):
        scene.unclear(" ".join(field.text for field in given.words), "it runs on this machine after all")
    return []


def _runner(name: str, rest: Reading, stdin: Feed | None) -> list[Inner] | None:
    given = split(rest, _RUNNER_VALUES, until_word=True)
    if len(given.words) <= 1 or given.words[0].text not in (_RUNNERS[name], "dlx", "x"):
        return None
    inner = split(given.words[1:], _RUNNER_VALUES | {"-c"}, until_word=True)
    scripts: list[Inner] = [Script(text=field.text) for field in inner.values("-c", "--call")]
    return [*scripts, *([Argv(fields=inner.words, stdin=stdin)] if inner.words else [])]
