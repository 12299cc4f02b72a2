"""The slash commands of the terminal. Names that are not in the table are commands of the project."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from difflib import unified_diff
from typing import Final, NamedTuple

from weft.errors import InvalidInputError, NotFoundError, UnsupportedError
from weft.model.catalog import parse_ref
from weft.model.display import format_cost
from weft.model.ids import GrantID, MessageID
from weft.model.input import PromptInput
from weft.model.message import MessageWithParts, UserMessage
from weft.model.part import CompactionPart, TextPart
from weft.model.session import RevertResult, SessionInfo, SessionTree
from weft.model.session_query import SessionQuery
from weft.model.wire import encode_pretty
from weft.tui.chat import Chat
from weft.tui.render import format_amount, format_usage, render_diff, render_todos, squash
from weft.tui.text import Line
from weft.tui.view import LinesItem

MAX_SESSIONS: Final = 20
MAX_DIFF_LINES: Final = 400
KEYS: Final = """Enter sends · Alt-Enter or Ctrl-J: new line · Tab completes · Ctrl-R searches
@ mentions a file or an agent · ! runs a shell command · Ctrl-X Ctrl-E: editor
during a run: Enter joins it · Ctrl-Q queues · Esc or Ctrl-C interrupts
Ctrl-X f: full screen · Ctrl-D leaves"""


class ChatCommand(NamedTuple):
    """A row of the table. `takes` describes the arguments."""

    takes: str
    about: str
    run: Callable[[Chat, str], Awaitable[None]]


async def run_command(chat: Chat, text: str) -> bool:
    """Carry out a slash command. Return False if the text is not one, for example a path."""
    name, _, words = text[1:].partition(" ")
    command = COMMANDS.get(name)
    if command is not None:
        if command.run not in (change_screen, leave):  # nothing is printed by these
            chat.add(LinesItem(lines=[[], [("dim", f"> {squash(text)}")]]))
        await command.run(chat, words.strip())
        return True
    if "/" in name or not name:
        return False
    try:
        await chat.api.get_command(name)
    except NotFoundError as error:
        raise NotFoundError("command", name, hint="/help lists all of them") from error
    await chat.send_command(name, words.strip())
    return True


def get_session(chat: Chat) -> SessionInfo:
    """Return the session of the chat. Raise `InvalidInputError` if there is none yet."""
    if chat.session is None:
        raise InvalidInputError("session", "there is none yet", hint="send a prompt, or /resume one")
    return chat.session


# --- sessions ---


async def start_new(chat: Chat, _: str) -> None:
    chat.forget_session()
    chat.note("the next prompt begins another session")


async def list_sessions(chat: Chat, words: str) -> None:
    sessions = await chat.api.list_sessions(SessionQuery(roots=True, archived=False))
    wanted = [each for each in sessions if words.lower() in each.title.lower()][:MAX_SESSIONS]
    chat.listed = [each.id for each in wanted]
    now = chat.setup.now()
    rows = [
        (str(number), _format_age(now - each.time.updated), each.title, each.id)
        for number, each in enumerate(wanted, 1)
    ]
    chat.print_table(("", "changed", "title", "id"), rows)
    chat.note("/resume NUMBER continues one" if rows else "there are no such sessions")


def _format_age(ms: int) -> str:
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000)):
        if ms >= size:
            return f"{ms // size}{unit} ago"
    return "now"


async def resume(chat: Chat, words: str) -> None:
    if not words:
        await list_sessions(chat, "")
        return
    if words.isdecimal() and 0 < int(words) <= len(chat.listed):
        session = await chat.api.get_session(chat.listed[int(words) - 1])
    else:
        sessions = await chat.api.list_sessions()
        found = [each for each in sessions if each.id.startswith((words, f"ses_{words}"))]
        if len(found) != 1:
            raise NotFoundError("session", words, hint="/sessions lists them")
        session = found[0]
    chat.note(f"{session.title} · {session.id}")
    await chat.open(session)


async def fork(chat: Chat, _: str) -> None:
    copy = await chat.api.fork_session(get_session(chat).id)
    await chat.open(copy)
    chat.note(f"this is now a copy of the session: {copy.id}")


async def show_tree(chat: Chat, _: str) -> None:
    tree = await chat.api.get_tree(get_session(chat).id)
    chat.print_lines(*_to_tree_lines(tree, ""))


def _to_tree_lines(tree: SessionTree, indent: str) -> list[str]:
    lines = [f"{indent}{tree.session.title} · {tree.session.id}"]
    for child in tree.children:
        lines += _to_tree_lines(child, f"{indent}  ")
    return lines


async def search(chat: Chat, words: str) -> None:
    if not words:
        raise InvalidInputError("search", "there are no words to search for", hint="/search WORDS")
    hits = await chat.api.search(words)
    chat.listed = [hit.session_id for hit in hits]
    chat.print_table(
        ("", "session", "where"), [(str(at), hit.title, hit.snippet) for at, hit in enumerate(hits, 1)]
    )
    chat.note("/resume NUMBER continues one" if hits else "nothing was found")


async def share(chat: Chat, _: str) -> None:
    shared = await chat.api.sharing.share(get_session(chat).id)
    chat.note(f"shared: {shared.share.url}" if shared.share else "the session is not shared")


async def unshare(chat: Chat, _: str) -> None:
    await chat.api.sharing.unshare(get_session(chat).id)
    chat.note("the session is no longer shared")


async def export(chat: Chat, words: str) -> None:
    session = get_session(chat)
    exported = encode_pretty(await chat.api.export_session(session.id))
    path = await asyncio.to_thread(_write_new, words or f"{session.id}.json", exported)
    chat.note(f"exported to {path}")


def _write_new(name: str, content: bytes) -> str:
    path = os.path.expanduser(name)
    try:
        with open(path, "xb") as file:
            file.write(content)
    except OSError as error:
        problem = f"{path!r} cannot be written: {error.strerror}"
        raise InvalidInputError("file", problem, hint="/export FILE names another") from error
    return path


# --- what a session did ---


async def undo(chat: Chat, _: str) -> None:
    session = await chat.api.get_session(get_session(chat).id)
    history = await chat.api.list_messages(session.id)
    target = find_last_prompt(history, session)
    if target is None:
        raise InvalidInputError("session", "there is nothing to undo")
    result = await chat.api.revert(session.id, target)
    _print_revert(chat, result, "undone; the next prompt makes it final, /redo brings it back")
    text = next((_get_text(each) for each in history if each.info.id == target), "")
    chat.set_draft(text)


def find_last_prompt(history: list[MessageWithParts], session: SessionInfo) -> MessageID | None:
    """Return the last prompt of a person that is not undone yet."""
    found: MessageID | None = None
    for message in history:
        if session.revert is not None and message.info.id == session.revert.message_id:
            break
        if isinstance(message.info, UserMessage) and _get_text(message):
            found = message.info.id
    return found


def _get_text(message: MessageWithParts) -> str:
    if any(isinstance(part, CompactionPart) for part in message.parts):
        return ""
    return "".join(part.text for part in message.parts if isinstance(part, TextPart) and not part.synthetic)


async def redo(chat: Chat, _: str) -> None:
    session = await chat.api.get_session(get_session(chat).id)
    if session.revert is None:
        raise InvalidInputError("session", "there is nothing to redo")
    _print_revert(chat, await chat.api.unrevert(session.id), "everything is back")


def _print_revert(chat: Chat, result: RevertResult, position: str) -> None:
    for file in result.files:
        chat.note(f"{file.fate}: {file.file}{f' ({file.reason})' if file.reason else ''}")
    if result.caution:
        chat.note(result.caution)
    chat.note(position)


async def show_diff(chat: Chat, _: str) -> None:
    diffs = await chat.api.list_diff(get_session(chat).id)
    lines: list[Line] = []
    for diff in diffs:
        text = "\n".join(unified_diff(diff.before.splitlines(), diff.after.splitlines(), lineterm="", n=3))
        lines += [[("bold", f"{squash(diff.file)}  +{diff.additions} -{diff.deletions}")]]
        lines += render_diff(text.partition("@@")[1] + text.partition("@@")[2], limit=MAX_DIFF_LINES)
    chat.add(LinesItem(lines=lines or [[("dim", "no file has changed")]]))


async def compact(chat: Chat, _: str) -> None:
    session = get_session(chat)
    model = parse_ref(chat.model) if chat.model else None
    await chat.api.compact(session.id, model=model)


async def show_context(chat: Chat, _: str) -> None:
    session = get_session(chat)
    status = chat.view.status if chat.view is not None else None
    if chat.setup.describe_context is not None:
        chat.print_lines(*await asyncio.to_thread(chat.setup.describe_context, session.id))
    if status is not None and status.context:
        size = chat.sizes.get(status.model, 0)
        of_size = f" of {format_amount(size)} ({status.context / size:.0%})" if size else ""
        chat.note(
            f"the last request used {format_amount(status.context)} tokens{of_size}; /compact makes room"
        )


async def show_cost(chat: Chat, _: str) -> None:
    session = get_session(chat)
    spending = await chat.api.get_spending(session.id)
    rows = [
        (name, str(spent.steps), format_usage(spent), format_cost(spent))
        for name, spent in (("this session", spending.own), ("with child sessions", spending.tree))
    ]
    chat.print_table(("", "steps", "tokens", "cost"), rows)


async def show_todos(chat: Chat, _: str) -> None:
    todos = await chat.api.list_todos(get_session(chat).id)
    chat.add(LinesItem(lines=render_todos(todos) or [[("dim", "there are no todos")]]))


# --- model, agent, tools ---


async def choose_model(chat: Chat, words: str) -> None:
    if not words:
        providers = await chat.api.configuration.list_providers()
        rows = [
            (f"{provider.id}/{model.id}", format_amount(model.limit.context))
            for provider in providers.all
            if provider.id in providers.connected
            for model in provider.models.values()
        ]
        chat.print_table(("model", "context"), rows)
        chat.note("/model PROVIDER/MODEL chooses one")
        return
    ref = parse_ref(words)
    if ref is None:
        raise InvalidInputError("model", f"{words!r} does not name a model", hint="write provider/model")
    await chat.api.check_prompt(PromptInput(model=ref, agent=chat.agent, parts=()))
    chat.model, chat.variant = words, None
    chat.note(f"the next prompt is for {words}")


async def cycle_model(chat: Chat) -> None:
    """Choose the next of the models that this session has used."""
    used = chat.view.models if chat.view is not None else {}
    current = chat.get_model()
    models = list({**used, current: None})
    following = models[(models.index(current) + 1) % len(models)]
    if following == current:
        chat.note("this session has used no other model; /model lists those that you can choose")
    else:
        await choose_model(chat, following)


async def choose_agent(chat: Chat, words: str) -> None:
    agents = [each for each in await chat.api.workspace.list_agents() if not each.hidden]
    if not words:
        chat.print_table(
            ("agent", "mode", "about"), [(each.name, each.mode, each.description or "") for each in agents]
        )
        chat.note("/agent NAME chooses one")
        return
    names = [each.name for each in agents if each.mode != "subagent"]
    if words not in names:
        if words in {each.name for each in agents}:
            hint = f"@{words} in a prompt hands it a task"
            raise InvalidInputError("agent", f"{words} works for other agents only", hint=hint)
        raise NotFoundError("agent", words, hint=f"there are: {', '.join(names)}")
    chat.agent = words
    chat.note(f"the next prompt is for the agent {words}")


async def list_variants(chat: Chat) -> list[str]:
    """Return the variants of the model that the next prompt is for."""
    name = chat.get_model()
    providers = await chat.api.configuration.list_providers()
    return next(
        (
            list(model.variants or {})
            for provider in providers.all
            for model in provider.models.values()
            if f"{provider.id}/{model.id}" == name
        ),
        [],
    )


async def choose_variant(chat: Chat, words: str) -> None:
    variants = await list_variants(chat)
    if words and words not in variants:
        raise NotFoundError("variant", words, hint=f"there are: {', '.join(variants) or 'none'}")
    chat.variant = words or None
    name = chat.get_model()
    available = ", ".join(variants) or "none"
    chat.note(f"variant {words}" if words else f"no variant; {name or 'the model'} has: {available}")


async def list_tools(chat: Chat, _: str) -> None:
    try:
        tools = await chat.api.workspace.list_tools()
    except UnsupportedError:  # a server of OpenCode lists them for a model only
        tools = await chat.api.workspace.list_tools(parse_ref(chat.get_model()))
    chat.print_table(("tool", "about"), [(tool.id, tool.description.partition("\n")[0]) for tool in tools])


async def list_mcp(chat: Chat, _: str) -> None:
    servers = await chat.api.mcp.list_servers()
    rows = [
        (name, str(status.__struct_config__.tag), getattr(status, "error", "") or status.note or "")
        for name, status in servers.items()
    ]
    chat.print_table(("server", "status", "note"), rows)
    if not rows:
        chat.note("no MCP servers are configured")


async def show_permissions(chat: Chat, words: str) -> None:
    action, _, id = words.partition(" ")
    if action == "revoke" and id:
        await chat.api.revoke_grant(GrantID(id))
        chat.note(f"revoked {id}")
        return
    grants = await chat.api.list_grants()
    chat.print_table(
        ("id", "scope", "permission", "patterns"),
        [(each.id, each.scope, each.permission, ", ".join(each.patterns)) for each in grants],
    )
    chat.note(
        "/permissions revoke ID takes one back" if grants else "nothing is granted for more than one call"
    )


async def trust(chat: Chat, words: str) -> None:
    if chat.setup.trust is None:
        raise InvalidInputError("trust", "the server decides which projects it trusts")
    lines = await asyncio.to_thread(chat.setup.trust, words == "yes")
    chat.print_lines(*lines)


# --- the terminal itself ---


async def toggle_reasoning(chat: Chat, _: str) -> None:
    chat.reasoning = not chat.reasoning
    chat.note(f"reasoning is shown {'in full' if chat.reasoning else 'in one line'} from now on")


async def queue(chat: Chat, words: str) -> None:
    if not words:
        raise InvalidInputError("queue", "there is no prompt to queue", hint="/queue PROMPT")
    chat.enqueue(words)


async def change_screen(chat: Chat, _: str) -> None:
    chat.change_screen()


async def leave(chat: Chat, _: str) -> None:
    chat.leave()


async def show_help(chat: Chat, _: str) -> None:
    rows = [(f"/{name} {command.takes}".strip(), command.about) for name, command in COMMANDS.items()]
    own = await chat.api.list_commands()
    rows += [(f"/{each.name} {' '.join(each.hints)}".strip(), each.description or "") for each in own]
    chat.print_table(("command", "what it does"), rows)
    chat.print_lines("", *KEYS.split("\n"))


COMMANDS: Final[dict[str, ChatCommand]] = {
    "new": ChatCommand("", "begin another session", start_new),
    "sessions": ChatCommand("[WORDS]", "list sessions", list_sessions),
    "resume": ChatCommand("NUMBER|ID", "continue another session", resume),
    "fork": ChatCommand("", "continue with a copy of this session", fork),
    "undo": ChatCommand("", "undo the last prompt, with its changes to files", undo),
    "redo": ChatCommand("", "bring back what was undone", redo),
    "diff": ChatCommand("", "show what the session changed in files", show_diff),
    "compact": ChatCommand("", "summarise the conversation, to make room in the context", compact),
    "context": ChatCommand("", "show what takes how much of the context", show_context),
    "cost": ChatCommand("", "show what the session cost", show_cost),
    "todos": ChatCommand("", "show the todo list", show_todos),
    "model": ChatCommand("[PROVIDER/MODEL]", "list models, or choose one", choose_model),
    "agent": ChatCommand("[NAME]", "list agents, or choose one", choose_agent),
    "variant": ChatCommand("[NAME]", "choose a variant of the model, such as its thinking effort", choose_variant),
    "tools": ChatCommand("", "list tools", list_tools),
    "mcp": ChatCommand("", "list MCP servers", list_mcp),
    "permissions": ChatCommand("[revoke ID]", "list grants, or take one back", show_permissions),
    "trust": ChatCommand("[yes]", "show what the project brings along, or trust it", trust),
    "tree": ChatCommand("", "show the session with its child sessions", show_tree),
    "search": ChatCommand("WORDS", "find words in the sessions of the project", search),
    "share": ChatCommand("", "share the session", share),
    "unshare": ChatCommand("", "stop sharing the session", unshare),
    "export": ChatCommand("[FILE]", "write the session into a file", export),
    "reasoning": ChatCommand("", "show reasoning in full, or in one line", toggle_reasoning),
    "queue": ChatCommand("PROMPT", "send a prompt when the run has ended", queue),
    "screen": ChatCommand("", "change between inline mode and the full screen", change_screen),
    "help": ChatCommand("", "show commands and keys", show_help),
    "exit": ChatCommand("", "leave", leave),
}  # fmt: skip
