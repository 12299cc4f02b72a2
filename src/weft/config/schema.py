"""The configuration as typed values. Names in files are exactly those of `opencode.json`."""

import json
import os
from decimal import Decimal
from functools import cache
from typing import Annotated, Any, ClassVar, Final, Literal

from msgspec import Meta, Struct, field

from weft.model.agent import Mode
from weft.model.permission import Action

Positive = Annotated[int, Meta(gt=0)]
# In the order of the file: the last matching rule wins.
PermissionMap = dict[str, Action | dict[str, Action]]
Permission = Annotated[PermissionMap, Meta(extra={"check": "permission"})]
Keybinds = Annotated[dict[str, str], Meta(extra={"check": "keybinds"})]
ThemeColour = Literal["primary", "secondary", "accent", "success", "warning", "error", "info"]
Colour = (
    Annotated[str, Meta(pattern="^#[0-9a-fA-F]{6}$", extra={"expected": 'a colour such as "#ff5733"'})]
    | ThemeColour
)
Modality = Literal["text", "audio", "image", "video", "pdf"]


class AgentConfig(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An agent. A list of models is tried in order. Unknown keys are options for the provider."""

    accepts_unknown: ClassVar[bool] = True

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


class ModelPrice(Struct, frozen=True, kw_only=True, omit_defaults=True):
    input: Decimal
    output: Decimal
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None


class ModelCost(ModelPrice, frozen=True, kw_only=True):
    context_over_200k: ModelPrice | None = None


class ModelLimit(Struct, frozen=True, kw_only=True, omit_defaults=True):
    context: int
    input: int | None = None
    output: int


class ModelModalities(Struct, frozen=True, kw_only=True, omit_defaults=True):
    input: tuple[Modality, ...]
    output: tuple[Modality, ...]


class ModelInterleaved(Struct, frozen=True, kw_only=True, omit_defaults=True):
    field: Literal["reasoning_content", "reasoning_details"]


class ModelPackage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    npm: str
    api: str | None = None


class ModelConfig(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Settings of a model, which override what the catalogue says about it."""

    id: str | None = None
    name: str | None = None
    family: str | None = None
    release_date: str | None = None
    attachment: bool | None = None
    reasoning: bool | None = None
    temperature: bool | None = None
    tool_call: bool | None = None
    structured_output: bool | None = None
    interleaved: bool | ModelInterleaved | None = None
    cost: ModelCost | None = None
    limit: ModelLimit | None = None
    modalities: ModelModalities | None = None
    experimental: bool | None = None
    status: Literal["alpha", "beta", "deprecated", "active"] | None = None
    options: dict[str, Any] | None = None
    headers: dict[str, str] | None = None
    provider: ModelPackage | None = None
    variants: dict[str, dict[str, Any]] | None = None


class ProviderOptions(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The options whose type we know. Any others are passed to the provider."""

    api_key: str | None = field(default=None, name="apiKey")
    base_url: str | None = field(default=None, name="baseURL")
    enterprise_url: str | None = field(default=None, name="enterpriseUrl")
    set_cache_key: bool | None = field(default=None, name="setCacheKey")
    timeout: Positive | bool | None = None
    headers: dict[str, str] | None = None


class ProviderConfig(Struct, frozen=True, kw_only=True, omit_defaults=True):
    api: str | None = None
    name: str | None = None
    env: tuple[str, ...] | None = None
    id: str | None = None
    npm: str | None = None
    models: dict[str, ModelConfig] | None = None
    whitelist: tuple[str, ...] | None = None
    blacklist: tuple[str, ...] | None = None
    options: Annotated[dict[str, Any], Meta(extra={"like": ProviderOptions})] | None = None


class McpOAuthConfig(Struct, frozen=True, kw_only=True, omit_defaults=True):
    client_id: str | None = field(default=None, name="clientId")
    client_secret: str | None = field(default=None, name="clientSecret")
    scope: str | None = None


class McpLocalConfig(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="local"):
    """An MCP server that weft starts."""

    command: tuple[str, ...]
    environment: dict[str, str] | None = None
    enabled: bool | None = None
    timeout: Positive | None = None


class McpRemoteConfig(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="remote"):
    """An MCP server at a URL. `oauth` is false if a login must not be attempted."""

    url: str
    headers: dict[str, str] | None = None
    oauth: McpOAuthConfig | bool | None = None
    enabled: bool | None = None
    timeout: Positive | None = None


McpServerConfig = McpLocalConfig | McpRemoteConfig


class CompactionConfig(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Only a literal false disables `auto` or `prune`. The last three keys belong to later versions of OpenCode."""

    auto: bool | None = None
    prune: bool | None = None
    tail_turns: int | None = None
    preserve_recent_tokens: int | None = None
    reserved: int | None = None


class EnterpriseConfig(Struct, frozen=True, kw_only=True, omit_defaults=True):
    url: str | None = None


class ServerConfig(Struct, frozen=True, kw_only=True, omit_defaults=True):
    port: Positive | None = None
    hostname: str | None = None
    mdns: bool | None = None
    cors: tuple[str, ...] | None = None


class WatcherConfig(Struct, frozen=True, kw_only=True, omit_defaults=True):
    ignore: tuple[str, ...] | None = None


class ScrollAccelerationConfig(Struct, frozen=True, kw_only=True, omit_defaults=True):
    enabled: bool


class TuiConfig(Struct, frozen=True, kw_only=True, omit_defaults=True):
    scroll_speed: Annotated[float, Meta(ge=0.001)] | None = None
    scroll_acceleration: ScrollAccelerationConfig | None = None
    diff_style: Literal["auto", "stacked"] | None = None


class FormatterConfig(Struct, frozen=True, kw_only=True, omit_defaults=True):
    disabled: bool | None = None
    command: tuple[str, ...] | None = None
    environment: dict[str, str] | None = None
    extensions: tuple[str, ...] | None = None


class LspServerConfig(Struct, frozen=True, kw_only=True, omit_defaults=True):
    disabled: bool | None = None
    command: tuple[str, ...] | None = None
    extensions: tuple[str, ...] | None = None
    env: dict[str, str] | None = None
    initialization: dict[str, Any] | None = None


# A string is exact, a float may not be.
Dollars = (
    Annotated[str, Meta(pattern=r"^[0-9]+([.][0-9]+)?$", extra={"expected": 'dollars such as "2.50"'})]
    | Annotated[float, Meta(ge=0)]
)


class LimitsConfig(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Limits of spending: cost in US dollars, tokens, steps of the model, seconds of work."""

    cost: Dollars | None = None
    tokens: Positive | None = None
    steps: Positive | None = None
    seconds: Positive | None = None


class BudgetConfig(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Limits for one session, for a session with its child sessions, and for a day."""

    session: LimitsConfig | None = None
    tree: LimitsConfig | None = None
    day: LimitsConfig | None = None


class DeadlinesConfig(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Deadlines in seconds. `tool` is for one call, `turn` for a whole turn, `subtask` for one with its child sessions.

    The others are for a model API: to connect, until the first byte, and between two chunks. A provider's own `timeout`
    takes precedence.
    """

    connect: Positive | None = None
    first_byte: Positive | None = field(default=None, name="firstByte")
    chunk: Positive | None = None
    tool: Positive | None = None
    turn: Positive | None = None
    subtask: Positive | None = None


class SnapshotsConfig(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Limits of snapshots: bytes in total and per file, and seconds that a command waits for the first scan."""

    max_bytes: Positive | None = field(default=None, name="maxBytes")
    max_file_bytes: Positive | None = field(default=None, name="maxFileBytes")
    wait_seconds: Positive | None = field(default=None, name="waitSeconds")


# A number of tokens, or a share such as "80%" of those that a request may have: the context without the answer.
Threshold = (
    Positive | Annotated[str, Meta(pattern=r"^[1-9][0-9]?%$", extra={"expected": 'a share such as "80%"'})]
)


class CompactionThresholds(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When to compact: a threshold, with exceptions for some models (`provider/model`)."""

    threshold: Threshold | None = None
    models: dict[str, Threshold] | None = None


class AskingConfig(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What to do with a permission request that nobody answers, after how many seconds, and the scope of `always`.

    Read from the user's own files and from trusted projects.
    """

    unanswered: Literal["deny", "skip", "allow"] | None = None
    timeout: Positive | None = None
    always: Literal["turn", "session", "project", "user"] | None = None


SandboxMode = Literal["off", "auto", "required"]
# The loosest first.
SANDBOX_MODES: Final[tuple[SandboxMode, ...]] = ("off", "auto", "required")


class SandboxConfig(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether tools run in a sandbox, and what they may access there besides the project.

    An untrusted project can request a stricter sandbox, but cannot make more paths readable or writable.
    """

    mode: SandboxMode | None = None
    network: Literal["allow", "deny"] | None = None
    readable: tuple[str, ...] | None = None
    writable: tuple[str, ...] | None = None


class PluginsConfig(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Seconds for a plugin's hook and for loading a plugin, the number of faults after which a plugin is disabled, and
    the names of plugins that are not loaded.
    """

    seconds: Positive | None = None
    load_seconds: Positive | None = field(default=None, name="loadSeconds")
    faults: Positive | None = None
    off: tuple[str, ...] | None = None


class CommandHookConfig(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A command that runs at a hook. `matcher` (`bash|edit*`) selects tools, `timeout` is in seconds."""

    command: tuple[str, ...]
    matcher: str | None = None
    timeout: Positive | None = None


class McpClientConfig(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Seconds that a run waits for servers that are connecting, whether to connect them at start, and the port for the
    browser's callback after a login.
    """

    wait: Annotated[float, Meta(ge=0)] | None = None
    eager: bool | None = None
    callback_port: Positive | None = field(default=None, name="callbackPort")


class TelemetryConfig(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether to send spans and metrics, whether to include message contents, and the collector's address; by default
    `OTEL_EXPORTER_OTLP_ENDPOINT`.
    """

    enabled: bool | None = None
    content: bool | None = None
    endpoint: str | None = None


class TerminalConfig(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The keys of the prompt in `weft chat`, whether reasoning is shown in full, and whether the full screen takes the mouse."""

    keys: Literal["emacs", "vi"] | None = None
    reasoning: bool | None = None
    mouse: bool | None = None


class WeftConfig(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Settings that OpenCode does not have. `store` and `trusted` are read from the user's own files only."""

    store: str | None = None
    trusted: tuple[str, ...] | None = None
    budget: BudgetConfig | None = None
    deadlines: DeadlinesConfig | None = None
    snapshots: SnapshotsConfig | None = None
    compaction: CompactionThresholds | None = None
    subagent_depth: Positive | None = field(default=None, name="subagentDepth")
    asking: AskingConfig | None = None
    sandbox: SandboxMode | SandboxConfig | None = None
    telemetry: bool | TelemetryConfig | None = None
    terminal: TerminalConfig | None = None
    mcp: McpClientConfig | None = None
    plugins: PluginsConfig | None = None
    hooks: dict[str, tuple[CommandHookConfig, ...]] | None = None
    history: bool | None = None

    @property
    def sandbox_settings(self) -> SandboxConfig:
        """The settings of the sandbox; a mode may stand alone."""
        return (
            SandboxConfig(mode=self.sandbox)
            if isinstance(self.sandbox, str)
            else self.sandbox or SandboxConfig()
        )


class ExperimentalConfig(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`hook` and `chatMaxRetries` are accepted and, as in OpenCode, have no effect.

    `weft` holds our own settings. OpenCode refuses a file with an unknown key at the root, but not here, so one file
    can serve both.
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
    weft: WeftConfig | None = None


class Config(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The root. `mode`, `tools`, `autoshare` and `layout` are legacy keys, which the loader converts."""

    schema_: str | None = field(default=None, name="$schema")
    theme: str | None = None
    keybinds: Keybinds | None = None
    log_level: Literal["DEBUG", "INFO", "WARN", "ERROR"] | None = field(default=None, name="logLevel")
    tui: TuiConfig | None = None
    server: ServerConfig | None = None
    command: dict[str, CommandConfig] | None = None
    watcher: WatcherConfig | None = None
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
    mcp: dict[str, McpServerConfig] | None = None
    formatter: bool | dict[str, FormatterConfig] | None = None
    lsp: bool | dict[str, LspServerConfig] | None = None
    instructions: tuple[str, ...] | None = None
    layout: Literal["auto", "stretch"] | None = None
    permission: Permission | None = None
    tools: dict[str, bool] | None = None
    enterprise: EnterpriseConfig | None = None
    compaction: CompactionConfig | None = None
    experimental: ExperimentalConfig | None = None
    # Keys of later versions of OpenCode. They are listed so that a shared file causes no warnings; only `subagent_depth` has an effect.
    shell: str | None = None
    skills: Any = None
    reference: Any = None
    references: Any = None
    subagent_depth: int | None = None
    attachment: Any = None
    tool_output: Any = None

    @property
    def experiments(self) -> ExperimentalConfig:
        """The settings under `experimental`; the defaults if there are none."""
        return self.experimental or ExperimentalConfig()

    @property
    def weft_settings(self) -> WeftConfig:
        """The settings under `experimental.weft`; the defaults if there are none."""
        return self.experiments.weft or WeftConfig()


@cache
def get_default_keybinds() -> dict[str, str]:
    """Return the keys of every action, as in OpenCode 1.1.34. The dict is shared: do not change it."""
    path = os.path.join(os.path.dirname(__file__), "keybinds.json")
    with open(path, encoding="utf-8") as file:
        keybinds: dict[str, str] = json.load(file)
    return keybinds
