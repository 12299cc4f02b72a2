"""The language servers we know, and which of them serve a file; none is downloaded."""

import os
from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from weft.tool.lsp.server import Launch
from weft.tool.programs import Ground, find_program, has_any, upwards


class Known(Struct, frozen=True, kw_only=True):
    """A language server: for files with which endings, by which command, and by which files its directory is known.

    With `only`, it is of no use without one of those `roots`; with one of `unless` another server is in charge. One
    that is `careful` runs nothing of the project's own: neither its build, nor plugins it brings along.
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


# Where a project keeps programs of its own.
_NEAR: Final = (("node_modules", ".bin"), (".venv", "bin"), ("venv", "bin"))
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

TY: Final = Known(
    name="ty", endings=(".py", ".pyi"), argv=("ty", "server"), roots=(*_PYTHON, "ty.toml"), careful=True
)

SERVERS: Final[tuple[Known, ...]] = (
    Known(name="deno", endings=_JS[:-2], argv=("deno", "lsp"), roots=_DENO, only=True),
    Known(
        name="typescript",
        endings=_JS,
        argv=("typescript-language-server", "--stdio"),
        roots=_LOCKS,
        unless=_DENO,
    ),
    Known(name="vue", endings=(".vue",), argv=("vue-language-server", "--stdio"), roots=_LOCKS),
    Known(name="svelte", endings=(".svelte",), argv=("svelteserver", "--stdio"), roots=_LOCKS),
    Known(name="astro", endings=(".astro",), argv=("astro-ls", "--stdio"), roots=_LOCKS),
    Known(
        name="gopls", endings=(".go",), argv=("gopls",), roots=("go.work", "go.mod", "go.sum"), careful=True
    ),
    Known(
        name="ruby-lsp",
        endings=(".rb", ".rake", ".gemspec", ".ru"),
        argv=("rubocop", "--lsp"),
        roots=("Gemfile",),
    ),
    Known(
        name="pyright",
        endings=(".py", ".pyi"),
        argv=("pyright-langserver", "--stdio"),
        roots=_PYTHON,
        careful=True,
    ),
    Known(name="elixir-ls", endings=(".ex", ".exs"), argv=("elixir-ls",), roots=("mix.exs", "mix.lock")),
    Known(name="zls", endings=(".zig", ".zon"), argv=("zls",), roots=("build.zig",)),
    Known(name="csharp", endings=(".cs",), argv=("csharp-ls",), roots=("global.json",)),
    Known(name="fsharp", endings=(".fs", ".fsi", ".fsx", ".fsscript"), argv=("fsautocomplete",)),
    Known(name="sourcekit-lsp", endings=(".swift",), argv=("sourcekit-lsp",), roots=("Package.swift",)),
    Known(
        name="rust", endings=(".rs",), argv=("rust-analyzer",), roots=("Cargo.toml", "Cargo.lock"), only=True
    ),
    Known(
        name="clangd",
        endings=_C,
        argv=("clangd", "--background-index", "--clang-tidy"),
        roots=("compile_commands.json", "compile_flags.txt", ".clangd", "CMakeLists.txt", "Makefile"),
        careful=True,
    ),
    Known(
        name="jdtls",
        endings=(".java",),
        argv=("jdtls",),
        roots=("pom.xml", "build.gradle", ".project"),
        only=True,
    ),
    Known(
        name="kotlin-ls",
        endings=(".kt", ".kts"),
        argv=("kotlin-lsp", "--stdio"),
        roots=("settings.gradle.kts",),
    ),
    Known(
        name="yaml-ls",
        endings=(".yaml", ".yml"),
        argv=("yaml-language-server", "--stdio"),
        roots=_LOCKS,
        careful=True,
    ),
    Known(
        name="lua-ls", endings=(".lua",), argv=("lua-language-server",), roots=(".luarc.json", ".luarc.jsonc")
    ),
    Known(
        name="php intelephense",
        endings=(".php",),
        argv=("intelephense", "--stdio"),
        roots=("composer.json", "composer.lock"),
        careful=True,
    ),
    Known(name="prisma", endings=(".prisma",), argv=("prisma", "language-server"), roots=("schema.prisma",)),
    Known(
        name="dart", endings=(".dart",), argv=("dart", "language-server", "--lsp"), roots=("pubspec.yaml",)
    ),
    Known(
        name="ocaml-lsp",
        endings=(".ml", ".mli"),
        argv=("ocamllsp",),
        roots=("dune-project", "dune-workspace"),
    ),
    Known(
        name="bash",
        endings=(".sh", ".bash", ".zsh", ".ksh"),
        argv=("bash-language-server", "start"),
        careful=True,
    ),
    Known(
        name="terraform",
        endings=(".tf", ".tfvars"),
        argv=("terraform-ls", "serve"),
        roots=(".terraform.lock.hcl", "terraform.tfstate"),
    ),
    Known(
        name="texlab",
        endings=(".tex", ".bib"),
        argv=("texlab",),
        roots=(".latexmkrc", ".texlabroot"),
        careful=True,
    ),
    Known(name="gleam", endings=(".gleam",), argv=("gleam", "lsp"), roots=("gleam.toml",)),
    Known(
        name="clojure-lsp",
        endings=(".clj", ".cljs", ".cljc", ".edn"),
        argv=("clojure-lsp", "listen"),
        roots=("deps.edn", "project.clj", "bb.edn"),
    ),
    Known(name="nixd", endings=(".nix",), argv=("nixd",), roots=("flake.nix",)),
    Known(
        name="tinymist", endings=(".typ", ".typc"), argv=("tinymist",), roots=("typst.toml",), careful=True
    ),
    Known(
        name="haskell-language-server",
        endings=(".hs", ".lhs"),
        argv=("haskell-language-server-wrapper", "--lsp"),
        roots=("stack.yaml", "cabal.project", "hie.yaml"),
    ),
)


def launches_for(path: str, servers: tuple[Known, ...], ground: Ground) -> Iterator[Launch]:
    """The servers for a file that are installed. Looks at the disk."""
    for server in servers:
        if not path.lower().endswith(server.endings) or not (ground.trusted or server.careful):
            continue
        root = _root(path, server, ground.directory)
        if root is None:
            continue
        near = [os.path.join(root, *place) for place in _NEAR]
        if program := find_program(server.argv[0], near, ground):
            yield Launch(
                name=server.name,
                argv=ground.sandbox.around((program, *server.argv[1:])),
                root=root,
                environment={**ground.environment, **server.environment},
                options=server.options,
            )


def _root(path: str, server: Known, directory: str) -> str | None:
    """The nearest directory above a file that has one of the server's files; else the one we work in."""
    above = list(upwards(os.path.dirname(path), directory))
    if any(has_any(each, server.unless) for each in above):
        return None
    found = next((each for each in above if has_any(each, server.roots)), None)
    return found or (None if server.only else directory)
