"""Examine git, whose subcommands and settings may run other programs."""

import re
from collections.abc import Sequence
from typing import Final

from weft.model.permission import UNKNOWN_START
from weft.tool.shell.arguments import (
    Field,
    Fields,
    FileListing,
    ParsedArguments,
    parse_arguments,
    split_names,
)
from weft.tool.shell.program.effects import Inner, InnerCommand, InnerScript, ProgramEffects
from weft.tool.shell.state import ShellState

_GLOBAL: Final = split_names(
    "-C -c --git-dir --work-tree --namespace --config-env --exec-path --super-prefix"
)
# Settings that only change how git displays things or what it writes into commits. Any other may name a program to run.
_HARMLESS: Final = re.compile(
    r"(?i)(?:user\.(?:name|email)|color\.\w+|core\.(?:quotepath|autocrlf|safecrlf|eol|filemode|ignorecase|precomposeunicode"
    r"|abbrev|longpaths|preloadindex|untrackedcache)|advice\.\w+|init\.defaultbranch|commit\.(?:gpgsign|verbose)"
    r"|tag\.gpgsign|pull\.\w+|push\.\w+|fetch\.\w+|rebase\.(?:autosquash|autostash)|merge\.(?:ff|conflictstyle|renamelimit)"
    r"|diff\.(?:renames|renamelimit|algorithm|context|noprefix|mnemonicprefix|colormoved)|log\.\w+|status\.\w+|branch\.\w+"
    r"|safe\.directory|http\.(?:postbuffer|lowspeedlimit|lowspeedtime|version)|gc\.\w+|pack\.\w+|index\.\w+|column\.\w+"
    r"|grep\.(?!.*command)\w+|rerere\.\w+|submodule\.(?:recurse|fetchjobs)|blame\.\w+|format\.pretty|versionsort\.\w+)"
)
_READ_ONLY_NAMES = """
status log diff show blame annotate grep ls-files ls-tree ls-remote rev-parse rev-list cat-file describe shortlog
name-rev merge-base for-each-ref show-ref show-branch var version help count-objects check-ignore check-attr
check-ref-format diff-tree diff-files diff-index whatchanged cherry range-diff fsck verify-commit verify-tag
"""
_READ_ONLY: Final = frozenset(_READ_ONLY_NAMES.split())
_LISTING: Final = {
    "branch": {"-a", "-r", "-v", "-vv", "--list", "-l", "--all", "--show-current", "--contains", "--merged", "--no-merged"},
    "tag": {"-l", "--list", "-n", "--contains", "--points-at"},
    "remote": {"-v", "show", "get-url", "--verbose"},
    "stash": {"list", "show"},
    "worktree": {"list"},
    "config": {"--get", "--get-all", "--get-regexp", "-l", "--list", "list", "get"},
    "reflog": {"show", "exists"},
    "submodule": {"status", "summary"},
    "notes": {"list", "show"},
    "bisect": {"log", "view"},
}  # fmt: skip
_SUBCOMMANDS: Final = split_names("remote stash worktree reflog submodule notes bisect")
_CONFIGURING: Final = split_names("add set-url set-branches set-head rename remove rm")
# With one of these options, a subcommand that may list things changes them.
_CHANGING: Final = split_names(
    "-d -D -m -M -c -C -f -u -t -s -F -e -E --delete --move --copy --force --set-upstream-to --unset-upstream --track --annotate"
    " --edit-description --create-reflog --sign --message --file --local-user --unset --unset-all --add --replace-all --edit"
    " --rename-section --remove-section"
)
_BARE: Final = frozenset({"branch", "tag", "remote", "reflog", "notes"})
_TAKING: Final = split_names(
    "-o -O --output --output-directory --upload-pack --receive-pack --exec -x --extcmd -m -F -S -G -n -U -e -f -A -B --file"
    " --open-files-in-pager --template --separate-git-dir -d -b --tree-filter --index-filter --msg-filter --env-filter"
    " --setup --commit-filter --parent-filter --tag-name-filter --subdirectory-filter --strategy --author --date --since"
    " --until --after --before --grep --format --pretty --max-count --reference"
)
_COMMANDS: Final = ("--exec", "-x", "--extcmd", "--upload-pack", "--receive-pack", "--setup")
# Subcommands that change the files in the checkout that they are given by name.
_WRITING: Final = split_names(
    "checkout restore rm mv stash reset switch merge pull rebase cherry-pick revert"
)
# Subcommands that show the files they are given by name, or store them where they can be shown later.
_READING: Final = split_names(
    "show log diff blame annotate cat-file grep archive whatchanged apply am hash-object mailinfo"
)

