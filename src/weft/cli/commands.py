"""The table of commands, and the parser that is built from it."""

import argparse
import os
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NoReturn

from msgspec import Struct

from weft.cli.exit import EXIT_CODES
from weft.errors import InvalidInputError
from weft.version import VERSION

DEFAULT_WIDTH = 100
LOG_OPTIONS = frozenset({"--print-logs", "--log-level"})
LEVEL_HELP = "leave out lines of the log that are less severe"
LOG_LEVELS = ("DEBUG", "INFO", "WARN", "ERROR")

EXAMPLES = """examples:
  weft                                        work with an agent in this terminal
  weft demo                                   watch a scripted agent work, offline
  weft run "fix the failing test"             run a prompt in this directory
  weft run -c "now document it"               continue the last session
  weft run -m scripted/demo --format json hi  print one JSON object per line, for scripts
  weft session list -n 5                      list the newest sessions of this project
  weft undo --dry-run                         show what undoing the last prompt would do to each file
  weft auth login anthropic                   store a key; weft models lists the models it gives access to
  weft config                                 show all settings and where they come from
"""


class CommandEntry(Struct, frozen=True):
    """A row of the table. `add_arguments` adds the command's arguments to its parser, `run` carries the command out.

    Both are `module:function` in this package, and are imported only for the command that is run.
    """

    words: tuple[str, ...]
    about: str
    add_arguments: str
    run: str


class Parser(argparse.ArgumentParser):
    """A parser that raises `InvalidInputError` for an argument that is missing or not valid, instead of exiting.

    It asks for the width of the terminal itself: argparse would import `shutil` for every command.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=_make_formatter, **options)

    def error(self, message: str) -> NoReturn:
        missing = message.partition("arguments are required: ")[2]
        if missing:
            verb = "are" if ", " in missing else "is"
            usage = " ".join(self.format_usage().split())
            raise InvalidInputError(self.prog, f"{missing} {verb} missing", hint=usage)
        hint = f"{self.prog} --help explains its arguments"
        raise InvalidInputError(self.prog, message.removeprefix("argument "), hint=hint)


def _make_formatter(prog: str) -> argparse.HelpFormatter:
    try:
        columns = os.get_terminal_size().columns
    except OSError:
        columns = 0
    return argparse.RawDescriptionHelpFormatter(prog, width=(columns or DEFAULT_WIDTH) - 2)


def normalise(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with the command first and under its own name.

    OpenCode also accepts its log options before the command, and has second names for some commands.
    """
    rest, log_options = list(arguments), list[str]()
    while rest and rest[0].partition("=")[0] in LOG_OPTIONS:
        count = 2 if rest[0] == "--log-level" else 1
        log_options, rest = log_options + rest[:count], rest[count:]
    rest[:2] = ALIASES.get(tuple(rest[:2]), rest[:2])
    words = next((entry.words for entry in COMMANDS if tuple(rest[: len(entry.words)]) == entry.words), ())
    end = len(words) or len(rest)
    return [*rest[:end], *log_options, *rest[end:]]


def build_parser(arguments: Sequence[str]) -> Parser:
    """Return a parser for these arguments. Only the command that they name gets its arguments."""
    parser = Parser(
        prog="weft", description="The session engine for coding agents.", epilog=f"{EXAMPLES}\n{EXIT_CODES}"
    )
    parser.add_argument("-v", "--version", action="version", version=VERSION)
    _add_commands(parser, COMMANDS, (), tuple(arguments))
    return parser


def _add_commands(
    parser: Parser, entries: Sequence[CommandEntry], under: tuple[str, ...], arguments: tuple[str, ...]
) -> None:
    """Add the commands whose words begin with `under`, by their next word."""
    prog = " ".join(("weft", *under))  # argparse would format a usage line to find it
    branches = parser.add_subparsers(title="commands", metavar="COMMAND", prog=prog)
    depth = len(under)
    words = dict.fromkeys(entry.words[depth] for entry in entries)
    next_word = arguments[depth : depth + 1]
    # Making a parser for each of forty commands takes longer than listing sessions, and only the help needs them all.
    for word in next_word if next_word and next_word[0] in words else words:
        below = [entry for entry in entries if entry.words[: depth + 1] == (*under, word)]
        about = GROUPS.get((*under, word)) or below[0].about
        branch = branches.add_parser(word, help=about, description=about[0].upper() + about[1:] + ".")
        if next_word != (word,):
            continue
        if below[0].words == (*under, word):
            import_function(below[0].add_arguments)(branch)
            _add_log_options(branch, level_help=LEVEL_HELP if word == "serve" else argparse.SUPPRESS)
            branch.set_defaults(command_function=below[0].run, command_parser=branch)
        else:
            branch.set_defaults(command_parser=branch)
            _add_commands(branch, below, (*under, word), arguments)


