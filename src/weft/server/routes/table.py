"""The table of all routes. Routes that give access to a shell or to files, or that share sessions, can be left out."""

from typing import Final

from weft.server.route import HttpOperation
from weft.server.routes import (
    compatibility,
    configuration,
    data,
    files,
    instance,
    mcp,
    opencode_1_18,
    permissions,
    pty,
    runs,
    sessions,
    sharing,
    tokens,
    trials,
    tui,
    views,
    weft_runs,
    weft_sessions,
    workspace,
    worktrees,
)

BASE_ROUTES: Final = (
    *instance.ROUTES,
    *configuration.ROUTES,
    *workspace.PROJECT_ROUTES,
    *workspace.TOOLING_ROUTES,
    *mcp.ROUTES,
    *sessions.ROUTES,
    *runs.ROUTES,
    *runs.COMMAND_ROUTES,
    *runs.UNDO_ROUTES,
    *permissions.ROUTES,
    *tui.ROUTES,
    *compatibility.EXPERIMENTAL_ROUTES,
    *worktrees.ROUTES,
    *compatibility.LEGACY_ROUTES,
    *opencode_1_18.ROUTES,
    *weft_sessions.SESSIONS_ROUTES,
    *weft_runs.ROUTES,
    *weft_sessions.SEARCH_ROUTES,
    *data.ROUTES,
    *permissions.WEFT_ROUTES,
    *workspace.WEFT_ROUTES,
    *instance.HEALTH_ROUTES,
    *views.ROUTES,
    *sharing.ROUTES,
    *tokens.ROUTES,
    *trials.ROUTES,
)
SHELL_ROUTES: Final = (
    *runs.SHELL_ROUTES,
    *configuration.SHELL_ROUTES,
    *mcp.SHELL_ROUTES,
    *workspace.SHELL_ROUTES,
    *pty.ROUTES,
    *worktrees.CREATE_ROUTES,
    *trials.SHELL_ROUTES,
)
FILE_ROUTES: Final = (
    *files.ROUTES,
    *opencode_1_18.FILE_ROUTES,
    *data.FILE_ROUTES,
    *weft_sessions.MOVE_ROUTES,
)


def list_routes(*, shell: bool = True, files: bool = True, share: bool = True) -> tuple[HttpOperation, ...]:
    """Return the operations of a server. Without `shell`, `files` or `share`, leave out those that give access to them.

    Without `shell`, routes that need one only for some requests are served by functions that refuse such requests.
    """
    return (
        *BASE_ROUTES,
        *(SHELL_ROUTES if shell else (*worktrees.NO_SHELL_ROUTES, *trials.NO_SHELL_ROUTES)),
        *(FILE_ROUTES if files else ()),
        *(sharing.SHARE_ROUTES if share else ()),
    )
