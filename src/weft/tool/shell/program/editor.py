"""Editors and pagers: they show files, and do what they are told to by their options or their input."""

import re
from typing import Final

from weft.tool.shell.field import Reading
from weft.tool.shell.options import names, split
from weft.tool.shell.program.inner import Found
from weft.tool.shell.scene import Feed, Scene

_VIM: Final = names("-c --cmd -S -s -w -W -u -U -i -t -T --listen --remote-expr --remote-send")
_EMACS: Final = names("-l --load -f --funcall --eval --execute --script --batch -x")
_LINE: Final = re.compile(r"\+\d*")
_WHY: Final = "commands of an editor may write files and run programs"


def look_at_vim(rest: Reading, scene: Scene, stdin: Feed | None) -> Found:
    """vim and those that take the same options, ex and ed."""
    given = split(rest, _VIM)
    told = [
        field.text for field in given.words if field.text.startswith("+") and not _LINE.fullmatch(field.text)
    ]
    runs = given.has("-c", "--cmd", "-S", "-s", "-u", "-U", "--remote-expr", "--remote-send")
    if told or runs or stdin is not None:
        scene.unclear(" ".join(field.text for field in rest) or "commands from the input", _WHY)
    for field in given.words:
        if not field.text.startswith("+"):
            scene.touch(field, "read")
    return Found(quiet=False)


def look_at_emacs(rest: Reading, scene: Scene, stdin: Feed | None) -> Found:
    given = split(rest, _EMACS - {"--batch"})
    if given.has(*_EMACS) or stdin is not None:
        scene.unclear(" ".join(field.text for field in rest) or "commands from the input", _WHY)
    for field in given.words:
        scene.touch(field, "read")
    return Found(quiet=False)
