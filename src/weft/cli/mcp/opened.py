"""A directory opened for its MCP servers alone: nothing of its sessions is read or written."""

import argparse
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from weft.app.local import Local
from weft.app.open import Opening, open_app
from weft.cli.offers import warn


@asynccontextmanager
async def opened(chosen: argparse.Namespace) -> AsyncIterator[Local]:
    opening = Opening(directory=chosen.dir, env=os.environ, store="memory:", warn=warn)
    async with open_app(opening) as api:
        yield api
