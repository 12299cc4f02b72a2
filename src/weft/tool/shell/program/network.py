"""Network clients, containers and database clients: which files they send, show or overwrite."""

import re
from typing import Final

from weft.tool.shell.field import Field, Given, Reading, names, split
from weft.tool.shell.program.inner import Found, Script
from weft.tool.shell.program.table import use_looks
from weft.tool.shell.scene import Feed, Scene

_REMOTE: Final = re.compile(r"(?:[\w.-]+@)?[\w.-]+:")
_CURL_WRITES: Final = names(
    "-o --output -c --cookie-jar -D --dump-header --trace --trace-ascii --stderr --libcurl --hsts --etag-save"
)
_CURL_READS: Final = names(
    "-T --upload-file -K --config -E --key --cert --cacert --netrc-file --etag-compare --unix-socket --variable"
)
_CURL_SENDS: Final = names(
    "-d --data --data-ascii --data-binary --data-urlencode -F --form -H --header --json -b --cookie --proxy-header"
)
_CURL: Final = (
    _CURL_WRITES
    | _CURL_READS
    | _CURL_SENDS
    | names("-X -u -A -e -x -w -m -r -Y -y -z -C --output-dir --data-raw --request --user --form-string")
)


def look_at_curl(rest: Reading, scene: Scene) -> Found:
    given = split(rest, _CURL)
    for field in given.values(*_CURL_READS):
        scene.touch(field, "read")
    for field in given.values("-K", "--config"):
        scene.unclear(f"curl -K {field.text}", "settings of curl's may write files")
    for field in given.values(*_CURL_SENDS):
        _read_sent(field, scene)
    for field in given.values("-b", "--cookie"):
        if "=" not in field.text:
            scene.touch(field, "read")
    for field in given.words:
        if field.text.startswith("file:"):
            scene.touch(Field(re.sub(r"file:/*", "/", field.text)), "read")
    return Found(quiet=not _curl_writes(given, scene))


def _read_sent(field: Field, scene: Scene) -> None:
    """`@file`, `name=@file`, `name=<file`, `name@file`."""
    _, sign, path = field.text.partition("@")
    if sign and (field.text.startswith("@") or "=@" in field.text or "@" in field.text.partition("=")[0]):
        scene.touch(Field(path.partition(";")[0]), "read")
    elif "=<" in field.text:
        scene.touch(Field(field.text.partition("=<")[2]), "read")


def _curl_writes(given: Given, scene: Scene) -> bool:
    directories = given.values("--output-dir")
    for field in given.values(*_CURL_WRITES):
        scene.touch(field, "write")
    for field in directories:
        scene.touch_all(field, "write")
    by_name = given.has("-O", "--remote-name", "--remote-name-all", "-J", "--remote-header-name")
    if by_name and not directories:
        _save_by_name(given.words, scene, told=given.has("-J", "--remote-header-name"))
    return by_name or given.has(*_CURL_WRITES)


def _save_by_name(words: Reading, scene: Scene, *, told: bool) -> None:
    """Saved under the last name in the address; `told`: under one that the server tells."""
    for field in words:
        name = re.sub(r"[?#].*", "", field.text).rstrip("/").rpartition("/")[2]
        if told or not field.is_known or not name:
            scene.touch_below(*(scene.cwds or ()))
        else:
            scene.touch(Field(name), "write")


_WGET_WRITES: Final = names("-O -o -a --output-document --save-cookies --output-file --append-output")
_WGET_READS: Final = names("-i --input-file --post-file --body-file --load-cookies")
_WGET_RUNS: Final = names("--use-askpass -e --execute")
_WGET: Final = _WGET_WRITES | _WGET_READS | _WGET_RUNS | names("-P --directory-prefix")


def look_at_wget(rest: Reading, scene: Scene) -> Found:
    given = split(rest, _WGET)
    for field in given.values(*_WGET_WRITES):
        scene.touch(field, "write")
    for field in given.values(*_WGET_READS):
        scene.touch(field, "read")
    for field in given.values(*_WGET_RUNS):
        scene.unclear(f"wget {field.text}", "an option of wget's runs a program")
    for field in given.values("-P", "--directory-prefix"):
        scene.touch_all(field, "write")
    if not given.has("-O", "--output-document", "-P", "--directory-prefix", "--spider"):
        told = given.has("-r", "--recursive", "-m", "--mirror", "--content-disposition", "-i", "--input-file")
        _save_by_name(given.words, scene, told=told)
    return Found(quiet=given.has("--spider") or [field.text for field in given.values("-O")] == ["-"])


_RSYNC: Final = names(
    "-e --rsh --rsync-path -f --filter --exclude --include --exclude-from --files-from --log-file -S -o -i -F -P -J"
)


def look_at_rsync(rest: Reading, scene: Scene) -> Found:
    """rsync and scp."""
    given = split(rest, _RSYNC)
    for field in given.values("-S", "--rsync-path"):
        scene.unclear(field.text, "an option of it runs a program")
    if any("Command" in field.text for field in given.values("-o")):
        scene.unclear("scp -o", "an option of it runs a program")
    for field in given.values("--exclude-from", "--files-from", "-i", "-F"):
        scene.touch(field, "read")
    for field in given.values("--log-file"):
        scene.touch(field, "write")
    for field in given.words[:-1]:
        if not _is_remote(field):
            scene.touch_all(field, "read")
    for field in given.words[-1:]:
        if not _is_remote(field):
            scene.touch_all(field, "write")
    return Found(inner=tuple(Script(text=field.text) for field in given.values("-e", "--rsh")), quiet=False)


