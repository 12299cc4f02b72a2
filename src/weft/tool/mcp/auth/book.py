"""Logins at MCP servers, in `mcp-auth.json` as OpenCode has it: for the owner's eyes alone, and each for one address."""

import os
from typing import Any, Final

from weft.errors import ConfigError, DocumentError
from weft.host.files import locked, read_bytes, write_atomic
from weft.model.wire import encode_pretty, parse

MAX_BYTES: Final = 4 << 20


class Book:
    """What is stored for a server counts only for the address it was stored for."""

    def __init__(self, path: str) -> None:
        self._path = path

    def find(self, name: str, url: str) -> dict[str, Any]:
        """The entry of a server at this address; empty if there is none, or it is another address's."""
        entry = self._read().get(name)
        return entry if isinstance(entry, dict) and entry.get("serverUrl") == url else {}

    def put(self, name: str, url: str, change: dict[str, Any]) -> None:
        """Add to an entry. What it was for another address goes."""
        with locked(f"{self._path}.lock"):
            entries = self._read()
            entry = entries.get(name)
            kept = entry if isinstance(entry, dict) and entry.get("serverUrl") == url else {}
            self._write({**entries, name: {**kept, **change, "serverUrl": url}})

    def remove(self, name: str) -> bool:
        """Forget a server; says whether there was anything."""
        if not os.path.exists(self._path):
            return False
        with locked(f"{self._path}.lock"):
            entries = self._read()
            if entries.pop(name, None) is None:
                return False
            self._write(entries)
            return True

    def list_names(self) -> list[str]:
        """The servers there is a login for."""
        return [
            name for name, entry in self._read().items() if isinstance(entry, dict) and entry.get("tokens")
        ]

    def _read(self) -> dict[str, Any]:
        try:
            raw = read_bytes(self._path, limit=MAX_BYTES)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ConfigError(self._path, f"cannot be read ({error.strerror})") from None
        try:
            entries = parse(raw, where=self._path) if raw.strip() else {}
        except DocumentError:
            # Never with the parser's words: this file is all secrets.
            raise ConfigError(self._path, "not JSON") from None
        if not isinstance(entries, dict):
            raise ConfigError(self._path, "not an object of logins by server")
        return entries

    def _write(self, entries: dict[str, Any]) -> None:
        real = os.path.realpath(self._path)  # some keep the file elsewhere and a link to it here
        write_atomic(real, encode_pretty(entries), temp=f"{real}.{os.getpid()}.new", flush=True)
