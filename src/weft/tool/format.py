"""Format changed files with the formatters that are installed. None is downloaded."""

import asyncio
import os
from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct

from weft.host.processes import ProcessCommand, run_command
from weft.tool.programs import ProgramContext, find_program, has_any, list_parents

FILE_PLACEHOLDER: Final = "$FILE"
MAX_READ_CHARACTERS: Final = 256 * 1024


class FileFormatter(Struct, frozen=True, kw_only=True):
    """A program that formats files with certain endings. `$FILE` in its command stands for the file.

    A formatter is used if its program is installed. If it has `where` or `named`, the project must also contain one of
    the files in `where`, or a file of `named` that mentions the given word. One that is `careful` runs no code of the
    project, and so it is also used in projects that are not trusted.
    """

    name: str
    argv: tuple[str, ...]
    endings: tuple[str, ...]
    environment: Mapping[str, str] = {}
    where: tuple[str, ...] = ()
    named: tuple[tuple[str, str], ...] = ()
    careful: bool = False


_WEB_ENDINGS = """
.js .jsx .mjs .cjs .ts .tsx .mts .cts .html .htm .css .scss .sass .less .vue .svelte .json .jsonc .yaml .yml .toml .xml
.md .mdx .graphql .gql
"""
_WEB: Final = tuple(_WEB_ENDINGS.split())
_SCRIPT: Final = (".js", ".jsx", ".mjs", ".cjs", ".ts", ".tsx", ".mts", ".cts")
_PYTHON: Final = (".py", ".pyi")
_C: Final = (".c", ".cc", ".cpp", ".cxx", ".c++", ".h", ".hh", ".hpp", ".hxx", ".h++", ".ino")
_RUBY: Final = (".rb", ".rake", ".gemspec", ".ru")

OXFMT: Final = FileFormatter(
    name="oxfmt", argv=("oxfmt", FILE_PLACEHOLDER), endings=_SCRIPT, named=(("package.json", '"oxfmt"'),)
)

FORMATTERS: Final[tuple[FileFormatter, ...]] = (
    FileFormatter(name="gofmt", argv=("gofmt", "-w", FILE_PLACEHOLDER), endings=(".go",), careful=True),
    FileFormatter(
        name="mix",
        argv=("mix", "format", FILE_PLACEHOLDER),
        endings=(".ex", ".exs", ".eex", ".heex", ".leex", ".neex", ".sface"),
    ),
    FileFormatter(
        name="prettier",
        argv=("prettier", "--write", FILE_PLACEHOLDER),
        endings=_WEB,
        named=(("package.json", '"prettier"'),),
    ),
    FileFormatter(
        name="biome",
        argv=("biome", "check", "--write", FILE_PLACEHOLDER),
        endings=_WEB,
        where=("biome.json", "biome.jsonc"),
    ),
    FileFormatter(name="zig", argv=("zig", "fmt", FILE_PLACEHOLDER), endings=(".zig", ".zon"), careful=True),
    FileFormatter(
        name="clang-format",
        argv=("clang-format", "-i", FILE_PLACEHOLDER),
        endings=_C,
        where=(".clang-format",),
        careful=True,
    ),
    FileFormatter(
        name="ktlint", argv=("ktlint", "-F", FILE_PLACEHOLDER), endings=(".kt", ".kts"), careful=True
    ),
    FileFormatter(
        name="ruff",
        argv=("ruff", "format", FILE_PLACEHOLDER),
        endings=_PYTHON,
        where=("ruff.toml", ".ruff.toml"),
        named=(("pyproject.toml", "ruff"), ("requirements.txt", "ruff"), ("Pipfile", "ruff")),
        careful=True,
    ),
    FileFormatter(name="air", argv=("air", "format", FILE_PLACEHOLDER), endings=(".r",), careful=True),
    FileFormatter(name="rubocop", argv=("rubocop", "--autocorrect", FILE_PLACEHOLDER), endings=_RUBY),
    FileFormatter(name="standardrb", argv=("standardrb", "--fix", FILE_PLACEHOLDER), endings=_RUBY),
    FileFormatter(
        name="htmlbeautifier",
        argv=("htmlbeautifier", FILE_PLACEHOLDER),
        endings=(".erb", ".html.erb"),
        careful=True,
    ),
    FileFormatter(name="dart", argv=("dart", "format", FILE_PLACEHOLDER), endings=(".dart",), careful=True),
    FileFormatter(
        name="ocamlformat",
        argv=("ocamlformat", "-i", FILE_PLACEHOLDER),
        endings=(".ml", ".mli"),
        where=(".ocamlformat",),
        careful=True,
    ),
    FileFormatter(
        name="terraform",
        argv=("terraform", "fmt", FILE_PLACEHOLDER),
        endings=(".tf", ".tfvars"),
        careful=True,
    ),
    FileFormatter(name="latexindent", argv=("latexindent", "-w", "-s", FILE_PLACEHOLDER), endings=(".tex",)),
    FileFormatter(
        name="gleam", argv=("gleam", "format", FILE_PLACEHOLDER), endings=(".gleam",), careful=True
    ),
    FileFormatter(
        name="shfmt", argv=("shfmt", "-w", FILE_PLACEHOLDER), endings=(".sh", ".bash"), careful=True
    ),
    FileFormatter(name="nixfmt", argv=("nixfmt", FILE_PLACEHOLDER), endings=(".nix",), careful=True),
    FileFormatter(name="rustfmt", argv=("rustfmt", FILE_PLACEHOLDER), endings=(".rs",)),
    FileFormatter(
        name="pint",
        argv=("vendor/bin/pint", FILE_PLACEHOLDER),
        endings=(".php",),
        named=(("composer.json", '"laravel/pint"'),),
    ),
    FileFormatter(name="ormolu", argv=("ormolu", "-i", FILE_PLACEHOLDER), endings=(".hs",), careful=True),
    FileFormatter(
        name="cljfmt",
        argv=("cljfmt", "fix", "--quiet", FILE_PLACEHOLDER),
        endings=(".clj", ".cljs", ".cljc", ".edn"),
    ),
    FileFormatter(name="dfmt", argv=("dfmt", "-i", FILE_PLACEHOLDER), endings=(".d",), careful=True),
)


