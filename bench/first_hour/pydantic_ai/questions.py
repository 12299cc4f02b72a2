import asyncio
import sys
import time

from pydantic_ai import Agent, ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel


def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    return ModelResponse(parts=[TextPart("It weaves.")])


async def main(count: int) -> None:
    agent = Agent(FunctionModel(answer))
    await agent.run("What does this repository do?")
    began = time.process_time()
    for _ in range(count):
        assert (await agent.run("What does this repository do?")).output == "It weaves."
    print((time.process_time() - began) / count)


asyncio.run(main(int(sys.argv[1])))
