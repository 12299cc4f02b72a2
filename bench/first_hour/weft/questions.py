import asyncio
import sys
import tempfile
import time

import weft
from weft.testing import FunctionModel


async def main(count: int) -> None:
    model = FunctionModel(lambda _: "It weaves.")
    with tempfile.TemporaryDirectory() as directory:
        async with weft.open(directory, model=model, store="memory:") as agent:
            await agent.ask("What does this repository do?")
            began = time.process_time()
            for _ in range(count):
                assert (await agent.ask("What does this repository do?")).text == "It weaves."
            print((time.process_time() - began) / count)


asyncio.run(main(int(sys.argv[1])))
