"""An agent inside a program: it works in a directory, and asks the program before it runs a command.

python examples/embed/agent.py DIRECTORY "what to do"
"""

import asyncio
import sys

import weft
from weft.model.event import PartGrew, PartUpdated
from weft.model.part import ToolPart
from weft.model.permission import PermissionRequest, Reply


def permit(request: PermissionRequest) -> Reply:
    print(f"\nallowed once: {request.permission} {', '.join(request.patterns)}")
    return "once"


async def main(directory: str, task: str) -> None:
    async with weft.open(directory, answered=True) as api:
        talk = await weft.converse(api, permit=permit)
        async for event in talk.prompt(task):
            match event:
                case PartUpdated(delta=str(words)):  # a part comes with its first words,
                    print(f"\n{words}", end="", flush=True)
                case PartGrew(delta=words):  # and grows by the next ones
                    print(words, end="", flush=True)
                case PartUpdated(part=ToolPart(tool=tool, state=state)):
                    print(f"\n[{tool}: {state.__struct_config__.tag}]")
        print(f"\n{len(talk.messages())} messages in {talk.id}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3]))
