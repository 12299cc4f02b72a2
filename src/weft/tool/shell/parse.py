"""Shell text as a tree; or why it cannot be trusted to mean what it seems to mean."""

import re
from typing import Final

from weft.tool.shell.grammar import parse_script
from weft.tool.shell.lexer import Node, UnreadableError

LONGEST: Final = 256 * 1024
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")


# What bash and zsh have, and plain shells read as something else: a program called `[[`, a redirection, parentheses.
_BASH_ONLY: Final = re.compile(
    r"\[\[|(?<!\$)\(\(|\$['\"\[]|&>|[<>]\(|<<<|\|&|;&|;;&|\b(?:function|select|coproc)\b"
)
PLAIN_SHELLS: Final = frozenset({"sh", "dash", "ash", "posh", "busybox"})


def reads_alike(text: str, shell: str) -> bool:
    """Whether a shell reads a text as bash does, as far as that can be told."""
    return shell.rpartition("/")[2] not in PLAIN_SHELLS or _BASH_ONLY.search(text) is None


def parse(text: str) -> Node | str:
    """The tree, or the reason why there is none to rely on."""
    if len(text) > LONGEST:
        return "it is too long to be judged"
    if _CONTROL.search(text):
        return "there are control characters in it"
    try:
        return parse_script(text)
    except UnreadableError as error:
        return str(error)
