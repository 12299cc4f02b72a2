"""The sessions that the commands of this package read."""

import os

from weft.local.reader import Reading


def read(directory: str, store: str | None) -> Reading:
    return Reading(directory, os.environ, store=store)
