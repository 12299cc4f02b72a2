import asyncio

from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query
from fake_cli import FakeCli, end
from pydantic import BaseModel


class Review(BaseModel):
    verdict: str
    remarks: list[str]


async def main() -> None:
    schema = {"type": "json_schema", "schema": Review.model_json_schema()}
    options = ClaudeAgentOptions(output_format=schema)
    fake = FakeCli(end("", {"verdict": "wait", "remarks": ["There is no test."]}))
    async for message in query(prompt="Review the last commit.", options=options, transport=fake):
        if isinstance(message, ResultMessage):
            review = Review.model_validate(message.structured_output)
            print(review.verdict, review.remarks)


asyncio.run(main())
