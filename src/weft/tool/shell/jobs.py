"""List the commands that go on in the background, or stop one of them."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from weft.errors import NotFoundError, ToolError
from weft.model.plural import plural
from weft.model.wire import to_plain
from weft.tool.about import about
from weft.tool.contract import Tool, ToolContext, ToolResult
from weft.tool.job import Job


class JobsInput(Struct, frozen=True, kw_only=True):
    stop: Annotated[str | None, Meta(description="The id of a job to stop; leave it out to list them.")] = (
        None
    )


async def jobs(wanted: JobsInput, ctx: ToolContext) -> ToolResult:
    await ctx.ask("jobs", wanted.stop or "*", always=("*",))
    held = ctx.desk.jobs
    if wanted.stop is None:
        found = held.list(ctx.session_id)
        return _told(plural(len(found), "job"), found)
    try:
        return _told(f"Stop {wanted.stop}", [await held.stop(ctx.session_id, wanted.stop)])
    except NotFoundError as error:
        known = ", ".join(job.id for job in held.list(ctx.session_id)) or "none"
        raise ToolError(f"There is no job {wanted.stop!r} in this session; there are: {known}.") from error


def _told(title: str, found: list[Job]) -> ToolResult:
    metadata: dict[str, Any] = {"jobs": [to_plain(job) for job in found], "truncated": False}
    return ToolResult(title=title, output="\n".join(map(_line, found)) or "No jobs", metadata=metadata)


def _line(job: Job) -> str:
    if job.ended is None:
        state = "running"
    else:
        state = "stopped" if job.code is None else f"ended with exit code {job.code}"
    return f"{job.id}  {state}  {job.description}\n  command: {job.command}\n  output: {job.output}"


JOBS = Tool(name="jobs", about=about("jobs"), takes=JobsInput, run=jobs)
