"""The language servers we know, and which of them serve a file. None is downloaded."""

import os
from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from weft.tool.lsp.server import ServerLaunch
from weft.tool.programs import ProgramContext, find_program, has_any, list_parents


class KnownServer(Struct, frozen=True, kw_only=True):
    """A language server: its command, the endings of its files, and the files that mark its root directory.

    With `only`, it is not used without one of the `roots`. It is not used either if one of `unless` exists, which means
    that another server is responsible. One that is `careful` runs no code of the project, neither its build nor its
    plugins, and so it is also used in projects that are not trusted.
    """

    name: str
    endings: tuple[str, ...]
    argv: tuple[str, ...]
    roots: tuple[str, ...] = ()
    only: bool = False
    unless: tuple[str, ...] = ()
    careful: bool = False
    environment: Mapping[str, str] = {}
    options: dict[str, Any] = {}


# Where a project keeps its own programs.
_PROJECT_PROGRAMS: Final = (("node_modules", ".bin"), (".venv", "bin"), ("venv", "bin"))
_JS: Final = (".ts", ".tsx", ".js", ".jsx", ".mjs", ".cjs", ".mts", ".cts")
_LOCKS: Final = ("package-lock.json", "bun.lockb", "bun.lock", "pnpm-lock.yaml", "yarn.lock")
_DENO: Final = ("deno.json", "deno.jsonc")
_PYTHON: Final = (
    "pyproject.toml",
    "setup.py",
    "setup.cfg",
    "requirements.txt",
    "Pipfile",
    "pyrightconfig.json",
)
_C: Final = (".c", ".cpp", ".cc", ".cxx", ".c++", ".h", ".hpp", ".hh", ".hxx", ".h++")

TY: Final = KnownServer(
    name="ty", endings=(".py", ".pyi"), argv=("ty", "server"), roots=(*_PYTHON, "ty.toml"), careful=True
)

