"""What archivers, `find`, `make`, editors and pagers do with files."""

import re
from itertools import pairwise
from typing import Final

from weft.model.permission import hole
from weft.tool.shell.field import Field, Given, Listing, Reading, has_hole, names, split, unknown
from weft.tool.shell.program.inner import Argv, Found, Inner, Setting
from weft.tool.shell.program.listing import find_listing
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
