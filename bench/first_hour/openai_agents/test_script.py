from agents import Agent, Runner, ToolCallOutputItem, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call


@function_tool
def in_stock(item: str) -> int:
    """Say how many of an article there are."""
    return {"tea": 12}[item]


def test_it_looks_up_the_stock() -> None:
    model = ScriptedModel(
        [[function_call("in_stock", {"item": "tea"}, call_id="1")], [assistant_message("12 packs.")]]
    )
    result = Runner.run_sync(Agent(name="shop", model=model, tools=[in_stock]), "How much tea?")
    assert result.final_output == "12 packs."
    assert [item.output for item in result.new_items if isinstance(item, ToolCallOutputItem)] == [12]
    assert model.first_call is not None
    assert model.first_call.input == [{"content": "How much tea?", "role": "user"}]
    model.assert_complete()
