"""Copies of an index: git never writes into the file but replaces it, so that a second name is a copy for nothing."""

import os
import shutil
from contextlib import suppress

from weft.host.files import Disk


def take_copy(source: str, target: str) -> None:
    """Give a file a second name that nobody has yet. Missing is fine: then there is nothing to copy."""
    with suppress(FileNotFoundError):
        try:
            os.link(source, target)
        except FileNotFoundError:
            raise
        except OSError:  # a file system without second names
            shutil.copy2(source, target)


def publish(source: str, target: str) -> None:
    """Put a copy in the place of another file, at once."""
    temp = f"{target}.{os.path.basename(os.path.dirname(source))}~"
    Disk().remove(temp)
    take_copy(source, temp)
    with suppress(FileNotFoundError):
        os.replace(temp, target)