def _is_remote(field: Field) -> bool:
    return bool(_REMOTE.match(field.text)) and "/" not in field.text.partition(":")[0]


def look_at_sftp(rest: Reading, scene: Scene, stdin: Feed | None) -> Found:
    given = split(rest, names("-b -i -F -o -P -S"))
    for field in given.values("-b", "-i", "-F"):
        scene.touch(field, "read")
    if stdin is not None or given.has("-b", "-S", "-o"):
        scene.unclear("sftp of its input", "which files it sends and fetches is not known")
    return Found(quiet=False)


def look_at_netcat(rest: Reading, scene: Scene) -> Found:
    given = split(rest, names("-e -c -w -p -s -i -q -x -X --exec --sh-exec --lua-exec"))
    use_looks(given.words, scene)
    run = given.values("-e", "-c", "--exec", "--sh-exec", "--lua-exec")
    if run:
        scene.unclear(
            " ".join(["nc", *(field.text for field in rest)]), "it runs a program for whoever calls"
        )
    return Found(inner=tuple(Script(text=field.text) for field in run))


def look_at_socat(rest: Reading, scene: Scene) -> Found:
    words = " ".join(field.text for field in rest)
    if re.search(r"(?i)\b(?:exec|system|shell|open|gopen|create|file|pipe|ssl\w*|openssl\w*)\b:", words):
        scene.unclear(f"socat {words}", "an address of socat's runs a program, or opens a file")
    return Found()


_MOUNTS: Final = ("-v", "--volume", "--mount", "--device")
_FILES: Final = ("--env-file", "-f", "--file")
_CONTAINER: Final = names(
    "-v --volume --mount --device --env-file -e --env --name -p --publish -w --workdir -u --user --network --entrypoint"
    " -f --file -t --tag -n --namespace -c --context -H --host -l --label"
)


def look_at_container(name: str, rest: Reading, scene: Scene) -> Found:
    """What runs inside sees other files; what of ours is shown to it counts."""
    given = split(rest, _CONTAINER, until_word=True)
    verb = given.words[0].text if given.words else ""
    own = split(given.words[1:], _CONTAINER, until_word=verb in ("run", "exec", "create"))
    for field in (*given.values(*_MOUNTS), *own.values(*_MOUNTS)):
        found = re.search(r"(?:source|src)=([^,]+)", field.text)
        scene.touch(Field(found[1] if found else field.text.partition(":")[0]), "write")
    for field in (*given.values(*_FILES), *own.values(*_FILES)):
        scene.touch(field, "read")
    if name == "kubectl" and verb == "create":
        # It runs nothing here, and has many options that take a file.
        use_looks(given.words[1:], scene)
    elif verb not in ("run", "exec", "create", "logs"):
        use_looks(own.words, scene)
    return Found(quiet=False)


_WHY: Final = "it has commands that run programs and write files"
_SQLITE: Final = re.compile(
    r"(?im)^\s*\.(?!(?:tables?|schema|mode|headers?|databases|indexes|show|width|timeout|nullvalue|separator|exit|quit)\b)"
    r"|\b(?:readfile|writefile|load_extension|edit|fts3_tokenizer)\s*\(|\battach\b"
)
_CLIENT: Final = re.compile(
    r"(?i)\\(?:!|o|i|ir|g|w|copy|s)\b|\\!|\bcopy\b.*\b(?:program|from|to)\b\s*'|\bsystem\b|\bsource\b"
    r"|\binto\s+(?:outfile|dumpfile)\b|\bload\s+data\b"
)


def look_at_sqlite(rest: Reading, scene: Scene, stdin: Feed | None) -> Found:
    given = split(rest, names("-cmd -init -separator -nullvalue -newline"))
    for field in given.words[:1]:
        scene.touch(field, "write")
    for field in given.values("-init"):
        scene.touch(field, "read")
    said = [field.text for field in (*given.values("-cmd"), *given.words[1:])]
    _look_at_words("sqlite3", said, stdin, scene, _SQLITE)
    return Found(quiet=stdin is None)


def look_at_client(name: str, rest: Reading, scene: Scene, stdin: Feed | None) -> Found:
    """psql, mysql and their like."""
    given = split(
        rest, names("-c -f -e -d -h -U -p -P -u -o -L -v -D --command --file --execute --output --log-file")
    )
    _touch_files(given, scene)
    use_looks(given.words, scene)
    said = [field.text for field in given.values("-c", "--command", "-e", "--execute")]
    _look_at_words(name, said, stdin, scene, _CLIENT)
    return Found(quiet=False)


def _touch_files(given: Given, scene: Scene) -> None:
    for field in given.values("-f", "--file"):
        scene.touch(field, "read")
    for field in given.values("-o", "-L", "--output", "--log-file"):
        scene.touch(field, "write")


def _look_at_words(
    name: str, said: list[str], stdin: Feed | None, scene: Scene, odd: re.Pattern[str]
) -> None:
    if stdin is not None and stdin.text is not None:
        said = [*said, stdin.text]
    for text in said:
        if odd.search(text):
            scene.unclear(f"{name} {text}", _WHY)
