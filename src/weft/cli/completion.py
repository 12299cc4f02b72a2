"""`weft completion` and `weft help`: complete commands in a shell, and explain a command or a topic."""

import argparse
import sys
from collections.abc import Iterable
from typing import NamedTuple

from weft.cli.candidates import find_completions, find_parser
from weft.cli.commands import COMMANDS
from weft.cli.exit import EXIT_CODES, ExitCode
from weft.cli.mistake import find_wrong_command
from weft.errors import NotFoundError

SHELLS = ("bash", "zsh", "fish")
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


def add_completion_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "shell",
        choices=(*SHELLS, "words", "bash-line"),
        metavar="|".join(SHELLS),
        help="the shell to print the script for",
    )
    parser.add_argument("typed", nargs="*", default=[], help=argparse.SUPPRESS)
    parser.epilog = """bash: eval "$(weft completion bash)" in ~/.bashrc
zsh:  eval "$(weft completion zsh)" in ~/.zshrc, after compinit
fish: weft completion fish > ~/.config/fish/completions/weft.fish"""


def complete_command(args: argparse.Namespace) -> int:
    if args.shell == "bash-line":
        line, breaks = (*args.typed, "", "")[:2]
        for reply in complete_bash_line(line, breaks):
            print(reply)
    elif args.shell == "words":
        *words, start = args.typed or [""]
        for name, about in find_completions(words, start, TOPICS):
            print(f"{name}\t{about}")
    else:
        sys.stdout.write(SCRIPTS[args.shell])
    return ExitCode.DONE


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
    for name, _ in find_completions(words[1:-1], words[-1], TOPICS):
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
