"""Predict what a command prints, where that is possible: a known text, a number, or names of files in the project."""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from weft.tool.shell.arguments import Field, Fields, FileListing, parse_arguments
from weft.tool.shell.state import ShellState, StreamContent

_FILTER_PROGRAMS: Final = frozenset({"head", "tail", "sort", "uniq", "tac", "shuf", "grep", "egrep", "fgrep"})
_PRINTING_ACTIONS: Final = frozenset({"-printf", "-exec", "-execdir", "-ok", "-okdir"})
_DATE_FORMAT: Final = re.compile(r"\+(?:%[-_0^#]?[A-Za-z]|[-_:.T0-9])*")


def predict_output(argv: Fields, state: ShellState, stdin: StreamContent | None) -> StreamContent:
    """Predict the output of a program. The result is empty if it is unknown."""
    if not argv or not argv[0].is_known:
        return StreamContent()
    name, rest = argv[0].text.rpartition("/")[2], argv[1:]
    match name:
        case "echo" | "printf":
            return StreamContent(text=_predict_echo(name, rest))
        case "pwd" if state.cwds is not None and len(state.cwds) == 1:
            return StreamContent(text=state.cwds[0])
        case "date" if rest and all(_DATE_FORMAT.fullmatch(field.text) for field in rest):
            return StreamContent(number=True)
        case "cat" if not rest:
            return stdin or StreamContent(text="")
        case "git":
            return _predict_git(rest, state)
        case "wc" if all(
            re.fullmatch(r"-[lwcmL]+|--(?:lines|words|bytes|chars)", field.text) for field in rest
        ):
            return StreamContent(number=True)
        case "seq" if all(re.fullmatch(r"-?\d+", field.text) for field in rest):
            return StreamContent(number=True)
        case "grep" | "egrep" | "fgrep" if len(rest) == 3 and rest[0].text in ("-c", "-ci", "-cE"):  # noqa: PLR2004  -c, pattern, file
            return StreamContent(number=True)
        case "nproc" if not rest:
            return StreamContent(number=True)
        case "id" if [field.text for field in rest] in (["-u"], ["-g"]):
            return StreamContent(number=True)
        case _ if name in _FILTER_PROGRAMS:
            return _predict_filter(name, rest, stdin, state)
        case _:
            return StreamContent(listing=_predict_listing(name, rest, state))


def _predict_echo(name: str, fields: Sequence[Field]) -> str | None:
    words = [field.text for field in fields]
    if not all(field.is_known for field in fields):
        return None
    if name == "echo":
        while words and re.fullmatch(r"-[neE]+", words[0]):
            if "e" in words.pop(0):
                return None if any("\\" in word for word in words) else " ".join(words)
        # Some shells interpret backslashes in the arguments of `echo`.
        return None if any("\\" in word for word in words) else " ".join(words)
    if not words or words[0].startswith("-"):
        return None
    template = words[0].replace("\\n", "\n")
    plain = template.replace("%s", "").replace("\n", "")
    if "%" in plain or "\\" in plain or any("\\" in word for word in words):
        return None
    if "%s" not in template:
        return template
    return "".join(template.replace("%s", word) for word in words[1:]) if template.count("%s") == 1 else None


def _predict_git(fields: Sequence[Field], state: ShellState) -> StreamContent:
    words = [field.text for field in fields]
    if words[:2] == ["rev-parse", "--show-toplevel"]:
        return StreamContent(text=state.location.worktree)
    if words[:1] == ["ls-files"] or (
        words[:1] in (["diff"], ["show"], ["diff-tree"]) and "--name-only" in words
    ):
        has_untracked = any(word.startswith("--o") or re.fullmatch(r"-[a-z]*o[a-z]*", word) for word in words)
        path_fields = fields[1:] if words[0] == "ls-files" else ()
        roots = tuple(
            root for field in parse_arguments(path_fields).words for root in state.resolve_roots(field)
        )
        return StreamContent(listing=FileListing(roots=roots or state.location.roots, hidden=has_untracked))
    if words[:1] == ["grep"] and {"-l", "--files-with-matches", "--name-only"} & set(words):
        return StreamContent(
            listing=FileListing(
                roots=state.location.roots, hidden="--no-index" in words or "--untracked" in words
            )
        )
    return StreamContent()


