"""Models of OpenAI and Google, and requests to them, for tests of their adapters."""

from typing import Any

from weft.model.catalog import Capabilities, Limit, Modalities, Model, ModelApi
from weft.provider.contract import (
    ModelMessage,
    ModelRequest,
    Parameters,
    TextContent,
    ToolSpec,
    UserModelMessage,
)

ALL_MEDIA = Modalities(image=True, pdf=True, audio=True, video=True)
READ = ToolSpec(
    name="read",
    about="Read a file.",
    schema={
        "type": "object",
        "properties": {"path": {"type": "string", "description": "Where."}, "limit": {"type": "integer"}},
        "required": ["path"],
        "additionalProperties": False,
    },
)


def model(id: str, provider: str, *, reasoning: bool = False, sees: Modalities = ALL_MEDIA) -> Model:
    return Model(
        id=id,
        provider_id=provider,
        name=id,
        api=ModelApi(id=id, npm=f"@ai-sdk/{provider}"),
        capabilities=Capabilities(reasoning=reasoning, attachment=True, input=sees),
        limit=Limit(context=200_000, output=32_000),
    )


GPT_5 = model("gpt-5", "openai", reasoning=True)
GPT_4O = model("gpt-4o", "openai")
GEMINI_2 = model("gemini-2.5-flash", "google", reasoning=True)
GEMINI_3 = model("gemini-3-pro-preview", "google", reasoning=True)


def request(model: Model, *messages: ModelMessage, **more: Any) -> ModelRequest:
    """Make a request. Without messages it says hello. `options` and the like go to the parameters."""
    names = Parameters.__struct_fields__
    parameters = Parameters(**{name: value for name, value in more.items() if name in names})
    rest = {name: value for name, value in more.items() if name not in names}
    said = messages or (UserModelMessage(content=(TextContent(text="hello"),)),)
    made: dict[str, Any] = {"system": ("Be brief.",), "parameters": parameters} | rest
    return ModelRequest(model=model, messages=said, **made)
