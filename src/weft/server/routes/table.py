"""Every route there is. What gives access to a shell or to files, or shows sessions to others, can be left out."""

from typing import Final

from weft.server.route import Route
from weft.server.routes import (
    asking,
    commands,
    configuration,
    experimental,
    files,
    instance,
    legacy,
    mcp,
    messages,
    newer,
    outfit,
    project,
    pty,
    sessions,
    shared,
    tui,
    undo,
    worktrees,
)
from weft.server.routes.own import around, care, finding, motion
from weft.server.routes.own import sessions as own_sessions

ALWAYS: Final = (
    *instance.ROUTES,
    *configuration.ROUTES,
    *project.ROUTES,
    *outfit.ROUTES,
    *mcp.ROUTES,
    *sessions.ROUTES,
    *messages.ROUTES,
    *commands.ROUTES,
    *undo.ROUTES,
    *asking.ROUTES,
    *tui.ROUTES,
    *experimental.ROUTES,
    *worktrees.ROUTES,
    *legacy.ROUTES,
    *newer.ROUTES,
    *own_sessions.ROUTES,
    *motion.ROUTES,
    *finding.ROUTES,
    *around.ROUTES,
    *care.ROUTES,
    *shared.ROUTES,
)
SHELL: Final = (
    *commands.SHELL_ROUTES,
    *configuration.SHELL_ROUTES,
    *mcp.SHELL_ROUTES,
    *pty.ROUTES,
    *worktrees.CREATING,
)
FILES: Final = (*files.ROUTES, *newer.FILE_ROUTES)


def list_routes(*, shell: bool = True, files: bool = True, share: bool = True) -> tuple[Route, ...]:
    return (
        *ALWAYS,
        *(SHELL if shell else worktrees.CREATING_BARE),
        *(FILES if files else ()),
        *(shared.SHARE_ROUTES if share else ()),
    )
