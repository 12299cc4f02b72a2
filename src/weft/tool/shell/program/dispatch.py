"""Find out what a program does, with the module of this package that knows it."""

import re
from typing import Final

from msgspec.structs import replace

from weft.tool.shell.arguments import Fields, parse_arguments, split_names
from weft.tool.shell.program.builtins import examine_builtin
from weft.tool.shell.program.effects import Examine, ExamineWithInput, ProgramEffects
from weft.tool.shell.program.files import (
    examine_cpio,
    examine_emacs,
    examine_fd,
    examine_find,
    examine_make,
    examine_pax,
    examine_tar,
    examine_unzip,
    examine_vim,
    examine_zip,
)
from weft.tool.shell.program.git import examine_git
from weft.tool.shell.program.inspection import examine_ldd, examine_ps
from weft.tool.shell.program.interpreters import examine_interpreter
from weft.tool.shell.program.network import (
    examine_container,
    examine_curl,
    examine_database_client,
    examine_netcat,
    examine_rsync,
    examine_scp,
    examine_sftp,
    examine_socat,
    examine_sqlite,
    examine_wget,
)
from weft.tool.shell.program.stream import examine_awk, examine_dd, examine_jq, examine_sed, examine_yq
from weft.tool.shell.program.table import (
    PROGRAMS,
    asks_for_help,
    find_unknown_option,
    only_reads,
    touch_files,
)
from weft.tool.shell.program.touches import touch_paths
from weft.tool.shell.program.wrappers import DETACHING_PROGRAMS, WRAPPERS, WRITING_WRAPPERS, unwrap_command
from weft.tool.shell.state import ShellState, StreamContent

_EXAMINERS: Final[dict[str, Examine]] = {
    "git": examine_git,
    **dict.fromkeys(("find", "gfind"), examine_find),
    **dict.fromkeys(("fd", "fdfind"), examine_fd),
    **dict.fromkeys(("sed", "gsed"), examine_sed),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), examine_awk),
    **dict.fromkeys(("jq", "gojq", "jaq"), examine_jq),
    "yq": examine_yq,
    "dd": examine_dd,
    **dict.fromkeys(("tar", "gtar", "bsdtar"), examine_tar),
    "unzip": examine_unzip,
    "curl": examine_curl,
    "wget": examine_wget,
    "rsync": examine_rsync,
    "scp": examine_scp,
    **dict.fromkeys(("nc", "ncat", "netcat"), examine_netcat),
    "socat": examine_socat,
    **dict.fromkeys(("make", "gmake"), examine_make),
    "ps": examine_ps,
    "ldd": examine_ldd,
}
_INPUT_EXAMINERS: Final[dict[str, ExamineWithInput]] = {
    **dict.fromkeys(("vim", "vi", "nvim", "view", "ex", "ed", "gvim", "vimdiff"), examine_vim),
    **dict.fromkeys(("emacs", "emacsclient"), examine_emacs),
    **dict.fromkeys(("cpio", "bsdcpio"), examine_cpio),
    "pax": examine_pax,
    "zip": examine_zip,
    "sftp": examine_sftp,
    "sqlite3": examine_sqlite,
}
# These note every file that they write.
_KNOWN_WRITERS: Final = frozenset({"sed", "gsed", "dd", "find", "gfind"})
_CONTAINER_CLIENTS: Final = frozenset({"docker", "podman", "nerdctl", "kubectl"})
_DATABASE_CLIENTS: Final = frozenset({"psql", "mysql", "mariadb"})


# Programs whose options we know, except those that only print something.
_WITH_KNOWN_OPTIONS: Final = (
    frozenset(PROGRAMS)
    | frozenset(_EXAMINERS)
    | WRAPPERS
    | split_names("less more most date history mapfile readarray man info")
) - split_names(
    "echo printf yes seq sleep expr basename dirname true false : exit return break continue shift test [ [[ kill wait set"
    " export declare local readonly unset read let which type printenv"
)


def examine(argv: Fields, state: ShellState, stdin: StreamContent | None) -> ProgramEffects:
    """Note the files that a program uses, and return its further effects.

    `stdin` is its input, None if it is not redirected. The first that knows the name examines it: builtins, programs that detach,
    wrappers, interpreters, the functions named above, and last the lines of `table.py`.
    """
    name, arguments = argv[0].text.rpartition("/")[2], argv[1:]
    if examine_builtin(name, arguments, state):
        return ProgramEffects(may_write=name in ("source", "."))
    if name in DETACHING_PROGRAMS:
        state.mark_unclear(
            " ".join(field.text for field in argv),
            "it starts processes that go on after the command has ended",
        )
        return ProgramEffects(may_write=True)
    if name in _WITH_KNOWN_OPTIONS and (unknown_option := find_unknown_option(argv[1:], PROGRAMS.get(name))):
        state.mark_unclear(" ".join(field.text for field in argv), f"{unknown_option} may be an option")
    inner = unwrap_command(argv, state, stdin)
    if inner is not None:
        return ProgramEffects(inner=tuple(inner), may_write=name in WRITING_WRAPPERS)
    if stdin is None and asks_for_help(argv):
        return ProgramEffects()
    inner = examine_interpreter(name, arguments, state, stdin)
    if inner is not None:
        return ProgramEffects(
            inner=tuple(inner), may_write=not inner and (stdin is not None or bool(arguments))
        )
    effects = _examine_program(name, arguments, state, stdin)
    return replace(effects, may_write=effects.may_write and not only_reads(argv))


def _examine_program(
    name: str, arguments: Fields, state: ShellState, stdin: StreamContent | None
) -> ProgramEffects:
    if name in _EXAMINERS:
        effects = _EXAMINERS[name](arguments, state)
        return replace(effects, may_write=effects.may_write and name not in _KNOWN_WRITERS)
    if name in _INPUT_EXAMINERS:
        return _INPUT_EXAMINERS[name](arguments, state, stdin)
    if name in _CONTAINER_CLIENTS:
        return examine_container(name, arguments, state)
    if name in _DATABASE_CLIENTS:
        return examine_database_client(name, arguments, state, stdin)
    if name in PROGRAMS:
        _examine_by_table(name, arguments, state)
        # openssl has more options that write files than we know.
        return ProgramEffects(may_write=name == "openssl")
    touch_paths(arguments, state)
    return ProgramEffects(may_write=True, understood=False)


def _examine_by_table(name: str, arguments: Fields, state: ShellState) -> None:
    """Examine a program that is in the table."""
    if name == "file" and parse_arguments(arguments, PROGRAMS[name].value_options).has(
        "-C", "--compile", "-p", "--preserve-date"
    ):
        state.mark_unclear(" ".join([name, *(field.text for field in arguments)]), "an option of it writes")
    if name in ("less", "more", "most") and any(_is_pager_command(field.text) for field in arguments):
        state.mark_unclear(
            " ".join([name, *(field.text for field in arguments)]), "it is told to run a command"
        )
    touch_files(name, PROGRAMS[name], arguments, state)


def _is_pager_command(text: str) -> bool:
    """Return True for an option that makes a pager run a command. `+10` and `+/words` only move to a place.

    After a dollar sign or the end of a line, another option or command may follow.
    """
    if "\n" in text or re.match(r"-[^$]+\$.", text):
        return True
    return text.startswith("+") and re.fullmatch(r"\+(?:\d+g?|[GF]|/[^\n]*)?", text) is None
