from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

agent = Agent(TestModel(custom_output_text="It weaves."))
print(agent.run_sync("What does this repository do?").output)
