"""Format changed files with the formatters that are installed. None is downloaded."""

import asyncio
import os
from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct

from weft.host.processes import ProcessCommand, run_command
from weft.tool.programs import ProgramContext, find_program, has_any, list_parents

FILE_PLACEHOLDER: Final = "$FILE"
MAX_CONFIG_CHARACTERS: Final = 256 * 1024


class FileFormatter(Struct, frozen=True, kw_only=True):
    """A program that formats files with certain extensions. `$FILE` in its command stands for the file.

    A formatter is used if its program is installed. If it has `config_files` or `mentions`, the project must also
    contain one of these `config_files`, or a file that contains the word which `mentions` pairs with its name. A
    formatter that is `safe_without_trust` runs no code of the project, so it is also used in untrusted projects.
    """

    name: str
    argv: tuple[str, ...]
    extensions: tuple[str, ...]
    environment: Mapping[str, str] = {}
    config_files: tuple[str, ...] = ()
    mentions: tuple[tuple[str, str], ...] = ()
    safe_without_trust: bool = False


_WEB_NAMES = """
.js .jsx .mjs .cjs .ts .tsx .mts .cts .html .htm .css .scss .sass .less .vue .svelte .json .jsonc .yaml .yml .toml .xml
.md .mdx .graphql .gql
"""
_WEB: Final = tuple(_WEB_NAMES.split())
_SCRIPT: Final = (".js", ".jsx", ".mjs", ".cjs", ".ts", ".tsx", ".mts", ".cts")
_PYTHON: Final = (".py", ".pyi")
_C: Final = (".c", ".cc", ".cpp", ".cxx", ".c++", ".h", ".hh", ".hpp", ".hxx", ".h++", ".ino")
_RUBY: Final = (".rb", ".rake", ".gemspec", ".ru")

# Only used if the flag for it is set, as in OpenCode.
OXFMT: Final = FileFormatter(
    name="oxfmt",
    argv=("oxfmt", FILE_PLACEHOLDER),
    extensions=_SCRIPT,
    mentions=(("package.json", '"oxfmt"'),),
)

FORMATTERS: Final[tuple[FileFormatter, ...]] = (
    FileFormatter(
        name="gofmt", argv=("gofmt", "-w", FILE_PLACEHOLDER), extensions=(".go",), safe_without_trust=True
    ),
    FileFormatter(
        name="mix",
        argv=("mix", "format", FILE_PLACEHOLDER),
        extensions=(".ex", ".exs", ".eex", ".heex", ".leex", ".neex", ".sface"),
    ),
    FileFormatter(
        name="prettier",
        argv=("prettier", "--write", FILE_PLACEHOLDER),
        extensions=_WEB,
        mentions=(("package.json", '"prettier"'),),
    ),
    FileFormatter(
        name="biome",
        argv=("biome", "check", "--write", FILE_PLACEHOLDER),
        extensions=_WEB,
        config_files=("biome.json", "biome.jsonc"),
    ),
    FileFormatter(
        name="zig",
        argv=("zig", "fmt", FILE_PLACEHOLDER),
        extensions=(".zig", ".zon"),
        safe_without_trust=True,
    ),
    FileFormatter(
        name="clang-format",
        argv=("clang-format", "-i", FILE_PLACEHOLDER),
        extensions=_C,
        config_files=(".clang-format",),
        safe_without_trust=True,
    ),
    FileFormatter(
        name="ktlint",
        argv=("ktlint", "-F", FILE_PLACEHOLDER),
        extensions=(".kt", ".kts"),
        safe_without_trust=True,
    ),
    FileFormatter(
        name="ruff",
        argv=("ruff", "format", FILE_PLACEHOLDER),
        extensions=_PYTHON,
        config_files=("ruff.toml", ".ruff.toml"),
        mentions=(("pyproject.toml", "ruff"), ("requirements.txt", "ruff"), ("Pipfile", "ruff")),
        safe_without_trust=True,
    ),
    FileFormatter(
        name="air", argv=("air", "format", FILE_PLACEHOLDER), extensions=(".r",), safe_without_trust=True
    ),
    FileFormatter(name="rubocop", argv=("rubocop", "--autocorrect", FILE_PLACEHOLDER), extensions=_RUBY),
    FileFormatter(name="standardrb", argv=("standardrb", "--fix", FILE_PLACEHOLDER), extensions=_RUBY),
    FileFormatter(
        name="htmlbeautifier",
        argv=("htmlbeautifier", FILE_PLACEHOLDER),
        extensions=(".erb", ".html.erb"),
        safe_without_trust=True,
    ),
    FileFormatter(
        name="dart", argv=("dart", "format", FILE_PLACEHOLDER), extensions=(".dart",), safe_without_trust=True
    ),
    FileFormatter(
        name="ocamlformat",
        argv=("ocamlformat", "-i", FILE_PLACEHOLDER),
        extensions=(".ml", ".mli"),
        config_files=(".ocamlformat",),
        safe_without_trust=True,
    ),
    FileFormatter(
        name="terraform",
        argv=("terraform", "fmt", FILE_PLACEHOLDER),
        extensions=(".tf", ".tfvars"),
        safe_without_trust=True,
    ),
    FileFormatter(
        name="latexindent", argv=("latexindent", "-w", "-s", FILE_PLACEHOLDER), extensions=(".tex",)
    ),
    FileFormatter(
        name="gleam",
        argv=("gleam", "format", FILE_PLACEHOLDER),
        extensions=(".gleam",),
        safe_without_trust=True,
    ),
    FileFormatter(
        name="shfmt",
        argv=("shfmt", "-w", FILE_PLACEHOLDER),
        extensions=(".sh", ".bash"),
        safe_without_trust=True,
    ),
    FileFormatter(
        name="nixfmt", argv=("nixfmt", FILE_PLACEHOLDER), extensions=(".nix",), safe_without_trust=True
    ),
    FileFormatter(name="rustfmt", argv=("rustfmt", FILE_PLACEHOLDER), extensions=(".rs",)),
    FileFormatter(
        name="pint",
        argv=("vendor/bin/pint", FILE_PLACEHOLDER),
        extensions=(".php",),
        mentions=(("composer.json", '"laravel/pint"'),),
    ),
    FileFormatter(
        name="ormolu", argv=("ormolu", "-i", FILE_PLACEHOLDER), extensions=(".hs",), safe_without_trust=True
    ),
    FileFormatter(
        name="cljfmt",
        argv=("cljfmt", "fix", "--quiet", FILE_PLACEHOLDER),
        extensions=(".clj", ".cljs", ".cljc", ".edn"),
    ),
    FileFormatter(
        name="dfmt", argv=("dfmt", "-i", FILE_PLACEHOLDER), extensions=(".d",), safe_without_trust=True
    ),
)


