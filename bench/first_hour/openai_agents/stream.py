import asyncio

from agents import Agent, Runner
from agents.testing import ScriptedModel, assistant_message
from openai.types.responses import ResponseTextDeltaEvent


async def main() -> None:
    agent = Agent(name="reader", model=ScriptedModel([[assistant_message("It weaves all day.")]]))
    result = Runner.run_streamed(agent, "What does this repository do?")
    async for event in result.stream_events():
        if event.type == "raw_response_event" and isinstance(event.data, ResponseTextDeltaEvent):
            print(event.data.delta, end="", flush=True)


asyncio.run(main())
