"""Configuration as a value. Names on the outside are those in `opencode.json`, letter for letter."""

import json
import os
from functools import cache
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct, field

from weft.config.provider_schema import McpServer, Positive, ProviderConfig
from weft.model.agent import Mode
from weft.model.permission import Action

# In the order written: the last rule that matches is the one that holds.
PermissionMap = dict[str, Action | dict[str, Action]]
Permission = Annotated[PermissionMap, Meta(extra={"check": "permission"})]
Keybinds = Annotated[dict[str, str], Meta(extra={"check": "keybinds"})]
ThemeColour = Literal["primary", "secondary", "accent", "success", "warning", "error", "info"]
Colour = (
    Annotated[str, Meta(pattern="^#[0-9a-fA-F]{6}$", extra={"expected": 'a colour such as "#ff5733"'})]
    | ThemeColour
)


class AgentConfig(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An agent as configured. A list of models is tried in turn. Other keys are options for the provider."""

    open_to_more: ClassVar[bool] = True

    name: str | None = None
    model: str | tuple[str, ...] | None = None
    temperature: float | None = None
    top_p: float | None = None
    prompt: str | None = None
    tools: dict[str, bool] | None = None
    disable: bool | None = None
    description: str | None = None
    mode: Mode | None = None
    hidden: bool | None = None
    options: dict[str, Any] | None = None
    color: Colour | None = None
    steps: Positive | None = None
    max_steps: Positive | None = field(default=None, name="maxSteps")
    permission: Permission | None = None


class CommandConfig(Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str | None = None
    template: str
    description: str | None = None
    agent: str | None = None
    model: str | None = None
    subtask: bool | None = None


class Compaction(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Only a literal false switches one off. The last three are known to later versions of OpenCode."""

    auto: bool | None = None
    prune: bool | None = None
    tail_turns: int | None = None
    preserve_recent_tokens: int | None = None
    reserved: int | None = None


class Enterprise(Struct, frozen=True, kw_only=True, omit_defaults=True):
    url: str | None = None


class Server(Struct, frozen=True, kw_only=True, omit_defaults=True):
    port: Positive | None = None
    hostname: str | None = None
    mdns: bool | None = None
    cors: tuple[str, ...] | None = None


class Watcher(Struct, frozen=True, kw_only=True, omit_defaults=True):
    ignore: tuple[str, ...] | None = None


class ScrollAcceleration(Struct, frozen=True, kw_only=True, omit_defaults=True):
    enabled: bool


class Tui(Struct, frozen=True, kw_only=True, omit_defaults=True):
    scroll_speed: Annotated[float, Meta(ge=0.001)] | None = None
    scroll_acceleration: ScrollAcceleration | None = None
    diff_style: Literal["auto", "stacked"] | None = None


class Formatter(Struct, frozen=True, kw_only=True, omit_defaults=True):
    disabled: bool | None = None
    command: tuple[str, ...] | None = None
    environment: dict[str, str] | None = None
    extensions: tuple[str, ...] | None = None


class LspServer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    disabled: bool | None = None
    command: tuple[str, ...] | None = None
    extensions: tuple[str, ...] | None = None
    env: dict[str, str] | None = None
    initialization: dict[str, Any] | None = None


# As a string it is exact whatever the digits are.
Dollars = (
    Annotated[str, Meta(pattern=r"^[0-9]+([.][0-9]+)?$", extra={"expected": 'dollars such as "2.50"'})]
    | Annotated[float, Meta(ge=0)]
)


class Limits(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How much may be spent: money in US dollars, tokens, steps of the model, seconds of work."""

    cost: Dollars | None = None
    tokens: Positive | None = None
    steps: Positive | None = None
    seconds: Positive | None = None


class Budget(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Limits for one session, for a session with all below it, and for a day."""

    session: Limits | None = None
    tree: Limits | None = None
    day: Limits | None = None


class Deadlines(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How many seconds a thing may take: one call of a tool, a whole turn, a subtask with all below it; and at a
    model's server, to connect, to begin an answer, to go on with one (a provider's own `timeout` goes before)."""

    connect: Positive | None = None
    first_byte: Positive | None = field(default=None, name="firstByte")
    chunk: Positive | None = None
    tool: Positive | None = None
    turn: Positive | None = None
    subtask: Positive | None = None


class Snapshots(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is kept to undo with: at most so many bytes in all, and of one file; and how many seconds a command waits for
    the first look at all files."""

    max_bytes: Positive | None = field(default=None, name="maxBytes")
    max_file_bytes: Positive | None = field(default=None, name="maxFileBytes")
    wait_seconds: Positive | None = field(default=None, name="waitSeconds")


# A number of tokens, or a share of what the model has room for, such as "80%".
Threshold = (
    Positive | Annotated[str, Meta(pattern=r"^[1-9][0-9]?%$", extra={"expected": 'a share such as "80%"'})]
)


class CompactAt(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When to sum up: at a threshold, for some models (`provider/model`) at another."""

    threshold: Threshold | None = None
    models: dict[str, Threshold] | None = None


class Asking(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What to do with a question that nobody answers, after how many seconds nobody does, and how far `always` goes.

    Read from the person's own files, and from a trusted project's.
    """

    unanswered: Literal["deny", "skip", "allow"] | None = None
    timeout: Positive | None = None
    always: Literal["turn", "session", "project", "user"] | None = None


Walled = Literal["off", "auto", "required"]


class Sandboxing(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether tools run their programs behind a wall, and what they may reach there besides the project.

    An untrusted project can ask for a stricter wall, and not add to what is readable or writable.
    """

    mode: Walled | None = None
    network: Literal["allow", "deny"] | None = None
    readable: tuple[str, ...] | None = None
    writable: tuple[str, ...] | None = None


class Plugins(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How many seconds a hook of a plugin may take, and loading one; after how many faults one is left alone; which
    plugins are not loaded at all, by name."""

    seconds: Positive | None = None
    load_seconds: Positive | None = field(default=None, name="loadSeconds")
    faults: Positive | None = None
    off: tuple[str, ...] | None = None


class CommandHook(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A command that is asked at a hook; `matcher` (`bash|edit*`) says about which tools, `timeout` is in seconds."""

    command: tuple[str, ...]
    matcher: str | None = None
    timeout: Positive | None = None


class McpOwn(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How many seconds a run waits for servers that are only being connected, whether to connect them on opening, and
    the port that a browser comes back to after a login."""

    wait: Annotated[float, Meta(ge=0)] | None = None
    eager: bool | None = None
    callback_port: Positive | None = field(default=None, name="callbackPort")


class Telemetry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether spans and figures of runs are sent, whether with what was said (`content`), and to which collector, else
    where `OTEL_EXPORTER_OTLP_ENDPOINT` says."""

    enabled: bool | None = None
    content: bool | None = None
    endpoint: str | None = None


class Own(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Settings that OpenCode does not have. `store` and `trusted` are read from the person's own files alone."""

    store: str | None = None
    trusted: tuple[str, ...] | None = None
    budget: Budget | None = None
    deadlines: Deadlines | None = None
    snapshots: Snapshots | None = None
    compaction: CompactAt | None = None
    subagent_depth: Positive | None = field(default=None, name="subagentDepth")
    asking: Asking | None = None
    sandbox: Walled | Sandboxing | None = None
    telemetry: bool | Telemetry | None = None
    mcp: McpOwn | None = None
    plugins: Plugins | None = None
    hooks: dict[str, tuple[CommandHook, ...]] | None = None


class Experimental(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`hook` and `chatMaxRetries` are accepted and, as in OpenCode, do nothing.

    `weft` is the place for settings of our own: OpenCode refuses a file with a root key it does not know, but not
    one with a key here that it does not know, so one file can serve both.
    """

    hook: dict[str, Any] | None = None
    chat_max_retries: float | None = field(default=None, name="chatMaxRetries")
    disable_paste_summary: bool | None = None
    batch_tool: bool | None = None
    open_telemetry: bool | None = field(default=None, name="openTelemetry")
    primary_tools: tuple[str, ...] | None = None
    continue_loop_on_deny: bool | None = None
    mcp_timeout: Positive | None = None
    policies: tuple[Any, ...] | None = None
    weft: Own | None = None


class Config(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The root. `mode`, `tools`, `autoshare` and `layout` are old names, folded into the new ones by the loader."""

    schema_: str | None = field(default=None, name="$schema")
    theme: str | None = None
    keybinds: Keybinds | None = None
    log_level: Literal["DEBUG", "INFO", "WARN", "ERROR"] | None = field(default=None, name="logLevel")
    tui: Tui | None = None
    server: Server | None = None
    command: dict[str, CommandConfig] | None = None
    watcher: Watcher | None = None
    plugin: tuple[str, ...] | None = None
    snapshot: bool | None = None
    share: Literal["manual", "auto", "disabled"] | None = None
    autoshare: bool | None = None
    autoupdate: bool | Literal["notify"] | None = None
    disabled_providers: tuple[str, ...] | None = None
    enabled_providers: tuple[str, ...] | None = None
    model: str | None = None
    small_model: str | None = None
    default_agent: str | None = None
    username: str | None = None
    mode: dict[str, AgentConfig] | None = None
    agent: dict[str, AgentConfig] | None = None
    provider: dict[str, ProviderConfig] | None = None
    mcp: dict[str, McpServer] | None = None
    formatter: bool | dict[str, Formatter] | None = None
    lsp: bool | dict[str, LspServer] | None = None
    instructions: tuple[str, ...] | None = None
    layout: Literal["auto", "stretch"] | None = None
    permission: Permission | None = None
    tools: dict[str, bool] | None = None
    enterprise: Enterprise | None = None
    compaction: Compaction | None = None
    experimental: Experimental | None = None
    # Known to later versions of OpenCode and not yet to us. Listed so that a file shared with one brings no warnings.
    shell: str | None = None
    skills: Any = None
    reference: Any = None
    references: Any = None
    subagent_depth: int | None = None
    attachment: Any = None
    tool_output: Any = None


@cache
def default_keybinds() -> dict[str, str]:
    """Name to keys, as OpenCode 1.1.34 has them. Not to be changed: everyone gets the same one."""
    path = os.path.join(os.path.dirname(__file__), "keybinds.json")
    with open(path, encoding="utf-8") as file:
        found: dict[str, str] = json.load(file)
    return found
