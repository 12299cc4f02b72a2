"""`weft completion` and `weft help`: complete commands in a shell, and explain a command or a topic.

What can follow the words of a command line are commands, options, sessions, models and agents.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from weft.api import Api
from weft.cli.commands import COMMANDS, GROUPS, build_parser, normalise
from weft.cli.exit import EXIT_CODES, ExitCode
from weft.cli.mistake import find_wrong_command
from weft.cli.output import sanitize
from weft.errors import NotFoundError, WeftError
from weft.model.session import SessionInfo
from weft.model.session_query import SessionQuery

SHELLS = ("bash", "zsh", "fish")
HIDDEN = ("words", "bash-line")  # only the scripts of `weft completion` say these
MAX_NAMES = 100
SERVER_SECONDS = 5.0  # whoever pressed Tab waits for it
LAST = ("last", "the last session of this checkout or directory")
# Each script asks weft what can follow, so it never has to be installed again.
SCRIPTS = {
    # bash hands over its line as it was typed: its own words are split at colons and keep their quotes.
    "bash": """_weft() {
    local found
    COMPREPLY=()
    while IFS= read -r found; do
        COMPREPLY+=("$found")
    done < <(weft completion bash-line -- "${COMP_LINE:0:COMP_POINT}" "$COMP_WORDBREAKS" 2>/dev/null)
}
complete -o default -o nosort -F _weft weft 2>/dev/null || complete -o default -F _weft weft
""",
    # As a file of $fpath it is run as the function _weft itself, when Tab is first pressed.
    "zsh": r"""#compdef weft
_weft() {
    local -a names
    local line name
    for line in "${(@f)$(weft completion words -- "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}"; do
        name=${${${line%%$'\t'*}//\\/\\\\}//:/\\:}
        [[ -n $name ]] && names+=("$name${${line#*$'\t'}:+:${line#*$'\t'}}")
    done
    _describe -V 'weft' names || _files
}
if [[ $funcstack[1] == _weft ]]; then _weft "$@"; else compdef _weft weft; fi
""",
    # A quote that is still open cannot be unescaped.
    "fish": r"""function __weft_complete
    set -l typed (commandline -ct)
    set -l start (string unescape -- "$typed"; or string trim -l -c '"\'' -- "$typed")
    set -l found (weft completion words -- (commandline -opc)[2..-1] "$start" 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c weft -f -k -a '(__weft_complete)'
""",
}
TOPICS = {
    "exit-codes": EXIT_CODES,
    "sessions": """A session is a conversation, with what it changed in files. `weft session list` lists them.
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

Candidate = tuple[str, str]
Reader = Callable[[Api, str], Awaitable[list[Candidate]]]


def add_completion_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "shell",
        type=parse_shell,
        choices=(*SHELLS, *HIDDEN),
        metavar="|".join(SHELLS),
        help="the shell to print the script for: bash, zsh or fish",
    )
    parser.add_argument("typed", nargs="*", default=[], help=argparse.SUPPRESS)
    parser.epilog = """bash: eval "$(weft completion bash)" in ~/.bashrc
zsh:  eval "$(weft completion zsh)" in ~/.zshrc, after compinit
fish: weft completion fish > ~/.config/fish/completions/weft.fish"""


def parse_shell(text: str) -> str:
    if text not in (*SHELLS, *HIDDEN):
        raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(SHELLS)}")
    return text


def complete_command(args: argparse.Namespace) -> int:
    if args.shell == "bash-line":
        line, breaks = (*args.typed, "", "")[:2]
        for reply in complete_bash_line(line, breaks):
            print(reply)
    elif args.shell == "words":
        *words, start = args.typed or [""]
        for name, about in find_completions(words, start):
            print(f"{name}\t{about}")
    else:
        sys.stdout.write(SCRIPTS[args.shell])
    return ExitCode.DONE


# --- what can follow ---


class TypedWords(NamedTuple):
    """The words of a command so far: their values by argument, and the argument that takes the next word, if there is one."""

    values: dict[str, str]
    next: argparse.Action | None
    takes_options: bool


def find_completions(words: Sequence[str], start: str) -> list[Candidate]:
    """Return what can follow these words of a command line, with a description of each in one line."""
    # A name with a line break or an escape sequence would be several names for the shell, or a command to the terminal.
    return [
        (name, sanitize(" ".join(about.split())))
        for name, about in _list_candidates(normalise(words), start)
        if name.startswith(start) and name.isprintable()
    ]


