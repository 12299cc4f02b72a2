"""The `question` tool: ask the person something, with answers to choose from."""

from weft.errors import NobodyError
from weft.model.permission import CallRef, Option, Question
from weft.tool.contract import ToolContext, ToolResult
from weft.tool.inputs import QuestionInput, QuestionItem

UNATTENDED_OUTPUT = (
    "Nobody is there to answer: this run is unattended. Decide by yourself: choose what the user most likely wants and what can be undone, "
    "say in your answer what you decided and why, and do not ask again."
)


async def question(arguments: QuestionInput, ctx: ToolContext) -> ToolResult:
    questions = tuple(_to_question(item) for item in arguments.questions)
    title = f"Asked {len(questions)} question{'s' * (len(questions) != 1)}"
    call = CallRef(message_id=ctx.message_id, call_id=ctx.call_id)
    try:
        answers = await ctx.resources.ask_questions(questions, agent=ctx.agent, call=call)
    except NobodyError:
        # OpenCode waits forever if a run has no terminal and nobody can answer.
        return ToolResult(title=title, output=UNATTENDED_OUTPUT, metadata={"answers": []})
    pairs = ", ".join(
        f'"{item.question}"="{", ".join(answer) or "Unanswered"}"'
        for item, answer in zip(questions, answers, strict=True)
    )
    output = (
        f"User has answered your questions: {pairs}. You can now continue with the user's answers in mind."
    )
    return ToolResult(title=title, output=output, metadata={"answers": [list(answer) for answer in answers]})


def _to_question(item: QuestionItem) -> Question:
    options = tuple(Option(label=each.label, description=each.description) for each in item.options)
    return Question(question=item.question, header=item.header, options=options, multiple=item.multiple)
