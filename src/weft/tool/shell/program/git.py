"""git: a program of many, with settings that run others."""

import re
from collections.abc import Sequence
from typing import Final

from weft.model.permission import HOLE
from weft.tool.shell.field import Field, Given, Listing, Reading, names, split
from weft.tool.shell.program.inner import Argv, Found, Inner, Script
from weft.tool.shell.scene import Scene

_GLOBAL: Final = names("-C -c --git-dir --work-tree --namespace --config-env --exec-path --super-prefix")
# Settings that only change how git looks or what it writes into a commit; any other may name a program to run.
_HARMLESS: Final = re.compile(
    r"(?i)(?:user\.(?:name|email)|color\.\w+|core\.(?:quotepath|autocrlf|safecrlf|eol|filemode|ignorecase|precomposeunicode"
    r"|abbrev|longpaths|preloadindex|untrackedcache)|advice\.\w+|init\.defaultbranch|commit\.(?:gpgsign|verbose)"
    r"|tag\.gpgsign|pull\.\w+|push\.\w+|fetch\.\w+|rebase\.(?:autosquash|autostash)|merge\.(?:ff|conflictstyle|renamelimit)"
    r"|diff\.(?:renames|renamelimit|algorithm|context|noprefix|mnemonicprefix|colormoved)|log\.\w+|status\.\w+|branch\.\w+"
    r"|safe\.directory|http\.(?:postbuffer|lowspeedlimit|lowspeedtime|version)|gc\.\w+|pack\.\w+|index\.\w+|column\.\w+"
    r"|grep\.(?!.*command)\w+|rerere\.\w+|submodule\.(?:recurse|fetchjobs)|blame\.\w+|format\.pretty|versionsort\.\w+)"
)
_TELLING_VERBS = """
status log diff show blame annotate grep ls-files ls-tree ls-remote rev-parse rev-list cat-file describe shortlog
name-rev merge-base for-each-ref show-ref show-branch var version help count-objects check-ignore check-attr
check-ref-format diff-tree diff-files diff-index whatchanged cherry range-diff fsck verify-commit verify-tag
"""
_TELLING: Final = frozenset(_TELLING_VERBS.split())
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
_SUBCOMMANDS: Final = names("remote stash worktree reflog submodule notes bisect")
_CONFIGURING: Final = names("add set-url set-branches set-head rename remove rm")
# With one of these, a verb that may list does not.
_CHANGING: Final = names(
    "-d -D -m -M -c -C -f -u -t -s -F -e -E --delete --move --copy --force --set-upstream-to --unset-upstream --track --annotate"
    " --edit-description --create-reflog --sign --message --file --local-user --unset --unset-all --add --replace-all --edit"
    " --rename-section --remove-section"
)
_BARE: Final = frozenset({"branch", "tag", "remote", "reflog", "notes"})
_TAKING: Final = names(
    "-o -O --output --output-directory --upload-pack --receive-pack --exec -x --extcmd -m -F -S -G -n -U -e -f -A -B --file"
    " --open-files-in-pager --template --separate-git-dir -d -b --tree-filter --index-filter --msg-filter --env-filter"
    " --setup --commit-filter --parent-filter --tag-name-filter --subdirectory-filter --strategy --author --date --since"
    " --until --after --before --grep --format --pretty --max-count --reference"
)
_COMMANDS: Final = ("--exec", "-x", "--extcmd", "--upload-pack", "--receive-pack", "--setup")
# Verbs that change files of the checkout that they are given by name.
_WRITING: Final = names("checkout restore rm mv stash reset switch merge pull rebase cherry-pick revert")
# Verbs that show the files they are given by name, or put them where they can be shown from.
_READING: Final = names(
    "show log diff blame annotate cat-file grep archive whatchanged apply am hash-object mailinfo"
)

