"""What a shell command is held against the rules as."""

import re
from typing import Final

from msgspec import Struct

# Programs whose second word says what they do.
_HAVE_VERBS_NAMES = """
apt brew bun bundle cargo composer conda deno docker dotnet gem git go gradle helm kubectl make mvn npm pip pip3
pnpm podman poetry rails rustup systemctl terraform uv yarn
"""
_HAVE_VERBS: Final = frozenset(_HAVE_VERBS_NAMES.split())
_WORD: Final = r"[A-Za-z0-9_@%+=:,./-]+"
_PLAIN: Final = re.compile(rf"{_WORD}(?: +{_WORD})*")
_VERB: Final = re.compile(r"[a-z][a-z0-9:_-]*")


class Judgement(Struct, frozen=True, kw_only=True):
    """The patterns to ask for, and what saying always would allow from then on."""

    patterns: tuple[str, ...]
    always: tuple[str, ...]


def judge(command: str) -> Judgement:
    """The whole text is one pattern. Only a plain command, words and nothing else, can be allowed by its beginning.

    With the blank before the star, unlike OpenCode's: `ls *` is not `lsof`.
    """
    text = command.strip()
    return Judgement(patterns=(text,), always=(_beginning(text) if _PLAIN.fullmatch(text) else text,))


def _beginning(text: str) -> str:
    words = text.split()
    if "=" in words[0]:
        return text  # an assignment before the program's name
    verb = words[0] in _HAVE_VERBS and len(words) > 1
    if verb and _VERB.fullmatch(words[1]) is None:
        return text  # `git -C /elsewhere …`: the verb is not where it is looked for
    return " ".join(words[: 2 if verb else 1]) + " *"
