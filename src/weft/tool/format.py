"""Format changed files with the formatters that are installed; none is downloaded."""

import asyncio
import os
from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct

from weft.host.processes import Command, run
from weft.tool.programs import Ground, find_program, has_any, upwards

FILE: Final = "$FILE"
READ: Final = 256 * 1024


class Formatter(Struct, frozen=True, kw_only=True):
    """A program that tidies up files with some endings; `$FILE` in its command is the file.

    One we know is used where its program is installed and, if it says so, one of the files in `where` is there or one
    of those in `named` speaks of it. One that is `careful` runs nothing of the project's own.
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

OXFMT: Final = Formatter(
    name="oxfmt", argv=("oxfmt", FILE), endings=_SCRIPT, named=(("package.json", '"oxfmt"'),)
)

FORMATTERS: Final[tuple[Formatter, ...]] = (
    Formatter(name="gofmt", argv=("gofmt", "-w", FILE), endings=(".go",), careful=True),
    Formatter(
        name="mix",
        argv=("mix", "format", FILE),
        endings=(".ex", ".exs", ".eex", ".heex", ".leex", ".neex", ".sface"),
    ),
    Formatter(
        name="prettier",
        argv=("prettier", "--write", FILE),
        endings=_WEB,
        named=(("package.json", '"prettier"'),),
    ),
    Formatter(
        name="biome",
        argv=("biome", "check", "--write", FILE),
        endings=_WEB,
        where=("biome.json", "biome.jsonc"),
    ),
    Formatter(name="zig", argv=("zig", "fmt", FILE), endings=(".zig", ".zon"), careful=True),
    Formatter(
        name="clang-format",
        argv=("clang-format", "-i", FILE),
        endings=_C,
        where=(".clang-format",),
        careful=True,
    ),
    Formatter(name="ktlint", argv=("ktlint", "-F", FILE), endings=(".kt", ".kts"), careful=True),
    Formatter(
        name="ruff",
        argv=("ruff", "format", FILE),
        endings=_PYTHON,
        where=("ruff.toml", ".ruff.toml"),
        named=(("pyproject.toml", "ruff"), ("requirements.txt", "ruff"), ("Pipfile", "ruff")),
        careful=True,
    ),
    Formatter(name="air", argv=("air", "format", FILE), endings=(".r",), careful=True),
    Formatter(name="rubocop", argv=("rubocop", "--autocorrect", FILE), endings=_RUBY),
    Formatter(name="standardrb", argv=("standardrb", "--fix", FILE), endings=_RUBY),
    Formatter(
        name="htmlbeautifier", argv=("htmlbeautifier", FILE), endings=(".erb", ".html.erb"), careful=True
    ),
    Formatter(name="dart", argv=("dart", "format", FILE), endings=(".dart",), careful=True),
    Formatter(
        name="ocamlformat",
        argv=("ocamlformat", "-i", FILE),
        endings=(".ml", ".mli"),
        where=(".ocamlformat",),
        careful=True,
    ),
    Formatter(name="terraform", argv=("terraform", "fmt", FILE), endings=(".tf", ".tfvars"), careful=True),
    Formatter(name="latexindent", argv=("latexindent", "-w", "-s", FILE), endings=(".tex",)),
    Formatter(name="gleam", argv=("gleam", "format", FILE), endings=(".gleam",), careful=True),
    Formatter(name="shfmt", argv=("shfmt", "-w", FILE), endings=(".sh", ".bash"), careful=True),
    Formatter(name="nixfmt", argv=("nixfmt", FILE), endings=(".nix",), careful=True),
    Formatter(name="rustfmt", argv=("rustfmt", FILE), endings=(".rs",)),
    Formatter(
        name="pint",
        argv=("vendor/bin/pint", FILE),
        endings=(".php",),
        named=(("composer.json", '"laravel/pint"'),),
    ),
    Formatter(name="ormolu", argv=("ormolu", "-i", FILE), endings=(".hs",), careful=True),
    Formatter(
        name="cljfmt", argv=("cljfmt", "fix", "--quiet", FILE), endings=(".clj", ".cljs", ".cljc", ".edn")
    ),
    Formatter(name="dfmt", argv=("dfmt", "-i", FILE), endings=(".d",), careful=True),
)


def commands_for(
    path: str, formatters: tuple[Formatter, ...], ground: Ground
) -> Iterator[tuple[Formatter, tuple[str, ...]]]:
    """The formatters for a file, each with its command. Looks at the disk."""
    above = list(upwards(ground.directory, ground.worktree))
    for formatter in formatters:
        if path.lower().endswith(formatter.endings) and _is_wanted(formatter, above, ground):
            program = _program(formatter.argv[0], above, ground)
            if program is not None:
                yield formatter, (program, *(word.replace(FILE, path) for word in formatter.argv[1:]))


def is_used(formatter: Formatter, ground: Ground) -> bool:
    """Whether files with its endings are tidied up by it."""
    above = list(upwards(ground.directory, ground.worktree))
    return _is_wanted(formatter, above, ground) and _program(formatter.argv[0], above, ground) is not None


def _is_wanted(formatter: Formatter, above: list[str], ground: Ground) -> bool:
    if not (ground.trusted or formatter.careful):
        return False
    if not formatter.where and not formatter.named:
        return True
    return any(_settles(formatter, directory) for directory in above)


def _settles(formatter: Formatter, directory: str) -> bool:
    if has_any(directory, formatter.where):
        return True
    return any(word in _head(os.path.join(directory, name)) for name, word in formatter.named)


def _head(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(READ)
    except OSError:
        return ""


def _program(name: str, above: list[str], ground: Ground) -> str | None:
    if os.sep in name:  # as a person wrote it, or in a project that is trusted
        paths = [os.path.join(directory, name) for directory in above]
        return next((path for path in paths if os.access(path, os.X_OK)), None)
    return find_program(name, [os.path.join(each, "node_modules", ".bin") for each in above], ground)


SECONDS: Final = 20.0


class Tidy:
    """Runs the formatters for a file, one after the other. One that fails or hangs costs its time, and nothing else."""

    def __init__(
        self, formatters: tuple[Formatter, ...], ground: Ground, *, seconds: float = SECONDS
    ) -> None:
        self._formatters = formatters
        self._ground = ground
        self._seconds = seconds

    def list_formatters(self) -> list[tuple[str, tuple[str, ...], bool]]:
        """Each by name, with its endings, and whether it is used here. Looks at the disk."""
        return [(each.name, each.endings, is_used(each, self._ground)) for each in self._formatters]

    async def __call__(self, path: str) -> None:
        if not path.lower().endswith(tuple(end for each in self._formatters for end in each.endings)):
            return
        found = await asyncio.to_thread(lambda: list(commands_for(path, self._formatters, self._ground)))
        for formatter, argv in found:
            command = Command(
                argv=self._ground.sandbox.around(argv),
                directory=self._ground.directory,
                environment={**self._ground.environment, **formatter.environment},
                timeout=self._seconds,
            )
            try:
                await run(command, _unheard)
            except OSError:
                continue  # not there after all


async def _unheard(piece: bytes) -> None:
    del piece
