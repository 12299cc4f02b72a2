from dataclasses import dataclass

from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel


@dataclass
class Review:
    verdict: str
    remarks: list[str]


model = TestModel(custom_output_args={"verdict": "wait", "remarks": ["There is no test."]})
agent = Agent(model, output_type=Review)
review = agent.run_sync("Review the last commit.").output
print(review.verdict, review.remarks)