_RUNS_CONFIGURED: Final = names(
    "difftool mergetool hook daemon instaweb send-email shell upload-pack credential credential-store credential-cache"
)
# Verbs that bring something from another repository, or to it; that may be a directory.
_REACHING: Final = names("clone fetch pull push ls-remote submodule fetch-pack send-pack remote")
# A word of which the beginning is not known; but for what git itself puts out, which is a name or a number.
_UNKNOWN: Final = re.compile(
    rf"{HOLE}(?!\"?\$\(git (?:rev-parse|merge-base|describe|branch|symbolic-ref|rev-list|tag|log|config|ls-files|diff|stash)\b)"
)
_UNKNOWN_OPTION: Final = re.compile(rf"-[\w-]*{HOLE}")
_AFAR: Final = re.compile(r"[\w+.-]+://|[\w.@-]+:")


def look_at_git(rest: Reading, scene: Scene) -> Found:
    given = split(rest, _GLOBAL, until_word=True)
    _look_at_globals(given, scene)
    if not given.words:
        return Found()
    if given.options:
        # Rules speak of `git push`, and not of `git -C . push`.
        return Found(inner=(Argv(fields=(Field("git"), *given.words)),))
    verb, arguments = given.words[0].text, given.words[1:]
    own = split(arguments, _TAKING | names("-u -c --config") if verb == "clone" else _TAKING)
    _look_at_unknown(given.words, own, scene)
    inner = _runs(verb, own, arguments, scene)
    _touch(verb, own, scene)
    if any(field.text.startswith(("ext::", "fd::")) for field in arguments):
        scene.unclear(f"git {verb}", "an address of git's that runs a program")
    return Found(inner=tuple(inner), quiet=_only_tells(verb, own, arguments))


def _look_at_unknown(words: Sequence[Field], own: Given, scene: Scene) -> None:
    """Words of which it is not known whether they are options."""
    texts = [field.text for field in words]
    options = texts[: texts.index("--")] if "--" in texts else texts
    maybe = [field for field in (words[0], *own.words) if not field.is_number and field.listing is None]
    odd = [field.text for field in maybe if _UNKNOWN.match(field.text) and field.text in options]
    odd += [text for text in options if _UNKNOWN_OPTION.match(text)]
    if odd:
        scene.unclear(" ".join(["git", *texts]), f"{odd[0]} may be an option")


def _look_at_globals(given: Given, scene: Scene) -> None:
    _look_at_settings(given.values("-c", "--config-env"), scene)
    for place in given.values("-C", "--git-dir", "--work-tree"):
        scene.touch(place, "look")
    for place in given.values("--git-dir"):
        look_at_repository(place.text, scene)
    for place in given.values("--exec-path"):
        scene.unclear(f"git --exec-path={place.text}", "it takes git's own programs from elsewhere")


def look_at_repository(path: str, scene: Scene) -> None:
    """A directory that is said to be a repository has settings, and these may run a program."""
    if path.rstrip("/").rpartition("/")[2] != ".git":
        scene.unclear(f"git --git-dir={path}", "settings of git's may run a program")


def _look_at_settings(settings: Sequence[Field], scene: Scene) -> None:
    for setting in settings:
        if not _HARMLESS.match(setting.text):
            scene.unclear(f"git -c {setting.text}", "a setting of git's may run a program")


def _runs(verb: str, own: Given, arguments: Sequence[Field], scene: Scene) -> list[Inner]:
    texts = [field.text for field in arguments]
    _look_at_settings(own.values("-c", "--config") if verb == "clone" else [], scene)
    inner: list[Inner] = [Script(text=field.text) for field in own.values(*_COMMANDS)]
    if verb in ("init", "clone") and any(field.text for field in own.values("--template")):
        scene.unclear(f"git {verb} --template", "it brings hooks along, which run by themselves")
    inner += [Script(text=value.text) for name, value in own.options if value is not None and name.endswith("-filter") and name != "--subdirectory-filter"]  # fmt: skip
    match verb:
        case "submodule" if "foreach" in texts:
            words = [text for text in texts[texts.index("foreach") + 1 :] if not text.startswith("-")]
            inner.append(Script(text=" ".join(words)))
        case "bisect" if texts[:1] == ["run"]:
            inner.append(Argv(fields=tuple(arguments[1:])))
        case "grep":
            inner += [Script(text=field.text) for field in own.values("-O", "--open-files-in-pager")]
        case "clone":
            inner += [Script(text=field.text) for field in own.values("-u")]
        case "config":
            _configure(own, scene)
        case "lfs" if texts[:1] == ["install"]:
            scene.touch(Field(".git/hooks"), "write")
        case "maintenance" if texts[:1] in (["start"], ["register"]):
            scene.outside(f"{scene.where.home}/.gitconfig")
        case "remote" if own.words and own.words[0].text in _CONFIGURING:
            scene.touch(Field(".git/config"), "write")
        case _ if verb in _RUNS_CONFIGURED:
            scene.unclear(f"git {verb}", "it runs whatever is configured")
        case _:
            pass
    return inner


