"""Examine network clients, containers and database clients: which files they send, mount or overwrite."""

import re
from typing import Final
from urllib.parse import unquote

from weft.model.permission import has_hole
from weft.tool.shell.arguments import (
    Field,
    Fields,
    ParsedArguments,
    parse_arguments,
    split_names,
    unknown_field,
)
from weft.tool.shell.program.effects import InnerCommand, InnerScript, ProgramEffects
from weft.tool.shell.program.touches import touch_path, touch_paths
from weft.tool.shell.program.wrappers import examine_ssh_settings, names_this_machine
from weft.tool.shell.state import ShellState, StreamContent

_REMOTE_PATH: Final = re.compile(r"(?:[\w.-]+@)?[\w.-]+:")
_CURL_WRITING_OPTIONS: Final = split_names(
    "-o --output -c --cookie-jar -D --dump-header --trace --trace-ascii --stderr --libcurl --hsts --etag-save --alt-svc"
    " --ssl-sessions"
)
_CURL_READING_OPTIONS: Final = split_names(
    "-T --upload-file -K --config -E --key --cert --cacert --netrc-file --etag-compare --unix-socket --variable"
    " --capath --crlfile --pubkey --random-file --egd-file --pinnedpubkey --proxy-cert --proxy-key --proxy-cacert"
    " --proxy-capath --proxy-crlfile --proxy-pinnedpubkey"
)
_CURL_SENDING_OPTIONS: Final = split_names(
    "-d --data --data-ascii --data-binary --data-urlencode -F --form -H --header --json -b --cookie --proxy-header --url-query"
    " -w --write-out"
)
_CURL_VALUE_OPTIONS: Final = (
    _CURL_WRITING_OPTIONS
    | _CURL_READING_OPTIONS
    | _CURL_SENDING_OPTIONS
    | split_names(
        "-X -u -A -e -x -m -r -Y -y -z -C -U -P -Q -t --output-dir --data-raw --request --user --form-string --url --engine"
        " --proto-default --proto --proto-redir --proxy --preproxy --referer --user-agent --max-time --connect-timeout --retry"
    )
)


def examine_curl(arguments: Fields, state: ShellState) -> ProgramEffects:
    parsed = parse_arguments(arguments, _CURL_VALUE_OPTIONS)
    for field in parsed.values(*_CURL_READING_OPTIONS):
        _touch_alternatives(field, state)
    for field in parsed.values("-E", "--cert", "--proxy-cert"):  # a password may follow
        state.touch(Field(field.text.partition(":")[0]), "read")
    for field in parsed.values("--variable"):
        state.touch(Field(field.text.partition("@")[2]), "read")
    if any(option.startswith("--expand-") for option, _ in parsed.options):
        state.mark_unclear(
            " ".join(["curl", *(field.text for field in arguments)]),
            "it puts an option together from variables",
        )
    for field in parsed.values("-K", "--config"):
        state.mark_unclear(f"curl -K {field.text}", "curl settings may write files")
    for field in parsed.values(*_CURL_SENDING_OPTIONS):
        _touch_sent(field, state)
    for field in parsed.values("-b", "--cookie"):
        if "=" not in field.text:
            state.touch(field, "read")
    for field in parsed.values("-F", "--form"):
        _touch_form(field, state)
    for field in parsed.values("--engine"):
        state.mark_unclear(f"curl --engine {field.text}", "it loads a library")
    for field in (*parsed.words, *parsed.values("--url")):
        _touch_url(field, state)
        if field.text.lower().startswith("file:") and parsed.has("-T", "--upload-file"):
            state.touch(Field(unquote(_FILE_URL.sub("/", field.text))), "write")
    if any(
        not field.is_known or "file".startswith(field.text.lower())
        for field in parsed.values("--proto-default")
    ):
        state.mark_unclear(
            " ".join(["curl", *(field.text for field in arguments)]),
            "its addresses may be files of this machine",
        )
    return ProgramEffects(may_write=_examine_curl_output(parsed, state))


def _touch_alternatives(field: Field, state: ShellState) -> None:
    """Note the files that an option names. Those to send may be patterns of curl, as in `-T '{a,b}'`."""
    state.touch(field, "read")
    if not field.glob_pattern and re.search(r"[{\[]", field.text):
        state.touch(unknown_field(field.text), "read")


