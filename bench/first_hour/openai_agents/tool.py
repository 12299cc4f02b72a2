from agents import Agent, Runner, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call


@function_tool
def in_stock(item: str) -> int:
    """Say how many of an article there are."""
    return {"tea": 12}[item]


script = [
    [function_call("in_stock", {"item": "tea"}, call_id="1")],
    [assistant_message("There are 12 packs.")],
]
agent = Agent(name="shop", model=ScriptedModel(script), tools=[in_stock])
print(Runner.run_sync(agent, "How much tea is there?").final_output)