def find_commands(
    path: str, formatters: tuple[FileFormatter, ...], context: ProgramContext
) -> Iterator[tuple[FileFormatter, tuple[str, ...]]]:
    """Yield the formatters that are used for a file, each with its command. This reads the disk."""
    parents = list(list_parents(context.directory, context.worktree))
    for formatter in formatters:
        if path.lower().endswith(formatter.extensions) and _applies(formatter, parents, context):
            program = _find_formatter(formatter.argv[0], parents, context)
            if program is not None:
                yield (
                    formatter,
                    (program, *(word.replace(FILE_PLACEHOLDER, path) for word in formatter.argv[1:])),
                )


def is_used(formatter: FileFormatter, context: ProgramContext) -> bool:
    """Return True if this formatter is used for files with its extensions."""
    parents = list(list_parents(context.directory, context.worktree))
    return (
        _applies(formatter, parents, context)
        and _find_formatter(formatter.argv[0], parents, context) is not None
    )


def _applies(formatter: FileFormatter, parents: list[str], context: ProgramContext) -> bool:
    """Return True if trust and the configuration of the project allow this formatter."""
    if not (context.trusted or formatter.safe_without_trust):
        return False
    if not formatter.config_files and not formatter.mentions:
        return True
    return any(_is_configured_in(formatter, directory) for directory in parents)


def _is_configured_in(formatter: FileFormatter, directory: str) -> bool:
    if has_any(directory, formatter.config_files):
        return True
    return any(word in _read_head(os.path.join(directory, name)) for name, word in formatter.mentions)


def _read_head(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(MAX_CONFIG_CHARACTERS)
    except OSError:
        return ""


def _find_formatter(name: str, parents: list[str], context: ProgramContext) -> str | None:
    if os.sep in name:  # configured by a person, or in a trusted project
        paths = [os.path.join(directory, name) for directory in parents]
        return next((path for path in paths if os.access(path, os.X_OK)), None)
    return find_program(name, [os.path.join(each, "node_modules", ".bin") for each in parents], context)


FORMAT_TIMEOUT_SECONDS: Final = 20.0


class FormatterRunner:
    """Runs the formatters for a file one after the other. One that fails or times out does not affect the others."""

    def __init__(
        self,
        formatters: tuple[FileFormatter, ...],
        context: ProgramContext,
        *,
        seconds: float = FORMAT_TIMEOUT_SECONDS,
    ) -> None:
        self._formatters = formatters
        self._context = context
        self._seconds = seconds

    def list_formatters(self) -> list[tuple[str, tuple[str, ...], bool]]:
        """Return each formatter's name, its extensions, and whether it is used here. This reads the disk."""
        return [(each.name, each.extensions, is_used(each, self._context)) for each in self._formatters]

    async def __call__(self, path: str) -> None:
        if not path.lower().endswith(
            tuple(extension for each in self._formatters for extension in each.extensions)
        ):
            return
        commands = await asyncio.to_thread(lambda: list(find_commands(path, self._formatters, self._context)))
        for formatter, argv in commands:
            command = ProcessCommand(
                argv=self._context.sandbox.wrap(argv),
                directory=self._context.directory,
                environment={**self._context.environment, **formatter.environment},
                timeout=self._seconds,
            )
            try:
                await run_command(command, _ignore_output)
            except OSError:
                continue  # it was removed in the meantime


async def _ignore_output(piece: bytes) -> None:
    del piece
