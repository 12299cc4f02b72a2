"""What the lines of the table cannot say about some programs, and options that these spell in their own way."""

import os
import re
from collections.abc import Sequence
from typing import Final

from weft.tool.shell.arguments import Field, Fields, ParsedArguments
from weft.tool.shell.program.touches import append_suffix, join_names, touch_paths, touch_written
from weft.tool.shell.state import ShellState

# Names of files that act by themselves, which these may make up.
_ACTING_NAMES: Final = ("opencode.json", "opencode.jsonc", "config", "config.worktree")
_MAX_SPLIT_SUFFIX: Final = 4
STDOUT_OPTIONS: Final = ("-c", "--stdout", "--to-stdout")
# With these, xmllint includes other files, or takes commands that write some.
_XML_INCLUDING_OPTIONS: Final = (
    "--shell",
    "--noent",
    "--xinclude",
    "--noxincludenode",
    "--nofixup-base-uris",
    "--valid",
    "--postvalid",
    "--dtdattr",
    "--loaddtd",
)
# `s/a/b/g`, `y/a/b/`, or a text that is replaced.
_RENAMING_RULE: Final = re.compile(
    r"(?:s|y|tr)(\W)(?:(?!\1)[^@{}`]|\\.)*\1(?:(?!\1)[^@{}`])*\1[gi]*|[\w .-]*"
)


def touch_by_name(name: str, parsed: ParsedArguments, words: Sequence[Field], state: ShellState) -> None:
    """Note what the table cannot say about a program."""
    if name in _SPECIAL_PROGRAMS:
        _SPECIAL_PROGRAMS[name](parsed, words, state)


def _touch_openssl(parsed: ParsedArguments, words: Sequence[Field], state: ShellState) -> None:
    touch_paths(tuple(words), state)
    for field in parsed.values("-pass", "-passin", "-passout"):
        if field.text.startswith("file:"):
            state.touch(field.ending(field.text.removeprefix("file:")), "read")


def _touch_pages(parsed: ParsedArguments, words: Sequence[Field], state: ShellState) -> None:
    # A name with a slash is a file, which is shown. `man -l` takes only files.
    for field in words:
        if "/" in field.text or parsed.has("-l", "--local-file"):
            state.touch(field, "read")


def _touch_temporary(parsed: ParsedArguments, words: Sequence[Field], state: ShellState) -> None:
    if not parsed.has("-u", "--dry-run", "-t", "-p", "--tmpdir"):
        touch_written(words, state, recursive=False)
    for directory in parsed.values("-p", "--tmpdir"):
        touch_written([join_names(directory, field) for field in words], state, recursive=False)


def _touch_history(parsed: ParsedArguments, words: Sequence[Field], state: ShellState) -> None:
    for field in words:
        if parsed.has("-w", "-a"):
            state.touch(field, "write")
        if parsed.has("-r", "-n"):
            state.touch(field, "read")


def _examine_fc(parsed: ParsedArguments, _: Sequence[Field], state: ShellState) -> None:
    if parsed.has("-s") or not parsed.has("-l"):
        state.mark_unclear("fc", "it runs earlier commands again")


def _examine_date(parsed: ParsedArguments, words: Sequence[Field], state: ShellState) -> None:
    if not parsed.has("-j") and any(not field.text.startswith("+") for field in words):
        state.mark_unclear(f"date {words[-1].text}", "it sets the clock")


def _examine_xmllint(parsed: ParsedArguments, _: Sequence[Field], state: ShellState) -> None:
    if parsed.has(*_XML_INCLUDING_OPTIONS):
        state.mark_unclear("xmllint", "it reads or writes files that the document or its input names")


def _touch_patched(parsed: ParsedArguments, words: Sequence[Field], state: ShellState) -> None:
    for suffix in parsed.values("-z", "--suffix"):
        touch_written([append_suffix(field, suffix) for field in words[:1]], state, recursive=False)


def _touch_tree(parsed: ParsedArguments, words: Sequence[Field], state: ShellState) -> None:
    if parsed.has("--fromfile", "--fromtabfile"):
        for field in words:
            state.touch(field, "read")
    if parsed.has("-R"):  # with -H, it writes a page into every directory
        state.touch_below(*(root for field in words for root in state.resolve_roots(field)))
        state.touch_below(*(() if words else state.cwds or ()))


def _touch_renamed(parsed: ParsedArguments, _: Sequence[Field], state: ShellState) -> None:
    # It is given a rule for the new names, or code that makes them.
    state.touch_below(*(state.cwds or ()))
    for field in (*parsed.words[:1], *parsed.values("-e")):
        if not _RENAMING_RULE.fullmatch(field.text):
            state.mark_unclear(f"rename {field.text}", "it may be code that does something else")