_RUNS_CONFIGURED: Final = split_names(
    "difftool mergetool hook daemon instaweb send-email shell upload-pack credential credential-store credential-cache"
)
# Subcommands that exchange data with another repository, which may be a directory.
_REACHING: Final = split_names("clone fetch pull push ls-remote submodule fetch-pack send-pack remote")
# A word whose beginning is unknown, except the output of git itself, which is a name or a number.
_UNKNOWN: Final = re.compile(
    rf"{UNKNOWN_START}(?!\"?\$\(git (?:rev-parse|merge-base|describe|branch|symbolic-ref|rev-list|tag|log|config|ls-files|diff|stash)\b)"
)
_UNKNOWN_OPTION: Final = re.compile(rf"-[\w-]*{UNKNOWN_START}")
_REMOTE: Final = re.compile(r"[\w+.-]+://|[\w.@-]+:")


def examine_git(rest: Fields, state: ShellState) -> ProgramEffects:
    given = parse_arguments(rest, _GLOBAL, until_word=True)
    _examine_global_options(given, state)
    if not given.words:
        return ProgramEffects()
    if given.options:
        # Rules name `git push`, not `git -C . push`, so judge it without the global options, too.
        return ProgramEffects(inner=(InnerCommand(fields=(Field("git"), *given.words)),))
    verb, arguments = given.words[0].text, given.words[1:]
    own = parse_arguments(arguments, _TAKING | split_names("-u -c --config") if verb == "clone" else _TAKING)
    _examine_unknown(given.words, own, state)
    inner = _list_inner(verb, own, arguments, state)
    _touch(verb, own, state)
    if any(field.text.startswith(("ext::", "fd::")) for field in arguments):
        state.mark_unclear(f"git {verb}", "a git URL that runs a program")
    return ProgramEffects(inner=tuple(inner), quiet=_only_reads(verb, own, arguments))


def _examine_unknown(words: Sequence[Field], own: ParsedArguments, state: ShellState) -> None:
    """Mark words as unclear that may turn out to be options."""
    texts = [field.text for field in words]
    options = texts[: texts.index("--")] if "--" in texts else texts
    maybe = [field for field in (words[0], *own.words) if not field.is_number and field.listing is None]
    odd = [field.text for field in maybe if _UNKNOWN.match(field.text) and field.text in options]
    odd += [text for text in options if _UNKNOWN_OPTION.match(text)]
    if odd:
        state.mark_unclear(" ".join(["git", *texts]), f"{odd[0]} may be an option")


def _examine_global_options(given: ParsedArguments, state: ShellState) -> None:
    _examine_settings(given.values("-c", "--config-env"), state)
    for place in given.values("-C", "--git-dir", "--work-tree"):
        state.touch(place, "look")
    for place in given.values("--git-dir"):
        examine_repository(place.text, state)
    for place in given.values("--exec-path"):
        state.mark_unclear(
            f"git --exec-path={place.text}", "it runs git's own programs from another directory"
        )


def examine_repository(path: str, state: ShellState) -> None:
    """Mark a directory that is given as a repository as unclear: its settings may run a program."""
    if path.rstrip("/").rpartition("/")[2] != ".git":
        state.mark_unclear(f"git --git-dir={path}", "git settings may run a program")


def _examine_settings(settings: Sequence[Field], state: ShellState) -> None:
    for setting in settings:
        if not _HARMLESS.match(setting.text):
            state.mark_unclear(f"git -c {setting.text}", "a git setting may run a program")


def _list_inner(
    verb: str, own: ParsedArguments, arguments: Sequence[Field], state: ShellState
) -> list[Inner]:
    texts = [field.text for field in arguments]
    _examine_settings(own.values("-c", "--config") if verb == "clone" else [], state)
    inner: list[Inner] = [InnerScript(text=field.text) for field in own.values(*_COMMANDS)]
    if verb in ("init", "clone") and any(field.text for field in own.values("--template")):
        state.mark_unclear(f"git {verb} --template", "it installs hooks, which run automatically")
    inner += [InnerScript(text=value.text) for name, value in own.options if value is not None and name.endswith("-filter") and name != "--subdirectory-filter"]  # fmt: skip
    match verb:
        case "submodule" if "foreach" in texts:
            words = [text for text in texts[texts.index("foreach") + 1 :] if not text.startswith("-")]
            inner.append(InnerScript(text=" ".join(words)))
        case "bisect" if texts[:1] == ["run"]:
            inner.append(InnerCommand(fields=tuple(arguments[1:])))
        case "grep":
            inner += [InnerScript(text=field.text) for field in own.values("-O", "--open-files-in-pager")]
        case "clone":
            inner += [InnerScript(text=field.text) for field in own.values("-u")]
        case "config":
            _examine_config(own, state)
        case "lfs" if texts[:1] == ["install"]:
            state.touch(Field(".git/hooks"), "write")
        case "maintenance" if texts[:1] in (["start"], ["register"]):
            state.mark_outside(f"{state.location.home}/.gitconfig")
        case "remote" if own.words and own.words[0].text in _CONFIGURING:
            state.touch(Field(".git/config"), "write")
        case _ if verb in _RUNS_CONFIGURED:
            state.mark_unclear(f"git {verb}", "it runs configured programs")
        case _:
            pass
    return inner


