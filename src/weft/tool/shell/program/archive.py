"""tar, zip and their like: they read whole directories into a file, or write a file out into directories."""

import re
from typing import Final

from weft.tool.shell.field import Field, Reading, unknown
from weft.tool.shell.options import Given, names, split
from weft.tool.shell.program.inner import Found
from weft.tool.shell.scene import Feed, Scene

_REMOTE: Final = re.compile(r"(?:[\w.-]+@)?[\w.-]+:")
_RUNNING: Final = re.compile("command|program|action|script")
_TAR: Final = names(
    "-f -C -T -X -b -g -I -F --file --directory --files-from --exclude-from --to-command --use-compress-program"
    " --checkpoint-action --info-script --new-volume-script --rsh-command --rmt-command --exclude --transform"
    " --strip-components --one-top-level"
)
_ZIP: Final = names("-x -i -b -n -t -TT --unzip-command")
_EXTRACT: Final = ("-x", "--extract", "--get")


def look_at_tar(rest: Reading, scene: Scene) -> Found:
    if rest and not rest[0].text.startswith("-"):
        rest = (Field(f"-{rest[0].text}"), *rest[1:])  # `tar xzf x`
    given = split(rest, _TAR)
    for option, value in given.options:
        if option in ("-I", "-F") or (option.startswith("--") and _RUNNING.search(option)):
            scene.unclear(f"tar {option} {value.text if value else ''}", "an option of tar's runs a program")
    for field in given.values("-T", "-X", "--files-from", "--exclude-from"):
        scene.touch(field, "read")
    lists, extracts = given.has("-t", "--list"), given.has(*_EXTRACT)
    for field in given.values("-f", "--file"):
        if not _REMOTE.match(field.text):
            scene.touch(field, "read" if lists or extracts else "write")
    if extracts:
        _unpack(given.values("-C", "--directory", "--one-top-level"), scene)
    elif not lists:
        _pack(given, scene)
    return Found(quiet=lists)


def _pack(given: Given, scene: Scene) -> None:
    for directory in given.values("-C", "--directory"):
        scene.touch_all(directory, "read")
    for field in given.words:
        scene.touch_all(field, "read", links=given.has("-h", "--dereference"))
    if given.has("-T", "--files-from"):
        scene.touch(unknown("files named in a list"), "read")


def _unpack(into: list[Field], scene: Scene) -> None:
    for directory in into:
        scene.touch_all(directory, "write")
    if not into:
        scene.touch_below(*(scene.cwds or ()))


def look_at_zip(rest: Reading, scene: Scene) -> Found:
    given = split(rest, _ZIP)
    for field in given.values("-TT", "--unzip-command"):
        scene.unclear(f"zip -TT {field.text}", "an option of zip's runs a program")
    for field in given.words[:1]:
        scene.touch(field, "write")
    for field in given.words[1:]:
        scene.touch_all(field, "read", links=not given.has("-y", "--symlinks"))
    return Found(quiet=False)


def look_at_unzip(rest: Reading, scene: Scene) -> Found:
    given = split(rest, names("-d -x"))
    for field in given.words[:1]:
        scene.touch(field, "read")
    tells = given.has("-l", "-p", "-Z", "-t", "-v")
    if not tells:
        _unpack(given.values("-d"), scene)
    return Found(quiet=tells)


def look_at_cpio(rest: Reading, scene: Scene, stdin: Feed | None) -> Found:
    """cpio and pax: which files they read is told to them by their input."""
    given = split(rest, names("-f -F -I -O -E -H -R"))
    for field in given.words:
        scene.touch_all(field, "read")
    for field in given.values("-O", "-F"):
        scene.touch(field, "write")
    if stdin is not None:
        _read_named(stdin, scene)
    if given.has("-i", "-p", "-r", "--extract", "--pass-through"):
        scene.touch_below(*(scene.cwds or ()))
    return Found(quiet=False)


def _read_named(stdin: Feed, scene: Scene) -> None:
    if stdin.listing is not None:
        scene.touch_tree(stdin.listing, "read", links=True)
        return
    for name in stdin.text.split() if stdin.text is not None else ():
        scene.touch(Field(name), "read")
    if stdin.text is None:
        scene.touch(unknown("names from the input"), "read")
