from agents import Agent, Runner
from agents.testing import ScriptedModel, assistant_message
from pydantic import BaseModel


class Review(BaseModel):
    verdict: str
    remarks: list[str]


model = ScriptedModel([[assistant_message('{"verdict": "wait", "remarks": ["There is no test."]}')]])
agent = Agent(name="reviewer", model=model, output_type=Review)
review = Runner.run_sync(agent, "Review the last commit.").final_output_as(Review)
print(review.verdict, review.remarks)