_FILE_URL: Final = re.compile(r"(?i)^file:(?://localhost(?=/))?/*")


def _touch_url(field: Field, state: ShellState) -> None:
    """Note the file that a URL names: `file:///x`. A URL may be a pattern, and contain escapes."""
    if field.text.startswith("@"):
        state.touch(Field(field.text[1:]), "read")
    scheme = field.text.partition(":")[0].lower()
    if scheme == "file":
        path = unquote(_FILE_URL.sub("/", field.text))
        state.touch(unknown_field(path) if re.search(r"[{\[]", path) else Field(path), "read")
    elif re.search(r"[{\[]", scheme) and ":/" in field.text and not re.match(r"\[[\da-f:.]+\]", scheme):
        state.touch(unknown_field(field.text), "read")


def _touch_sent(field: Field, state: ShellState) -> None:
    """Note the files that are sent by `@file`, `name=@file`, `name=<file` or `name@file`."""
    _, sign, path = field.text.partition("@")
    if sign and (field.text.startswith("@") or "=@" in field.text or "@" in field.text.partition("=")[0]):
        state.touch(Field(path.partition(";")[0]), "read")
    elif "=<" in field.text:
        state.touch(Field(field.text.partition("=<")[2]), "read")
        state.touch(Field(field.text.partition("=<")[2].partition(";")[0].strip().strip('"')), "read")


def _touch_form(field: Field, state: ShellState) -> None:
    """Note the files of a form that has several, a quoted one, or headers from one."""
    _, sign, names = field.text.partition("=@")
    for name in re.split(r"[,;]", names) if sign else ():
        state.touch(Field(re.sub(r"\\(.)", r"\1", name.strip().strip('"'))), "read")
    for name in re.findall(r"headers=[@<]([^;]*)", field.text):
        state.touch(Field(name.strip().strip('"')), "read")


def _examine_curl_output(parsed: ParsedArguments, state: ShellState) -> bool:
    """Note the files that curl writes. Return True if it may write any."""
    directories = parsed.values("--output-dir")
    for field in parsed.values(*_CURL_WRITING_OPTIONS):
        state.touch(field, "write")
        if re.search(r"#\d", field.text):  # a part of the address
            state.touch(unknown_field(field.text), "write")
    outputs = [
        name
        for field in parsed.values("-w", "--write-out")
        for name in re.findall(r"%output\{>*([^}]*)\}", field.text)
    ]
    for name in outputs:
        state.touch(Field(name), "write")
    for field in directories:
        state.touch_all(field, "write")
    by_name = parsed.has("-O", "--remote-name", "--remote-name-all", "-J", "--remote-header-name")
    if by_name and not directories:
        _touch_download(
            (*parsed.words, *parsed.values("--url")),
            state,
            named_by_server=parsed.has("-J", "--remote-header-name"),
        )
    return by_name or bool(outputs) or parsed.has(*_CURL_WRITING_OPTIONS)


def _touch_download(words: Fields, state: ShellState, *, named_by_server: bool) -> None:
    """Note the file that a download is saved as: the last name in the URL, or any if the server chooses the name."""
    for field in words:
        name = unquote(re.sub(r"[?#].*", "", field.text).rstrip("/").rpartition("/")[2])
        # A name may be a pattern: `{a,b}`, `[a-b]`, and `*` for FTP.
        if named_by_server or not field.is_known or not name or re.search(r"[{\[*]", name):
            state.touch_below(*(state.cwds or ()))
        else:
            state.touch(Field(name), "write")


_WGET_WRITING_OPTIONS: Final = split_names(
    "-O -o -a --output-document --save-cookies --output-file --append-output --rejected-log --warc-file --hsts-file"
    " --warc-tempdir --stats-dns --stats-ocsp --stats-server --stats-site --stats-tls --hpkp-file --ocsp-file --tls-session-file"
)
# With these, an address does not tell the name that a file is saved under.
_WGET_NAMING_OPTIONS: Final = (
    "-r",
    "--recursive",
    "-m",
    "--mirror",
    "--content-disposition",
    "-i",
    "--input-file",
    "-x",
    "--force-directories",
    "--protocol-directories",
    "-p",
    "--page-requisites",
    "--trust-server-names",
    "--default-page",
)
_WGET_READING_OPTIONS: Final = split_names(
    "-i --input-file --post-file --body-file --load-cookies --config --ca-certificate --certificate --private-key --crl-file"
    " --ca-directory --warc-dedup"
)
_WGET_RUNNING_OPTIONS: Final = split_names("--use-askpass -e --execute --plugin --local-plugin")
_WGET_VALUE_OPTIONS: Final = (
    _WGET_WRITING_OPTIONS
    | _WGET_READING_OPTIONS
    | _WGET_RUNNING_OPTIONS
    | split_names(
        "-P --directory-prefix --default-page -t -T -w -Q -A -R -D -I -X -l -U -B --tries --timeout --wait --user-agent --header"
    )
)


