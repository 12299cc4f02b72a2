"""Change over between planning and building, if the person agrees."""

from os.path import relpath

from msgspec import Struct

from weft.errors import DismissedError, NobodyError, ToolError
from weft.model.permission import CallRef, Option, Question
from weft.tool.contract import Tool, ToolContext, ToolResult
from weft.tool.description import about

YES, NO = "Yes", "No"


class PlanEnterInput(Struct, frozen=True, kw_only=True):
    pass


class PlanExitInput(Struct, frozen=True, kw_only=True):
    pass


async def plan_enter(wanted: PlanEnterInput, ctx: ToolContext) -> ToolResult:
    del wanted
    path = await _plan(ctx)
    wish = Question(
        question=f"Shall I plan this first, without changing anything, and write the plan to {path}?",
        header="Plan Mode",
        options=(
            Option(label=YES, description="Change to the plan agent, and plan"),
            Option(label=NO, description="Stay with the build agent, and go on"),
        ),
        custom=False,
    )
    await _agreed(wish, ctx)
    await ctx.desk.handover.hand_to(
        "plan", "User has requested to enter plan mode. Switch to plan mode and begin planning."
    )
    return ToolResult(
        title="Switching to plan agent",
        output=f"The user agrees. The plan agent goes on; the plan is {path}.",
    )


async def plan_exit(wanted: PlanExitInput, ctx: ToolContext) -> ToolResult:
    del wanted
    path = await _plan(ctx)
    wish = Question(
        question=f"The plan stands in {path}. Shall I carry it out now?",
        header="Build Agent",
        options=(
            Option(label=YES, description="Change to the build agent, and carry the plan out"),
            Option(label=NO, description="Stay with the plan agent, and refine the plan"),
        ),
        custom=False,
    )
    await _agreed(wish, ctx)
    await ctx.desk.handover.hand_to(
        "build", f"The plan at {path} has been approved, you can now edit files. Execute the plan"
    )
    return ToolResult(
        title="Switching to build agent", output="The user approves of the plan. The build agent goes on."
    )


async def _plan(ctx: ToolContext) -> str:
    return _short(await ctx.desk.handover.find_plan(), ctx.worktree)


def _short(path: str, worktree: str) -> str:
    return relpath(path, worktree)


async def _agreed(wish: Question, ctx: ToolContext) -> None:
    """Returns if the person says yes. A no ends the run: it is for them to say what next."""
    call = CallRef(message_id=ctx.message_id, call_id=ctx.call_id)
    try:
        [answer] = await ctx.desk.inquire((wish,), agent=ctx.agent, call=call)
    except NobodyError as error:
        raise ToolError("Nobody is there to agree to the change. Go on as the agent you are.") from error
    if answer != (YES,):
        raise DismissedError


PLAN_ENTER = Tool(
    name="plan_enter", about=about("plan_enter"), takes=PlanEnterInput, run=plan_enter, announces=True
)
PLAN_EXIT = Tool(
    name="plan_exit", about=about("plan_exit"), takes=PlanExitInput, run=plan_exit, announces=True
)
