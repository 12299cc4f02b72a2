"""What a program is known to do: the one place that asks all who know some."""

import re
from typing import Final

from msgspec.structs import replace

from weft.tool.shell.field import Reading, names, split
from weft.tool.shell.program.builtins import look_at_builtin
from weft.tool.shell.program.files import (
    look_at_cpio,
    look_at_emacs,
    look_at_fd,
    look_at_find,
    look_at_make,
    look_at_tar,
    look_at_unzip,
    look_at_vim,
    look_at_zip,
)
from weft.tool.shell.program.git import look_at_git
from weft.tool.shell.program.inner import Found, Look, LookFed
from weft.tool.shell.program.interpreters import interpret
from weft.tool.shell.program.network import (
    look_at_client,
    look_at_container,
    look_at_curl,
    look_at_netcat,
    look_at_rsync,
    look_at_sftp,
    look_at_socat,
    look_at_sqlite,
    look_at_wget,
)
from weft.tool.shell.program.stream import look_at_awks, look_at_dd, look_at_jq, look_at_sed
from weft.tool.shell.program.table import PROGRAMS, hides_option, is_asked, only_tells, use_files, use_looks
from weft.tool.shell.program.wrappers import FETCHING, LASTING, WRAPPING, unwrap
from weft.tool.shell.scene import Feed, Scene

_LOOKS: Final[dict[str, Look]] = {
    "git": look_at_git,
    **dict.fromkeys(("find", "gfind"), look_at_find),
    **dict.fromkeys(("fd", "fdfind"), look_at_fd),
    **dict.fromkeys(("sed", "gsed"), look_at_sed),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), look_at_awks),
    **dict.fromkeys(("jq", "gojq", "jaq"), look_at_jq),
    "dd": look_at_dd,
    **dict.fromkeys(("tar", "gtar", "bsdtar"), look_at_tar),
    "zip": look_at_zip,
    "unzip": look_at_unzip,
    "curl": look_at_curl,
    "wget": look_at_wget,
    **dict.fromkeys(("rsync", "scp"), look_at_rsync),
    **dict.fromkeys(("nc", "ncat", "netcat"), look_at_netcat),
    "socat": look_at_socat,
    **dict.fromkeys(("make", "gmake"), look_at_make),
}
_FED_LOOKS: Final[dict[str, LookFed]] = {
    **dict.fromkeys(("vim", "vi", "nvim", "view", "ex", "ed", "gvim", "vimdiff"), look_at_vim),
    **dict.fromkeys(("emacs", "emacsclient"), look_at_emacs),
    **dict.fromkeys(("cpio", "pax", "bsdcpio"), look_at_cpio),
    "sftp": look_at_sftp,
    "sqlite3": look_at_sqlite,
}
_CONTAINERS: Final = frozenset({"docker", "podman", "nerdctl", "kubectl"})
_CLIENTS: Final = frozenset({"psql", "mysql", "mariadb"})


# All whose options we know; but for those that only say something.
_TOLD_APART: Final = (
    frozenset(PROGRAMS)
    | frozenset(_LOOKS)
    | WRAPPING
    | names("less more most date history mapfile readarray man info")
) - names(
    "echo printf yes seq sleep expr basename dirname true false : exit return break continue shift test [ [[ kill wait set"
    " export declare local readonly unset read let which type printenv"
)


def look_at(argv: Reading, scene: Scene, stdin: Feed | None) -> Found:
    """Note what a command does with files, and give what it runs."""
    name, rest = argv[0].text.rpartition("/")[2], argv[1:]
    if look_at_builtin(name, rest, scene):
        return Found(quiet=name not in ("source", "."))
    if name in LASTING:
        scene.unclear(
            " ".join(field.text for field in argv), "it starts what runs on after the command has ended"
        )
        return Found(quiet=False)
    if name in _TOLD_APART and (hidden := hides_option(argv[1:], PROGRAMS.get(name))):
        scene.unclear(" ".join(field.text for field in argv), f"{hidden} may be an option")
    inner = unwrap(argv, scene, stdin)
    if inner is not None:
        return Found(inner=tuple(inner), quiet=name not in FETCHING)
    if stdin is None and is_asked(argv):
        return Found()
    inner = interpret(name, rest, scene, stdin)
    if inner is not None:
        return Found(inner=tuple(inner), quiet=bool(inner) or (stdin is None and not rest))
    found = _program(name, rest, scene, stdin)
    return replace(found, quiet=found.quiet or only_tells(argv))


def _program(name: str, rest: Reading, scene: Scene, stdin: Feed | None) -> Found:
    if name in _LOOKS:
        found = _LOOKS[name](rest, scene)
        # What these write is noted.
        return replace(found, quiet=found.quiet or name in ("sed", "dd", "find"))
    if name in _FED_LOOKS:
        return _FED_LOOKS[name](rest, scene, stdin)
    if name in _CONTAINERS:
        return look_at_container(name, rest, scene)
    if name in _CLIENTS:
        return look_at_client(name, rest, scene, stdin)
    if name in PROGRAMS:
        _look_at_table(name, rest, scene)
        # It has more options that write than anybody knows.
        return Found(quiet=name != "openssl")
    use_looks(rest, scene)
    return Found(quiet=False, known=False)


def _look_at_table(name: str, rest: Reading, scene: Scene) -> None:
    if name == "file" and split(rest, PROGRAMS[name].taking).has("-C", "--compile", "-p", "--preserve-date"):
        scene.unclear(" ".join([name, *(field.text for field in rest)]), "an option of it writes")
    if name in ("less", "more", "most") and any(_is_told(field.text) for field in rest):
        scene.unclear(" ".join([name, *(field.text for field in rest)]), "it is told to do something at once")
    use_files(name, PROGRAMS[name], rest, scene)


def _is_told(text: str) -> bool:
    """`+10` and `+/words` only go somewhere."""
    return text.startswith("+") and re.fullmatch(r"\+(?:\d+g?|[GF]|/[^\n]*)?", text) is None