SERVERS: Final[tuple[KnownServer, ...]] = (
    KnownServer(name="deno", endings=_JS[:-2], argv=("deno", "lsp"), roots=_DENO, only=True),
    KnownServer(
        name="typescript",
        endings=_JS,
        argv=("typescript-language-server", "--stdio"),
        roots=_LOCKS,
        unless=_DENO,
    ),
    KnownServer(name="vue", endings=(".vue",), argv=("vue-language-server", "--stdio"), roots=_LOCKS),
    KnownServer(name="svelte", endings=(".svelte",), argv=("svelteserver", "--stdio"), roots=_LOCKS),
    KnownServer(name="astro", endings=(".astro",), argv=("astro-ls", "--stdio"), roots=_LOCKS),
    KnownServer(
        name="gopls", endings=(".go",), argv=("gopls",), roots=("go.work", "go.mod", "go.sum"), careful=True
    ),
    KnownServer(
        name="ruby-lsp",
        endings=(".rb", ".rake", ".gemspec", ".ru"),
        argv=("rubocop", "--lsp"),
        roots=("Gemfile",),
    ),
    KnownServer(
        name="pyright",
        endings=(".py", ".pyi"),
        argv=("pyright-langserver", "--stdio"),
        roots=_PYTHON,
        careful=True,
    ),
    KnownServer(
        name="elixir-ls", endings=(".ex", ".exs"), argv=("elixir-ls",), roots=("mix.exs", "mix.lock")
    ),
    KnownServer(name="zls", endings=(".zig", ".zon"), argv=("zls",), roots=("build.zig",)),
    KnownServer(name="csharp", endings=(".cs",), argv=("csharp-ls",), roots=("global.json",)),
    KnownServer(name="fsharp", endings=(".fs", ".fsi", ".fsx", ".fsscript"), argv=("fsautocomplete",)),
    KnownServer(name="sourcekit-lsp", endings=(".swift",), argv=("sourcekit-lsp",), roots=("Package.swift",)),
    KnownServer(
        name="rust", endings=(".rs",), argv=("rust-analyzer",), roots=("Cargo.toml", "Cargo.lock"), only=True
    ),
    KnownServer(
        name="clangd",
        endings=_C,
        argv=("clangd", "--background-index", "--clang-tidy"),
        roots=("compile_commands.json", "compile_flags.txt", ".clangd", "CMakeLists.txt", "Makefile"),
        careful=True,
    ),
    KnownServer(
        name="jdtls",
        endings=(".java",),
        argv=("jdtls",),
        roots=("pom.xml", "build.gradle", ".project"),
        only=True,
    ),
    KnownServer(
        name="kotlin-ls",
        endings=(".kt", ".kts"),
        argv=("kotlin-lsp", "--stdio"),
        roots=("settings.gradle.kts",),
    ),
    KnownServer(
        name="yaml-ls",
        endings=(".yaml", ".yml"),
        argv=("yaml-language-server", "--stdio"),
        roots=_LOCKS,
        careful=True,
    ),
    KnownServer(
        name="lua-ls", endings=(".lua",), argv=("lua-language-server",), roots=(".luarc.json", ".luarc.jsonc")
    ),
    KnownServer(
        name="php intelephense",
        endings=(".php",),
        argv=("intelephense", "--stdio"),
        roots=("composer.json", "composer.lock"),
        careful=True,
    ),
    KnownServer(
        name="prisma", endings=(".prisma",), argv=("prisma", "language-server"), roots=("schema.prisma",)
    ),
    KnownServer(
        name="dart", endings=(".dart",), argv=("dart", "language-server", "--lsp"), roots=("pubspec.yaml",)
    ),
    KnownServer(
        name="ocaml-lsp",
        endings=(".ml", ".mli"),
        argv=("ocamllsp",),
        roots=("dune-project", "dune-workspace"),
    ),
    KnownServer(
        name="bash",
        endings=(".sh", ".bash", ".zsh", ".ksh"),
        argv=("bash-language-server", "start"),
        careful=True,
    ),
    KnownServer(
        name="terraform",
        endings=(".tf", ".tfvars"),
        argv=("terraform-ls", "serve"),
        roots=(".terraform.lock.hcl", "terraform.tfstate"),
    ),
    KnownServer(
        name="texlab",
        endings=(".tex", ".bib"),
        argv=("texlab",),
        roots=(".latexmkrc", ".texlabroot"),
        careful=True,
    ),
    KnownServer(name="gleam", endings=(".gleam",), argv=("gleam", "lsp"), roots=("gleam.toml",)),
    KnownServer(
        name="clojure-lsp",
        endings=(".clj", ".cljs", ".cljc", ".edn"),
        argv=("clojure-lsp", "listen"),
        roots=("deps.edn", "project.clj", "bb.edn"),
    ),
    KnownServer(name="nixd", endings=(".nix",), argv=("nixd",), roots=("flake.nix",)),
    KnownServer(
        name="tinymist", endings=(".typ", ".typc"), argv=("tinymist",), roots=("typst.toml",), careful=True
    ),
    KnownServer(
        name="haskell-language-server",
        endings=(".hs", ".lhs"),
        argv=("haskell-language-server-wrapper", "--lsp"),
        roots=("stack.yaml", "cabal.project", "hie.yaml"),
    ),
)


def find_launches(
    path: str, servers: tuple[KnownServer, ...], context: ProgramContext
) -> Iterator[ServerLaunch]:
    """Yield the installed servers for a file. This reads the disk."""
    for server in servers:
        if not path.lower().endswith(server.endings) or not (context.trusted or server.careful):
            continue
        root = _find_root(path, server, context.directory)
        if root is None:
            continue
        directories = [os.path.join(root, *place) for place in _PROJECT_PROGRAMS]
        if program := find_program(server.argv[0], directories, context):
            yield ServerLaunch(
                name=server.name,
                argv=context.sandbox.wrap((program, *server.argv[1:])),
                root=root,
                environment={**context.environment, **server.environment},
                options=server.options,
            )


def _find_root(path: str, server: KnownServer, directory: str) -> str | None:
    """Return the nearest parent with one of the server's root files, else the working directory.

    Return None if the server is not responsible for the file.
    """
    parents = list(list_parents(os.path.dirname(path), directory))
    if any(has_any(each, server.unless) for each in parents):
        return None
    found = next((each for each in parents if has_any(each, server.roots)), None)
    return found or (None if server.only else directory)
