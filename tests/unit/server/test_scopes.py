"""Which scope each route needs."""

import pytest

from weft.model.principal import Caller, Principal, TokenScope
from weft.server.routes.table import list_routes
from weft.server.scopes import ADMIN_ROUTES, READING_ROUTES, TAKING_ROUTES, find_needed_scope, refuse_scope

ROUTES = {route.name: route for route in list_routes()}


def test_every_route_that_is_named_exists() -> None:
    assert sorted((ADMIN_ROUTES | READING_ROUTES | TAKING_ROUTES) - ROUTES.keys()) == []


def test_a_route_that_changes_something_needs_more_than_reading() -> None:
    reading = {name for name, route in ROUTES.items() if find_needed_scope(route) == "read"}
    assert {name for name in reading if ROUTES[name].method != "GET"} == READING_ROUTES


@pytest.mark.parametrize("beginning", ["auth.", "pty.", "weft.token.", "mcp.auth.", "provider.oauth."])
def test_routes_beyond_a_principal_are_for_administrators(beginning: str) -> None:
    scopes = {find_needed_scope(route) for name, route in ROUTES.items() if name.startswith(beginning)}
    assert scopes == {"admin"}


@pytest.mark.parametrize(
    ("scope", "name", "refused"),
    [
        ("read", "session.list", False),
        ("read", "session.prompt", True),
        ("read", "tui.control.next", True),
        ("run", "session.prompt", False),
        ("run", "session.shell", True),
        ("admin", "session.shell", False),
    ],
)
def test_a_token_is_refused_what_its_scope_does_not_include(
    scope: TokenScope, name: str, *, refused: bool
) -> None:
    caller = Caller(principal=Principal(name="ada"), scope=scope)
    error = refuse_scope(ROUTES[name], caller)
    assert (error is not None) == refused
    assert error is None or error.status == 403
