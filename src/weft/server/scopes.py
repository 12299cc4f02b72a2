"""Which scope of a token each route needs (pure)."""

from typing import Final

from weft.model.principal import Caller, TokenScope, includes
from weft.server.response import ErrorResponse
from weft.server.route import HttpOperation

# Routes that reach beyond the directories and sessions of a principal: settings and keys of the whole server, programs outside the
# sandbox, checkouts elsewhere on the disk, sessions of other servers with their ids, logins to the page, and the tokens themselves.
ADMIN_ROUTES: Final = frozenset(
    {
        "auth.remove",
        "auth.set",
        "config.update",
        "global.config.get",
        "global.config.update",
        "mcp.add",
        "mcp.auth.authenticate",
        "mcp.auth.callback",
        "mcp.auth.remove",
        "mcp.auth.start",
        "provider.oauth.authorize",
        "provider.oauth.callback",
        "pty.connect",
        "pty.connectToken",
        "pty.create",
        "pty.get",
        "pty.list",
        "pty.remove",
        "pty.update",
        "session.shell",
        "weft.adopt",
        "weft.adopt.undo",
        "weft.compare",
        "weft.damage",
        "weft.doctor",
        "weft.login.link",
        "weft.metrics",
        "weft.move.accept",
        "weft.move.cancel",
        "weft.move.offer",
        "weft.move.piece",
        "weft.principal.update",
        "weft.session.bisect",
        "weft.session.discard",
        "weft.session.replay",
        "weft.storage",
        "weft.token.create",
        "weft.token.list",
        "weft.token.revoke",
        "weft.trust.get",
        "weft.trust.give",
        "weft.trust.revoke",
        "weft.try",
        "worktree.create",
        "worktree.remove",
        "worktree.reset",
    }
)
# Routes with POST that change nothing.
READING_ROUTES: Final = frozenset({"weft.prompt.check", "weft.share.preview", "weft.sql"})
# Routes with GET that take something away from whoever works in the directory.
TAKING_ROUTES: Final = frozenset({"tui.control.next"})


def find_needed_scope(route: HttpOperation) -> TokenScope:
    """Return the scope that a route needs."""
    if route.name in ADMIN_ROUTES:
        return "admin"
    if route.name in TAKING_ROUTES:
        return "run"
    return "read" if route.method == "GET" or route.name in READING_ROUTES else "run"


def refuse_scope(route: HttpOperation, caller: Caller) -> ErrorResponse | None:
    """Return the error for a caller whose token may not use a route, None for one that may."""
    needed = find_needed_scope(route)
    if includes(caller.scope, needed):
        return None
    return ErrorResponse(
        status=403,
        name="ForbiddenError",
        message=f"this needs a token with the scope {needed}, and yours has {caller.scope}",
    )
