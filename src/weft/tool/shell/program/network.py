"""Examine network clients, containers and database clients: which files they send, mount or overwrite."""

import re
from typing import Final

from weft.tool.shell.arguments import Field, Fields, ParsedArguments, parse_arguments, split_names
from weft.tool.shell.program.effects import InnerScript, ProgramEffects
from weft.tool.shell.program.table import touch_paths
from weft.tool.shell.state import ShellState, StreamContent

_REMOTE: Final = re.compile(r"(?:[\w.-]+@)?[\w.-]+:")
_CURL_WRITES: Final = split_names(
    "-o --output -c --cookie-jar -D --dump-header --trace --trace-ascii --stderr --libcurl --hsts --etag-save"
)
_CURL_READS: Final = split_names(
    "-T --upload-file -K --config -E --key --cert --cacert --netrc-file --etag-compare --unix-socket --variable"
)
_CURL_SENDS: Final = split_names(
    "-d --data --data-ascii --data-binary --data-urlencode -F --form -H --header --json -b --cookie --proxy-header"
)
_CURL: Final = (
    _CURL_WRITES
    | _CURL_READS
    | _CURL_SENDS
    | split_names(
        "-X -u -A -e -x -w -m -r -Y -y -z -C --output-dir --data-raw --request --user --form-string"
    )
)


def examine_curl(rest: Fields, state: ShellState) -> ProgramEffects:
    given = parse_arguments(rest, _CURL)
    for field in given.values(*_CURL_READS):
        state.touch(field, "read")
    for field in given.values("-K", "--config"):
        state.mark_unclear(f"curl -K {field.text}", "curl settings may write files")
    for field in given.values(*_CURL_SENDS):
        _touch_sent(field, state)
    for field in given.values("-b", "--cookie"):
        if "=" not in field.text:
            state.touch(field, "read")
    for field in given.words:
        if field.text.startswith("file:"):
            state.touch(Field(re.sub(r"file:/*", "/", field.text)), "read")
    return ProgramEffects(quiet=not _examine_curl_output(given, state))


def _touch_sent(field: Field, state: ShellState) -> None:
    """Note the files that are sent by `@file`, `name=@file`, `name=<file` or `name@file`."""
    _, sign, path = field.text.partition("@")
    if sign and (field.text.startswith("@") or "=@" in field.text or "@" in field.text.partition("=")[0]):
        state.touch(Field(path.partition(";")[0]), "read")
    elif "=<" in field.text:
        state.touch(Field(field.text.partition("=<")[2]), "read")


def _examine_curl_output(given: ParsedArguments, state: ShellState) -> bool:
    directories = given.values("--output-dir")
    for field in given.values(*_CURL_WRITES):
        state.touch(field, "write")
    for field in directories:
        state.touch_all(field, "write")
    by_name = given.has("-O", "--remote-name", "--remote-name-all", "-J", "--remote-header-name")
    if by_name and not directories:
        _touch_download(given.words, state, named_by_server=given.has("-J", "--remote-header-name"))
    return by_name or given.has(*_CURL_WRITES)


def _touch_download(words: Fields, state: ShellState, *, named_by_server: bool) -> None:
    """Note the file that is saved under the last name in the URL. `told` means that the server chooses the name."""
    for field in words:
        name = re.sub(r"[?#].*", "", field.text).rstrip("/").rpartition("/")[2]
        if named_by_server or not field.is_known or not name:
            state.touch_below(*(state.cwds or ()))
        else:
            state.touch(Field(name), "write")


_WGET_WRITES: Final = split_names("-O -o -a --output-document --save-cookies --output-file --append-output")
_WGET_READS: Final = split_names("-i --input-file --post-file --body-file --load-cookies")
_WGET_RUNS: Final = split_names("--use-askpass -e --execute")
_WGET: Final = _WGET_WRITES | _WGET_READS | _WGET_RUNS | split_names("-P --directory-prefix")


def examine_wget(rest: Fields, state: ShellState) -> ProgramEffects:
    given = parse_arguments(rest, _WGET)
    for field in given.values(*_WGET_WRITES):
        state.touch(field, "write")
    for field in given.values(*_WGET_READS):
        state.touch(field, "read")
    for field in given.values(*_WGET_RUNS):
        state.mark_unclear(f"wget {field.text}", "an option of wget runs a program")
    for field in given.values("-P", "--directory-prefix"):
        state.touch_all(field, "write")
    if not given.has("-O", "--output-document", "-P", "--directory-prefix", "--spider"):
        named_by_server = given.has(
            "-r", "--recursive", "-m", "--mirror", "--content-disposition", "-i", "--input-file"
        )
        _touch_download(given.words, state, named_by_server=named_by_server)
    return ProgramEffects(
        quiet=given.has("--spider") or [field.text for field in given.values("-O")] == ["-"]
    )


_RSYNC: Final = split_names(
    "-e --rsh --rsync-path -f --filter --exclude --include --exclude-from --files-from --log-file -S -o -i -F -P -J"
)


def examine_rsync(rest: Fields, state: ShellState) -> ProgramEffects:
    """Examine rsync or scp."""
    given = parse_arguments(rest, _RSYNC)
    for field in given.values("-S", "--rsync-path"):
        state.mark_unclear(field.text, "an option of it runs a program")
    if any("Command" in field.text for field in given.values("-o")):
        state.mark_unclear("scp -o", "an option of it runs a program")
    for field in given.values("--exclude-from", "--files-from", "-i", "-F"):
        state.touch(field, "read")
    for field in given.values("--log-file"):
        state.touch(field, "write")
    for field in given.words[:-1]:
        if not _is_remote(field):
            state.touch_all(field, "read")
    for field in given.words[-1:]:
        if not _is_remote(field):
            state.touch_all(field, "write")
    return ProgramEffects(
        inner=tuple(InnerScript(text=field.text) for field in given.values("-e", "--rsh")), quiet=False
    )


