"""Every command: its words, what it is for, what it takes, and the function that does it."""

import argparse
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from weft.cli import transfer_arguments as transfer
from weft.cli.acp import arguments as acp
from weft.cli.agent import arguments as agent
from weft.cli.attached import arguments as attached
from weft.cli.care import arguments as care
from weft.cli.command import arguments as command
from weft.cli.exit import EXPLAINED
from weft.cli.mcp import arguments as mcp
from weft.cli.permission import arguments as permission
from weft.cli.plugin import arguments as plugin
from weft.cli.session import arguments as session
from weft.cli.share import arguments as share
from weft.cli.trust import arguments as trust
from weft.cli.undo import arguments as undo
from weft.cli.worktree import arguments as worktree
from weft.version import VERSION

WIDTH = 100
LOGGING = frozenset({"--print-logs", "--log-level"})
LEVELS = ("DEBUG", "INFO", "WARN", "ERROR")
ALIASES: dict[tuple[str, ...], tuple[str, ...]] = {
    ("auth", "ls"): ("auth", "list"),
    ("mcp", "ls"): ("mcp", "list"),
}

EXAMPLES = """examples:
  weft demo                                   watch a scripted agent work, offline
  weft run "fix the failing test"             run a prompt in this directory
  weft run -c "now document it"               go on with the last session
  weft run -m scripted/demo --format json hi  one JSON object a line, for scripts
  weft session list -n 5                      the newest sessions of this project
  weft undo --dry-run                         what taking the last prompt back would do to each file
  weft auth login anthropic                   store a key; weft models shows what it opens
  weft config                                 what is configured, and where it came from
"""


class Parser(argparse.ArgumentParser):
    """A parser that knows how wide the screen is: argparse would import `shutil` to find out, for every command."""

    def __init__(self, **more: Any) -> None:
        super().__init__(formatter_class=_laid_out, **more)


def _laid_out(prog: str) -> argparse.HelpFormatter:
    try:
        columns = os.get_terminal_size().columns
    except OSError:
        columns = 0
    return argparse.RawDescriptionHelpFormatter(prog, width=(columns or WIDTH) - 2)


class Command(NamedTuple):
    """`runs` is `module:function` in this package; `takes` adds the command's arguments to its parser."""

    words: tuple[str, ...]
    about: str
    takes: Callable[[Parser], None]
    runs: str


def to_plain_words(arguments: Sequence[str]) -> list[str]:
    """The same arguments with the command first and by its own name. OpenCode takes options of its log before a command,
    too, and knows some commands by a second name."""
    rest, first = list(arguments), list[str]()
    while rest and rest[0].partition("=")[0] in LOGGING:
        taken = 2 if rest[0] == "--log-level" else 1
        first, rest = first + rest[:taken], rest[taken:]
    rest[:2] = ALIASES.get(tuple(rest[:2]), rest[:2])
    named = next((words for words in KNOWN if tuple(rest[: len(words)]) == words), ())
    return [*named, *first, *rest[len(named) :]]


def build_parser(arguments: Sequence[str]) -> Parser:
    """A parser for these arguments: only the command they name is furnished, the others are there for the help."""
    parser = Parser(
        prog="weft", description="The session engine for coding agents.", epilog=f"{EXAMPLES}\n{EXPLAINED}"
    )
    parser.add_argument("-v", "--version", action="version", version=VERSION)
    _add(parser, COMMANDS, (), tuple(arguments))
    return parser


