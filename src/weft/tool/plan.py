"""The `plan_enter` and `plan_exit` tools: switch between planning and building, if the person agrees."""

from os.path import relpath

from weft.errors import DismissedError, NobodyError, ToolError
from weft.model.permission import CallRef, Option, Question
from weft.tool.contract import ToolContext, ToolResult, read_text
from weft.tool.inputs import PlanEnterInput, PlanExitInput

YES, NO = "Yes", "No"


async def plan_enter(arguments: PlanEnterInput, ctx: ToolContext) -> ToolResult:
    del arguments
    path = await _get_plan_path(ctx)
    question = Question(
        question=f"Shall I plan this first, without changing anything, and write the plan to {path}?",
        header="Plan Mode",
        options=(
            Option(label=YES, description="Switch to the plan agent and plan"),
            Option(label=NO, description="Stay with the build agent and continue"),
        ),
        custom=False,
    )
    await _ask_consent(question, ctx)
    await ctx.resources.handover.hand_over("plan", read_text("plan_wanted"))
    return ToolResult(
        title="Switching to plan agent",
        output=f"The user agrees. The plan agent continues; the plan is in {path}.",
    )


async def plan_exit(arguments: PlanExitInput, ctx: ToolContext) -> ToolResult:
    del arguments
    path = await _get_plan_path(ctx)
    question = Question(
        question=f"The plan is in {path}. Shall I carry it out now?",
        header="Build Agent",
        options=(
            Option(label=YES, description="Switch to the build agent and carry out the plan"),
            Option(label=NO, description="Stay with the plan agent and refine the plan"),
        ),
        custom=False,
    )
    await _ask_consent(question, ctx)
    await ctx.resources.handover.hand_over("build", read_text("plan_approved").replace("{path}", path))
    return ToolResult(
        title="Switching to build agent", output="The user approves of the plan. The build agent continues."
    )


async def _get_plan_path(ctx: ToolContext) -> str:
    """Return the path of the plan, relative to the worktree."""
    return relpath(await ctx.resources.handover.get_plan(), ctx.worktree)  # noqa: ASYNC240  it reads no disk


async def _ask_consent(question: Question, ctx: ToolContext) -> None:
    """Return if the person agrees.

    Raise `DismissedError` if they do not. This ends the run, and they decide what happens next.
    """
    call = CallRef(message_id=ctx.message_id, call_id=ctx.call_id)
    try:
        [answer] = await ctx.resources.ask_questions((question,), agent=ctx.agent, call=call)
    except NobodyError as error:
        raise ToolError("Nobody is there to agree to the change. Continue as the current agent.") from error
    if answer != (YES,):
        raise DismissedError
