"""make: what it runs stands in a file; options and variables may say otherwise."""

import re
from typing import Final

from weft.tool.shell.field import Reading
from weft.tool.shell.options import names, split
from weft.tool.shell.program.inner import Found, Setting
from weft.tool.shell.scene import Scene

_MAKE: Final = names("-f --file --makefile -C --directory -I --include-dir -j -l -o -W --eval -E")
_VARIABLE: Final = re.compile(r"([A-Za-z_.]\w*)[:?+!]*=(.*)", re.DOTALL)
_ELSEWHERE: Final = ("-", "/dev/")


def look_at_make(rest: Reading, scene: Scene) -> Found:
    given = split(rest, _MAKE)
    for field in given.values("--eval", "-E"):
        scene.unclear(f"make --eval {field.text}", "what it is given to run cannot be judged")
    for field in given.values("-f", "--file", "--makefile"):
        if field.text.startswith(_ELSEWHERE):
            scene.unclear(f"make -f {field.text}", "what it is given to run is not known")
        scene.touch(field, "read")
    for field in given.values("-C", "--directory", "-I", "--include-dir"):
        scene.touch(field, "look")
    found = (_VARIABLE.fullmatch(field.text) for field in given.words)
    settings = tuple(Setting(name=each[1], value=each[2]) for each in found if each)
    return Found(inner=settings, quiet=False)