def _add(
    parser: Parser, commands: Sequence[Command], under: tuple[str, ...], arguments: tuple[str, ...]
) -> None:
    """Add the commands whose words begin with `under`, by their next word."""
    prog = " ".join(("weft", *under))  # argparse would lay out a usage line to find it
    branches = parser.add_subparsers(title="commands", metavar="COMMAND", prog=prog, required=bool(under))
    depth = len(under)
    words = dict.fromkeys(command.words[depth] for command in commands)
    asked = arguments[depth : depth + 1]
    # Making a parser for each of thirty commands takes longer than listing sessions; only the help needs them all.
    for word in asked if asked and asked[0] in words else words:
        below = [command for command in commands if command.words[: depth + 1] == (*under, word)]
        about = GROUPS.get((*under, word)) or below[0].about
        branch = branches.add_parser(word, help=about, description=about[0].upper() + about[1:] + ".")
        if asked != (word,):
            continue
        if below[0].words == (*under, word):
            below[0].takes(branch)
            _log(branch)
            branch.set_defaults(runs=below[0].runs)
        else:
            _add(branch, below, (*under, word), arguments)


def _run(parser: Parser) -> None:
    add = parser.add_argument
    add("message", nargs="*", help="the prompt; @path brings a file along, piped text is added")
    add(
        "-c",
        "--continue",
        dest="go_on",
        action="store_true",
        help="go on with the last session of this checkout or directory",
    )
    add("-s", "--session", metavar="ID", help="go on with this session")
    add("--fork", action="store_true", help="with -c or -s: go on with a copy, and leave that one as it is")
    add("-m", "--model", metavar="PROVIDER/MODEL", help="the model to ask")
    add("--agent", help="the agent to use")
    add("--variant", help="the model's variant, such as how hard it thinks")
    add("-f", "--file", action="append", default=[], metavar="PATH", help="a file to attach (repeatable)")
    add("--title", nargs="?", const="", help="the session's title; without a value, the prompt's beginning")
    add("--format", choices=("default", "json"), default="default", help="json: one object a line")
    add("--thinking", action="store_true", help="with --format json: what the model thought, too")
    add("--json-schema", metavar="FILE|JSON", help="answer with a value of this schema")
    add("--max-cost", type=_dollars, metavar="USD", help="spend at most this much on this prompt")
    add("--max-tokens", type=_whole, metavar="N", help="at most so many tokens, cached ones too")
    add("--max-steps", type=_whole, metavar="N", help="at most so many answers of the model")
    add("--max-seconds", type=_whole, metavar="N", help="work at most so long")
    tape = parser.add_mutually_exclusive_group()
    tape.add_argument("--record", metavar="FILE", help="write down what the model answers, into a new file")
    tape.add_argument("--replay", metavar="FILE", help="answer from a recording: no key, no network")
    add("--command", metavar="NAME", help="a slash command to run; the message is what it takes")
    worktree.option(parser)
    add("--share", action="store_true", help="show the session to others: prints the address")
    attached.option(parser)
    add("--port", type=int, help=argparse.SUPPRESS)
    _place(parser)
    parser.epilog = EXPLAINED


def _session_list(parser: Parser) -> None:
    add = parser.add_argument
    add("-n", "--max-count", type=_count, metavar="N", help="at most this many")
    add("--all", action="store_true", help="of every project")
    session.filters(parser)
    add("--format", choices=("table", "json"), default="table")
    _place(parser)


def _session_show(parser: Parser) -> None:
    add = parser.add_argument
    add("session", metavar="ID")
    add("--format", choices=("default", "json"), default="default", help="json: as OpenCode exports it")
    _place(parser)


def _session_search(parser: Parser) -> None:
    add = parser.add_argument
    add(
        "words",
        nargs="+",
        metavar="WORDS",
        help='words that must all be there; "several words" as they stand',
    )
    add("-n", "--max-count", type=_count, metavar="N", help="at most this many (default 20)")
    add("--all", action="store_true", help="in the sessions of every project")
    add("--format", choices=("table", "json"), default="table")
    _place(parser)


def _session_cost(parser: Parser) -> None:
    add = parser.add_argument
    add("session", metavar="ID")
    add("--tree", action="store_true", help="each session below it, too")
    add("--format", choices=("table", "json"), default="table")
    _place(parser)


