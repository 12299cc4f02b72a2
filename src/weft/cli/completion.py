"""`weft completion` and `weft help`: complete commands in a shell, and explain a command or a topic."""

import argparse
import asyncio
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress

from weft.cli.commands import COMMANDS, GROUPS, build_parser
from weft.cli.exit import EXIT_CODES, ExitCode
from weft.cli.mistake import find_wrong_command
from weft.errors import InvalidInputError, WeftError

SHELLS = ("bash", "zsh", "fish")
MAX_NAMES = 100
# Each script asks `weft completion words` what can follow, so it never has to be installed again.
SCRIPTS = {
    "bash": """_weft() {
    local IFS=$'\\n'
    COMPREPLY=($(weft completion words -- "${COMP_WORDS[@]:1:COMP_CWORD-1}" "${COMP_WORDS[COMP_CWORD]}" 2>/dev/null | cut -f1))
}
complete -o default -F _weft weft
""",
    "zsh": """#compdef weft
_weft() {
    local -a found names
    found=("${(@f)$(weft completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    local line
    for line in $found; do names+=("${${line%%$'\\t'*}//:/\\\\:}:${line#*$'\\t'}"); done
    _describe 'weft' names || _files
}
compdef _weft weft
""",
    "fish": """complete -c weft -f -a '(weft completion words -- (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)'
""",
}
TOPICS = {
    "exit-codes": EXIT_CODES,
    "sessions": """A session is a conversation with its files' history. weft lists them with `weft session list`.
Where a command takes a session, type its id, the beginning of its id, or `last`.""",
    "models": """A model is named provider/model. `weft models` lists those that you have keys for, `weft models --all` all of them.
`weft auth login` stores a key. ollama, lmstudio, llamacpp and vllm on this machine need none.""",
    "keys": """In weft chat: Enter sends, Alt-Enter or Ctrl-J begins a line, Tab completes, Ctrl-R searches, Ctrl-X Ctrl-E edits.
During a run: Enter joins it, Ctrl-Q queues, Esc or Ctrl-C interrupts. Ctrl-D leaves.""",
    "environment": """NO_COLOR             no colours
WEFT_DEBUG=1         show where an unexpected error happened
WEFT_TRUST=1         trust the project this once
XDG_DATA_HOME, XDG_CONFIG_HOME, XDG_STATE_HOME, XDG_CACHE_HOME   where weft and OpenCode keep their files
VISUAL, EDITOR       the editor that Ctrl-X Ctrl-E opens""",
}


def add_completion_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "shell", choices=(*SHELLS, "words"), metavar="|".join(SHELLS), help="the shell whose script to print"
    )
    parser.add_argument("typed", nargs="*", default=[], help=argparse.SUPPRESS)
    parser.epilog = """bash: eval "$(weft completion bash)" in ~/.bashrc
zsh:  eval "$(weft completion zsh)" in ~/.zshrc, after compinit
fish: weft completion fish > ~/.config/fish/completions/weft.fish"""


def complete_command(args: argparse.Namespace) -> int:
    if args.shell != "words":
        sys.stdout.write(SCRIPTS[args.shell])
        return ExitCode.DONE
    *words, start = args.typed or [""]
    for name, about in find_completions(words, start):
        print(f"{name}\t{about}")
    return ExitCode.DONE


def find_completions(words: list[str], start: str) -> list[tuple[str, str]]:
    """Return what can follow these words of a command line, with a description of each."""
    return [(name, about) for name, about in _list_candidates(words, start) if name.startswith(start)]


def _list_candidates(words: list[str], start: str) -> Iterable[tuple[str, str]]:
    entry = next((each for each in COMMANDS if tuple(words[: len(each.words)]) == each.words), None)
    if entry is None:
        depth = len(words)
        below = [each for each in COMMANDS if each.words[:depth] == tuple(words)]
        return {
            each.words[depth]: GROUPS.get(each.words[: depth + 1]) or each.about for each in below
        }.items()
    previous = words[-1] if len(words) > len(entry.words) else ""
    if previous in ("-m", "--model"):
        return list_models()
    if previous == "--agent":
        return list_agents()
    if previous in ("-s", "--session"):
        return list_session_ids()
    if start.startswith("-"):
        return list_flags(entry.words)
    if entry.words == ("help",):
        return {each.words[0]: "" for each in COMMANDS}.items() | dict.fromkeys(TOPICS, "").items()
    if entry.words == ("completion",):
        return dict.fromkeys(SHELLS, "").items()
    takes_session = entry.words[0] in ("session", "undo", "redo", "share", "unshare", "export")
    return list_session_ids() if takes_session else ()


def _find_parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser of a command or of a group of commands."""
    parser: argparse.ArgumentParser = build_parser(words)
    for word in words:
        branches = next(each for each in parser._actions if isinstance(each, argparse._SubParsersAction))  # noqa: SLF001  argparse has no other way to list them
        parser = branches.choices[word]
    return parser


def list_flags(words: Sequence[str]) -> list[tuple[str, str]]:
    """Return the options of a command."""
    return [
        (option, action.help or "")
        for action in _find_parser(words)._actions  # noqa: SLF001  argparse has no other way to list them
        if action.help != argparse.SUPPRESS
        for option in action.option_strings
    ]


def list_session_ids() -> list[tuple[str, str]]:
    from weft.cli.session import make_reader  # noqa: PLC0415  only a completion of sessions reads them

    place = argparse.Namespace(dir=".", store=None)
    with suppress(WeftError):
        sessions = make_reader(place).list_sessions()
        return [("last", ""), *((each.id, each.title) for each in sessions[:MAX_NAMES])]
    return []


def list_models() -> list[tuple[str, str]]:
    from weft.cli.models import find_models, load_offers  # noqa: PLC0415  only a completion of models reads them

    with suppress(WeftError):
        offers, _ = load_offers(".", os.environ)
        return [
            (f"{each.provider_id}/{each.id}", each.name)
            for each in find_models(offers, None, os.environ, everything=False)
        ]
    return []


def list_agents() -> list[tuple[str, str]]:
    from weft.local.open import OpenOptions, open_directory  # noqa: PLC0415  only a completion of agents reads them

    async def read() -> list[tuple[str, str]]:
        async with open_directory(OpenOptions(env=os.environ, one_shot=True)) as api:
            agents = await api.workspace.list_agents()
            return [(each.name, each.description or "") for each in agents if not each.hidden]

    with suppress(WeftError):
        return asyncio.run(read())
    return []


# --- help ---


def add_help_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "topic", nargs="*", help=f"a command, or one of: {', '.join(TOPICS)} (default: everything)"
    )


def help_command(args: argparse.Namespace) -> int:
    """Print the help of a command or a topic. Raise `InvalidInputError` if there is no such thing."""
    words = tuple(args.topic)
    if len(words) == 1 and words[0] in TOPICS:
        print(TOPICS[words[0]])
        return ExitCode.DONE
    if words and not any(each.words[: len(words)] == words for each in COMMANDS):
        wrong = find_wrong_command(words)
        hint = f"{wrong.hint if wrong else 'weft --help lists the commands'}; topics: {', '.join(TOPICS)}"
        raise InvalidInputError("topic", f"there is none named {' '.join(words)!r}", hint=hint)
    _find_parser(words).print_help()
    return ExitCode.DONE
