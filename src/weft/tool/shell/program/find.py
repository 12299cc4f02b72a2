"""find and fd: they go through directories, and run what they are told for what they find."""

from itertools import pairwise
from typing import Final

from weft.model.permission import hole
from weft.tool.shell.field import Field, Listing, Reading, has_hole, unknown
from weft.tool.shell.options import names, split
from weft.tool.shell.program.inner import Argv, Found, Inner
from weft.tool.shell.program.listing import find_listing
from weft.tool.shell.scene import Scene

_TAKING: Final = names(
    "-name -iname -path -ipath -wholename -iwholename -regex -iregex -lname -ilname -type -xtype -size -perm -user -group -uid"
    " -gid -mtime -mmin -atime -amin -ctime -cmin -newer -anewer -cnewer -newermt -samefile -inum -links -maxdepth -mindepth"
    " -fstype -printf -regextype"
)
_ALTERNATIVES: Final = frozenset({"-o", "-or", "-not", "!", ","})
_THERE: Final = frozenset({"-execdir", "-okdir"})
_RUNS: Final = frozenset({"-exec", "-execdir", "-ok", "-okdir"})


def look_at_find(rest: Reading, scene: Scene) -> Found:
    for field in rest:
        if field.text.startswith(("-", "(", "!")) and field.text not in ("-H", "-L", "-P"):
            break
        if field.text not in ("-H", "-L", "-P"):
            scene.touch(field, "look")
    texts = [field.text for field in rest]
    _look_at_unknown(rest, scene)
    _look_at_elsewhere(rest, scene)
    listing = _found_before_acting(rest, scene)
    quiet = True
    for place, text in enumerate(texts):
        after = rest[place + 1] if place + 1 < len(rest) else None
        if text == "-delete":
            quiet = False
            _delete(listing, scene)
        elif text in ("-fprint", "-fprint0", "-fls", "-fprintf") and after is not None:
            quiet = False
            scene.touch(after, "write")
        elif text == "-files0-from" and after is not None:
            scene.touch(after, "read")
    return Found(inner=tuple(_executed(rest, listing)), quiet=quiet)


def _found_before_acting(rest: Reading, scene: Scene) -> Listing | None:
    """The files that are acted on: only what stands before the first action narrows them, and no alternative may follow."""
    texts = [field.text for field in rest]
    first = next((place for place, text in enumerate(texts) if text in _RUNS or text == "-delete"), len(rest))
    listing = find_listing(rest[:first], scene)
    if listing is not None and not _ALTERNATIVES.isdisjoint(texts):
        return Listing(roots=listing.roots)
    return listing


def _look_at_elsewhere(rest: Reading, scene: Scene) -> None:
    """What runs in the directories that are found: there its words name other files than here."""
    for before, field in pairwise(
        rest[next((n for n, each in enumerate(rest) if each.text in _THERE), len(rest)) :]
    ):
        if before.text in _THERE or field.text in ("{}", ";", "+") or field.text.startswith("-"):
            continue
        scene.unclear(" ".join(["find", *(each.text for each in rest)]), "it runs in other directories")
        return


def _look_at_unknown(rest: Reading, scene: Scene) -> None:
    """Words that are not known, where they may turn out to be `-delete`."""
    running = False
    for before, field in pairwise(rest):
        running = (running or before.text in _RUNS) and before.text not in (";", "+")
        if has_hole(field.text) and field.listing is None and not running and before.text not in _TAKING:
            scene.unclear(" ".join(["find", *(each.text for each in rest)]), f"{field.text} may be an option")


def _delete(listing: Listing | None, scene: Scene) -> None:
    if listing is not None:
        scene.touch_tree(listing, "write")
    else:
        scene.touch(unknown("whatever it finds"), "write")


def _executed(rest: Reading, listing: Listing | None) -> list[Inner]:
    inner: list[Inner] = []
    found = Field(hole("{}"), listing=listing) if listing else unknown("{}")
    place = 0
    while place < len(rest):
        if rest[place].text in _RUNS:
            end = next((n for n in range(place + 1, len(rest)) if rest[n].text in (";", "+")), len(rest))
            inner.append(Argv(fields=tuple(_named(field, found) for field in rest[place + 1 : end])))
            place = end
        place += 1
    return inner


def _named(field: Field, found: Field) -> Field:
    if field.text == "{}":
        return found
    return unknown(field.text) if "{}" in field.text else field


_FD: Final = names("-e -t -d -E --extension --type --max-depth --exclude")


def look_at_fd(rest: Reading, scene: Scene) -> Found:
    texts = [field.text for field in rest]
    run = next(
        (n for n, text in enumerate(texts) if text in ("-x", "-X", "--exec", "--exec-batch")), len(rest)
    )
    given = split(rest[:run], _FD)
    for field in given.words[1:]:
        scene.touch(field, "look")
    roots = tuple(root for field in given.words[1:] for root in scene.rooted(field)) or scene.cwds or ()
    hidden = given.has("-H", "-I", "-u", "--hidden")
    found = Field(hole("{}"), listing=Listing(roots=roots, hidden=hidden))
    command = tuple(_named(field, found) for field in rest[run + 1 :])
    if command and not any("{}" in text for text in texts):
        command = (*command, found)
    return Found(inner=(Argv(fields=command),) if command else ())
