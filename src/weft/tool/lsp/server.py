"""Run one language server: start it, send it files, and collect its diagnostics."""

import asyncio
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec
from msgspec import Struct

from weft.host.pipes import open_pipe_process
from weft.host.processes import ProcessCommand
from weft.host.tasks import open_tasks
from weft.tool.language_servers import Diagnostic, to_path, to_uri
from weft.tool.lsp.connection import FrameError, JsonRpcPeer, LanguageServerError, UnknownMethodError

_EXTENSIONS_BY_LANGUAGE = """
astro=.astro bat=.bat bibtex=.bib clojure=.clj,.cljc,.cljs,.edn coffeescript=.coffee c=.c,.h
cpp=.cpp,.cxx,.cc,.c++,.hpp,.hh,.hxx,.h++ csharp=.cs css=.css d=.d dart=.dart dockerfile=.dockerfile elixir=.ex,.exs
erlang=.erl,.hrl fsharp=.fs,.fsi,.fsx,.fsscript gleam=.gleam go=.go graphql=.graphql,.gql groovy=.groovy
handlebars=.handlebars,.hbs haskell=.hs,.lhs html=.html,.htm ini=.ini java=.java javascript=.js,.mjs,.cjs
javascriptreact=.jsx json=.json jsonc=.jsonc kotlin=.kt,.kts latex=.tex less=.less lua=.lua makefile=.mk markdown=.md
nix=.nix objective-c=.m objective-cpp=.mm ocaml=.ml ocaml.interface=.mli perl=.pl,.pm php=.php powershell=.ps1
prisma=.prisma python=.py,.pyi r=.r razor=.cshtml,.razor ruby=.rb,.rake,.gemspec,.ru rust=.rs sass=.sass scala=.scala
scss=.scss shellscript=.sh,.bash,.zsh,.ksh sql=.sql svelte=.svelte swift=.swift terraform=.tf terraform-vars=.tfvars
toml=.toml typescript=.ts,.mts,.cts typescriptreact=.tsx typst=.typ,.typc vue=.vue xml=.xml,.xsl yaml=.yaml,.yml
zig=.zig,.zon
"""
LANGUAGES: Final = {
    extension: language
    for language, _, extensions in (each.partition("=") for each in _EXTENSIONS_BY_LANGUAGE.split())
    for extension in extensions.split(",")
}


def find_language(path: str) -> str:
    """Return the protocol's identifier of a file's language, `plaintext` if it is unknown."""
    name = os.path.basename(path).lower()
    if name in ("dockerfile", "makefile"):
        return name
    return LANGUAGES.get(os.path.splitext(name)[1], "plaintext")


START_TIMEOUT_SECONDS: Final = 45.0
# Diagnostics of a file arrive in several messages. They count as complete after a pause of this length.
REPORT_PAUSE_SECONDS: Final = 0.15
MAX_FILE_BYTES: Final = 4 << 20
MAX_DIAGNOSTICS: Final = 1000

_CAPABILITIES: Final = {
    "window": {"workDoneProgress": True},
    "workspace": {
        "configuration": True,
        "workspaceFolders": True,
        "symbol": {},
        "didChangeWatchedFiles": {"dynamicRegistration": True},
    },
    "textDocument": {
        "synchronization": {"didSave": True},
        "publishDiagnostics": {"versionSupport": True},
        "hover": {"contentFormat": ["markdown", "plaintext"]},
        "definition": {"linkSupport": True},
        "implementation": {"linkSupport": True},
        "references": {},
        "documentSymbol": {"hierarchicalDocumentSymbolSupport": True},
        "callHierarchy": {},
    },
}
_FILE_CREATED, _FILE_CHANGED = 1, 2


class ServerLaunch(Struct, frozen=True, kw_only=True):
    """A server to start: its name, its command, and its root directory."""

    name: str
    argv: tuple[str, ...]
    root: str
    environment: Mapping[str, str]
    options: dict[str, Any] = {}


class _SentFile(Struct, frozen=True):
    """The version and text of a file that the server has."""

    version: int
    text: str


