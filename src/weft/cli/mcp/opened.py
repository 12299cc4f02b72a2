"""A directory opened for its MCP servers alone: nothing of its sessions is read or written."""

import argparse
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from weft.cli.offers import warn
from weft.local.api import Local
from weft.local.open import Opening, open_app


@asynccontextmanager
async def opened(chosen: argparse.Namespace) -> AsyncIterator[Local]:
    opening = Opening(directory=chosen.dir, env=os.environ, store="memory:", warn=warn)
    async with open_app(opening) as api:
        yield api
