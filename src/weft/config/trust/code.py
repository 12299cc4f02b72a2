"""Code that a project brings along for weft to run, apart from what its settings name."""

import os
from collections.abc import Iterable, Iterator

from weft.config.sources import Directory, Source
from weft.config.trust.held import Held

FOLDERS = ("tool", "tools")
# OpenCode runs the last two. The first is ours.
ENDINGS = (".py", ".ts", ".js")


def list_tools(directory: str) -> list[str]:
    """The files of custom tools in a configuration directory, in the order of their names."""
    found: list[str] = []
    for folder in FOLDERS:
        top = os.path.join(directory, folder)
        try:
            names = sorted(os.listdir(top))
        except OSError:
            continue
        found += [os.path.join(top, name) for name in names if name.endswith(ENDINGS)]
    return found


def hold_tools(sources: Iterable[Source]) -> Iterator[Held]:
    """The custom tools of a project, none of which is run."""
    for source in sources:
        if isinstance(source, Directory) and not source.origin.own:
            for path in list_tools(source.origin.path):
                name = os.path.splitext(os.path.basename(path))[0]
                yield Held(kind="tool", name=name, path=path, does="runs its code")