def _predict_filter(
    name: str, fields: Sequence[Field], stdin: StreamContent | None, state: ShellState
) -> StreamContent:
    """Predict the output of programs that print some of their input.

    From a list of files they print some of these files.
    """
    if name.endswith("grep"):
        parsed = parse_arguments(
            fields, frozenset({"-e", "-f", "-m", "-A", "-B", "-C", "--include", "--exclude"})
        )
        if parsed.has("-l", "--files-with-matches", "-L"):
            names = parsed.values("--include")
            roots = (
                tuple(root for field in parsed.words[1:] for root in state.resolve_roots(field))
                or state.cwds
                or ()
            )
            pattern = names[0].text if len(names) == 1 else None
            return StreamContent(listing=FileListing(roots=roots, name=pattern)) if roots else StreamContent()
        words = parsed.words[0 if parsed.has("-e", "-f") else 1 :]
        if parsed.has("-o", "--only-matching") or parsed.has("-r", "-R"):
            return StreamContent()
    else:
        words = parse_arguments(fields, frozenset({"-n", "-c", "-k", "-t"})).words
    return StreamContent(listing=stdin.listing) if stdin is not None and not words else StreamContent()


def _predict_listing(name: str, fields: Sequence[Field], state: ShellState) -> FileListing | None:
    if not all(field.is_known for field in fields):
        return None
    match name:
        case "find":
            return find_listing(fields, state)
        case "ls":
            parsed = parse_arguments(fields)
            roots = (
                tuple(root for field in parsed.words for root in state.resolve_roots(field))
                or state.cwds
                or ()
            )
            return FileListing(roots=roots, hidden=parsed.has("-a", "-A", "--all", "--almost-all", "-f"))
        case "rg" | "fd" | "fdfind":
            parsed = parse_arguments(fields, frozenset({"-g", "-t", "-e", "--glob", "--type", "-T", "-m"}))
            if name == "rg" and not parsed.has("-l", "--files", "--files-with-matches"):
                return None
            words = parsed.words[0 if parsed.has("--files") else 1 :]
            roots = tuple(root for field in words for root in state.resolve_roots(field)) or state.cwds or ()
            return FileListing(
                roots=roots, hidden=parsed.has("-u", "-.", "--hidden", "-H", "--no-ignore", "-I")
            )
        case _:
            return None


def skip_find_options(fields: Sequence[Field]) -> tuple[Field, ...]:
    """Return the words of `find` without the options that may stand before the directories."""
    words = list(fields)
    directories: list[Field] = []
    # The find of macOS has more of them, and takes directories after `-f`.
    while words and re.fullmatch(r"-[HLPEXdsx]+|-f|-O.*|-D.*|--", words[0].text):
        option = words.pop(0).text
        if option == "-f":
            directories += words[:1]
        if option in ("-D", "-f"):
            words = words[1:]
    return (*directories, *words)


def find_listing(fields: Sequence[Field], state: ShellState) -> FileListing | None:
    """Return the files that `find` lists, as far as its start directories and `-name` tell.

    Return None if it prints something else.
    """
    words = list(skip_find_options(fields))
    roots: list[Field] = []
    while words and not words[0].text.startswith(("-", "(", "!", ",")):
        roots.append(words.pop(0))
    texts = [field.text for field in words]
    names = [after for before, after in pairwise(texts) if before == "-name"]
    is_single_test = len(names) == 1 and not {"-o", "-or", "-not", "!", ","} & set(texts)
    directories = (
        tuple(root for field in roots for root in state.resolve_roots(field)) if roots else state.cwds
    )
    # `-printf` and commands print anything.
    if not directories or not all(root.is_known for root in roots) or not _PRINTING_ACTIONS.isdisjoint(texts):
        return None
    return FileListing(roots=directories, name=names[0] if is_single_test else None)