def examine_wget(arguments: Fields, state: ShellState) -> ProgramEffects:
    parsed = parse_arguments(arguments, _WGET_VALUE_OPTIONS)
    for field in parsed.values(*_WGET_WRITING_OPTIONS):
        state.touch(field, "write")
    for field in parsed.values(*_WGET_READING_OPTIONS):
        state.touch(field, "read")
    for field in parsed.values(*_WGET_RUNNING_OPTIONS):
        state.mark_unclear(f"wget {field.text}", "an option of wget runs a program")
    for field in parsed.values("-P", "--directory-prefix"):
        state.touch_all(field, "write")
    if not parsed.has("-O", "--output-document", "-P", "--directory-prefix", "--spider"):
        # In `-np` and the like, the letter after `n` belongs to it.
        clusters = [field.text for field in arguments if re.fullmatch(r"-[A-Za-z]+", field.text)]
        plain = {f"-{char}" for text in clusters for char in re.sub(r"n[A-Za-z]", "", text[1:])}
        named_by_server = any(
            option in plain if len(option) == 2 else parsed.has(option)  # noqa: PLR2004  a dash and a letter
            for option in _WGET_NAMING_OPTIONS
        )
        _touch_download(parsed.words, state, named_by_server=named_by_server)
    return ProgramEffects(
        may_write=parsed.has("--rejected-log", "--warc-file", "--hsts-file")
        or (not parsed.has("--spider") and [field.text for field in parsed.values("-O")] != ["-"])
    )


_RSYNC_VALUE_OPTIONS: Final = split_names(
    "-e --rsh --rsync-path -f --filter --exclude --include --exclude-from --include-from --files-from --password-file"
    " --early-input --log-file --write-batch --only-write-batch --read-batch --backup-dir --temp-dir -T --partial-dir --link-dest"
    " --compare-dest --copy-dest --config -B --block-size --suffix --timeout --port --sockopts --max-size --min-size --bwlimit"
    " --chmod --chown --usermap --groupmap --out-format --info --debug --iconv -M --remote-option"
)
_SCP_VALUE_OPTIONS: Final = split_names("-S -o -i -F -P -J -c -D -l -X")
_MERGE_RULE: Final = re.compile(r"\s*(?:merge|dir-merge|[.:])[^\s_]*[\s_]+(.*)", re.DOTALL)


def examine_rsync(arguments: Fields, state: ShellState) -> ProgramEffects:
    parsed = parse_arguments(arguments, _RSYNC_VALUE_OPTIONS)
    for field in parsed.values("--rsync-path", "-M", "--remote-option"):
        state.mark_unclear(field.text, "an option of it runs a program, or writes a file")
    if parsed.has("--daemon"):
        state.mark_unclear("rsync --daemon", "its settings run programs")
    if parsed.has("--remove-source-files", "--remove-sent-files"):
        for field in parsed.words[:-1]:
            if not _is_remote(field):
                state.touch_all(field, "write")
    for field in parsed.values(
        "--exclude-from",
        "--include-from",
        "--files-from",
        "--password-file",
        "--early-input",
        "--read-batch",
        "--config",
    ):
        state.touch(field, "read")
    for field in parsed.values("-f", "--filter"):
        rule = _MERGE_RULE.fullmatch(field.text)
        if rule is not None:  # errors quote what is no rule
            state.touch(Field(rule[1]), "read")
    for field in parsed.values("--log-file", "--write-batch", "--only-write-batch"):
        state.touch(field, "write")
    for field in parsed.values("--write-batch", "--only-write-batch"):
        state.touch(Field(f"{field.text}.sh"), "write")
    for field in parsed.values("-T", "--temp-dir", "--backup-dir", "--partial-dir"):
        state.touch_all(field, "write")
    for field in parsed.values("--link-dest", "--compare-dest", "--copy-dest"):
        state.touch(field, "look")
    follows = ("-L", "-k", "--copy-links", "--copy-unsafe-links", "--copy-dirlinks")
    return _examine_copy(parsed, state, links=parsed.has(*follows))


