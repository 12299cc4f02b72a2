"""Unwrap programs that run another program. What they run is judged as if it stood alone."""

import re
import shlex
from collections.abc import Sequence
from itertools import pairwise
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

_SU_VALUE_OPTIONS: Final = split_names("-c --command -s --shell -g -G")
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)

# Each line: name, number of words before the command, and the options that take a value.
_TABLE = """
sudo 0 -u -g -h -p -C -c -r -t -T -U -D -R --user --group --host --prompt --chdir --close-from --role --type
doas 0 -u -C
timeout 1 -k -s --kill-after --signal
gtimeout 1 -k -s --kill-after --signal
nice 0 -n --adjustment
ionice 0 -c -n -p -P -u --class --classdata
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
watch 0 -n -q -s --interval --equexit --shotsdir
strace 0 -o -e -p -s -u -P -E -O -S -I -a -b -X -U --output --env --trace --attach --user --trace-path --string-limit --columns --interruptible --detach-on --const-print-style --summary-sort-by --summary-columns
ltrace 0 -o -e -p -s -u -n -l -a -A -D -F -w -x --output --config --library
valgrind 0 --log-file --tool
proxychains 0 -f
proxychains4 0 -f
torsocks 0
faketime 1 --date-prog
xvfb-run 0 -e -f -n -p -s -w --error-file --auth-file --server-num --server-args --wait
dbus-run-session 0
fakeroot 0 -l -f -i -s -b --lib --faked
chronic 0
ts 0
busybox 0
toybox 0
systemd-inhibit 0 --what --who --why --mode
choom 0 -n
prlimit 0 -p
numactl 0 -N -m -C -i -p -w -P
cpulimit 0 -l -p
firejail 0
bwrap 0
eatmydata 0
rlwrap 0 -b -C -D -f -F -g -H -l -M -O -P -q -s -S -t -z --history-filename --logfile --filter
setpriv 0
setarch 0
linux64 0
linux32 0
dumb-init 0
tini 0 -p -e
ssh-agent 0 -a -t -E -P -O
pkexec 0 --user
runcon 0 -u -r -t -l
trickle 0 -d -u -w -t -l -n
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
perf 1 -e -o -p -t -F -r -C -G --output --pre --post --objdump --addr2line
hyperfine 0 -w -r -m -M -p -c -n -s -S -C -P -D -L -u --warmup --runs --min-runs --max-runs --export-json --export-markdown --export-csv --export-asciidoc --export-orgmode --prepare --cleanup --setup --conclude --shell --input --output --parameter-list --parameter-scan --time-unit --style --reference
entr 0
flock 1 -w -E -c --wait --timeout --conflict-exit-code --command
script 0 -c --command -T -I -O -B -m -o -E --log-in --log-out --log-io --log-timing --logging-format --output-limit --echo
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
    "bun": "run", "asdf": "exec", "rbenv": "exec", "pyenv": "exec", "dotnet": "exec", "devbox": "run", "pipx": "run", "op": "run",
}  # fmt: skip
# Elsewhere, these take no value.
_RUNNER_LETTERS: Final = {
    **dict.fromkeys(("conda", "mamba"), split_names("-n -p")),
    **dict.fromkeys(("uv", "pdm", "npm", "pnpm"), frozenset({"-p"})),
}
_RUNNER_VALUE_OPTIONS: Final = split_names(
    "--name --prefix --with --from --python --package --extra --group --env-file --directory --project --cwd --only-group"
    " --no-group --with-editable --with-requirements --index --index-url"
)
# The names of GNU programs where other programs have theirs.
_GNU_PROGRAMS: Final = frozenset(
    f"g{name}"
    for name in split_names(
        "b2sum base32 base64 basenc cat chgrp chmod chown cksum comm csplit cut date dd df dir du env expand fmt fold head join link"
        " ls md5sum mkdir mkfifo mknod mktemp nice nl nohup od paste pr ptx readlink realpath rm rmdir sha1sum sha224sum sha256sum"
        " sha384sum sha512sum shred shuf sort split stat stdbuf sum tac tail tee touch tr truncate tsort unexpand uniq unlink wc"
        " grep egrep fgrep xargs diff diff3 sdiff cmp patch time"
    )
)
WRAPPERS: Final = frozenset(_WRAPPERS) | split_names("env xargs")
# These write files themselves: the program that they download, or what they record of the one that they run.
WRITING_WRAPPERS: Final = frozenset(_RUNNERS) | split_names(
    "npx bunx uvx pipx ssh perf valgrind script hyperfine gdb"
)
# These start processes that go on after the command has ended. They are unclear.
DETACHING_PROGRAMS: Final = split_names(
    "at batch crontab systemd-run tmux screen launchctl daemonize start-stop-daemon abduco dtach zellij"
)


def unwrap_command(argv: Fields, state: ShellState, stdin: StreamContent | None) -> list[Inner] | None:
    """Return what a wrapper runs, or None if the program is not a wrapper."""
    name, arguments = argv[0].text.rpartition("/")[2], argv[1:]
    match name:
        case "env":
            return _unwrap_env(arguments, state, stdin)
        case _ if name in _GNU_PROGRAMS:
            return [InnerCommand(fields=(Field(name[1:]), *arguments), stdin=stdin)]
        case "xargs":
            return _unwrap_xargs(arguments, state, stdin)
        case "parallel":
            return _unwrap_parallel(arguments, state, stdin)
        case "eval":
            return (
                [InnerScript(text=" ".join(field.text for field in arguments), stdin=stdin)]
                if arguments
                else []
            )
        case "trap":
            return [InnerScript(text=field.text) for field in parse_arguments(arguments).words[:1]]
        case "jobs":
            parsed = parse_arguments(arguments, until_word=True)
            return [InnerCommand(fields=parsed.words)] if parsed.has("-x") else []
        case "alias":
            return _unwrap_alias(arguments, state)
        case "su":
            return _unwrap_su(arguments, state, stdin)
        case "ssh":
            return _examine_ssh(arguments, state)
        case _ if name in _RUNNERS:
            return _unwrap_runner(name, arguments, state, stdin)
        case _ if name in _WRAPPERS:
            return _unwrap_plain(name, arguments, state, stdin)
        case _:
            return None


def _unwrap_alias(arguments: Fields, state: ShellState) -> list[Inner]:
    definitions = [field.text for field in arguments if "=" in field.text]
    for definition in definitions:
        state.mark_unclear(f"alias {definition}", "some shells substitute it in what follows")
    return [InnerScript(text=definition.partition("=")[2]) for definition in definitions]


def _unwrap_plain(
    name: str, arguments: Fields, state: ShellState, stdin: StreamContent | None
) -> list[Inner]:
    skip, value_options = _WRAPPERS[name]
    parsed = _parse_options(name, arguments, value_options, state)
    inner: list[Inner] = [InnerScript(text=field.text) for field in _list_script_options(name, parsed)]
    _touch_files(name, arguments, parsed, state)
    if name == "command" and parsed.has("-v", "-V"):
        return []
    words = parsed.words
    if skip:
        reparsed = _parse_options(name, words[skip:], value_options, state)
        inner += [InnerScript(text=field.text) for field in _list_script_options(name, reparsed)]
        words = reparsed.words
    inner += [
        InnerAssignment(name=variable, value=value)
        for field in (parsed.values("-E", "--env") if name == "strace" else ())
        for variable, equals, value in [field.text.partition("=")]
        if equals
    ]
    if name == "hyperfine":
        has_parameters = parsed.has("-L", "-P", "--parameter-list", "--parameter-scan")
        if has_parameters and any(_PARAMETER_AS_PROGRAM.search(field.text) for field in words):
            state.mark_unclear(f"hyperfine {words[-1].text}", "a parameter says which program it runs")
        return [*inner, *(InnerScript(text=field.text) for field in words)]
    if name == "entr" and parsed.has("-s"):
        return [*inner, *(InnerScript(text=field.text) for field in words[:1])]
    if name == "watch" and words:
        return [*inner, InnerScript(text=" ".join(field.text for field in words))]
    if name in _WITH_FIRST_WORD and words:
        # The first word may be something else than the command.
        inner += _split_assignments(words[1:], stdin)
    if (
        name in _SHELL_STARTERS
        and not inner
        and stdin is not None
        and len(words) <= (name in _WITH_FIRST_WORD)
    ):
        return [InnerCommand(fields=(Field("sh"),), stdin=stdin)]
    return [*inner, *_split_assignments(words, stdin)]


# The word before their command is an architecture, a context or a file, but may be missing.
_WITH_FIRST_WORD: Final = split_names("setarch runcon script")
# Where hyperfine would put a parameter that is run.
_PARAMETER_AS_PROGRAM: Final = re.compile(r"(?:^|[;&|(`])\s*[^\s{]*\{\w")
# Without a command, these start a shell that reads its input.
_SHELL_STARTERS: Final = split_names("sudo doas script fakeroot setarch linux32 linux64 runuser firejail")


def _unwrap_su(arguments: Fields, state: ShellState, stdin: StreamContent | None) -> list[Inner]:
    parsed = parse_arguments(arguments, _SU_VALUE_OPTIONS)
    scripts = parsed.values("-c", "--command")
    for field in parsed.values("-s", "--shell"):
        if not state.location.is_in_program_directory(field.text) or not field.text.endswith("sh"):
            state.mark_unclear(f"su -s {field.text}", "it runs another program than a shell")
    if not scripts and stdin is not None:
        return [InnerCommand(fields=(Field("sh"),), stdin=stdin)]
    # What follows two dashes is for the shell.
    after = [field for before, field in pairwise(parsed.words) if re.fullmatch(r"-\w*c", before.text)]
    return [InnerScript(text=field.text) for field in (*scripts, *after)]


def _parse_options(
    name: str, arguments: Fields, value_options: frozenset[str], state: ShellState
) -> ParsedArguments:
    """Parse the options before a command. With an abbreviated option, it is uncertain which word is the command."""
    parsed = parse_arguments(arguments, value_options, until_word=True)
    if parsed.guessed:
        state.mark_unclear(
            " ".join([name, *(field.text for field in arguments)]), "which program it runs is not known"
        )
    return parsed


def _list_script_options(name: str, parsed: ParsedArguments) -> list[Field]:
    """Return the option values that a wrapper runs as a script."""
    if name in ("runuser", "flock", "script", "npx", "hyperfine"):
        scripts = parsed.values("-c", "--command", "--call", "--prepare", "--cleanup")
        own = ("-p", "-s", "--setup", "-C", "--conclude", "-S", "--shell", "--reference")
        return [*scripts, *(parsed.values(*own) if name == "hyperfine" else [])]
    if name == "perf":
        return parsed.values("--pre", "--post", "--objdump", "--addr2line")
    return parsed.values("-e") if name == "xterm" else []


# Options of wrappers that load a library or run another program than their command, or run it elsewhere.
_UNCLEAR_OPTIONS: Final = {
    "faketime": ("--date-prog",),
    "fakeroot": ("-l", "-f", "--lib", "--faked"),
    "rlwrap": ("-z", "--filter"),
    "sudo": ("-D", "-R", "-i", "--chdir", "--chroot", "--login"),
    "perf": ("--exec-path",),
    "busybox": ("--install",),
}
# Options of wrappers whose value is a file that is written.
_LOG_OPTIONS: Final = {
    "script": split_names("-T -I -O -B --log-in --log-out --log-io --log-timing --timing"),
    "xvfb-run": split_names("-e -f --error-file --auth-file"),
    "fakeroot": frozenset({"-s"}),
    "ssh-agent": frozenset({"-a"}),
    "rlwrap": split_names("-H -l --history-filename --logfile"),
    "watch": split_names("-s --shotsdir"),
    "hyperfine": split_names(
        "--export-json --export-markdown --export-csv --export-asciidoc --export-orgmode --output"
    ),
    "valgrind": split_names(
        "--log-file --xml-file --xtree-memory-file --xtree-leak-file --callgrind-out-file --massif-out-file --cachegrind-out-file --dhat-out-file"
    ),
    **dict.fromkeys(("time", "strace", "ltrace", "perf"), split_names("-o --output")),
}


def _touch_files(name: str, arguments: Fields, parsed: ParsedArguments, state: ShellState) -> None:
    _touch_logs(name, parsed, state)
    matches = (re.match(r"-[a-z]*t(.+)", field.text) for field in arguments if name == "script")
    for match in matches:  # the time of each line
        state.touch(Field(match[1] if match else ""), "write")
    match name:
        case "script" | "flock":
            for field in parsed.words[:1]:
                state.touch(field, "write")
        case "hyperfine":
            for field in parsed.values("--input"):
                state.touch(field, "read")
        case "perf":
            # The options of `perf record -o file program` follow a word.
            _touch_logs(name, parse_arguments(parsed.words[1:], _WRAPPERS[name][1], until_word=True), state)
        case "chroot" | "unshare" | "nsenter" | "gdb" | "bwrap" | "firejail" | "pkexec":
            state.mark_unclear(name, f"{name} changes what the command sees")
        case "sudo":
            if parsed.has("-e", "--edit"):
                for field in parsed.words:
                    state.touch(field, "write")
        case "dotenv":
            for field in parsed.values("-e", "-f") or [Field(".env")]:
                state.touch(field, "read")
        case _:
            pass


def _touch_logs(name: str, parsed: ParsedArguments, state: ShellState) -> None:
    for option in _UNCLEAR_OPTIONS.get(name, ()):
        if parsed.has(option):
            state.mark_unclear(f"{name} {option}", "it runs something else, or elsewhere")
    for field in parsed.values(*_LOG_OPTIONS.get(name, ())):
        if field.text.startswith(("|", "!")):
            state.mark_unclear(f"{name} -o {field.text}", "its output goes to a program")
        state.touch(field, "write")


def _split_assignments(words: Sequence[Field], stdin: StreamContent | None) -> list[Inner]:
    """Split off the assignments before a command."""
    assignments: list[Inner] = []
    words = list(words)
    while words and (match := _ASSIGNMENT.fullmatch(words[0].text)):
        assignments.append(InnerAssignment(name=match[1], value=match[2]))
        words.pop(0)
    return [*assignments, InnerCommand(fields=tuple(words), stdin=stdin)] if words else assignments


_ENV_VALUE_OPTIONS: Final = split_names("-u --unset -C --chdir -S --split-string -P -a --argv0")


def _unwrap_env(arguments: Fields, state: ShellState, stdin: StreamContent | None) -> list[Inner]:
    parsed = _parse_options("env", arguments, _ENV_VALUE_OPTIONS, state)
    words = list(parsed.words)
    for text in parsed.values("-S", "--split-string"):
        if re.search(r"[\\$]", text.text):
            state.mark_unclear(f"env -S {text.text}", "env reads it in its own way")
        split = tuple(map(Field, _split_words(text.text)))
        if split[:1] and split[0].text.startswith("-"):
            return [InnerCommand(fields=(Field("env"), *split, *words), stdin=stdin)]
        words = [*split, *words]
    for path in parsed.values("-P"):
        state.mark_unclear(f"env -P {path.text}", "it runs a program of another directory")
    for directory in parsed.values("-C", "--chdir"):
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


_XARGS_VALUE_OPTIONS: Final = split_names(
    "-I -n -P -L -d -E -s -a -J -R -S --process-slot-var --arg-file --max-args --max-procs --delimiter --max-chars"
)


# With these, xargs runs the command several times.
_XARGS_BATCH_OPTIONS: Final = (
    "-n",
    "-L",
    "-l",
    "-s",
    "-P",
    "--max-args",
    "--max-lines",
    "--max-chars",
    "--max-procs",
)


def _unwrap_xargs(arguments: Fields, state: ShellState, stdin: StreamContent | None) -> list[Inner]:
    parsed = _parse_options("xargs", arguments, _XARGS_VALUE_OPTIONS, state)
    for field in parsed.values("-a", "--arg-file"):
        state.touch(field, "read")
        stdin = StreamContent()
    if parsed.has("-d", "--delimiter"):
        stdin = StreamContent()
    command = parsed.words or (Field("echo"),)
    placeholders = [field.text for field in parsed.values("-I", "-J", "--replace")]
    options = arguments[: len(arguments) - len(parsed.words)]
    # Its value is never a word of its own.
    matches = (re.fullmatch(r"-[0oprtx]*i(.*)|--r[a-z]*", field.text) for field in options)
    placeholders += [match[1] or "{}" for match in matches if match]
    if not placeholders:
        inputs = _to_input_fields(stdin)
        # The command runs several times, and any argument may come first.
        starts = range(len(inputs)) if parsed.has(*_XARGS_BATCH_OPTIONS) else (0,)
        return [
            inner
            for start in starts or (0,)
            for inner in _split_assignments((*command, *inputs[start:]), None)
        ]
    lines = _to_input_fields(stdin, lines=True) or (unknown_field(placeholders[-1]),)
    return [
        inner
        for line in lines
        for inner in _split_assignments(
            tuple(_substitute(field, placeholders[-1], line) for field in command), None
        )
    ]


def _unwrap_parallel(arguments: Fields, state: ShellState, stdin: StreamContent | None) -> list[Inner]:
    parsed = parse_arguments(
        arguments,
        split_names(
            "-j -n -N -I -a -S -C --jobs --colsep --delay --arg-file --results --joblog --sshlogin --sshloginfile --slf --tmpdir --wd --workdir"
            " --basefile --bf --timeout --retries --halt --block --env --ssh --limit --rpl --compress-program --decompress-program"
            " --profile -J --recstart --recend --arg-sep --arg-file-sep --tagstring --transferfile --tf --return --trc --memfree --load"
            " --nice --template --tmpl --sql --sqlmaster --sqlworker --sqlandworker --filter"
        ),
        until_word=True,
    )
    running = (
        "--ssh",
        "--limit",
        "--rpl",
        "--compress-program",
        "--decompress-program",
        "--profile",
        "-J",
        "--filter",
    )
    if parsed.values(*running) or any("{=" in field.text for field in arguments):
        state.mark_unclear(
            " ".join(["parallel", *(field.text for field in arguments)]),
            "an option of it runs a program or code",
        )
    for field in parsed.values("-a", "--arg-file", "--sshloginfile", "--slf"):
        state.touch(field, "read")
    for field in parsed.values("--joblog"):
        state.touch(field, "write")
    for field in parsed.values("--results", "--tmpdir"):
        state.touch_all(field, "write")
    texts = [field.text for field in parsed.words]
    sources = [index for index, text in enumerate(texts) if re.fullmatch(r":{3,4}\+?", text)]
    command = parsed.words[: sources[0]] if sources else parsed.words
    inputs = parsed.words[sources[0] + 1 :] if sources else _to_input_fields(stdin, lines=True)
    if any(text.startswith("::::") for text in texts) or parsed.values("-a", "--arg-file"):
        inputs = (unknown_field("{}"),)
    if not command:  # every line is a command
        return [InnerScript(text=field.text) for field in inputs]
    if any(UNKNOWN_START in field.text for field in inputs):
        state.mark_unclear(" ".join(texts), "parallel composes commands")
    has_placeholder = any("{}" in field.text for field in command)
    lines = [
        [_substitute(field, "{}", input_field) for field in command]
        + ([] if has_placeholder else [input_field])
        for input_field in inputs
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
    texts = stdin.text.splitlines() if lines else _split_words(stdin.text.replace("\0", " "))
    return tuple(map(Field, texts))


def _substitute(field: Field, placeholder: str, value: Field) -> Field:
    if field.text == placeholder:
        return value
    if placeholder not in field.text:
        return field
    return Field(field.text.replace(placeholder, value.text)) if value.is_known else unknown_field(field.text)


_SSH_VALUE_OPTIONS: Final = frozenset(f"-{char}" for char in "bcDEeFIiJLlmOopQRSWwB")


# Settings of ssh that neither run a program nor name a host, a file or a library.
_HARMLESS_SSH_SETTING: Final = re.compile(
    r"(?i)\s*(?:StrictHostKeyChecking|ConnectTimeout|ConnectionAttempts|BatchMode|ServerAlive\w+|LogLevel|Port|User|Compression|TCPKeepAlive"
    r"|PasswordAuthentication|PubkeyAuthentication|KbdInteractiveAuthentication|PreferredAuthentications|NumberOfPasswordPrompts|IdentitiesOnly"
    r"|AddressFamily|ForwardAgent|ForwardX11|RequestTTY|ExitOnForwardFailure|Ciphers|MACs|KexAlgorithms|HostKeyAlgorithms|PubkeyAccepted\w+"
    r"|ControlPersist|UserKnownHostsFile\s*[=\s]\s*/dev/null\s*$|GlobalKnownHostsFile\s*[=\s]\s*/dev/null\s*$|VisualHostKey|CheckHostIP|UpdateHostKeys|HashKnownHosts)\b"
)


def names_this_machine(field: Field) -> bool:
    host = field.text.removeprefix("ssh://").rpartition("@")[2].strip("[]").lower()
    # Numbers are addresses, too: 0, 127.1, 0x7f000001, 2130706433.
    return UNKNOWN_START in field.text or bool(
        re.match(r"(?:[\w-]+\.)?localhost|ip6-l|127\.|::|0(?:[.:/x]|$)|\d+(?:[:/]|$)|0+177", host)
    )


def examine_ssh_settings(name: str, parsed: ParsedArguments, state: ShellState) -> None:
    """Note what settings of ssh, scp or sftp run."""
    for field in parsed.values("-o"):
        if not _HARMLESS_SSH_SETTING.match(field.text):
            state.mark_unclear(f"{name} -o {field.text}", "an option of ssh runs a program")
    for field in parsed.values("-F"):
        state.mark_unclear(f"{name} -F {field.text}", "settings of ssh may run a program")


def _examine_ssh(arguments: Fields, state: ShellState) -> list[Inner]:
    """Examine ssh. What runs on another machine cannot touch our files, but ssh itself may run a program here."""
    parsed = parse_arguments(arguments, _SSH_VALUE_OPTIONS, until_word=True)
    # There may be more options after the host.
    for each in (parsed, parse_arguments(parsed.words[1:], _SSH_VALUE_OPTIONS, until_word=True)):
        examine_ssh_settings("ssh", each, state)
        for field in each.values("-I"):
            state.mark_unclear(f"ssh -I {field.text}", "it loads a library")
        for field in each.values("-i"):
            state.touch(field, "look")
        for field in each.values("-E"):
            state.touch(field, "write")
    # `-P` takes a value only in newer versions.
    if any(names_this_machine(field) for field in parsed.words[: 2 if parsed.has("-P") else 1]):
        state.mark_unclear(
            " ".join(field.text for field in parsed.words), "it runs on this machine after all"
        )
    return []


def _unwrap_runner(
    name: str, arguments: Fields, state: ShellState, stdin: StreamContent | None
) -> list[Inner] | None:
    value_options = _RUNNER_VALUE_OPTIONS | _RUNNER_LETTERS.get(name, frozenset())
    parsed = parse_arguments(arguments, value_options, until_word=True)
    if len(parsed.words) <= 1 or parsed.words[0].text not in (_RUNNERS[name], "dlx", "x"):
        return None
    inner = parse_arguments(parsed.words[1:], value_options | {"-c"}, until_word=True)
    for each in (parsed, inner):
        for field in each.values("--env-file"):
            state.touch(field, "read")
        for field in each.values("--directory", "--cwd"):
            state.touch(field, "look")
            state.mark_unclear(f"{name} --directory {field.text}", "it runs in another directory")
    scripts: list[Inner] = [InnerScript(text=field.text) for field in inner.values("-c", "--call")]
    words = inner.words
    if name == "hatch" and words:  # `hatch run environment:command`
        words = (words[0].ending(words[0].text.rpartition(":")[2]), *words[1:])
    return [*scripts, *([InnerCommand(fields=words, stdin=stdin)] if words else [])]