def _stats(parser: Parser) -> None:
    add = parser.add_argument
    add("--days", type=_count, metavar="N", help="of the last N days; 0 is today")
    add("--tools", type=_count, metavar="N", help="show this many tools")
    add("--models", type=_count, nargs="?", const=0, metavar="N", help="show models, this many of them")
    add("--project", nargs="?", const="", metavar="ID", help="of one project; without a value, of this one")
    add("--format", choices=("table", "json"), default="table")
    _place(parser)


def _config(parser: Parser) -> None:
    parser.add_argument("--format", choices=("table", "json"), default="table")
    _place(parser)


def _models(parser: Parser) -> None:
    add = parser.add_argument
    add(
        "provider",
        nargs="?",
        help="of this provider only; a local server such as ollama is asked for its list",
    )
    add("--all", action="store_true", help="those without a key, and the scripted one, too")
    add("--verbose", action="store_true", help="all that is known of each, as JSON")
    add("--refresh", action="store_true", help="fetch the catalogue anew first")
    add("--format", choices=("table", "json"), default="table")
    _directory(parser)


def _auth_login(parser: Parser) -> None:
    add = parser.add_argument
    add("provider", nargs="?", help="the provider, such as anthropic")
    add("--key-stdin", action="store_true", help="read the key from standard input instead of asking for it")
    add("--method", metavar="WAY", help="which way to log in, by number or name, where there are several")
    _directory(parser)


def _auth_list(parser: Parser) -> None:
    parser.add_argument("--format", choices=("table", "json"), default="table")
    _directory(parser)


def _auth_logout(parser: Parser) -> None:
    parser.add_argument("provider", nargs="?", help="the provider whose key is to be forgotten")


def _serve(parser: Parser) -> None:
    add = parser.add_argument
    add("--hostname", metavar="HOST", help="listen at this address (127.0.0.1)")
    add("--port", type=_count, metavar="N", help="listen at this port; 0 for any that is free (4096)")
    add(
        "--auth",
        choices=("password", "none"),
        help="none: for this machine alone (WEFT_SERVE_AUTH, else password)",
    )
    add(
        "--cors",
        nargs="+",
        action="extend",
        default=[],
        metavar="ORIGIN",
        help="let pages from there in (repeatable)",
    )
    add("--mdns", action="store_true", help=argparse.SUPPRESS)
    add(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="answer to this name, too (repeatable)",
    )
    add(
        "--no-shell",
        action="store_true",
        help="offer no shell commands, no terminals, and no change of what names programs",
    )
    add("--no-files", action="store_true", help="offer no files to look at")
    add(
        "--allow-dir",
        action="append",
        default=[],
        metavar="PATH",
        help="let callers name this directory and those below it, beside known projects (repeatable)",
    )
    add(
        "--grace",
        type=_count,
        default=10,
        metavar="SECONDS",
        help="how long runs may go on when it ends (10)",
    )
    add("--log-format", choices=("text", "json"), default="text", help="the lines on standard error")
    add("--access-log", action="store_true", help="a line on standard error for each request")
    share.serving(parser)
    _place(parser)


def _nothing(_: Parser) -> None:
    pass


