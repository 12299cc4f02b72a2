"""The helper programs of a directory, formatters and language servers, as configuration and environment allow them."""

import asyncio
from collections.abc import Mapping

from msgspec.structs import replace

from weft.config.flags import Flags
from weft.config.load import LoadedConfig
from weft.config.schema import Config, FormatterConfig, LspServerConfig
from weft.tool.format import FORMATTERS, OXFMT, FileFormatter, FormatterRunner
from weft.tool.lsp.known_servers import SERVERS, TY, KnownServer
from weft.tool.lsp.pool import LanguageServerPool
from weft.tool.programs import ProgramContext


class HelperPrograms:
    """The formatters and language servers. Each program starts when a file first needs it; `close` ends the servers."""

    def __init__(
        self, loaded: LoadedConfig | None, flags: Flags, context: ProgramContext, tasks: asyncio.TaskGroup
    ) -> None:
        formatters = () if loaded is None else to_formatters(loaded, flags)
        servers = () if loaded is None else to_language_servers(loaded, flags)
        self.formatters = FormatterRunner(formatters, context)
        self.language_servers = LanguageServerPool(servers, context, tasks)

    async def close(self) -> None:
        self.language_servers.close()


# --- formatters ---


def to_formatters(loaded: LoadedConfig, flags: Flags) -> tuple[FileFormatter, ...]:
    known = (*FORMATTERS, OXFMT) if flags.oxfmt else FORMATTERS
    if False in (loaded.config.formatter, loaded.trusted_config.formatter):
        return ()
    configured = _get_formatters(loaded.trusted_config)
    result = {each.name: each for each in known}
    for name, entry in configured.items():
        result[name] = _to_formatter(result.get(name), name, entry)
    off = _list_disabled(_get_formatters(loaded.config)) | _list_disabled(configured)
    return tuple(each for name, each in result.items() if name not in off and each.argv and each.extensions)


def _get_formatters(config: Config) -> Mapping[str, FormatterConfig]:
    return config.formatter if isinstance(config.formatter, dict) else {}


def _to_formatter(known: FileFormatter | None, name: str, entry: FormatterConfig) -> FileFormatter:
    """Return the formatter as configured. One with a command of its own is used wherever its program exists, without further conditions."""
    base = known or FileFormatter(name=name, argv=(), extensions=())
    if not entry.command:
        # OpenCode ignores an entry without a command; here it may also extend a built-in formatter.
        return replace(
            base,
            extensions=entry.extensions or base.extensions,
            environment={**base.environment, **(entry.environment or {})},
        )
    return FileFormatter(
        name=name,
        argv=entry.command,
        extensions=entry.extensions or base.extensions,
        environment=entry.environment or {},
        safe_without_trust=True,
    )


# --- language servers ---


def to_language_servers(loaded: LoadedConfig, flags: Flags) -> tuple[KnownServer, ...]:
    known = (*(each for each in SERVERS if each.name != "pyright"), TY) if flags.lsp_ty else SERVERS
    if False in (loaded.config.lsp, loaded.trusted_config.lsp):
        return ()
    configured = _get_servers(loaded.trusted_config)
    result = {each.name: each for each in known}
    for name, entry in configured.items():
        result[name] = _to_server(result.get(name), name, entry)
    off = _list_disabled(_get_servers(loaded.config)) | _list_disabled(configured)
    return tuple(each for name, each in result.items() if name not in off and each.argv and each.extensions)


def _get_servers(config: Config) -> Mapping[str, LspServerConfig]:
    return config.lsp if isinstance(config.lsp, dict) else {}


def _to_server(known: KnownServer | None, name: str, entry: LspServerConfig) -> KnownServer:
    base = known or KnownServer(name=name, extensions=(), argv=())
    return replace(
        base,
        extensions=entry.extensions or base.extensions,
        argv=entry.command or base.argv,
        environment={**base.environment, **(entry.env or {})},
        options=entry.initialization or base.options,
        # A program that the person configured is trusted.
        safe_without_trust=base.safe_without_trust or bool(entry.command),
    )


def _list_disabled(configured: Mapping[str, FormatterConfig] | Mapping[str, LspServerConfig]) -> set[str]:
    return {name for name, entry in configured.items() if entry.disabled}
