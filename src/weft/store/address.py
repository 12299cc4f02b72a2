"""The path in the address of a store. Commands that only read need it, and must not load the rest of `store/url.py`."""

import os

from weft.errors import InvalidInputError


def parse_path(rest: str, scheme: str = "file") -> str:
    """Return the path in `file:/a/b`, `file:///a/b` (percent-encoded, as in a URL) or `file:~/a`.

    Raise `InvalidInputError` if there is none, or no file can have it.
    """
    path = rest
    if rest.startswith("//"):
        from urllib.parse import unquote  # noqa: PLC0415  rarely needed, and slow to import

        path = unquote(rest.removeprefix("//"))
    if not path or "\0" in path:
        raise InvalidInputError("store", f"'{scheme}:' needs a path", hint=f"use {scheme}:<path>")
    return os.path.expanduser(path)
