"""The files of our page: what a server delivers to browsers, and the policy that they are delivered under.

The page is a client of the HTTP API like any other. Everything that it needs is here; it loads nothing from elsewhere.
"""

import gzip
import hashlib
from functools import cache, cached_property
from importlib.resources import files
from typing import Final

from msgspec import Struct

MEDIA: Final = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "webmanifest": "application/manifest+json",
}
INDEX: Final = "index.html"
ASSETS: Final = "/web/assets/"
VERSION_BYTES: Final = 8
# Scripts and styles of our own files only, none in the page itself; and no text becomes HTML except through `trust.js`.
PAGE_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "connect-src 'self'",
        "manifest-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types weft",
    )
)


class WebFile(Struct, frozen=True, kw_only=True, dict=True):
    """A file as it is delivered: its type, its content, and a hash by which a browser sees whether it has changed."""

    media: str
    content: bytes

    @cached_property
    def packed(self) -> bytes:
        """The content, compressed. It is the same each time, because it contains no time."""
        return gzip.compress(self.content, mtime=0)

    @cached_property
    def digest(self) -> str:
        return hashlib.blake2b(self.content, digest_size=12).hexdigest()


@cache
def load_files() -> dict[str, WebFile]:
    """Read all files, by their names relative to the top of the page."""
    top = files("weft.web").joinpath("static")
    found: dict[str, WebFile] = {}
    pending = [("", top)]
    while pending:
        prefix, place = pending.pop()
        for entry in place.iterdir():
            name = f"{prefix}{entry.name}"
            if entry.is_dir():
                pending.append((f"{name}/", entry))
            elif (media := MEDIA.get(name.rpartition(".")[2])) is not None:
                found[name] = WebFile(media=media, content=entry.read_bytes())
    return found


def find_file(name: str) -> WebFile | None:
    """Return a file by its name, None if there is no such file."""
    return None if name == INDEX else load_files().get(name)


@cache
def get_version() -> str:
    """Return a name for the content of all files together."""
    whole = "".join(f"{name} {file.digest}\n" for name, file in sorted(load_files().items()))
    return hashlib.blake2b(whole.encode(), digest_size=VERSION_BYTES).hexdigest()


@cache
def get_index() -> WebFile:
    """Return the page itself. It names its files below their version, so that browsers need not ask for them again."""
    index = load_files()[INDEX]
    return WebFile(
        media=index.media,
        content=index.content.replace(ASSETS.encode(), f"{ASSETS}{get_version()}/".encode()),
    )