def _is_remote(field: Field) -> bool:
    return bool(_REMOTE.match(field.text)) and "/" not in field.text.partition(":")[0]


def examine_sftp(rest: Fields, state: ShellState, stdin: StreamContent | None) -> ProgramEffects:
    given = parse_arguments(rest, split_names("-b -i -F -o -P -S"))
    for field in given.values("-b", "-i", "-F"):
        state.touch(field, "read")
    if stdin is not None or given.has("-b", "-S", "-o"):
        state.mark_unclear("sftp of its input", "which files it sends and fetches is not known")
    return ProgramEffects(quiet=False)


def examine_netcat(rest: Fields, state: ShellState) -> ProgramEffects:
    given = parse_arguments(rest, split_names("-e -c -w -p -s -i -q -x -X --exec --sh-exec --lua-exec"))
    touch_paths(given.words, state)
    run = given.values("-e", "-c", "--exec", "--sh-exec", "--lua-exec")
    if run:
        state.mark_unclear(
            " ".join(["nc", *(field.text for field in rest)]), "it runs a program for every caller"
        )
    return ProgramEffects(inner=tuple(InnerScript(text=field.text) for field in run))


def examine_socat(rest: Fields, state: ShellState) -> ProgramEffects:
    words = " ".join(field.text for field in rest)
    if re.search(r"(?i)\b(?:exec|system|shell|open|gopen|create|file|pipe|ssl\w*|openssl\w*)\b:", words):
        state.mark_unclear(f"socat {words}", "a socat address runs a program or opens a file")
    return ProgramEffects()


_MOUNTS: Final = ("-v", "--volume", "--mount", "--device")
_FILES: Final = ("--env-file", "-f", "--file")
_CONTAINER: Final = split_names(
    "-v --volume --mount --device --env-file -e --env --name -p --publish -w --workdir -u --user --network --entrypoint"
    " -f --file -t --tag -n --namespace -c --context -H --host -l --label"
)


def examine_container(name: str, rest: Fields, state: ShellState) -> ProgramEffects:
    """Examine a container client. What runs inside sees other files; what matters is which of our files it can see."""
    given = parse_arguments(rest, _CONTAINER, until_word=True)
    verb = given.words[0].text if given.words else ""
    own = parse_arguments(given.words[1:], _CONTAINER, until_word=verb in ("run", "exec", "create"))
    for field in (*given.values(*_MOUNTS), *own.values(*_MOUNTS)):
        found = re.search(r"(?:source|src)=([^,]+)", field.text)
        state.touch(Field(found[1] if found else field.text.partition(":")[0]), "write")
    for field in (*given.values(*_FILES), *own.values(*_FILES)):
        state.touch(field, "read")
    if name == "kubectl" and verb == "create":
        # It runs nothing here, and many of its options take a file.
        touch_paths(given.words[1:], state)
    elif verb not in ("run", "exec", "create", "logs"):
        touch_paths(own.words, state)
    return ProgramEffects(quiet=False)


_WHY: Final = "it has commands that run programs and write files"
_SQLITE: Final = re.compile(
    r"(?im)^\s*\.(?!(?:tables?|schema|mode|headers?|databases|indexes|show|width|timeout|nullvalue|separator|exit|quit)\b)"
    r"|\b(?:readfile|writefile|load_extension|edit|fts3_tokenizer)\s*\(|\battach\b"
)
_CLIENT: Final = re.compile(
    r"(?i)\\(?:!|o|i|ir|g|w|copy|s)\b|\\!|\bcopy\b.*\b(?:program|from|to)\b\s*'|\bsystem\b|\bsource\b"
    r"|\binto\s+(?:outfile|dumpfile)\b|\bload\s+data\b"
)


def examine_sqlite(rest: Fields, state: ShellState, stdin: StreamContent | None) -> ProgramEffects:
    given = parse_arguments(rest, split_names("-cmd -init -separator -nullvalue -newline"))
    for field in given.words[:1]:
        state.touch(field, "write")
    for field in given.values("-init"):
        state.touch(field, "read")
    statements = [field.text for field in (*given.values("-cmd"), *given.words[1:])]
    _examine_statements("sqlite3", statements, stdin, state, _SQLITE)
    return ProgramEffects(quiet=stdin is None)


def examine_database_client(
    name: str, rest: Fields, state: ShellState, stdin: StreamContent | None
) -> ProgramEffects:
    """Examine psql, mysql and similar clients."""
    given = parse_arguments(
        rest,
        split_names("-c -f -e -d -h -U -p -P -u -o -L -v -D --command --file --execute --output --log-file"),
    )
    _touch_files(given, state)
    touch_paths(given.words, state)
    statements = [field.text for field in given.values("-c", "--command", "-e", "--execute")]
    _examine_statements(name, statements, stdin, state, _CLIENT)
    return ProgramEffects(quiet=False)


def _touch_files(given: ParsedArguments, state: ShellState) -> None:
    for field in given.values("-f", "--file"):
        state.touch(field, "read")
    for field in given.values("-o", "-L", "--output", "--log-file"):
        state.touch(field, "write")


def _examine_statements(
    name: str, statements: list[str], stdin: StreamContent | None, state: ShellState, odd: re.Pattern[str]
) -> None:
    if stdin is not None and stdin.text is not None:
        statements = [*statements, stdin.text]
    for text in statements:
        if odd.search(text):
            state.mark_unclear(f"{name} {text}", _WHY)
