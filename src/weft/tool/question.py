"""The `question` tool: ask the person something, with answers to choose from."""

from weft.errors import NobodyError
from weft.model.permission import CallRef, Option, Question
from weft.tool.contract import ToolContext, ToolResult
from weft.tool.inputs import QuestionInput, QuestionItem

UNATTENDED = (
    "Nobody is there to answer: this run is unattended. Decide by yourself what is most likely wanted and can be undone, "
    "say in your answer what you decided and why, and do not ask again."
)


async def question(wanted: QuestionInput, ctx: ToolContext) -> ToolResult:
    asked = tuple(_to_question(item) for item in wanted.questions)
    title = f"Asked {len(asked)} question{'s' * (len(asked) != 1)}"
    call = CallRef(message_id=ctx.message_id, call_id=ctx.call_id)
    try:
        answers = await ctx.resources.inquire(asked, agent=ctx.agent, call=call)
    except NobodyError:
        # OpenCode waits forever if a run has no terminal and nobody can answer.
        return ToolResult(title=title, output=UNATTENDED, metadata={"answers": []})
    said = ", ".join(
        f'"{each.question}"="{", ".join(given) or "Unanswered"}"'
        for each, given in zip(asked, answers, strict=True)
    )
    output = (
        f"User has answered your questions: {said}. You can now continue with the user's answers in mind."
    )
    return ToolResult(title=title, output=output, metadata={"answers": [list(given) for given in answers]})


def _to_question(item: QuestionItem) -> Question:
    options = tuple(Option(label=each.label, description=each.description) for each in item.options)
    return Question(question=item.question, header=item.header, options=options, multiple=item.multiple)