def _examine_config(own: ParsedArguments, state: ShellState) -> None:
    words = [field for field in own.words if field.text not in ("set", "get", "list", "unset", "edit")]
    writes = len(words) > 1 or own.has(
        "--unset", "--unset-all", "--add", "--replace-all", "--remove-section", "-e", "--edit"
    )
    if not writes:
        return
    if words and not _HARMLESS.match(words[0].text):
        state.mark_unclear(
            " ".join(["git config", *(field.text for field in words)]), "a git setting may run a program"
        )
    if own.has("--global", "--system"):
        state.mark_outside("/etc/gitconfig" if own.has("--system") else f"{state.location.home}/.gitconfig")
    else:
        state.touch(Field(".git/config"), "write")


def _touch(verb: str, own: ParsedArguments, state: ShellState) -> None:
    for field in own.values(
        "--output", "--output-directory", *(["-o"] if verb in ("archive", "format-patch") else [])
    ):
        state.touch(field, "write")
    for field in own.values("-F", "--file", *(["-f"] if verb in ("grep", "config") else [])):
        state.touch(field, "read")
    if verb == "grep" and own.has("--no-index", "--untracked"):
        roots = tuple(root for field in own.words[1:] for root in state.resolve_roots(field))
        state.touch_tree(FileListing(roots=roots or state.cwds or ()), "read")
    for field in own.words if verb in _REACHING else ():
        _touch_repository(field, state)
    match verb:
        case _ if verb in _READING:
            for field in own.words:
                _touch_revision(field, state)
        case "clone" | "init" | "worktree" | "bundle":
            for field in own.words[1:] if verb != "init" else own.words:
                if not re.match(r"[\w+.-]+://|[\w.-]+@", field.text) and "/" in field.text:
                    state.touch(field, "write")
        case "clean":
            state.touch_below(*(state.cwds or ()))
        case _ if verb in _WRITING:
            for field in own.words:
                _touch_existing(field, state)
        case _:
            pass


def _touch_repository(field: Field, state: ShellState) -> None:
    """Note the use of another repository on this machine, which is a directory like any other."""
    text = field.text.removeprefix("file://")
    if field.wild or (state.looks_like_path(text) and not _REMOTE.match(text)):
        state.touch(field if field.wild else Field(text), "look")


def _touch_revision(field: Field, state: ShellState) -> None:
    """Note that `HEAD:.env` reads `.env`."""
    revision, colon, path = field.text.rpartition(":")
    if colon and not revision.startswith("-"):
        state.touch(Field(path or "."), "read")
    elif field.wild or state.exists(field.text):
        state.touch(field, "read")


def _touch_existing(field: Field, state: ShellState) -> None:
    if field.wild or state.exists(field.text):
        state.touch(field, "write")


def _only_reads(verb: str, own: ParsedArguments, arguments: Sequence[Field]) -> bool:
    if own.has("--output", "--output-directory", "--ext-diff", "--textconv", "-O", "--open-files-in-pager"):
        return False
    if verb in _READ_ONLY:
        return True
    if verb not in _LISTING:
        return False
    listing = _LISTING[verb]
    if verb in _SUBCOMMANDS:
        # Only the first word is the subcommand: `git stash push -m list` does not list.
        return own.words[0].text in listing if own.words else verb in _BARE
    changing = _CHANGING - {"-f", "--file"} if verb == "config" else _CHANGING
    if own.has(*changing) or not changing.isdisjoint(field.text for field in arguments):
        return False
    # `git branch -v name` creates a branch.
    return (
        own.has(*(listing - {"-v", "-vv"} if own.words else listing))
        or bool(listing & {field.text for field in own.words[:1]})
        or (not arguments and verb in _BARE)
    )
