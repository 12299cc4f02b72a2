from pydantic_ai import Agent, ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel


def in_stock(item: str) -> int:
    """Say how many of an article there are."""
    return {"tea": 12}[item]


def script(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    if len(messages) == 1:
        return ModelResponse(parts=[ToolCallPart("in_stock", {"item": "tea"})])
    return ModelResponse(parts=[TextPart("12 packs.")])


def test_it_looks_up_the_stock() -> None:
    result = Agent(FunctionModel(script), tools=[in_stock]).run_sync("How much tea?")
    assert result.output == "12 packs."
    parts = [part for message in result.all_messages() for part in message.parts]
    calls = [part.args for part in parts if isinstance(part, ToolCallPart)]
    assert calls == [{"item": "tea"}]
    assert [part.content for part in parts if isinstance(part, ToolReturnPart)] == [12]
