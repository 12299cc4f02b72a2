"""The language servers we know, and which of them serve a file. None is downloaded."""

import os
from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from weft.tool.lsp.server import ServerLaunch
from weft.tool.programs import ProgramContext, find_program, has_any, list_parents


class KnownServer(Struct, frozen=True, kw_only=True):
    """A language server: its command, the extensions of its files, and the files that mark its root directory.

    With `requires_root`, it is only used where one of the `roots` exists. Where a file of `excluded_by` exists, another
    server is responsible. A server that is `safe_without_trust` runs no code of the project, neither its build nor its
    plugins, so it is also used in untrusted projects.
    """

    name: str
    extensions: tuple[str, ...]
    argv: tuple[str, ...]
    roots: tuple[str, ...] = ()
    requires_root: bool = False
    excluded_by: tuple[str, ...] = ()
    safe_without_trust: bool = False
    environment: Mapping[str, str] = {}
    options: dict[str, Any] = {}


# Where a project keeps its own programs.
_PROJECT_PROGRAMS: Final = (("node_modules", ".bin"), (".venv", "bin"), ("venv", "bin"))
_SCRIPT_EXTENSIONS: Final = (".ts", ".tsx", ".js", ".jsx", ".mjs", ".cjs", ".mts", ".cts")
_LOCK_FILES: Final = ("package-lock.json", "bun.lockb", "bun.lock", "pnpm-lock.yaml", "yarn.lock")
_DENO_FILES: Final = ("deno.json", "deno.jsonc")
_PYTHON_FILES: Final = (
    "pyproject.toml",
    "setup.py",
    "setup.cfg",
    "requirements.txt",
    "Pipfile",
    "pyrightconfig.json",
)
_C_EXTENSIONS: Final = (".c", ".cpp", ".cc", ".cxx", ".c++", ".h", ".hpp", ".hh", ".hxx", ".h++")

TY: Final = KnownServer(
    name="ty",
    extensions=(".py", ".pyi"),
    argv=("ty", "server"),
    roots=(*_PYTHON_FILES, "ty.toml"),
    safe_without_trust=True,
)

