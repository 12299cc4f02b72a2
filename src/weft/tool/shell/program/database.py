"""Clients of databases: some of what they are told is not for the database but for the machine they run on."""

import re
from typing import Final

from weft.tool.shell.field import Reading
from weft.tool.shell.options import Given, names, split
from weft.tool.shell.program.inner import Found
from weft.tool.shell.program.uses import use_looks
from weft.tool.shell.scene import Feed, Scene

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
