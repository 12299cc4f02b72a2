from agents import Agent, Runner
from agents.testing import ScriptedModel, assistant_message

agent = Agent(name="reader", model=ScriptedModel([[assistant_message("It weaves.")]]))
print(Runner.run_sync(agent, "What does this repository do?").final_output)