def examine_scp(arguments: Fields, state: ShellState) -> ProgramEffects:
    parsed = parse_arguments(arguments, _SCP_VALUE_OPTIONS)
    for field in parsed.values("-S", "-D"):
        state.mark_unclear(field.text, "an option of it runs a program")
    examine_ssh_settings("scp", parsed, state)
    for field in parsed.values("-i"):
        state.touch(field, "read")
    return _examine_copy(parsed, state, links=True)


def _examine_copy(parsed: ParsedArguments, state: ShellState, *, links: bool) -> ProgramEffects:
    for field in parsed.words:
        if _is_remote(field) and names_this_machine(Field(re.sub(r"::?[^:]*$", "", field.text))):
            state.mark_unclear(field.text, "it is on this machine after all")
    for field in parsed.words[:-1]:
        if not _is_remote(field):
            state.touch_all(field, "read", links=links)
    for field in parsed.words[-1:]:
        if not _is_remote(field):
            state.touch_all(field, "write")
    return ProgramEffects(
        inner=tuple(InnerScript(text=field.text) for field in parsed.values("-e", "--rsh")), may_write=True
    )


def _is_remote(field: Field) -> bool:
    return bool(_REMOTE_PATH.match(field.text)) and "/" not in field.text.partition(":")[0]


def examine_sftp(arguments: Fields, state: ShellState, stdin: StreamContent | None) -> ProgramEffects:
    parsed = parse_arguments(arguments, split_names("-b -i -F -o -P -S -D -B -c -J -l -R -s -X"))
    for field in parsed.values("-b", "-i", "-F"):
        state.touch(field, "read")
    for field in parsed.words[1:]:  # what is fetched is written there
        state.touch(field, "write")
    examine_ssh_settings("sftp", parsed, state)
    if any(names_this_machine(Field(field.text.partition(":")[0])) for field in parsed.words[:1]):
        state.mark_unclear(parsed.words[0].text, "it is on this machine after all")
    if stdin is not None or parsed.has("-b", "-S", "-o", "-D"):
        state.mark_unclear("sftp of its input", "which files it sends and fetches is not known")
    return ProgramEffects(may_write=True)


def examine_netcat(arguments: Fields, state: ShellState) -> ProgramEffects:
    parsed = parse_arguments(
        arguments,
        split_names("-e -c -w -p -s -i -q -x -X -o --exec --sh-exec --lua-exec --output --hex-dump"),
    )
    # Of the programs with this name, one writes what another takes for the address of a proxy.
    outputs = parsed.values("-o", "--output", "--hex-dump")
    for field in (*outputs, *(each for each in parsed.values("-x") if not re.search(r":\d+$", each.text))):
        state.touch(field, "write")
    touch_paths(parsed.words, state)
    commands = parsed.values("-e", "-c", "--exec", "--sh-exec", "--lua-exec")
    if commands:
        state.mark_unclear(
            " ".join(["nc", *(field.text for field in arguments)]), "it runs a program for every caller"
        )
    return ProgramEffects(inner=tuple(InnerScript(text=field.text) for field in commands))


# Addresses and options of socat that neither run a program nor name a file.
_HARMLESS_ADDRESS: Final = re.compile(
    r"(?i)-[dDuUsh46v?]+|-V|-[tTb]\d*|[\d.]+|-|std(?:io|in|out|err)"
    r"|(?:tcp|udp|sctp)[46]?(?:-(?:listen|connect|l|recv|recvfrom|sendto|datagram))?:[\w.:\[\]-]+(?:,(?:fork|reuseaddr|nodelay|keepalive|crlf|ignoreeof|shut-\w+|retry=\d+"
    r"|bind=[\w.:]+|connect-timeout=[\d.]+|max-children=\d+|forever|interval=\d+))*"
)


def examine_socat(arguments: Fields, state: ShellState) -> ProgramEffects:
    words = " ".join(field.text for field in arguments)
    if not all(_HARMLESS_ADDRESS.fullmatch(field.text) for field in arguments):
        state.mark_unclear(f"socat {words}", "a socat address runs a program or opens a file")
    return ProgramEffects()


