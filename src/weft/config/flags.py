"""Read switches from environment variables into typed values."""

import re
from collections.abc import Mapping

from msgspec import Struct, convert

DEFAULT_MODELS_URL = "https://models.dev"
DEFAULT_OUTPUT_TOKENS = 32_000


class Flags(Struct, frozen=True, kw_only=True):
    """Every `OPENCODE_*` switch, and our own `WEFT_*`. `warnings` describes values that are invalid.

    Some switches of OpenCode have no effect here; docs/explanation/compatibility.md lists them.
    """

    auto_share: bool = False
    disable_share: bool = False
    api: str | None = None
    config: str | None = None
    config_dir: str | None = None
    config_content: str | None = None
    disable_project_config: bool = False
    permission: str | None = None
    disable_autocompact: bool = False
    disable_prune: bool = False
    disable_autoupdate: bool = False
    disable_terminal_title: bool = False
    disable_default_plugins: bool = False
    disable_lsp_download: bool = False
    enable_experimental_models: bool = False
    disable_models_fetch: bool = False
    models_url: str = DEFAULT_MODELS_URL
    disable_claude_code_prompt: bool = False
    disable_claude_code_skills: bool = False
    fake_vcs: str | None = None
    client: str = "cli"
    server_password: str | None = None
    server_username: str = "opencode"
    git_bash_path: str | None = None
    disable_filetime_check: bool = False
    exa: bool = False
    plan_mode: bool = False
    lsp_tool: bool = False
    icon_discovery: bool = False
    oxfmt: bool = False
    filewatcher: bool = False
    disable_filewatcher: bool = False
    lsp_ty: bool = False
    bash_default_timeout_ms: int | None = None
    bash_max_output_length: int | None = None
    output_token_max: int = DEFAULT_OUTPUT_TOKENS
    disable_copy_on_select: bool = False
    store: str | None = None
    exa_url: str | None = None
    opencode_order: bool = False
    warnings: tuple[str, ...] = ()


class _EnvironmentReader:
    """Reads variables and collects warnings about invalid values."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        self.warnings: list[str] = []

    def read_text(self, name: str) -> str | None:
        return self._env.get(name) or None

    def is_on(self, name: str) -> bool:
        return self._env.get(f"OPENCODE_{name}", "").lower() in ("1", "true")

    def read_number(self, name: str) -> int | None:
        value = self._env.get(f"OPENCODE_{name}", "").strip()
        if not value:
            return None
        if re.fullmatch(r"0*[1-9][0-9]{0,17}", value, re.ASCII):
            return int(value)
        # OpenCode uses the default without a warning.
        self.warnings.append(f"OPENCODE_{name}: expected a whole number above 0; using the default")
        return None


def read_flags(env: Mapping[str, str]) -> Flags:
    """Return the switches of an environment. Invalid values become warnings, never errors."""
    reader = _EnvironmentReader(env)
    values: dict[str, object] = {
        **_read_texts(reader),
        **_read_switches(reader),
        **_read_experiments(reader),
        **_read_numbers(reader),
        "opencode_order": _read_order(reader),
    }
    return convert({**values, "warnings": reader.warnings}, Flags)


def _read_numbers(reader: _EnvironmentReader) -> dict[str, int | None]:
    return {
        "bash_default_timeout_ms": reader.read_number("EXPERIMENTAL_BASH_DEFAULT_TIMEOUT_MS"),
        "bash_max_output_length": reader.read_number("EXPERIMENTAL_BASH_MAX_OUTPUT_LENGTH"),
        "output_token_max": reader.read_number("EXPERIMENTAL_OUTPUT_TOKEN_MAX") or DEFAULT_OUTPUT_TOKENS,
    }


def _read_order(reader: _EnvironmentReader) -> bool:
    order = reader.read_text("WEFT_CONFIG_ORDER")
    if order not in (None, "weft", "opencode"):
        reader.warnings.append('WEFT_CONFIG_ORDER: expected "weft" or "opencode"; using "weft"')
    return order == "opencode"


def _read_texts(reader: _EnvironmentReader) -> dict[str, str | None]:
    text = reader.read_text
    return {
        "api": text("OPENCODE_API"),
        "config": text("OPENCODE_CONFIG"),
        "config_dir": text("OPENCODE_CONFIG_DIR"),
        "config_content": text("OPENCODE_CONFIG_CONTENT"),
        "permission": text("OPENCODE_PERMISSION"),
        "models_url": text("OPENCODE_MODELS_URL") or DEFAULT_MODELS_URL,
        "fake_vcs": text("OPENCODE_FAKE_VCS"),
        "client": text("OPENCODE_CLIENT") or "cli",
        "server_password": text("OPENCODE_SERVER_PASSWORD"),
        "server_username": text("OPENCODE_SERVER_USERNAME") or "opencode",
        "git_bash_path": text("OPENCODE_GIT_BASH_PATH"),
        "store": text("WEFT_STORE"),
        "exa_url": text("WEFT_EXA_URL"),
    }


def _read_switches(reader: _EnvironmentReader) -> dict[str, bool]:
    on = reader.is_on
    without_claude_code = on("DISABLE_CLAUDE_CODE")
    return {
        "auto_share": on("AUTO_SHARE"),
        # The only switch that OpenCode compares case-sensitively.
        "disable_share": reader.read_text("OPENCODE_DISABLE_SHARE") in ("1", "true"),
        "disable_project_config": on("DISABLE_PROJECT_CONFIG"),
        "disable_autocompact": on("DISABLE_AUTOCOMPACT"),
        "disable_prune": on("DISABLE_PRUNE"),
        "disable_autoupdate": on("DISABLE_AUTOUPDATE"),
        "disable_terminal_title": on("DISABLE_TERMINAL_TITLE"),
        "disable_default_plugins": on("DISABLE_DEFAULT_PLUGINS"),
        "disable_lsp_download": on("DISABLE_LSP_DOWNLOAD"),
        "enable_experimental_models": on("ENABLE_EXPERIMENTAL_MODELS"),
        "disable_models_fetch": on("DISABLE_MODELS_FETCH"),
        "disable_claude_code_prompt": without_claude_code or on("DISABLE_CLAUDE_CODE_PROMPT"),
        "disable_claude_code_skills": without_claude_code or on("DISABLE_CLAUDE_CODE_SKILLS"),
        "disable_filetime_check": on("DISABLE_FILETIME_CHECK"),
    }


def _read_experiments(reader: _EnvironmentReader) -> dict[str, bool]:
    on = reader.is_on
    everything = on("EXPERIMENTAL")
    return {
        "exa": everything or on("ENABLE_EXA") or on("EXPERIMENTAL_EXA"),
        "plan_mode": everything or on("EXPERIMENTAL_PLAN_MODE"),
        "lsp_tool": everything or on("EXPERIMENTAL_LSP_TOOL"),
        "icon_discovery": everything or on("EXPERIMENTAL_ICON_DISCOVERY"),
        "oxfmt": everything or on("EXPERIMENTAL_OXFMT"),
        "filewatcher": on("EXPERIMENTAL_FILEWATCHER"),
        "disable_filewatcher": on("EXPERIMENTAL_DISABLE_FILEWATCHER"),
        "lsp_ty": on("EXPERIMENTAL_LSP_TY"),
        "disable_copy_on_select": on("EXPERIMENTAL_DISABLE_COPY_ON_SELECT"),
    }
