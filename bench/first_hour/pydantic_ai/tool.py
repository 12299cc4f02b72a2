from pydantic_ai import Agent, ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel


def in_stock(item: str) -> int:
    """Say how many of an article there are."""
    return {"tea": 12}[item]


def script(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    if len(messages) == 1:
        return ModelResponse(parts=[ToolCallPart("in_stock", {"item": "tea"})])
    return ModelResponse(parts=[TextPart("There are 12 packs.")])


agent = Agent(FunctionModel(script), tools=[in_stock])
print(agent.run_sync("How much tea is there?").output)