_MOUNT_OPTIONS: Final = ("-v", "--volume", "--mount", "--device")
_FILE_OPTIONS: Final = ("--env-file", "-f", "--file")
_CONTAINER_WRITING_OPTIONS: Final = split_names(
    "--cidfile --iidfile --metadata-file --pidfile --profile-output"
)
_CONTAINER_VALUE_OPTIONS: Final = _CONTAINER_WRITING_OPTIONS | split_names(
    "-v --volume --mount --device --env-file -e --env --name -p --publish -w --workdir -u --user --network --entrypoint"
    " -f --file --tag -n --namespace -c --context -H --host -l --label -o --output --www"
)
# Subcommands whose output goes to a file.
_SAVING_VERBS: Final = split_names("save export build buildx image container sbom")


_CONTAINER_FLAGS: Final = split_names(
    "--rm --init --privileged --detach --interactive --tty --read-only --publish-all --no-healthcheck --oom-kill-disable --quiet"
    " --help --all --all-namespaces --follow --force --no-cache --pull --watch --version --tls --tlsverify --debug --tail --since"
    " --disable-content-trust --sig-proxy --no-trunc --env-host --replace --tls-verify --no-hosts --insecure-skip-tls-verify --stdin"
)


def _touch_container_files(name: str, verb: str, parsed: ParsedArguments, state: ShellState) -> None:
    """Note the files that options of a container client write and read."""
    for field in parsed.values(*_CONTAINER_WRITING_OPTIONS):
        state.touch(field, "write")
    for field in parsed.values("-o", "--output"):
        if name != "kubectl" and verb in _SAVING_VERBS:
            target = re.search(r"(?:^|,)dest=([^,]*)", field.text)
            state.touch(Field(target[1]) if target else field, "write")
        else:
            touch_path(field, state)
    for field in parsed.values("--www"):
        state.touch_all(field, "read")
    if verb == "cp" or (
        verb in ("container", "compose") and any(field.text == "cp" for field in parsed.words[:1])
    ):
        for field in parsed.words[-1:]:
            state.touch(field, "write")
    for option, value in parsed.options:
        if value is not None and option not in _CONTAINER_VALUE_OPTIONS and option.startswith("--"):
            touch_path(value, state)


def examine_container(name: str, arguments: Fields, state: ShellState) -> ProgramEffects:
    """Examine a container client. A command in the container sees other files, so only the mounted ones matter."""
    # Every other long option takes a value.
    long_options = frozenset(field.text for field in arguments if re.fullmatch(r"--\w[\w-]*", field.text))
    all_options = _CONTAINER_VALUE_OPTIONS | (long_options - _CONTAINER_FLAGS)
    parsed = parse_arguments(arguments, all_options, until_word=True)
    verb = parsed.words[0].text if parsed.words else ""
    # With `docker run`, `-t` takes no value.
    value_options = all_options | (frozenset({"-t"}) if verb in ("build", "buildx") else frozenset())
    verb_parsed = parse_arguments(
        parsed.words[1:], value_options, until_word=verb in ("run", "exec", "create")
    )
    _touch_container_files(name, verb, verb_parsed, state)
    for field in (*parsed.values(*_MOUNT_OPTIONS), *verb_parsed.values(*_MOUNT_OPTIONS)):
        source = re.search(r"(?:source|src)=([^,]+)", field.text)
        state.touch(Field(source[1] if source else field.text.partition(":")[0]), "write")
    for field in (*parsed.values(*_FILE_OPTIONS), *verb_parsed.values(*_FILE_OPTIONS)):
        state.touch(field, "read")
    if name == "kubectl" and verb == "create":
        # It runs nothing here, and many of its options take a file.
        touch_paths(parsed.words[1:], state)
    elif verb not in ("run", "exec", "create", "logs"):
        touch_paths(verb_parsed.words, state)
    inner = (InnerCommand(fields=verb_parsed.words),) if verb == "unshare" and verb_parsed.words else ()
    return ProgramEffects(inner=inner, may_write=True)