def _configure(own: Given, scene: Scene) -> None:
    words = [field for field in own.words if field.text not in ("set", "get", "list", "unset", "edit")]
    writes = len(words) > 1 or own.has(
        "--unset", "--unset-all", "--add", "--replace-all", "--remove-section", "-e", "--edit"
    )
    if not writes:
        return
    if words and not _HARMLESS.match(words[0].text):
        scene.unclear(
            " ".join(["git config", *(field.text for field in words)]), "a setting of git's may run a program"
        )
    if own.has("--global", "--system"):
        scene.outside("/etc/gitconfig" if own.has("--system") else f"{scene.where.home}/.gitconfig")
    else:
        scene.touch(Field(".git/config"), "write")


def _touch(verb: str, own: Given, scene: Scene) -> None:
    for field in own.values(
        "--output", "--output-directory", *(["-o"] if verb in ("archive", "format-patch") else [])
    ):
        scene.touch(field, "write")
    for field in own.values("-F", "--file", *(["-f"] if verb in ("grep", "config") else [])):
        scene.touch(field, "read")
    if verb == "grep" and own.has("--no-index", "--untracked"):
        roots = tuple(root for field in own.words[1:] for root in scene.rooted(field))
        scene.touch_tree(Listing(roots=roots or scene.cwds or ()), "read")
    for field in own.words if verb in _REACHING else ():
        _touch_repository(field, scene)
    match verb:
        case _ if verb in _READING:
            for field in own.words:
                _touch_at(field, scene)
        case "clone" | "init" | "worktree" | "bundle":
            for field in own.words[1:] if verb != "init" else own.words:
                if not re.match(r"[\w+.-]+://|[\w.-]+@", field.text) and "/" in field.text:
                    scene.touch(field, "write")
        case "clean":
            scene.touch_below(*(scene.cwds or ()))
        case _ if verb in _WRITING:
            for field in own.words:
                _touch_named(field, scene)
        case _:
            pass


def _touch_repository(field: Field, scene: Scene) -> None:
    """A repository elsewhere on this machine is as much outside as any other directory."""
    text = field.text.removeprefix("file://")
    if field.wild or (scene.looks_like_path(text) and not _AFAR.match(text)):
        scene.touch(field if field.wild else Field(text), "look")


def _touch_at(field: Field, scene: Scene) -> None:
    """`HEAD:.env` is `.env`, as it was."""
    revision, colon, path = field.text.rpartition(":")
    if colon and not revision.startswith("-"):
        scene.touch(Field(path or "."), "read")
    elif field.wild or scene.exists(field.text):
        scene.touch(field, "read")


def _touch_named(field: Field, scene: Scene) -> None:
    if field.wild or scene.exists(field.text):
        scene.touch(field, "write")


def _only_tells(verb: str, own: Given, arguments: Sequence[Field]) -> bool:
    if own.has("--output", "--output-directory", "--ext-diff", "--textconv", "-O", "--open-files-in-pager"):
        return False
    if verb in _TELLING:
        return True
    if verb not in _LISTING:
        return False
    listing = _LISTING[verb]
    if verb in _SUBCOMMANDS:
        # Only the first word says what is done: `git stash push -m list` does not list.
        return own.words[0].text in listing if own.words else verb in _BARE
    changing = _CHANGING - {"-f", "--file"} if verb == "config" else _CHANGING
    if own.has(*changing) or not changing.isdisjoint(field.text for field in arguments):
        return False
    # With `-v` and a name a branch is made.
    return (
        own.has(*(listing - {"-v", "-vv"} if own.words else listing))
        or bool(listing & {field.text for field in own.words[:1]})
        or (not arguments and verb in _BARE)
    )
