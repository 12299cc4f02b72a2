"""Every operation of the API has a route, and the manual names it."""

import re
from pathlib import Path
from typing import Any, Protocol, get_type_hints

from weft.api import Api
from weft.server.routes.table import list_routes

ROW = re.compile(r"^\| `(?P<name>[a-z_.]+)` \| `(?P<method>[A-Z]+) (?P<path>[^`]+)` \|", re.MULTILINE)
MANUAL = Path(__file__).parents[3] / "docs" / "reference" / "http.md"


def operations(promise: Any, before: str = "") -> set[str]:
    """Yield the names of the operations of a Protocol and of its parts: `files.read_file`."""
    found: set[str] = set()
    for kind in promise.__mro__:
        if kind in {Protocol, object} or not getattr(kind, "_is_protocol", False):
            continue
        for name, value in vars(kind).items():
            if name.startswith("_"):
                continue
            if isinstance(value, property):
                found |= operations(get_type_hints(value.fget)["return"], f"{before}{name}.")
            elif callable(value):
                found.add(before + name)
    return found


def test_every_operation_has_an_existing_route() -> None:
    rows = {found["name"]: (found["method"], found["path"]) for found in ROW.finditer(MANUAL.read_text())}
    assert set(rows) == operations(Api)
    assert set(rows.values()) <= {(route.method, route.path) for route in list_routes()}
