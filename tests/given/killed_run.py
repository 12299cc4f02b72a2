"""A run for a test to kill: `python killed_run.py DIRECTORY SESSION|- SCRIPT` prints what happens, one event a line."""

import asyncio
import os
import sys

from weft.host.clock import SystemClock
from weft.local.open import OpenOptions, open_directory
from weft.model.event import PartGrew, PartUpdated, SessionIdled
from weft.model.ids import SessionID
from weft.model.input import SessionInput, prompt
from weft.model.part import RunningState, ToolPart
from weft.provider.catalog.offers import SCRIPTED_PROVIDER
from weft.provider.demo import serve_script


async def main(directory: str, named: str, script: str) -> None:
    served = serve_script("doomed", script.encode(), SystemClock(), where="script", pace=0.005)
    env = {**os.environ, "OPENCODE_CONFIG_CONTENT": f'{{"model": "{SCRIPTED_PROVIDER}/doomed"}}'}
    async with open_directory(OpenOptions(directory=directory, env=env, models=(served,))) as api:
        session = SessionID(named) if named != "-" else (await api.create_session(SessionInput())).id
        print("session", session, flush=True)
        listening = api.events()
        asking = asyncio.ensure_future(api.prompt(session, prompt("go")))
        async for published in listening:
            match published.event:
                case PartGrew(delta=delta):
                    print("grew", len(delta), flush=True)
                case PartUpdated(part=ToolPart(tool=tool, state=RunningState())):
                    print("running", tool, flush=True)
                case SessionIdled(session_id=rested) if rested == session:
                    break
                case _:
                    pass
        print("answered", (await asking).info.id, flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