def _list_candidates(words: Sequence[str], start: str) -> Iterable[Candidate]:
    entry = next((each for each in COMMANDS if tuple(words[: len(each.words)]) == each.words), None)
    if entry is None:
        below = list_next_words(words)
        return list_flags(find_parser(words)) if below and start.startswith("-") else below
    parser = find_parser(entry.words)
    typed = read_typed(parser, words[len(entry.words) :])
    option, equals, _ = start.partition("=")
    if typed.takes_options and equals and start.startswith("--"):
        action = parser._option_string_actions.get(option)  # noqa: SLF001  argparse has no other way to find them
        found = list_values(entry.words, action, start[len(option) + 1 :], typed.values) if action else ()
        return [(f"{option}={name}", about) for name, about in found]
    if typed.takes_options and start.startswith("-"):
        return list_flags(parser)
    if entry.words == ("help",):
        under = words[1:]
        return [*list_next_words(under), *((each, "a topic") for each in TOPICS if not under)]
    return list_values(entry.words, typed.next, start, typed.values) if typed.next else ()


def list_next_words(words: Sequence[str]) -> list[Candidate]:
    """Return the words that continue the name of a command."""
    depth = len(words)
    below = [each for each in COMMANDS if each.words[:depth] == tuple(words) and len(each.words) > depth]
    abouts = {each.words[depth]: GROUPS.get(each.words[: depth + 1]) or each.about for each in below}
    return list(abouts.items())