def _add_log_options(parser: Parser, *, level_help: str) -> None:
    """Add the log options that OpenCode accepts with every command. Of ours only `serve` uses the level."""
    parser.add_argument("--print-logs", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--log-level", type=str.upper, choices=LOG_LEVELS, default="INFO", help=level_help)


def import_function(reference: str) -> Callable[..., Any]:
    """Import `module:function` of this package and return the function."""
    module, name = reference.split(":")
    function: Callable[..., Any] = getattr(import_module(f"weft.cli.{module}"), name)
    return function


ALIASES: dict[tuple[str, ...], tuple[str, ...]] = {
    ("auth", "ls"): ("auth", "list"),
    ("mcp", "ls"): ("mcp", "list"),
}

GROUPS: dict[tuple[str, ...], str] = {
    ("project",): "list and merge projects",
    ("storage",): "maintain stored sessions: size, leftovers, retention, integrity, migration",
    ("session",): "list, show, change, fork and remove sessions",
    ("agent",): "list, show and create agents",
    ("command",): "list and show slash commands",
    ("plugin",): "list plugins and custom tools",
    ("permission",): "answer requests for permission, and manage grants and the audit log",
    ("mcp",): "list, add and inspect MCP servers, log in and out",
    ("auth",): "log in to providers, list and remove their keys",
    ("token",): "let others use your server, with sessions and limits of their own",
    ("cluster",): "show the nodes that serve one store together, and take one out of service",
    ("worktree",): "list, merge and discard worktrees, the separate checkouts of sessions",
}

COMMANDS = (
    CommandEntry(("chat",), "work with an agent in the terminal; weft alone does the same", "chat:add_chat_arguments", "chat:chat_command"),
    CommandEntry(("ui",), "work with an agent on the full screen", "chat:add_ui_arguments", "chat:chat_command"),
    CommandEntry(("run",), "run a prompt and show the agent's work", "run:add_run_arguments", "run:run_prompt"),
    CommandEntry(("session", "list"), "list the sessions of this project, most recent first", "session:add_list_arguments", "session:list_sessions"),
    CommandEntry(("session", "show"), "print one whole session", "session_show:add_show_arguments", "session_show:show_session"),
    CommandEntry(("session", "tree"), "show a session and its child sessions as a tree", "session:add_tree_arguments", "session:show_tree"),
    CommandEntry(("session", "rename"), "set the title of a session", "session_change:add_rename_arguments", "session_change:rename_session"),
    CommandEntry(("session", "tag"), "add tags to a session, or remove them", "session_change:add_tag_arguments", "session_change:tag_session"),
    CommandEntry(("session", "note"), "add a note to a session; compaction never removes it", "session_change:add_note_arguments", "session_change:note_session"),
    CommandEntry(("session", "compact"), "summarise a conversation now, to make room in the context", "session_compact:add_compact_arguments", "session_compact:compact_session"),
    CommandEntry(("session", "uncompact"), "undo the last compaction, so that the model sees the full history again", "session_compact:add_uncompact_arguments", "session_compact:uncompact_session"),
    CommandEntry(("session", "pin"), "list a session first and never prune it", "session_change:add_pin_arguments", "session_change:pin_session"),
    CommandEntry(("session", "archive"), "hide a session from lists", "session_change:add_archive_arguments", "session_change:archive_session"),
    CommandEntry(("session", "fork"), "start a new session from the history of another", "session_change:add_fork_arguments", "session_change:fork_session"),
    CommandEntry(("session", "move"), "move a session to a server on another machine, with its files", "session_move:add_move_arguments", "session_move:move_session"),
    CommandEntry(("session", "diff"), "show what a session changed in files", "session_diff:add_diff_arguments", "session_diff:show_diff"),
    CommandEntry(("session", "todo"), "show the todo list of a session", "session:add_todo_arguments", "session:show_todos"),
    CommandEntry(("session", "jobs"), "list the background commands of a session", "session:add_jobs_arguments", "session:show_jobs"),
    CommandEntry(("session", "rm"), "move a session and its child sessions to the trash", "session_change:add_rm_arguments", "session_change:remove_session"),
    CommandEntry(("session", "restore"), "restore a session from the trash", "session_change:add_restore_arguments", "session_change:restore_session"),
    CommandEntry(("session", "trash"), "list the trash", "session_change:add_trash_arguments", "session_change:list_trash"),
    CommandEntry(("session", "context"), "show what the next request of a session would send", "session_context:add_context_arguments", "session_context:show_context"),
    CommandEntry(("session", "search"), "find words in sessions", "session_search:add_search_arguments", "session_search:search_sessions"),
    CommandEntry(("session", "cost"), "show what a session and its child sessions cost", "session_cost:add_cost_arguments", "session_cost:show_cost"),
    CommandEntry(("undo",), "undo the last prompt of a session, including its changes to files", "undo:add_undo_arguments", "undo:undo"),
    CommandEntry(("redo",), "redo what was undone in a session, including its changes to files", "undo:add_redo_arguments", "undo:redo"),
    CommandEntry(("try",), "try a prompt several times at once, each in its own worktree", "trial:add_try_arguments", "trial:try_command"),
    CommandEntry(("compare",), "show sessions side by side: outcome, check, changes, cost", "compare:add_compare_arguments", "compare:compare_command"),
    CommandEntry(("adopt",), "bring the result of a trial into this checkout, or undo that", "trial:add_adopt_arguments", "trial:adopt_command"),
    CommandEntry(("replay",), "run a session again in a scratch worktree, and show where it differs", "replay:add_replay_arguments", "replay:replay_command"),
    CommandEntry(("bisect",), "find the call of a session that broke a check", "replay:add_bisect_arguments", "replay:bisect_command"),
    CommandEntry(("stats",), "show statistics: cost, tokens, models, tools", "stats:add_stats_arguments", "stats:show_stats"),
    CommandEntry(("blame",), "show who wrote each line of a file: which session, step, prompt and model, or a person", "blame:add_blame_arguments", "blame:blame_command"),
    CommandEntry(("log",), "list the sessions and steps that changed a file", "blame:add_log_arguments", "blame:log_command"),
    CommandEntry(("sql",), "query sessions, steps, calls, files and costs with SQL", "sql:add_sql_arguments", "sql:sql_command"),
    CommandEntry(("agent", "list"), "list agents", "agent:add_list_arguments", "agent:list_agents"),
    CommandEntry(("agent", "show"), "show an agent: its prompt, model and rules", "agent:add_show_arguments", "agent:show_agent"),
    CommandEntry(("agent", "create"), "write the file of a new agent", "agent:add_create_arguments", "agent:create_agent"),
    CommandEntry(("command", "list"), "list slash commands", "slash_command:add_list_arguments", "slash_command:list_commands"),
    CommandEntry(("command", "show"), "show a slash command: its template, agent and model", "slash_command:add_show_arguments", "slash_command:show_command"),
    CommandEntry(("trust",), "trust a project's own settings and programs, or show what is held back", "trust:add_trust_arguments", "trust:trust_command"),
    CommandEntry(("models",), "list models with their context size, prices and abilities", "models:add_models_arguments", "models:list_models_command"),
    CommandEntry(("auth", "login"), "log in to a provider, or store its key", "auth:add_login_arguments", "auth:log_in"),
    CommandEntry(("auth", "list"), "list keys and where they come from", "auth:add_list_arguments", "auth:list_keys"),
    CommandEntry(("auth", "logout"), "remove the stored key of a provider", "auth:add_logout_arguments", "auth:log_out"),
    CommandEntry(("mcp", "list"), "connect to all MCP servers and list their status", "mcp:add_list_arguments", "mcp:list_servers"),
    CommandEntry(("mcp", "add"), "configure an MCP server", "mcp:add_add_arguments", "mcp:add_server"),
    CommandEntry(("mcp", "auth"), "log in to an MCP server, or list logins", "mcp:add_auth_arguments", "mcp:log_in"),
    CommandEntry(("mcp", "logout"), "remove the login at an MCP server", "mcp:add_logout_arguments", "mcp:log_out"),
    CommandEntry(("mcp", "debug"), "connect to one MCP server and show what it offers", "mcp:add_debug_arguments", "mcp:debug_server"),
    CommandEntry(("session", "adopt"), "move sessions to the project they belong to", "project:add_adopt_arguments", "project:adopt_sessions"),
    CommandEntry(("project", "list"), "list projects and where they were last seen", "project:add_list_arguments", "project:list_projects"),
    CommandEntry(("project", "merge"), "move all sessions of one project to another", "project:add_merge_arguments", "project:merge_projects"),
    CommandEntry(("storage", "init"), "create a store, or upgrade it", "storage:add_init_arguments", "storage:init_command"),
    CommandEntry(("storage", "du"), "show how much space stored sessions take", "storage:add_du_arguments", "storage:du_command"),
    CommandEntry(("storage", "gc"), "remove what nothing refers to any more", "storage:add_gc_arguments", "storage:gc_command"),
    CommandEntry(("storage", "prune"), "move old sessions to the trash, and empty old trash", "storage:add_prune_arguments", "storage:prune_command"),
    CommandEntry(("storage", "verify"), "check every document, and that nobody changed what weft wrote", "storage_verify:add_verify_arguments", "storage_verify:verify_command"),
    CommandEntry(("storage", "anchor"), "keep proof of all sessions elsewhere, signed on request", "storage_verify:add_anchor_arguments", "storage_verify:anchor_command"),
    CommandEntry(("storage", "migrate"), "copy all sessions into another store", "storage_migrate:add_migrate_arguments", "storage_migrate:migrate_command"),
    CommandEntry(("doctor",), "find problems and fix them", "doctor:add_doctor_arguments", "doctor:doctor_command"),
    CommandEntry(("export",), "export a session in OpenCode's format or as a trajectory, several as a bundle, or all as tables", "transfer:add_export_arguments", "transfer:export_command"),
    CommandEntry(("import",), "import sessions from a file or from another program", "transfer:add_import_arguments", "transfer:import_command"),
    CommandEntry(("share",), "share a session: as a page in a file, on your server or on another", "share:add_share_arguments", "share:share_session"),
    CommandEntry(("unshare",), "stop sharing a session", "share:add_unshare_arguments", "share:unshare_session"),
    CommandEntry(("plugin", "list"), "list plugins and custom tools with their status", "plugin:add_list_arguments", "plugin:list_plugins_command"),
    CommandEntry(("permission", "list"), "list what agents ask permission for", "permission:add_list_arguments", "permission:list_requests"),
    CommandEntry(("permission", "reply"), "allow or reject a request", "permission:add_reply_arguments", "permission:reply_to_request"),
    CommandEntry(("permission", "grants"), "list the grants: permissions that hold for more than one call", "permission:add_grants_arguments", "permission:list_grants"),
    CommandEntry(("permission", "revoke"), "revoke a grant", "permission:add_revoke_arguments", "permission:revoke_grant"),
    CommandEntry(("permission", "explain"), "show what the rules say about a shell command, without running it", "permission:add_explain_arguments", "permission:explain_command"),
    CommandEntry(("permission", "log"), "show all decisions, and check that the log is intact", "permission:add_log_arguments", "permission:show_log"),
    CommandEntry(("acp",), "serve sessions to an editor over the Agent Client Protocol", "acp:add_acp_arguments", "acp:serve_acp"),
    CommandEntry(("serve",), "serve sessions over HTTP, for OpenCode's clients and for programs", "serve:add_serve_arguments", "serve:serve"),
    CommandEntry(("token", "create"), "create a token, and show it once", "token:add_create_arguments", "token:create_token"),
    CommandEntry(("token", "list"), "list tokens, and the principals they belong to", "token:add_list_arguments", "token:list_tokens"),
    CommandEntry(("token", "revoke"), "revoke a token", "token:add_revoke_arguments", "token:revoke_token"),
    CommandEntry(("token", "limit"), "change the limits and directories of a principal", "token:add_limit_arguments", "token:limit_principal"),
    CommandEntry(("cluster", "status"), "show the nodes of a cluster, their sessions, the queue and the lag", "cluster:add_status_arguments", "cluster:show_status"),
    CommandEntry(("cluster", "drain"), "take a node out of service: it hands its sessions over and ends", "cluster:add_drain_arguments", "cluster:drain_node"),
    CommandEntry(("web",), "open sessions in the browser", "web:add_web_arguments", "web:web"),
    CommandEntry(("attach",), "work with an agent on a server of weft or OpenCode", "attach:add_attach_arguments", "attach:attach"),
    CommandEntry(("worktree", "list"), "list the worktrees of this project with their state", "worktree:add_list_arguments", "worktree:list_worktrees_command"),
    CommandEntry(("worktree", "merge"), "bring the work of a worktree into this checkout, uncommitted", "worktree:add_merge_arguments", "worktree:merge_worktree_command"),
    CommandEntry(("worktree", "discard"), "remove a worktree and its branch", "worktree:add_discard_arguments", "worktree:discard_worktree_command"),
    CommandEntry(("config",), "show all settings and where they come from", "config:add_config_arguments", "config:show_config_command"),
    CommandEntry(("completion",), "print a script that completes commands in your shell", "completion:add_completion_arguments", "completion:complete_command"),
    CommandEntry(("help",), "explain a command or a topic", "completion:add_help_arguments", "completion:help_command"),
    CommandEntry(("demo",), "watch a scripted agent work in a scratch repository, offline", "demo:add_demo_arguments", "demo:demo_command"),
)  # fmt: skip
