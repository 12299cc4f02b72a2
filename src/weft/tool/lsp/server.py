"""A language server at work: started, told of files, and read for diagnostics."""

import asyncio
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

import msgspec
from msgspec import Struct

from weft.host.pipes import open_talk
from weft.host.processes import Command
from weft.host.tasks import open_tasks
from weft.tool.diagnostic import Diagnostic
from weft.tool.lsp.connection import FrameError, Peer, PeerError, UnknownError

_ENDINGS_OF = """
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
    ending: language
    for language, _, endings in (each.partition("=") for each in _ENDINGS_OF.split())
    for ending in endings.split(",")
}


def language_of(path: str) -> str:
    """The language's name, `plaintext` if the ending tells none."""
    name = os.path.basename(path).lower()
    if name in ("dockerfile", "makefile"):
        return name
    return LANGUAGES.get(os.path.splitext(name)[1], "plaintext")


START_SECONDS: Final = 45.0
# A file's diagnostics come in waves: what stands for so long is taken for the whole.
QUIET_SECONDS: Final = 0.15
LONGEST_FILE: Final = 4 << 20
MOST_DIAGNOSTICS: Final = 1000

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
_CREATED, _CHANGED = 1, 2


class Launch(Struct, frozen=True, kw_only=True):
    """A server to start: by which name, with which command, for the files below which directory."""

    name: str
    argv: tuple[str, ...]
    root: str
    environment: Mapping[str, str]
    options: dict[str, Any] = {}


class _Told(Struct, frozen=True):
    """What a server is told of a file: which version, and the text it has."""

    version: int
    text: str


class Server:
    """One server for one directory. `run` is its life; everything else waits for it to be `ready`, or gives up."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self._peer = Peer(self._answer, self._hear)
        self._ready = asyncio.Event()
        self._over = asyncio.Event()
        self.is_broken = False
        self._files: dict[str, _Told] = {}
        self._found: dict[str, tuple[Diagnostic, ...]] = {}
        self._news = asyncio.Event()
        self._heard: dict[str, int] = {}

    async def run(self) -> None:
        """Until it dies or this is cancelled. A server that does not start or breaks off is broken for good."""
        launch = self.launch
        command = Command(argv=launch.argv, directory=launch.root, environment=launch.environment)
        try:
            async with open_talk(command, self._feed) as talk, open_tasks() as tasks:
                self._peer.attach(talk.say)
                dying = tasks.create_task(talk.over())
                dying.add_done_callback(lambda _: self._end())
                async with asyncio.timeout(START_SECONDS):
                    await self._initialize()
                self._ready.set()
                await self._over.wait()
                dying.cancel()
        except (OSError, PeerError):  # a timeout is an OSError, too
            pass
        finally:
            self._end()

    def _end(self) -> None:
        self.is_broken = True
        self._found.clear()
        self._peer.lost("the language server has ended")
        for event in (self._ready, self._news, self._over):
            event.set()

    async def _initialize(self) -> None:
        launch = self.launch
        root = to_uri(launch.root)
        await self._peer.ask(
            "initialize",
            {
                "processId": os.getpid(),
                "rootUri": root,
                "workspaceFolders": [{"name": "workspace", "uri": root}],
                "initializationOptions": launch.options,
                "capabilities": _CAPABILITIES,
            },
        )
        self._peer.tell("initialized", {})
        if launch.options:
            self._peer.tell("workspace/didChangeConfiguration", {"settings": launch.options})

    async def _feed(self, piece: bytes) -> None:
        try:
            await self._peer.feed(piece)
        except (FrameError, PeerError):
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
                raise UnknownError(method)

    def _hear(self, method: str, params: Any) -> None:
        if method != "textDocument/publishDiagnostics" or not isinstance(params, dict):
            return
        path = to_path(params.get("uri"))
        if path is None:
            return
        found = params.get("diagnostics")
        self._found[path] = tuple(_to_diagnostics(found if isinstance(found, list) else []))
        self._heard[path] = self._heard.get(path, 0) + 1
        self._news.set()

    # --- what others ask of it ---

    @property
    def is_ready(self) -> bool:
        return self._ready.is_set()

    async def ready(self) -> None:
        """Wait until it can be talked to. Raises `PeerError` if it never can."""
        await self._ready.wait()
        if self.is_broken:
            raise PeerError(f"the language server {self.launch.name} does not run")

    async def ask(self, method: str, params: Any) -> Any:
        return await self._peer.ask(method, params)

    async def show(self, path: str) -> bool:
        """Tell it of a file as it now stands; gives whether there was anything new to tell. Raises `PeerError`."""
        text = await asyncio.to_thread(_read, path)
        if text is None:
            return False
        told, uri = self._files.get(path), to_uri(path)
        if told is not None and told.text == text:
            return False
        version = 0 if told is None else told.version + 1
        self._files[path] = _Told(version, text)
        watched = {"changes": [{"uri": uri, "type": _CREATED if told is None else _CHANGED}]}
        self._peer.tell("workspace/didChangeWatchedFiles", watched)
        if told is None:
            document = {"uri": uri, "languageId": language_of(path), "version": version, "text": text}
            self._peer.tell("textDocument/didOpen", {"textDocument": document})
        else:
            changed = {"uri": uri, "version": version}
            whole = [{"text": text}]
            self._peer.tell("textDocument/didChange", {"textDocument": changed, "contentChanges": whole})
        self._peer.tell("textDocument/didSave", {"textDocument": {"uri": uri}})
        return True

    async def examine(self, path: str) -> None:
        """Tell it of a file, and wait until it has said what it thinks of it. Whoever calls this gives it an end."""
        heard = self._heard.get(path, 0)
        if not await self.show(path):
            return
        while not self.is_broken and self._heard.get(path, 0) == heard:
            await self._next()
        # More may be on its way: compilers speak after parsers.
        with suppress(TimeoutError):
            while not self.is_broken:
                async with asyncio.timeout(QUIET_SECONDS):
                    await self._next()

    async def _next(self) -> None:
        self._news.clear()
        await self._news.wait()

    def diagnostics(self) -> Mapping[str, tuple[Diagnostic, ...]]:
        return {path: found for path, found in self._found.items() if found}


def _to_diagnostics(found: list[Any]) -> Iterable[Diagnostic]:
    for each in found[:MOST_DIAGNOSTICS]:
        with suppress(msgspec.ValidationError):
            yield msgspec.convert(each, Diagnostic)


def _read(path: str) -> str | None:
    try:
        with open(path, "rb") as file:
            raw = file.read(LONGEST_FILE + 1)
    except OSError:
        return None
    return None if len(raw) > LONGEST_FILE else raw.decode(errors="replace")


def to_uri(path: str) -> str:
    return "file://" + quote(path)


def to_path(uri: Any) -> str | None:
    if not isinstance(uri, str) or not uri.startswith("file:"):
        return None
    try:
        return unquote(urlsplit(uri).path) or None
    except ValueError:
        return None
