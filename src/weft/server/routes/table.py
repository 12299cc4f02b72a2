"""Every route there is. What gives access to a shell or to files can be left out."""

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
    messages,
    newer,
    outfit,
    project,
    pty,
    sessions,
    tui,
    undo,
)

ALWAYS: Final = (
    *instance.ROUTES,
    *configuration.ROUTES,
    *project.ROUTES,
    *outfit.ROUTES,
    *sessions.ROUTES,
    *messages.ROUTES,
    *commands.ROUTES,
    *undo.ROUTES,
    *asking.ROUTES,
    *tui.ROUTES,
    *experimental.ROUTES,
    *legacy.ROUTES,
    *newer.ROUTES,
)
SHELL: Final = (*commands.SHELL_ROUTES, *pty.ROUTES)
FILES: Final = (*files.ROUTES, *newer.FILE_ROUTES)


def list_routes(*, shell: bool = True, files: bool = True) -> tuple[Route, ...]:
    return (*ALWAYS, *(SHELL if shell else ()), *(FILES if files else ()))