SERVERS: Final[tuple[KnownServer, ...]] = (
    KnownServer(
        name="deno",
        extensions=_SCRIPT_EXTENSIONS[:-2],
        argv=("deno", "lsp"),
        roots=_DENO_FILES,
        requires_root=True,
    ),
    KnownServer(
        name="typescript",
        extensions=_SCRIPT_EXTENSIONS,
        argv=("typescript-language-server", "--stdio"),
        roots=_LOCK_FILES,
        excluded_by=_DENO_FILES,
    ),
    KnownServer(name="vue", extensions=(".vue",), argv=("vue-language-server", "--stdio"), roots=_LOCK_FILES),
    KnownServer(name="svelte", extensions=(".svelte",), argv=("svelteserver", "--stdio"), roots=_LOCK_FILES),
    KnownServer(name="astro", extensions=(".astro",), argv=("astro-ls", "--stdio"), roots=_LOCK_FILES),
    KnownServer(
        name="gopls",
        extensions=(".go",),
        argv=("gopls",),
        roots=("go.work", "go.mod", "go.sum"),
        safe_without_trust=True,
    ),
    KnownServer(
        name="ruby-lsp",
        extensions=(".rb", ".rake", ".gemspec", ".ru"),
        argv=("rubocop", "--lsp"),
        roots=("Gemfile",),
    ),
    KnownServer(
        name="pyright",
        extensions=(".py", ".pyi"),
        argv=("pyright-langserver", "--stdio"),
        roots=_PYTHON_FILES,
        safe_without_trust=True,
    ),
    KnownServer(
        name="elixir-ls", extensions=(".ex", ".exs"), argv=("elixir-ls",), roots=("mix.exs", "mix.lock")
    ),
    KnownServer(name="zls", extensions=(".zig", ".zon"), argv=("zls",), roots=("build.zig",)),
    KnownServer(name="csharp", extensions=(".cs",), argv=("csharp-ls",), roots=("global.json",)),
    KnownServer(name="fsharp", extensions=(".fs", ".fsi", ".fsx", ".fsscript"), argv=("fsautocomplete",)),
    KnownServer(
        name="sourcekit-lsp", extensions=(".swift",), argv=("sourcekit-lsp",), roots=("Package.swift",)
    ),
    KnownServer(
        name="rust",
        extensions=(".rs",),
        argv=("rust-analyzer",),
        roots=("Cargo.toml", "Cargo.lock"),
        requires_root=True,
    ),
    KnownServer(
        name="clangd",
        extensions=_C_EXTENSIONS,
        argv=("clangd", "--background-index", "--clang-tidy"),
        roots=("compile_commands.json", "compile_flags.txt", ".clangd", "CMakeLists.txt", "Makefile"),
        safe_without_trust=True,
    ),
    KnownServer(
        name="jdtls",
        extensions=(".java",),
        argv=("jdtls",),
        roots=("pom.xml", "build.gradle", ".project"),
        requires_root=True,
    ),
    KnownServer(
        name="kotlin-ls",
        extensions=(".kt", ".kts"),
        argv=("kotlin-lsp", "--stdio"),
        roots=("settings.gradle.kts",),
    ),
    KnownServer(
        name="yaml-ls",
        extensions=(".yaml", ".yml"),
        argv=("yaml-language-server", "--stdio"),
        roots=_LOCK_FILES,
        safe_without_trust=True,
    ),
    KnownServer(
        name="lua-ls",
        extensions=(".lua",),
        argv=("lua-language-server",),
        roots=(".luarc.json", ".luarc.jsonc"),
    ),
    KnownServer(
        name="php intelephense",
        extensions=(".php",),
        argv=("intelephense", "--stdio"),
        roots=("composer.json", "composer.lock"),
        safe_without_trust=True,
    ),
    KnownServer(
        name="prisma", extensions=(".prisma",), argv=("prisma", "language-server"), roots=("schema.prisma",)
    ),
    KnownServer(
        name="dart", extensions=(".dart",), argv=("dart", "language-server", "--lsp"), roots=("pubspec.yaml",)
    ),
    KnownServer(
        name="ocaml-lsp",
        extensions=(".ml", ".mli"),
        argv=("ocamllsp",),
        roots=("dune-project", "dune-workspace"),
    ),
    KnownServer(
        name="bash",
        extensions=(".sh", ".bash", ".zsh", ".ksh"),
        argv=("bash-language-server", "start"),
        safe_without_trust=True,
    ),
    KnownServer(
        name="terraform",
        extensions=(".tf", ".tfvars"),
        argv=("terraform-ls", "serve"),
        roots=(".terraform.lock.hcl", "terraform.tfstate"),
    ),
    KnownServer(
        name="texlab",
        extensions=(".tex", ".bib"),
        argv=("texlab",),
        roots=(".latexmkrc", ".texlabroot"),
        safe_without_trust=True,
    ),
    KnownServer(name="gleam", extensions=(".gleam",), argv=("gleam", "lsp"), roots=("gleam.toml",)),
    KnownServer(
        name="clojure-lsp",
        extensions=(".clj", ".cljs", ".cljc", ".edn"),
        argv=("clojure-lsp", "listen"),
        roots=("deps.edn", "project.clj", "bb.edn"),
    ),
    KnownServer(name="nixd", extensions=(".nix",), argv=("nixd",), roots=("flake.nix",)),
    KnownServer(
        name="tinymist",
        extensions=(".typ", ".typc"),
        argv=("tinymist",),
        roots=("typst.toml",),
        safe_without_trust=True,
    ),
    KnownServer(
        name="haskell-language-server",
        extensions=(".hs", ".lhs"),
        argv=("haskell-language-server-wrapper", "--lsp"),
        roots=("stack.yaml", "cabal.project", "hie.yaml"),
    ),
)


def find_launches(
    path: str, servers: tuple[KnownServer, ...], context: ProgramContext
) -> Iterator[ServerLaunch]:
    """Yield the installed servers for a file. This reads the disk."""
    for server in servers:
        if not path.lower().endswith(server.extensions) or not (context.trusted or server.safe_without_trust):
            continue
        root = _find_root(path, server, context.directory)
        if root is None:
            continue
        directories = [os.path.join(root, *parts) for parts in _PROJECT_PROGRAMS]
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
    if any(has_any(parent, server.excluded_by) for parent in parents):
        return None
    root = next((parent for parent in parents if has_any(parent, server.roots)), None)
    return root or (None if server.requires_root else directory)
