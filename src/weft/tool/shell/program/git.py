"""Examine git, whose subcommands and settings may run other programs."""

import os
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

_GLOBAL_VALUE_OPTIONS: Final = split_names(
    "-C -c --git-dir --work-tree --namespace --config-env --exec-path --super-prefix"
)
# Settings that only change how git displays things, or what it writes into commits. Any other may name a program.
_HARMLESS_SETTING: Final = re.compile(
    r"(?i)(?:user\.(?:name|email)|color\.[\w.]+|core\.(?:quotepath|autocrlf|safecrlf|eol|filemode|ignorecase|precomposeunicode"
    r"|abbrev|longpaths|preloadindex|untrackedcache)|advice\.\w+|init\.defaultbranch|commit\.(?:gpgsign|verbose)"
    r"|tag\.gpgsign|pull\.\w+|push\.\w+|fetch\.\w+|rebase\.(?:autosquash|autostash)|merge\.(?:ff|conflictstyle|renamelimit)"
    r"|diff\.(?:renames|renamelimit|algorithm|context|noprefix|mnemonicprefix|colormoved)|log\.\w+|status\.\w+|branch\.[\w./-]+"
    r"|safe\.directory|http\.(?:postbuffer|lowspeedlimit|lowspeedtime|version)|gc\.\w+|pack\.\w+|index\.\w+|column\.\w+"
    r"|grep\.(?!.*command|fallbacktonoindex)\w+|rerere\.\w+|submodule\.(?:recurse|fetchjobs)|blame\.(?!ignorerevsfile)\w+|format\.pretty|versionsort\.\w+)"
)
_READ_ONLY_SUBCOMMAND_NAMES = """
status log diff show blame annotate grep ls-files ls-tree ls-remote rev-parse rev-list cat-file describe shortlog
name-rev merge-base for-each-ref show-ref show-branch var version help count-objects check-ignore check-attr
check-ref-format diff-tree diff-files diff-index whatchanged cherry range-diff fsck verify-commit verify-tag
"""
_READ_ONLY_SUBCOMMANDS: Final = frozenset(_READ_ONLY_SUBCOMMAND_NAMES.split())
# Options and words with which a subcommand lists things.
_LISTING_WORDS: Final = {
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
_WITH_SUBCOMMAND: Final = split_names("remote stash worktree reflog submodule notes bisect")
_REMOTE_CONFIG_WORDS: Final = split_names("add set-url set-branches set-head rename remove rm")
# With one of these options, a subcommand that may list things changes them.
_CHANGING_OPTIONS: Final = split_names(
    "-d -D -m -M -c -C -f -u -t -s -F -e -E --delete --move --copy --force --set-upstream-to --unset-upstream --track --annotate"
    " --edit-description --create-reflog --sign --message --file --local-user --unset --unset-all --add --replace-all --edit"
    " --rename-section --remove-section"
)
# Without arguments, these subcommands list things.
_LISTING_WITHOUT_ARGUMENTS: Final = frozenset({"branch", "tag", "remote", "reflog", "notes"})
_VALUE_OPTIONS: Final = split_names(
    "-o -O --output --output-directory --upload-pack --receive-pack --exec -x --extcmd -m -F -S -G -n -U -e -f -A -B --file"
    " --open-files-in-pager --template --separate-git-dir -d -b --tree-filter --index-filter --msg-filter --env-filter"
    " --setup --commit-filter --parent-filter --tag-name-filter --subdirectory-filter --strategy --author --date --since"
    " --until --after --before --grep --format --pretty --max-count --reference --contents --signature-file"
    " --pathspec-from-file --ignore-revs-file --add-file --import-marks --import-marks-if-exists --export-marks"
    " --export-pack-edges --remote --reference-if-able --prefix"
)
# The same for some subcommands alone.
_OWN_VALUE_OPTIONS: Final = {
    "clone": split_names("-u -c --config"),
    "commit": split_names("-t -C -c"),
    **dict.fromkeys(("log", "show", "whatchanged", "blame", "annotate"), frozenset({"-L"})),
}
# Options whose value is run as a script.
_COMMAND_OPTIONS: Final = ("--exec", "-x", "--extcmd", "--upload-pack", "--receive-pack", "--setup")
# Subcommands that change the files in the checkout that they are given by name.
_WRITING_SUBCOMMANDS: Final = split_names(
    "checkout restore rm mv stash reset switch merge pull rebase cherry-pick revert"
)
# Subcommands that show the files they are given by name, or store them where they can be shown later.
_READING_SUBCOMMANDS: Final = split_names(
    "show log diff diff-files diff-index blame annotate cat-file grep archive whatchanged apply am hash-object mailinfo"
    " mailsplit merge-file interpret-trailers"
)
# Options whose value is a file that is shown; git quotes every line of a list of paths that names none.
_READING_OPTIONS: Final = (
    "--contents",
    "--signature-file",
    "--pathspec-from-file",
    "--ignore-revs-file",
    "--add-file",
    "--import-marks",
    "--import-marks-if-exists",
)
# The same for some subcommands alone. Errors quote the lines of a file that is not what git expects.
_READING_LETTERS: Final = {
    "grep": ("-f",),
    "config": ("-f",),
    "blame": ("-S",),
    "annotate": ("-S",),
    "commit": ("-t", "--template"),
}

# Subcommands with which `-o` names a file or directory that is written.
_WRITING_LETTER_SUBCOMMANDS: Final = split_names(
    "archive format-patch bugreport diagnose mailsplit index-pack multi-pack-index"
)
# Subcommands that change a file that they are given by name.
_REWRITING_SUBCOMMANDS: Final = split_names("merge-file mailinfo interpret-trailers")
# Subcommands that run programs named in the settings.
_RUNNING_SUBCOMMANDS: Final = split_names(
    "difftool mergetool hook daemon instaweb send-email shell upload-pack credential credential-store credential-cache"
)
# Subcommands that exchange data with another repository, which may be a directory.
_REMOTE_SUBCOMMANDS: Final = split_names(
    "clone fetch pull push ls-remote submodule fetch-pack send-pack remote"
)
# With these, `git apply` only looks at a patch, and `git am` goes on.
_LOOKING_AT_PATCH: Final = (
    "--stat",
    "--numstat",
    "--summary",
    "--check",
    "--abort",
    "--quit",
    "--skip",
    "--show-current-patch",
)
# A file that acts by itself.
_ACTING_NAME: Final = re.compile(r"(?:^|/)(?:\.git|\.opencode|opencode\.jsonc?)(?:/|$)")
# A word whose beginning is unknown, except the output of git itself, which is a name or a number.
_UNKNOWN_WORD: Final = re.compile(
    rf"{UNKNOWN_START}(?!\"?\$\(git (?:rev-parse|merge-base|describe|branch|symbolic-ref|rev-list|tag|log|config|ls-files|diff|stash)\b)"
)
_UNKNOWN_OPTION: Final = re.compile(rf"-[\w-]*{UNKNOWN_START}")
_REMOTE_URL: Final = re.compile(r"[\w+.-]+://|[\w.@-]+:")


def examine_git(arguments: Fields, state: ShellState) -> ProgramEffects:
    global_parsed = parse_arguments(arguments, _GLOBAL_VALUE_OPTIONS, until_word=True)
    _examine_global_options(global_parsed, state)
    if not global_parsed.words:
        return ProgramEffects()
    if global_parsed.options:
        _examine_elsewhere(global_parsed, state)
        # Rules name `git push`, not `git -C . push`, so judge it without the global options, too.
        return ProgramEffects(inner=(InnerCommand(fields=(Field("git"), *global_parsed.words)),))
    verb, verb_arguments = global_parsed.words[0].text, global_parsed.words[1:]
    parsed = parse_arguments(verb_arguments, _VALUE_OPTIONS | _OWN_VALUE_OPTIONS.get(verb, frozenset()))
    _examine_unknown(global_parsed.words, parsed, state)
    inner = _list_inner(verb, parsed, verb_arguments, state)
    texts = [field.text for field in verb_arguments]
    _touch_files(verb, parsed, verb_arguments[texts.index("--") + 1 :] if "--" in texts else (), state)
    if any(field.text.startswith(("ext::", "fd::")) for field in verb_arguments):
        state.mark_unclear(f"git {verb}", "a git URL that runs a program")
    return ProgramEffects(inner=tuple(inner), may_write=not _only_reads(verb, parsed, verb_arguments))


def _examine_elsewhere(parsed: ParsedArguments, state: ShellState) -> None:
    """Note the files that `git -C directory` uses there."""
    directories = parsed.values("-C", "--work-tree")
    before = state.cwds
    if parsed.words[0].text not in _READ_ONLY_SUBCOMMANDS:
        for directory in parsed.values("--work-tree"):
            if state.resolve_roots(directory) != state.cwds:
                state.touch(directory, "write")
    for directory in directories:
        if not directory.is_known or state.cwds is None:
            state.cwds = None
            break
        state.cwds = tuple(os.path.normpath(os.path.join(cwd, directory.text)) for cwd in state.cwds)
    if directories:
        examine_git(parsed.words, state)
    state.cwds = before


def _examine_unknown(words: Sequence[Field], parsed: ParsedArguments, state: ShellState) -> None:
    """Mark words as unclear that may turn out to be options."""
    texts = [field.text for field in words]
    options = texts[: texts.index("--")] if "--" in texts else texts
    candidates = [
        field for field in (words[0], *parsed.words) if not field.is_number and field.listing is None
    ]
    unclear = [
        field.text for field in candidates if _UNKNOWN_WORD.match(field.text) and field.text in options
    ]
    unclear += [text for text in options if _UNKNOWN_OPTION.match(text)]
    if unclear:
        state.mark_unclear(" ".join(["git", *texts]), f"{unclear[0]} may be an option")


def _examine_global_options(parsed: ParsedArguments, state: ShellState) -> None:
    _examine_settings(parsed.values("-c", "--config-env"), state)
    for directory in parsed.values("-C", "--git-dir", "--work-tree"):
        state.touch(directory, "look")
    for directory in parsed.values("--git-dir"):
        examine_repository(directory.text, state)
    for directory in parsed.values("--exec-path"):
        state.mark_unclear(
            f"git --exec-path={directory.text}", "it runs git's own programs from another directory"
        )


def examine_repository(path: str, state: ShellState) -> None:
    """Mark a directory that is given as a repository as unclear: its settings may run a program."""
    if path.rstrip("/").rpartition("/")[2] != ".git":
        state.mark_unclear(f"git --git-dir={path}", "git settings may run a program")


def _examine_settings(settings: Sequence[Field], state: ShellState) -> None:
    for setting in settings:
        if not _HARMLESS_SETTING.fullmatch(setting.text.partition("=")[0]):
            state.mark_unclear(f"git -c {setting.text}", "a git setting may run a program")


def _list_inner(
    verb: str, parsed: ParsedArguments, arguments: Sequence[Field], state: ShellState
) -> list[Inner]:
    texts = [field.text for field in arguments]
    _examine_settings(parsed.values("-c", "--config") if verb == "clone" else [], state)
    inner: list[Inner] = [InnerScript(text=field.text) for field in parsed.values(*_COMMAND_OPTIONS)]
    if verb in ("init", "clone") and any(field.text for field in parsed.values("--template")):
        state.mark_unclear(f"git {verb} --template", "it installs hooks, which run automatically")
    inner += [InnerScript(text=value.text) for name, value in parsed.options if value is not None and name.endswith("-filter") and name != "--subdirectory-filter"]  # fmt: skip
    match verb:
        case "submodule" if "foreach" in texts:
            words = [text for text in texts[texts.index("foreach") + 1 :] if not text.startswith("-")]
            inner.append(InnerScript(text=" ".join(words)))
        case "bisect" if texts[:1] == ["run"]:
            inner.append(InnerCommand(fields=tuple(arguments[1:])))
        case "grep":
            inner += [InnerScript(text=field.text) for field in parsed.values("-O", "--open-files-in-pager")]
        case "clone":
            inner += [InnerScript(text=field.text) for field in parsed.values("-u")]
        case "config":
            _examine_config(parsed, state)
        case "lfs" if texts[:1] == ["install"]:
            state.touch(Field(".git/hooks"), "write")
        case "maintenance" if texts[:1] in (["start"], ["register"]):
            state.mark_outside(f"{state.location.home}/.gitconfig")
        case "remote" if parsed.words and parsed.words[0].text in _REMOTE_CONFIG_WORDS:
            state.touch(Field(".git/config"), "write")
        case _ if verb in _RUNNING_SUBCOMMANDS:
            state.mark_unclear(f"git {verb}", "it runs configured programs")
        case _:
            pass
    return inner


def _examine_config(parsed: ParsedArguments, state: ShellState) -> None:
    words = [field for field in parsed.words if field.text not in ("set", "get", "list", "unset", "edit")]
    writes = len(words) > 1 or parsed.has(
        "--unset", "--unset-all", "--add", "--replace-all", "--remove-section", "-e", "--edit"
    )
    if not writes:
        return
    if words and not _HARMLESS_SETTING.match(words[0].text):
        state.mark_unclear(
            " ".join(["git config", *(field.text for field in words)]), "a git setting may run a program"
        )
    if parsed.has("--global", "--system"):
        state.mark_outside(
            "/etc/gitconfig" if parsed.has("--system") else f"{state.location.home}/.gitconfig"
        )
    else:
        state.touch(Field(".git/config"), "write")


def _touch_files(
    verb: str, parsed: ParsedArguments, after_dashes: Sequence[Field], state: ShellState
) -> None:
    for field in parsed.values(
        "--output", "--output-directory", *(["-o"] if verb in _WRITING_LETTER_SUBCOMMANDS else [])
    ):
        state.touch(field, "write")
    for field in parsed.values("--remote", "--reference", "--reference-if-able"):
        _touch_repository(field, state)
    if verb == "checkout-index":
        for field in parsed.values("--prefix"):
            state.touch_all(field, "write")
    for field in parsed.values("-F", "--file", *_READING_OPTIONS, *_READING_LETTERS.get(verb, ())):
        state.touch(field, "read")
    _touch_shown(verb, parsed, state)
    if verb == "grep" and parsed.has("--no-index", "--untracked"):
        words = parsed.words[0 if parsed.has("-e", "-f") else 1 :]
        roots = tuple(root for field in words for root in state.resolve_roots(field))
        state.touch_tree(FileListing(roots=roots or state.cwds or ()), "read")
    for field in parsed.words if verb in _REMOTE_SUBCOMMANDS else ():
        _touch_repository(field, state)
    match verb:
        case _ if verb in _READING_SUBCOMMANDS:
            for field in parsed.words:
                _touch_revision(field, state)
        case "clone" | "init" | "worktree" | "bundle" | "submodule":
            _touch_made(verb, parsed, state)
        case "clean":
            state.touch_below(*(state.cwds or ()))
        case _ if verb in _WRITING_SUBCOMMANDS:
            for field in parsed.words:
                _touch_existing(field, state)
            named = [field for field in parsed.words if verb == "mv" or _ACTING_NAME.search(field.text)]
            for field in (*named, *after_dashes):
                state.touch(field, "write")
        case _:
            pass


def _touch_made(verb: str, parsed: ParsedArguments, state: ShellState) -> None:
    """Note the directories and files that a subcommand makes."""
    for field in parsed.values("--separate-git-dir"):
        state.touch_all(field, "write")
    if verb == "submodule" and not any(field.text == "add" for field in parsed.words[:1]):
        return
    places = parsed.words if verb == "init" else parsed.words[1:]
    if verb == "worktree" and any(field.text == "move" for field in parsed.words[:1]):
        for field in places:
            state.touch(field, "write")
    if verb in ("bundle", "worktree") and not any(
        field.text in ("create", "unbundle", "add", "move", "remove") for field in parsed.words[:1]
    ):
        places = tuple(field for field in places if "/" in field.text)
    if verb in ("bundle", "worktree"):
        places = (*places[:1], *(field for field in places[1:] if "/" in field.text))
    for field in places:
        if not re.match(r"[\w+.-]+://|[\w.-]+@", field.text):
            state.touch(field, "write")
    sources = {"clone": parsed.words, "submodule": parsed.words[1:]}.get(verb, ())
    if len(sources) == 1 and sources[0].is_known:  # the directory is named like the repository
        name = re.sub(r"/*(?:\.git)?/*$", "", sources[0].text)
        state.touch(Field(re.split(r"[/:]", name)[-1]), "write")


def _touch_shown(verb: str, parsed: ParsedArguments, state: ShellState) -> None:
    """Note files of a subcommand's own options, and directories that it compares."""
    for field in parsed.values("--export-marks", "--export-pack-edges"):
        state.touch(field, "write")
    if verb in _REWRITING_SUBCOMMANDS and not parsed.has("-p", "--stdout"):
        for field in parsed.words if verb != "merge-file" else parsed.words[:1]:
            if verb != "interpret-trailers" or parsed.has("--in-place"):
                state.touch(field, "write")
    if verb in ("apply", "am") and not parsed.has(*_LOOKING_AT_PATCH):
        state.touch_below(*(state.cwds or ()))
    for field in parsed.values("-L"):
        # `git log -L 1,5:file` shows these lines; `git blame -L 1,5` names the file elsewhere.
        if ":" in field.text:
            state.touch(Field(field.text.rpartition(":")[2]), "read")
    if verb == "diff" and parsed.has("--no-index"):
        for field in parsed.words:
            state.touch_all(field, "read")


def _touch_repository(field: Field, state: ShellState) -> None:
    """Note the use of another repository on this machine, which is a directory like any other."""
    text = field.text.removeprefix("file://")
    if field.glob_pattern or (state.looks_like_path(text) and not _REMOTE_URL.match(text)):
        state.touch(field if field.glob_pattern else Field(text), "look")


def _touch_revision(field: Field, state: ShellState) -> None:
    """Note that `HEAD:.env` reads `.env`."""
    revision, colon, path = field.text.rpartition(":")
    if colon and not revision.startswith("-"):
        state.touch(Field(path or "."), "read")
    elif field.glob_pattern or state.exists(field.text):
        state.touch(field, "read")


def _touch_existing(field: Field, state: ShellState) -> None:
    if field.glob_pattern or state.exists(field.text):
        state.touch(field, "write")


def _only_reads(verb: str, parsed: ParsedArguments, arguments: Sequence[Field]) -> bool:
    if parsed.has(
        "--output",
        "--output-directory",
        "--ext-diff",
        "--textconv",
        "--filters",
        "--lost-found",
        "-O",
        "--open-files-in-pager",
    ):
        return False
    if verb in _READ_ONLY_SUBCOMMANDS:
        return True
    if verb not in _LISTING_WORDS:
        return False
    listing = _LISTING_WORDS[verb]
    if verb in _WITH_SUBCOMMAND:
        # Only the first word is the subcommand: `git stash push -m list` does not list.
        return parsed.words[0].text in listing if parsed.words else verb in _LISTING_WITHOUT_ARGUMENTS
    changing = _CHANGING_OPTIONS - {"-f", "--file"} if verb == "config" else _CHANGING_OPTIONS
    if parsed.has(*changing) or not changing.isdisjoint(field.text for field in arguments):
        return False
    # `git branch -v name` creates a branch.
    return (
        parsed.has(*(listing - {"-v", "-vv"} if parsed.words else listing))
        or bool(listing & {field.text for field in parsed.words[:1]})
        or (not arguments and verb in _LISTING_WITHOUT_ARGUMENTS)
    )