def _examine_scc(parsed: ParsedArguments, _: Sequence[Field], state: ShellState) -> None:
    if parsed.has("-o"):
        state.mark_unclear("scc -o", "an option of it writes")


def _touch_installed(parsed: ParsedArguments, words: Sequence[Field], state: ShellState) -> None:
    if parsed.has("-d", "--directory"):
        touch_written(words, state, recursive=False)


_SPECIAL_PROGRAMS: Final = {
    "openssl": _touch_openssl,
    **dict.fromkeys(("man", "info"), _touch_pages),
    "mktemp": _touch_temporary,
    "history": _touch_history,
    "fc": _examine_fc,
    "date": _examine_date,
    "xmllint": _examine_xmllint,
    "patch": _touch_patched,
    "tree": _touch_tree,
    "rename": _touch_renamed,
    "scc": _examine_scc,
    **dict.fromkeys(("install", "ginstall"), _touch_installed),
}


def touch_unpacked(name: str, parsed: ParsedArguments, words: Sequence[Field], state: ShellState) -> None:
    """Note the files that a compressor makes of others: `x` of `x.gz`, or what is named in the file."""
    if parsed.has(*STDOUT_OPTIONS):
        return
    suffixes = [field.text for field in parsed.values("-S", "--suffix")]
    for path in (path for field in words for path in state.resolve_roots(field)):
        state.touch(Field(re.sub(r"[._-][^./_-]*$", "", path)), "write")
        for suffix in suffixes:
            state.touch(Field(path.removesuffix(suffix)), "write")
            state.touch(Field(path + suffix), "write")
        if parsed.has("-N", "--name") and (name == "gunzip" or parsed.has("-d", "--decompress")):
            state.touch_below(os.path.dirname(path))


def touch_parts(name: str, parsed: ParsedArguments, words: Sequence[Field], state: ShellState) -> None:
    """Note the files that split and csplit make: they append numbers or letters to a prefix."""
    for field in words[:1] if name == "csplit" else ():  # the others are places in it
        state.touch(field, "read")
    prefixes = parsed.values("-f", "--prefix") if name == "csplit" else words[1:2]
    if not prefixes:
        state.touch(Field("xaa"), "write")
    suffixes = parsed.values("-b", "--suffix-format", "--additional-suffix") if name == "csplit" else []
    ending = "".join(
        re.sub(r"%[^a-zA-Z]*[a-zA-Z]", "[0-9a-f]*", re.escape(each.text).replace("\\%", "%"))
        for each in suffixes
    )
    if name == "split":
        added = "".join(each.text for each in parsed.values("--additional-suffix"))
        ending = f"[a-z0-9]{{1,{_MAX_SPLIT_SUFFIX}}}{re.escape(added)}"
    for prefix in prefixes:
        directory, start = os.path.split(prefix.text)
        for acting in _ACTING_NAMES:
            if re.fullmatch(re.escape(start) + (ending or "[0-9]+"), acting):
                state.touch(Field(os.path.join(directory, acting)), "write")


def rewrite_options(name: str, arguments: Fields, value_options: frozenset[str]) -> Fields:
    """Write the options of some programs as others write theirs."""
    match name:
        case "cloc" | "xmllint":  # these take long options with one dash as well
            return tuple(
                Field(f"-{field.text}") if re.match(r"-\w{2}", field.text) else field for field in arguments
            )
        case "openssl":
            return tuple(part for field in arguments for part in _split_openssl_option(field))
        case "tree":
            return _split_tree_options(arguments, value_options)
        case "xxd":
            return _shorten_xxd_options(arguments)
        case _:
            return arguments


def _split_openssl_option(field: Field) -> Fields:
    """Split `--out=x` into `-out` and `x`."""
    match = re.fullmatch(r"--?(\w[\w-]*)(?:(=)(.*))?", field.text, re.DOTALL)
    if match is None or not field.text.startswith("-"):
        return (field,)
    return (Field(f"-{match[1]}"), *([field.ending(match[3])] if match[2] else []))


def _split_tree_options(arguments: Fields, value_options: frozenset[str]) -> Fields:
    """Split the short options of tree. Their values are always the next words: `-oa file`."""
    parts: list[Field] = []
    remaining = list(reversed(arguments))
    while remaining:
        field = remaining.pop()
        if not re.fullmatch(r"-[A-Za-z]{2,}", field.text):
            parts.append(field)
            continue
        for char in field.text[1:]:
            parts.append(Field(f"-{char}"))
            if f"-{char}" in value_options and remaining:
                parts.append(remaining.pop())
    return tuple(parts)


def _shorten_xxd_options(arguments: Fields) -> Fields:
    """Shorten the options of xxd to their first letter, which determines them. Only some of them take a value."""
    return tuple(
        Field(field.text[:2]) if re.match(r"-[abCdeEiprtuv]", field.text) else field for field in arguments
    )
