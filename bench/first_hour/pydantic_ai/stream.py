import asyncio

from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel


async def main() -> None:
    agent = Agent(TestModel(custom_output_text="It weaves all day."))
    async with agent.run_stream("What does this repository do?") as result:
        async for text in result.stream_text(delta=True, debounce_by=None):
            print(text, end="", flush=True)


asyncio.run(main())
