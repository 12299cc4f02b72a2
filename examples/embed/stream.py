"""Follow an answer while it is written, with the tools at work.

python examples/embed/stream.py DIRECTORY "what to do"
"""

import asyncio
import sys

import weft


async def main(directory: str, task: str) -> None:
    async with weft.open(directory) as agent, agent.stream(task) as events:
        async for event in events:
            print(event.text, end="", flush=True)
            if isinstance(event, weft.CallEvent):
                print(f"\n[{event.call.tool}: {event.call.status}]")
            elif isinstance(event, weft.AnswerEvent):
                print(f"\n{len(event.answer.steps)} steps in {event.answer.session}")


asyncio.run(main(sys.argv[1], sys.argv[2]))