class LanguageServer:
    """One language server for one root directory.

    `run` keeps it running. Call `wait_until_ready` before any other method.
    """

    def __init__(self, launch: ServerLaunch) -> None:
        self.launch = launch
        self._peer = JsonRpcPeer(self._answer, self._handle_notification)
        self._ready = asyncio.Event()
        self._ended = asyncio.Event()
        self.is_broken = False
        self._files: dict[str, _SentFile] = {}
        self._diagnostics: dict[str, tuple[Diagnostic, ...]] = {}
        self._reported = asyncio.Event()
        self._report_counts: dict[str, int] = {}

    async def run(self) -> None:
        """Run the server until it ends or this is cancelled. If it did not start, or has ended, it stays broken."""
        launch = self.launch
        command = ProcessCommand(argv=launch.argv, directory=launch.root, environment=launch.environment)
        try:
            async with open_pipe_process(command, self._receive) as process, open_tasks() as tasks:
                self._peer.attach(process.write)
                exit_watcher = tasks.create_task(process.wait())
                exit_watcher.add_done_callback(lambda _: self._end())
                async with asyncio.timeout(START_TIMEOUT_SECONDS):
                    await self._initialize()
                self._ready.set()
                await self._ended.wait()
                exit_watcher.cancel()
        except (OSError, LanguageServerError):  # a timeout is an OSError, too
            pass
        finally:
            self._end()

    def _end(self) -> None:
        self.is_broken = True
        self._diagnostics.clear()
        self._peer.close("the language server has ended")
        for event in (self._ready, self._reported, self._ended):
            event.set()

    async def _initialize(self) -> None:
        launch = self.launch
        root = to_uri(launch.root)
        await self._peer.request(
            "initialize",
            {
                "processId": os.getpid(),
                "rootUri": root,
                "workspaceFolders": [{"name": "workspace", "uri": root}],
                "initializationOptions": launch.options,
                "capabilities": _CAPABILITIES,
            },
        )
        self._peer.notify("initialized", {})
        if launch.options:
            self._peer.notify("workspace/didChangeConfiguration", {"settings": launch.options})

    async def _receive(self, piece: bytes) -> None:
        try:
            await self._peer.feed(piece)
        except (FrameError, LanguageServerError):
            self._end()

    def _answer(self, method: str, params: Any) -> Any:
        match method, params:
            case "workspace/configuration", {"items": [*items]}:
                return [self.launch.options or None for _ in items]
            case "workspace/workspaceFolders", _:
                return [{"name": "workspace", "uri": to_uri(self.launch.root)}]
            case (
                "window/workDoneProgress/create"
                | "client/registerCapability"
                | "client/unregisterCapability"
                | "window/showMessageRequest",
                _,
            ):
                return None
            case _:
                raise UnknownMethodError(method)

    def _handle_notification(self, method: str, params: Any) -> None:
        if method != "textDocument/publishDiagnostics" or not isinstance(params, dict):
            return
        path = to_path(params.get("uri"))
        if path is None:
            return
        diagnostics = params.get("diagnostics")
        self._diagnostics[path] = tuple(_to_diagnostics(diagnostics if isinstance(diagnostics, list) else []))
        self._report_counts[path] = self._report_counts.get(path, 0) + 1
        self._reported.set()

    # --- requests ---

    @property
    def is_ready(self) -> bool:
        """True when there is nothing to wait for: the server has started, or is broken."""
        return self._ready.is_set()

    async def wait_until_ready(self) -> None:
        """Wait until the server has started. Raise `LanguageServerError` if it does not run."""
        await self._ready.wait()
        if self.is_broken:
            raise LanguageServerError(f"the language server {self.launch.name} does not run")

    async def request(self, method: str, params: Any) -> Any:
        """Send a request and return the answer. Raise `LanguageServerError` if there is none."""
        return await self._peer.request(method, params)

    async def send_file(self, path: str) -> bool:
        """Send the current text of a file. Return True if the server did not have it yet.

        Raise `LanguageServerError` if the server has ended.
        """
        text = await asyncio.to_thread(_read_text, path)
        if text is None:
            return False
        sent, uri = self._files.get(path), to_uri(path)
        if sent is not None and sent.text == text:
            return False
        version = 0 if sent is None else sent.version + 1
        self._files[path] = _SentFile(version, text)
        watched = {"changes": [{"uri": uri, "type": _FILE_CREATED if sent is None else _FILE_CHANGED}]}
        self._peer.notify("workspace/didChangeWatchedFiles", watched)
        if sent is None:
            document = {"uri": uri, "languageId": find_language(path), "version": version, "text": text}
            self._peer.notify("textDocument/didOpen", {"textDocument": document})
        else:
            changed = {"uri": uri, "version": version}
            whole = [{"text": text}]
            self._peer.notify("textDocument/didChange", {"textDocument": changed, "contentChanges": whole})
        self._peer.notify("textDocument/didSave", {"textDocument": {"uri": uri}})
        return True

    async def diagnose(self, path: str) -> None:
        """Send a file and wait for its diagnostics. The caller must set a timeout."""
        count = self._report_counts.get(path, 0)
        if not await self.send_file(path):
            return
        while not self.is_broken and self._report_counts.get(path, 0) == count:
            await self._wait_for_report()
        # More diagnostics may follow: compilers report later than parsers.
        with suppress(TimeoutError):
            while not self.is_broken:
                async with asyncio.timeout(REPORT_PAUSE_SECONDS):
                    await self._wait_for_report()

    async def _wait_for_report(self) -> None:
        self._reported.clear()
        await self._reported.wait()

    def list_diagnostics(self) -> Mapping[str, tuple[Diagnostic, ...]]:
        """Return the diagnostics of every file that has some."""
        return {path: diagnostics for path, diagnostics in self._diagnostics.items() if diagnostics}


def _to_diagnostics(items: list[Any]) -> Iterable[Diagnostic]:
    for item in items[:MAX_DIAGNOSTICS]:
        with suppress(msgspec.ValidationError):
            yield msgspec.convert(item, Diagnostic)


def _read_text(path: str) -> str | None:
    try:
        with open(path, "rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
    except OSError:
        return None
    return None if len(raw) > MAX_FILE_BYTES else raw.decode(errors="replace")
