"""weft's own HTTP routes for grants, commands, tools, damage and readiness."""

from typing import Annotated

from msgspec import Meta, Struct

from weft.errors import WeftError
from weft.model.agent import Command
from weft.model.damage import Damage
from weft.model.ids import GrantID, PermissionID
from weft.model.permission import DEFAULT_GRANT_TERMS, Grant, GrantTerms, PermissionDecision, Reply
from weft.model.wire import Wire, always
from weft.model.workspace import ToolInfo
from weft.server.route import DirectoryCall, RouteResult, ServerCall, route
from weft.server.routes.permissions import MAX_MESSAGE_LENGTH, choose_owner

MAX_DECISIONS = 10_000


class GrantReplyInput(Wire, frozen=True, kw_only=True):
    """An answer; `grant` says how far an `always` reaches, and for how long."""

    reply: Reply
    message: Annotated[str, Meta(max_length=MAX_MESSAGE_LENGTH)] = ""
    grant: GrantTerms = DEFAULT_GRANT_TERMS


async def reply_permission(call: DirectoryCall) -> bool:
    """Answer a permission request: allow once, on given terms, or reject."""
    answer: GrantReplyInput = call.body
    id = PermissionID(call.path_params["requestID"])
    api = await choose_owner(call, lambda api: api.list_permissions(), id)
    await api.reply_permission(id, answer.reply, message=answer.message, grant=answer.grant)
    return True


async def list_grants(call: DirectoryCall) -> list[Grant]:
    """List the grants in force."""
    return await call.api.list_grants()


async def revoke_grant(call: DirectoryCall) -> bool:
    """Revoke a grant."""
    await call.api.revoke_grant(GrantID(call.path_params["grantID"]))
    return True


class DecisionsQuery(Struct, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=MAX_DECISIONS)] = 100


async def list_decisions(call: DirectoryCall) -> list[PermissionDecision]:
    """List the last decisions about permissions, newest first."""
    query: DecisionsQuery = call.query
    return await call.api.list_decisions(limit=query.limit)


async def get_command(call: DirectoryCall) -> Command:
    """Return a command."""
    return await call.api.get_command(call.path_params["name"])


async def list_tools(call: DirectoryCall) -> list[ToolInfo]:
    """List the tools as models see them."""
    return await call.api.workspace.list_tools()


async def list_damage(call: DirectoryCall) -> list[Damage]:
    """List stored documents that cannot be read, with the reason. This reads every document."""
    return await call.api.workspace.list_damage()


WORKSPACE_ROUTES = (
    route("GET", "/weft/damage", "weft.damage", list_damage, gives=list[Damage]),
    route(
        "POST",
        "/weft/permission/{requestID}/reply",
        "weft.permission.reply",
        reply_permission,
        takes=GrantReplyInput,
    ),
    route("GET", "/weft/decision", "weft.decision.list", list_decisions, query=DecisionsQuery),
    route("GET", "/weft/grant", "weft.grant.list", list_grants),
    route("DELETE", "/weft/grant/{grantID}", "weft.grant.revoke", revoke_grant),
    route("GET", "/weft/command/{name}", "weft.command.get", get_command),
    route("GET", "/weft/tool", "weft.tool.list", list_tools),
)


NOT_READY = 503


class Ready(Wire, frozen=True, kw_only=True):
    """Whether the server accepts work, and the reasons if it does not."""

    ready: bool
    reasons: tuple[str, ...] = always(())


async def get_ready(call: ServerCall) -> RouteResult:
    """Return whether the server accepts work: its store is writable and it is not shutting down."""
    reasons: list[str] = []
    if call.server.shutting_down:
        reasons.append("the server is ending")
    else:
        try:
            if call.server.cluster is not None:
                await call.server.cluster.check()
            await (await call.server.get_api(call.server.default_directory)).workspace.check_store()
        except WeftError as error:
            reasons.append(f"{type(error).__name__}: nothing can be stored")
            call.server.note(f"not ready: {type(error).__name__}: {error}")
    return RouteResult(
        value=Ready(ready=not reasons, reasons=tuple(reasons)), status=NOT_READY if reasons else 200
    )


async def get_metrics(call: ServerCall) -> str:
    """Return metrics in the text format of Prometheus."""
    raise NotImplementedError(call.path)


HEALTH_ROUTES = (
    route("GET", "/weft/ready", "weft.ready", get_ready, gives=Ready),
    route("GET", "/weft/metrics", "weft.metrics", get_metrics, media="text/plain"),
)