def find_parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser of a command or of a group of commands."""
    parser: argparse.ArgumentParser = build_parser(words)
    for word in words:
        branches = next(each for each in parser._actions if isinstance(each, argparse._SubParsersAction))  # noqa: SLF001  argparse has no other way to list them
        parser = branches.choices[word]
    return parser


def list_flags(parser: argparse.ArgumentParser) -> list[Candidate]:
    """Return the options of a command."""
    return [
        (option, action.help or "")
        for action in parser._actions  # noqa: SLF001  argparse has no other way to list them
        if action.help != argparse.SUPPRESS
        for option in action.option_strings
    ]


def read_typed(parser: argparse.ArgumentParser, words: Sequence[str]) -> TypedWords:
    """Return what the words of a command that is still being typed say, and what the next one is for."""
    actions = parser._actions  # noqa: SLF001  argparse has no other way to list them
    values = {each.dest: each.default for each in actions if isinstance(each.default, str)}
    pending: argparse.Action | None = None
    takes_options = True
    positional = [each for each in actions if not each.option_strings]
    for word in words:
        option, equals, value = word.partition("=")
        action = parser._option_string_actions.get(option) if takes_options else None  # noqa: SLF001  argparse has no other way to find them
        if pending is not None and not (pending.nargs == "?" and word.startswith("-")):
            values[pending.dest], pending = word, None
        elif word == "--":
            takes_options = False
        elif action is not None:
            pending = None if equals or action.nargs == 0 else action
            if equals:
                values[action.dest] = value
        elif positional:
            values[positional[0].dest] = word
            if positional[0].nargs not in ("*", "+"):
                positional.pop(0)
    # After an option whose value may be left out, the next option or argument is as likely as its value.
    is_option_next = takes_options and (pending is None or pending.nargs == "?")
    return TypedWords(values, pending or next(iter(positional), None), is_option_next)


# --- values of arguments ---


def list_values(
    words: Sequence[str], action: argparse.Action, start: str, typed: dict[str, str]
) -> Sequence[Candidate]:
    """Return the values that an argument of a command can have, as far as they are known."""
    if action.choices is not None:
        return [(str(each), "") for each in action.choices if each not in HIDDEN]
    read = _choose_reader(words, action.dest)
    url = typed.get("url") or typed.get("attach")
    place = argparse.Namespace(dir=typed.get("dir", "."), store=typed.get("store"))
    with suppress(WeftError, TimeoutError):
        if read is not None and url is not None:
            return asyncio.run(_ask_server(read, url, place, start))
        if read is list_sessions:
            return _list_stored_sessions(place, start, trashed=words == ("session", "restore"))
        if read is list_models:
            return _list_offered_models(place)
        if read is not None:
            return asyncio.run(_ask_here(read, place, start))
    return ()


def _choose_reader(words: Sequence[str], argument: str) -> Reader | None:
    match argument, *words:
        case "session" | "sessions" | "picks" | "share", *_:
            return list_sessions
        case "model" | "judge", *_:
            return list_models
        case ("agent", *_) | ("name", "agent", "show"):
            return list_agents
        case ("command", "run") | ("name", "command", "show"):
            return list_commands
        case _:
            return None


async def list_sessions(api: Api, start: str) -> list[Candidate]:
    return _to_candidates(await api.list_sessions(_select(start)))


async def list_models(api: Api, _: str) -> list[Candidate]:
    providers = await api.configuration.list_providers()
    return [
        (f"{provider.id}/{name}", model.name)
        for provider in providers.all
        if provider.id in providers.connected
        for name, model in provider.models.items()
    ]


async def list_agents(api: Api, _: str) -> list[Candidate]:
    agents = await api.workspace.list_agents()
    return [(each.name, each.description or "") for each in agents if not each.hidden]


async def list_commands(api: Api, _: str) -> list[Candidate]:
    return [(each.name, each.description or "") for each in await api.list_commands()]


def _select(start: str) -> SessionQuery:
    """Return a query for sessions by the start of their ids, the last used first. Without a start, leave out child sessions."""
    return SessionQuery(id_prefix=start or None, roots=not start, order="updated", limit=MAX_NAMES)


def _to_candidates(sessions: Iterable[SessionInfo]) -> list[Candidate]:
    return [LAST, *((each.id, each.title) for each in sessions)]


async def _ask_server(read: Reader, url: str, place: argparse.Namespace, start: str) -> list[Candidate]:
    from weft.cli.attach import find_remote_directory  # noqa: PLC0415  only a completion for a server connects to one
    from weft.client.api import open_remote  # noqa: PLC0415  only a completion for a server connects to one
    from weft.client.http import ConnectionOptions  # noqa: PLC0415  only a completion for a server connects to one

    options = ConnectionOptions(directory=find_remote_directory(url, place.dir), patience=0)
    async with asyncio.timeout(SERVER_SECONDS), open_remote(url, options) as api:
        return await read(api, start)


async def _ask_here(read: Reader, place: argparse.Namespace, start: str) -> list[Candidate]:
    from weft.local.open import OpenOptions, open_directory  # noqa: PLC0415  few completions need it

    options = OpenOptions(directory=place.dir, env=os.environ, one_shot=True)
    async with open_directory(options) as api:
        return await read(api, start)


def _list_stored_sessions(place: argparse.Namespace, start: str, *, trashed: bool) -> list[Candidate]:
    from weft.cli.session import make_reader  # noqa: PLC0415  only a completion of sessions reads them

    reader = make_reader(place)
    if trashed:
        return _to_candidates(bundle.sessions[0] for bundle in reader.store.list_trash()[::-1])
    return _to_candidates(reader.query_sessions(_select(start)))


def _list_offered_models(place: argparse.Namespace) -> list[Candidate]:
    from weft.cli.models import find_models, load_offers  # noqa: PLC0415  only a completion of models reads them

    offers, _ = load_offers(place.dir, os.environ)
    models = find_models(offers, None, os.environ, everything=False)
    return [(f"{each.provider_id}/{each.id}", each.name) for each in models]


# --- bash ---


class BashLine(NamedTuple):
    """A command line of bash up to the cursor: its words without their quotes, the last of which may still be empty.

    `quote` is the quote that is open at the end, and `kept` the length of what bash keeps of the last word: it replaces only what follows an
    open quote, a colon or an equals sign.
    """

    words: list[str]
    quote: str
    kept: int


def complete_bash_line(line: str, breaks: str) -> Iterable[str]:
    """Yield what can replace the end of a line of bash, quoted as bash needs it there. `breaks` are the characters that end a word for bash."""
    words, quote, kept = read_bash_line(line, breaks)
    for name, _ in find_completions(words[1:-1], words[-1]):
        yield quote_for_bash(name[kept:], quote)


def read_bash_line(line: str, breaks: str) -> BashLine:
    words, word, quote, kept, is_word = list[str](), "", "", 0, False
    characters = iter(line)
    for character in characters:
        if character == "\\" and quote != "'":
            escaped = next(characters, "")
            word += escaped if not quote or escaped in '\\"$`' else character + escaped
            is_word = True
        elif quote:
            quote = "" if character == quote else quote
            word += character if quote else ""
        elif character in "'\"":
            quote, kept, is_word = character, len(word), True
        elif character.isspace():
            words += [word] if is_word else []
            word, kept, is_word = "", 0, False
        else:
            word, is_word = word + character, True
            kept = len(word) if character in breaks else kept
    return BashLine([*words, word], quote, kept)


def quote_for_bash(text: str, quote: str) -> str:
    """Return text with the escapes that it needs after an open quote, or after none."""
    if quote == "'":
        return text.replace("'", "'\\''")
    special = '\\"$`' if quote else " \t\\'\"$`!&|;<>()[]{}*?#~"
    return "".join(f"\\{each}" if each in special else each for each in text)


# --- help ---


def add_help_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "topic", nargs="*", help=f"a command, or one of: {', '.join(TOPICS)} (default: everything)"
    )


def help_command(args: argparse.Namespace) -> int:
    """Print the help of a command or a topic. Raise `NotFoundError` if there is no such thing."""
    words = tuple(args.topic)
    if len(words) == 1 and words[0] in TOPICS:
        print(TOPICS[words[0]])
        return ExitCode.DONE
    if words and not any(each.words[: len(words)] == words for each in COMMANDS):
        wrong = find_wrong_command(words)
        hint = f"{wrong.hint if wrong else 'weft --help lists the commands'}; topics: {', '.join(TOPICS)}"
        raise NotFoundError("command or topic", " ".join(words), hint=hint)
    find_parser(words).print_help()
    return ExitCode.DONE
