"""A person's browser, if there is a screen to show it on."""

import shutil
import sys
from collections.abc import Mapping
from typing import Final

from weft.host.process import Command, capture

SECONDS: Final = 10.0


async def open_browser(url: str, env: Mapping[str, str]) -> bool:
    """Show a page, and say whether that worked. A browser in the terminal is not tried: it would take ours."""
    if not url.startswith(("https://", "http://")):
        return False
    program = _find_program(env)
    if program is None:
        return False
    command = Command(argv=(program, url), directory="/", environment=env, timeout=SECONDS)
    try:
        return (await capture(command, limit=4096)).code == 0
    except OSError:
        return False


def _find_program(env: Mapping[str, str]) -> str | None:
    if sys.platform == "darwin":
        return shutil.which("open", path=env.get("PATH"))
    has_screen = env.get("DISPLAY") or env.get("WAYLAND_DISPLAY")
    return shutil.which("xdg-open", path=env.get("PATH")) if has_screen else None
