"""What a command puts out, where that can be told: a text it was given, or the names of files in the project."""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from weft.tool.shell.field import Field, Listing, Reading, split
from weft.tool.shell.scene import Feed, Scene

_PASSING: Final = frozenset({"head", "tail", "sort", "uniq", "tac", "shuf", "grep", "egrep", "fgrep"})
_SAYING: Final = frozenset({"-printf", "-exec", "-execdir", "-ok", "-okdir"})
_DATE: Final = re.compile(r"\+(?:%[-_0^#]?[A-Za-z]|[-_:.T0-9])*")


def output(argv: Reading, scene: Scene, stdin: Feed | None) -> Feed:
    """What a program puts out. A feed of neither text nor listing: who knows."""
    if not argv or not argv[0].is_known:
        return Feed()
    name, rest = argv[0].text.rpartition("/")[2], argv[1:]
    match name:
        case "echo" | "printf":
            return Feed(text=_said(name, rest))
        case "pwd" if scene.cwds is not None and len(scene.cwds) == 1:
            return Feed(text=scene.cwds[0])
        case "date" if rest and all(_DATE.fullmatch(field.text) for field in rest):
            return Feed(number=True)
        case "cat" if not rest:
            return stdin or Feed(text="")
        case "git":
            return _git(rest, scene)
        case "wc" if all(
            re.fullmatch(r"-[lwcmL]+|--(?:lines|words|bytes|chars)", field.text) for field in rest
        ):
            return Feed(number=True)
        case "seq" if all(re.fullmatch(r"-?\d+", field.text) for field in rest):
            return Feed(number=True)
        case "grep" | "egrep" | "fgrep" if len(rest) == 3 and rest[0].text in ("-c", "-ci", "-cE"):  # noqa: PLR2004  -c, words, a file
            return Feed(number=True)
        case "nproc" if not rest:
            return Feed(number=True)
        case "id" if [field.text for field in rest] in (["-u"], ["-g"]):
            return Feed(number=True)
        case _ if name in _PASSING:
            return _passed(name, rest, stdin, scene)
        case _:
            return Feed(listing=_listed(name, rest, scene))


def _said(name: str, fields: Sequence[Field]) -> str | None:
    words = [field.text for field in fields]
    if not all(field.is_known for field in fields):
        return None
    if name == "echo":
        while words and re.fullmatch(r"-[neE]+", words[0]):
            if "e" in words.pop(0):
                return None if any("\\" in word for word in words) else " ".join(words)
        # Some shells read backslashes in what they echo.
        return None if any("\\" in word for word in words) else " ".join(words)
    if not words or words[0].startswith("-"):
        return None
    form = words[0].replace("\\n", "\n")
    plain = form.replace("%s", "").replace("\n", "")
    if "%" in plain or "\\" in plain or any("\\" in word for word in words):
        return None
    if "%s" not in form:
        return form
    return "".join(form.replace("%s", word) for word in words[1:]) if form.count("%s") == 1 else None


def _git(fields: Sequence[Field], scene: Scene) -> Feed:
    words = [field.text for field in fields]
    if words[:2] == ["rev-parse", "--show-toplevel"]:
        return Feed(text=scene.where.worktree)
    if words[:1] == ["ls-files"] or (
        words[:1] in (["diff"], ["show"], ["diff-tree"]) and "--name-only" in words
    ):
        others = any(word.startswith("--o") or re.fullmatch(r"-[a-z]*o[a-z]*", word) for word in words)
        named = fields[1:] if words[0] == "ls-files" else ()
        roots = tuple(root for field in split(named).words for root in scene.rooted(field))
        return Feed(listing=Listing(roots=roots or scene.where.roots, hidden=others))
    if words[:1] == ["grep"] and {"-l", "--files-with-matches", "--name-only"} & set(words):
        return Feed(
            listing=Listing(roots=scene.where.roots, hidden="--no-index" in words or "--untracked" in words)
        )
    return Feed()


def _passed(name: str, fields: Sequence[Field], stdin: Feed | None, scene: Scene) -> Feed:
    """Programs that put out some of what they are given: of a list of files still one of those files."""
    if name.endswith("grep"):
        found = split(fields, frozenset({"-e", "-f", "-m", "-A", "-B", "-C", "--include", "--exclude"}))
        if found.has("-l", "--files-with-matches", "-L"):
            names = found.values("--include")
            roots = (
                tuple(root for field in found.words[1:] for root in scene.rooted(field)) or scene.cwds or ()
            )
            pattern = names[0].text if len(names) == 1 else None
            return Feed(listing=Listing(roots=roots, name=pattern)) if roots else Feed()
        words = found.words[0 if found.has("-e", "-f") else 1 :]
        if found.has("-o", "--only-matching") or found.has("-r", "-R"):
            return Feed()
    else:
        words = split(fields, frozenset({"-n", "-c", "-k", "-t"})).words
    return Feed(listing=stdin.listing) if stdin is not None and not words else Feed()


def _listed(name: str, fields: Sequence[Field], scene: Scene) -> Listing | None:
    if not all(field.is_known for field in fields):
        return None
    match name:
        case "find":
            return find_listing(fields, scene)
        case "ls":
            given = split(fields)
            roots = tuple(root for field in given.words for root in scene.rooted(field)) or scene.cwds or ()
            return Listing(roots=roots, hidden=given.has("-a", "-A", "--all", "--almost-all", "-f"))
        case "rg" | "fd" | "fdfind":
            given = split(fields, frozenset({"-g", "-t", "-e", "--glob", "--type", "-T", "-m"}))
            if name == "rg" and not given.has("-l", "--files", "--files-with-matches"):
                return None
            words = given.words[0 if given.has("--files") else 1 :]
            roots = tuple(root for field in words for root in scene.rooted(field)) or scene.cwds or ()
            return Listing(roots=roots, hidden=given.has("-u", "-.", "--hidden", "-H", "--no-ignore", "-I"))
        case _:
            return None


def find_listing(fields: Sequence[Field], scene: Scene) -> Listing | None:
    """The files that `find` goes through, as far as its first words and `-name` tell."""
    words = list(fields)
    while words and words[0].text in ("-H", "-L", "-P"):
        words.pop(0)
    roots: list[Field] = []
    while words and not words[0].text.startswith(("-", "(", "!", ",")):
        roots.append(words.pop(0))
    texts = [field.text for field in words]
    names = [after for before, after in pairwise(texts) if before == "-name"]
    alone = len(names) == 1 and not {"-o", "-or", "-not", "!", ","} & set(texts)
    found = tuple(root for field in roots for root in scene.rooted(field)) if roots else scene.cwds
    # What it prints itself may be anything.
    if not found or not all(root.is_known for root in roots) or not _SAYING.isdisjoint(texts):
        return None
    return Listing(roots=found, name=names[0] if alone else None)
