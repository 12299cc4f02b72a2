import asyncio
import sys
import time

from agents import Agent, Runner
from agents.testing import ScriptedModel, assistant_message


async def main(count: int) -> None:
    model = ScriptedModel([[assistant_message("It weaves.")]] * (count + 1))
    agent = Agent(name="reader", model=model)
    await Runner.run(agent, "What does this repository do?")
    began = time.process_time()
    for _ in range(count):
        result = await Runner.run(agent, "What does this repository do?")
        assert result.final_output == "It weaves."
    print((time.process_time() - began) / count)


asyncio.run(main(int(sys.argv[1])))