def find_commands(
    path: str, formatters: tuple[FileFormatter, ...], context: ProgramContext
) -> Iterator[tuple[FileFormatter, tuple[str, ...]]]:
    """Yield the formatters for a file, each with its command. This reads the disk."""
    parents = list(list_parents(context.directory, context.worktree))
    for formatter in formatters:
        if path.lower().endswith(formatter.endings) and _is_wanted(formatter, parents, context):
            program = _find_program(formatter.argv[0], parents, context)
            if program is not None:
                yield (
                    formatter,
                    (program, *(word.replace(FILE_PLACEHOLDER, path) for word in formatter.argv[1:])),
                )


def is_used(formatter: FileFormatter, context: ProgramContext) -> bool:
    """Return True if this formatter is used for files with its endings."""
    parents = list(list_parents(context.directory, context.worktree))
    return (
        _is_wanted(formatter, parents, context)
        and _find_program(formatter.argv[0], parents, context) is not None
    )


def _is_wanted(formatter: FileFormatter, parents: list[str], context: ProgramContext) -> bool:
    if not (context.trusted or formatter.careful):
        return False
    if not formatter.where and not formatter.named:
        return True
    return any(_is_configured_in(formatter, directory) for directory in parents)


def _is_configured_in(formatter: FileFormatter, directory: str) -> bool:
    if has_any(directory, formatter.where):
        return True
    return any(word in _read_head(os.path.join(directory, name)) for name, word in formatter.named)


def _read_head(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(MAX_READ_CHARACTERS)
    except OSError:
        return ""


def _find_program(name: str, parents: list[str], context: ProgramContext) -> str | None:
    if os.sep in name:  # configured by a person, or in a trusted project
        paths = [os.path.join(directory, name) for directory in parents]
        return next((path for path in paths if os.access(path, os.X_OK)), None)
    return find_program(name, [os.path.join(each, "node_modules", ".bin") for each in parents], context)


FORMAT_SECONDS: Final = 20.0


class FormatterRunner:
    """Runs the formatters for a file one after the other. One that fails or times out does not affect the others."""

    def __init__(
        self,
        formatters: tuple[FileFormatter, ...],
        context: ProgramContext,
        *,
        seconds: float = FORMAT_SECONDS,
    ) -> None:
        self._formatters = formatters
        self._context = context
        self._seconds = seconds

    def list_formatters(self) -> list[tuple[str, tuple[str, ...], bool]]:
        """Return each formatter's name, its endings, and whether it is used here. This reads the disk."""
        return [(each.name, each.endings, is_used(each, self._context)) for each in self._formatters]

    async def __call__(self, path: str) -> None:
        if not path.lower().endswith(tuple(end for each in self._formatters for end in each.endings)):
            return
        found = await asyncio.to_thread(lambda: list(find_commands(path, self._formatters, self._context)))
        for formatter, argv in found:
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
