"""How the rules are asked about a command: as it is written, and as it is meant where that differs."""

import os
import re
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from weft.tool.shell.arity import lasting, prefix
from weft.tool.shell.field import Field, Reading, has_hole, spelled
from weft.tool.shell.options import names, split
from weft.tool.shell.scene import Part

# Going somewhere is judged by where, not as a command. The same in OpenCode.
_UNASKED: Final = frozenset({"cd", ""})
MOST_PERHAPS: Final = 12
_STARTS: Final = re.compile(r"[A-Za-z_]")
# Options that may stand between a program and its verb, and take a value.
_GLOBAL: Final = {
    "docker": names("-H --host -c --context --config -l --log-level"),
    "podman": names("-c --connection --url --log-level"),
    "kubectl": names("-n --namespace --context --kubeconfig --cluster --user -s --server"),
    "helm": names("-n --namespace --kube-context --kubeconfig"),
    "npm": names("--prefix -C -w --workspace"),
    "pnpm": names("-C --dir --filter -F"),
    "yarn": names("--cwd"),
    "cargo": names("--config -C --color"),
    "go": names("-C"),
    "gh": names("-R --repo"),
    "aws": names("--profile --region --output"),
    "systemctl": names("-H --host -M --machine"),
    "terraform": names(""),
}


class Word(Struct, frozen=True):
    """A field, and how it was written."""

    field: Field
    source: str


def name_line(line: list[Word]) -> list[Part]:
    """What the rules are asked about a command that a person could have typed."""
    written = [
        Field(word.source) if word.field.listing is None and not has_hole(word.field.text) else word.field
        for word in line
    ]
    meant = [
        word.field if word.field.text and not any(char.isspace() for char in word.field.text) else shown
        for word, shown in zip(line, written, strict=True)
    ]
    return name_argv(tuple(written), tuple(meant))


def name_argv(*ways: Reading) -> list[Part]:
    """A part for each way in which a command may be known to the rules."""
    spellings = dict.fromkeys(spelling for fields in ways for spelling in _spellings(fields))
    return [_to_part(fields) for fields in spellings if fields[0].text not in _UNASKED]


def name_perhaps(argv: Reading) -> list[Part]:
    """The commands that a program may run which nobody knows: each end of its words, and each word that is a line."""
    texts = [field.text for field in argv]
    first = max(1, len(prefix(texts)))
    lines = [*_ends(texts[first:])]
    for text in texts[1:]:
        if " " in text:
            lines += _ends((text.partition("=")[2] if text.startswith("-") else text).split())
    return [Part(permission="bash", pattern=line, perhaps=True) for line in lines if _STARTS.match(line)]


def _ends(words: list[str]) -> Iterator[str]:
    for place in range(min(len(words), MOST_PERHAPS)):
        yield " ".join((os.path.basename(words[place]), *words[place + 1 :]))


def _spellings(fields: Reading) -> Iterator[Reading]:
    """By its path and by its bare name; and without what stands before its verb."""
    yield fields
    name = fields[0].text
    if "/" in name:
        name = os.path.basename(name)
        yield (Field(name), *fields[1:])
    if name in _GLOBAL and len(fields) > 1 and fields[1].text.startswith("-"):
        yield (Field(name), *split(fields[1:], _GLOBAL[name], until_word=True).words)


def _to_part(fields: Reading) -> Part:
    known = not any(has_hole(field.text) for field in fields)
    always = lasting([field.text for field in fields]) if known else ""
    return Part(permission="bash", pattern=spelled(fields), always=always)