_DATABASE_REASON: Final = "it has commands that run programs and write files"
_DANGEROUS_SQLITE: Final = re.compile(
    r"(?im)^\s*\.(?!(?:tables?|schema|mode|headers?|databases|indexes|show|width|timeout|nullvalue|separator|exit|quit)\b)"
    r"|\b(?:readfile|writefile|load_extension|fts3_tokenizer|fsdir|lsdir|zipfile|sqlar_\w+)\b|\bedit\b\W*\(|\battach\b"
    r"|\bvacuum\b[\s\S]*\binto\b|\b(?:temp|data)_store_directory\b|\busing\W+(?:csv|zipfile|fsdir|tsv)\b"
)
_DANGEROUS_CLIENT_COMMAND: Final = re.compile(
    r"(?i)\\(?:!|o|i|ir|g|gx|w|copy|s|e|ef|ev|T|P|R|lo_\w+)\b|\\!|\\\.|\\\w+[^\n]*`|^\s*(?:tee|pager|edit)\b|;\s*(?:tee|pager|edit)\b|\bcopy\b.*\b(?:program|from|to)\b\s*'|\bsystem\b|\bsource\b"
    r"|\binto\s+(?:outfile|dumpfile)\b|\bload\s+data\b"
)


def examine_sqlite(arguments: Fields, state: ShellState, stdin: StreamContent | None) -> ProgramEffects:
    # It takes long options with two dashes as well.
    arguments = tuple(
        Field(field.text[1:]) if re.match(r"--\w", field.text) else field for field in arguments
    )
    parsed = parse_arguments(
        arguments,
        split_names("-cmd -init -separator -nullvalue -newline -vfs -maxsize -mmap -heap -escape -nonce"),
    )
    for field in parsed.words[:1]:
        # It may be a URI: `file:x?mode=ro`.
        name = (
            unquote(re.sub(r"^file:(?://[^/]*)?|\?.*", "", field.text))
            if field.text.startswith("file:")
            else ""
        )
        state.touch(Field(name) if name else field, "read")
        state.touch(Field(name) if name else field, "write")
    if any(
        re.match(r"-A|--?(?:create|extract|insert|update|append|remove|list)", field.text)
        for field in arguments
    ):
        state.mark_unclear(
            " ".join(["sqlite3", *(field.text for field in arguments)]), "it is told to pack or unpack files"
        )
    for field in parsed.values("-init"):
        state.touch(field, "read")
        state.mark_unclear(f"sqlite3 -init {field.text}", _DATABASE_REASON)
    statements = [field.text for field in (*parsed.values("-cmd"), *parsed.words[1:])]
    _examine_statements("sqlite3", statements, stdin, state, _DANGEROUS_SQLITE)
    return ProgramEffects(may_write=stdin is not None)


def examine_database_client(
    name: str, arguments: Fields, state: ShellState, stdin: StreamContent | None
) -> ProgramEffects:
    """Examine psql, mysql and similar clients."""
    options = split_names(
        "-c -f -e -d -h -U -P -u -o -L -v -D --command --file --execute --output --log-file --tee"
    )
    # The password of mysql never is the next word.
    parsed = parse_arguments(arguments, options | (frozenset({"-p"}) if name == "psql" else frozenset()))
    for field in (*parsed.values("--pager", "--plugin-dir", "--default-auth"),):
        state.mark_unclear(f"{name} {field.text}", "an option of it runs a program")
    _touch_files(parsed, state)
    touch_paths(parsed.words, state)
    statements = [field.text for field in parsed.values("-c", "--command", "-e", "--execute")]
    _examine_statements(name, statements, stdin, state, _DANGEROUS_CLIENT_COMMAND)
    return ProgramEffects(may_write=True)


def _touch_files(parsed: ParsedArguments, state: ShellState) -> None:
    for field in parsed.values("-f", "--file"):
        state.touch(field, "read")
    for field in parsed.values("-o", "-L", "--output", "--log-file", "--tee"):
        if field.text.startswith("|"):
            state.mark_unclear(f"psql -o {field.text}", "its output goes to a program")
        state.touch(field, "write")


def _examine_statements(
    name: str,
    statements: list[str],
    stdin: StreamContent | None,
    state: ShellState,
    dangerous: re.Pattern[str],
) -> None:
    if stdin is not None and stdin.text is not None:
        statements = [*statements, stdin.text]
    for text in statements:
        # What is not known may be empty, so that the letters around it become a word, or a statement of its own.
        if has_hole(text) or dangerous.search(text):
            state.mark_unclear(f"{name} {text}", _DATABASE_REASON)
