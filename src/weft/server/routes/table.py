"""Every route there is. What gives access to a shell or to files, or shows sessions to others, can be left out."""

from typing import Final

from weft.server.route import Route
from weft.server.routes import (
    configuration,
    experimental,
    files,
    instance,
    legacy,
    mcp,
    messages,
    opencode_1_18,
    permissions,
    pty,
    sessions,
    sharing,
    tui,
    weft_runs,
    weft_sessions,
    weft_workspace,
    workspace,
    worktrees,
)
from weft.server.routes import weft_sessions as own_sessions

ALWAYS: Final = (
    *instance.ROUTES,
    *configuration.ROUTES,
    *workspace.PROJECT_ROUTES,
    *workspace.OUTFIT_ROUTES,
    *mcp.ROUTES,
    *sessions.ROUTES,
    *messages.ROUTES,
    *messages.COMMAND_ROUTES,
    *messages.UNDO_ROUTES,
    *permissions.ROUTES,
    *tui.ROUTES,
    *experimental.ROUTES,
    *worktrees.ROUTES,
    *legacy.ROUTES,
    *opencode_1_18.ROUTES,
    *own_sessions.SESSIONS_ROUTES,
    *weft_runs.ROUTES,
    *weft_sessions.FINDING_ROUTES,
    *weft_workspace.AROUND_ROUTES,
    *weft_workspace.CARE_ROUTES,
    *sharing.ROUTES,
)
SHELL: Final = (
    *messages.SHELL_ROUTES,
    *configuration.SHELL_ROUTES,
    *mcp.SHELL_ROUTES,
    *pty.ROUTES,
    *worktrees.CREATING,
)
FILES: Final = (*files.ROUTES, *opencode_1_18.FILE_ROUTES)


def list_routes(*, shell: bool = True, files: bool = True, share: bool = True) -> tuple[Route, ...]:
    return (
        *ALWAYS,
        *(SHELL if shell else worktrees.CREATING_BARE),
        *(FILES if files else ()),
        *(sharing.SHARE_ROUTES if share else ()),
    )