def _log(parser: Parser) -> None:
    """What OpenCode takes with every command. Ours log to standard error as it is; a server heeds the level."""
    parser.add_argument("--print-logs", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--log-level", type=str.upper, choices=LEVELS, default="INFO", help=argparse.SUPPRESS)


def _directory(parser: Parser) -> None:
    parser.add_argument(
        "--dir", metavar="PATH", default=".", help="work here instead of in the current directory"
    )


def _place(parser: Parser) -> None:
    _directory(parser)
    parser.add_argument(
        "--store", metavar="URL", help="where sessions are kept: a directory, file:PATH or memory:"
    )


def _count(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a count")
    return int(text)


def _whole(text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def _dollars(text: str) -> str:
    amount = text.removeprefix("$")
    if not amount.replace(".", "", 1).isdigit() or not amount.strip("0."):
        raise argparse.ArgumentTypeError(f"{text!r} is not an amount of dollars such as 1.50")
    return amount


GROUPS: dict[tuple[str, ...], str] = {
    ("project",): "list and merge projects",
    ("storage",): "look after stored sessions: size, leftovers, retention, soundness, moving",
    ("session",): "list, show, change, fork and remove sessions",
    ("agent",): "list, show and create agents",
    ("command",): "list and show slash commands",
    ("plugin",): "plugins and custom tools",
    ("permission",): "what agents ask for, what was granted, what was decided and why",
    ("mcp",): "MCP servers: list, add and look into them, log in and out",
    ("auth",): "keys of providers: store, list and forget them",
    ("worktree",): "checkouts that sessions have for their own: list, merge, discard",
}

COMMANDS = (
    Command(("run",), "run a prompt and show the agent's work as it goes", _run, "run:run_prompt"),
    Command(("session", "list"), "the sessions of this project, last worked on first", _session_list, "sessions:list_sessions"),
    Command(("session", "show"), "one session, whole", _session_show, "show:show_session"),
    Command(("session", "tree"), "a session and all below it", session.tree, "session.look:show_tree"),
    Command(("session", "rename"), "give a session its title", session.rename, "session.change:rename"),
    Command(("session", "tag"), "give a session tags, or take them away", session.tag, "session.change:tag"),
    Command(("session", "note"), "pin a note to a session: no compaction cuts it off", session.note, "session.change:note"),
    Command(("session", "compact"), "sum a conversation up now, to make room", session.compact, "session.summing:compact"),
    Command(("session", "uncompact"), "show the model again what the last summary cut off", session.one, "session.summing:uncompact"),
    Command(("session", "pin"), "list a session first, and never prune it", session.pin, "session.change:pin"),
    Command(("session", "archive"), "leave a session out of lists", session.archive, "session.change:archive"),
    Command(("session", "fork"), "begin a session with another's history", session.fork, "session.change:fork_session"),
    Command(("session", "diff"), "what a session did to files", session.diff, "session.diff:show_diff"),
    Command(("session", "todo"), "the todo list of a session", session.one, "session.look:show_todos"),
    Command(("session", "jobs"), "what goes on in the background for a session", session.one, "session.jobs:show_jobs"),
    Command(("session", "rm"), "remove a session and all below it, into the trash", session.rm, "session.gone:remove_session"),
    Command(("session", "restore"), "bring a session back from the trash", session.restore, "session.gone:restore_session"),
    Command(("session", "trash"), "what is in the trash", session.trash, "session.gone:list_trash"),
    Command(("session", "context"), "what the next request of a session would carry", session.one, "session.context:show_context"),
    Command(("session", "search"), "find words in all that was said and done", _session_search, "search:search_sessions"),
    Command(("session", "cost"), "what a session spent, itself and with all below it", _session_cost, "cost:show_cost"),
    Command(("undo",), "take a session back by a prompt, its files too", undo.undo, "undo.command:undo"),
    Command(("redo",), "bring a session forward again, its files too", undo.redo, "undo.command:redo"),
    Command(("stats",), "sessions in numbers: cost, tokens, models, tools", _stats, "stats:show_stats"),
    Command(("agent", "list"), "the agents there are", agent.list_, "agent.look:list_agents"),
    Command(("agent", "show"), "one agent: prompt, model, rules", agent.show, "agent.look:show_agent"),
    Command(("agent", "create"), "write a new agent's file", agent.create, "agent.create:create_agent"),
    Command(("command", "list"), "the slash commands there are", command.list_, "command.look:list_commands"),
    Command(("command", "show"), "one slash command: its template, agent, model", command.show, "command.look:show_command"),
    Command(("trust",), "let what a project brings along act, or see what is held back", trust.trust, "trust.command:trust_command"),
    Command(("models",), "the models there are: context, prices, abilities", _models, "models:models_command"),
    Command(("auth", "login"), "log in with a provider, or store its key", _auth_login, "login.by:log_in"),
    Command(("auth", "list"), "the keys there are, and where they come from", _auth_list, "auth:list_keys"),
    Command(("auth", "logout"), "forget a provider's key", _auth_logout, "auth:log_out"),
    Command(("mcp", "list"), "the MCP servers there are, connected to see how they stand", mcp.list_, "mcp.look:list_servers"),
    Command(("mcp", "add"), "configure an MCP server", mcp.add, "mcp.change:add_server"),
    Command(("mcp", "auth"), "log in to an MCP server, or list the logins there are", mcp.auth, "mcp.login:log_in"),
    Command(("mcp", "logout"), "forget the login at an MCP server", mcp.one, "mcp.login:log_out"),
    Command(("mcp", "debug"), "connect to one MCP server and see what it brings", mcp.debug, "mcp.look:debug_server"),
    Command(("session", "adopt"), "record sessions in the project they belong to", care.session_adopt, "care.projects:adopt_sessions"),
    Command(("project", "list"), "the projects there are, and where they were last seen", care.project_list, "care.projects:list_projects"),
    Command(("project", "merge"), "give all sessions of one project to another", care.project_merge, "care.projects:merge_projects"),
    Command(("storage", "du"), "what stored sessions take up", care.storage_du, "care.storage:du"),
    Command(("storage", "gc"), "sweep away what nothing leads to any more", care.storage_gc, "care.storage:gc"),
    Command(("storage", "prune"), "old sessions into the trash, old trash away", care.storage_prune, "care.prune:prune_command"),
    Command(("storage", "verify"), "read and check every document", care.storage_verify, "care.verify:verify_command"),
    Command(("storage", "migrate"), "copy all sessions into another store", care.storage_migrate, "care.verify:migrate_command"),
    Command(("doctor",), "find out what is wrong, and put it right", care.doctor, "care.doctor:doctor"),
    Command(("export",), "a session as OpenCode exports it, or several in one file", transfer.export, "export:export_command"),
    Command(("import",), "sessions from a file, or from what another program kept", transfer.import_, "import_:import_command"),
    Command(("share",), "show a session to others: a page in a file, a server of ours or another", share.share, "share.command:share"),
    Command(("unshare",), "show a session to others no more", share.unshare, "share.command:unshare"),
    Command(("plugin", "list"), "the plugins and custom tools there are, and how they stand", plugin.list_, "plugin.command:list_command"),
    Command(("permission", "list"), "what agents want to be allowed", permission.list_, "permission.asked:list_asked"),
    Command(("permission", "reply"), "allow it, or not", permission.reply, "permission.asked:reply_to"),
    Command(("permission", "grants"), "what was allowed for longer", permission.grants, "permission.granted:list_grants"),
    Command(("permission", "revoke"), "take a grant back", permission.revoke, "permission.granted:revoke"),
    Command(("permission", "explain"), "what the rules say of a shell command, which is not run", permission.explain, "permission.explained:explain_command"),
    Command(("permission", "log"), "every decision there was, and whether the log is whole", permission.log, "permission.logged:show_log"),
    Command(("acp",), "serve sessions to an editor, over the Agent Client Protocol", acp.acp, "acp.command:acp"),
    Command(("serve",), "serve sessions over HTTP, for OpenCode's clients and for programs", _serve, "serve:serve"),
    Command(("attach",), "talk with a server of weft or OpenCode, line by line", attached.attach, "attached.command:attach"),
    Command(("worktree", "list"), "the worktrees of this project, and how they stand", worktree.list_, "worktree.command:list_command"),
    Command(("worktree", "merge"), "bring the work of a worktree into this checkout, uncommitted", worktree.merge, "worktree.command:merge_command"),
    Command(("worktree", "discard"), "remove a worktree and its branch", worktree.discard, "worktree.command:discard_command"),
    Command(("config",), "what is configured, and where it came from", _config, "config:config_command"),
    Command(("demo",), "watch a scripted agent work in a scratch repository, offline", _nothing, "demo:demo"),
)  # fmt: skip

KNOWN = tuple(command.words for command in COMMANDS)
