"""HTTP of our own for grants, shares, commands, tools, readiness and metrics."""

from typing import Annotated

from msgspec import Meta

from weft.errors import WeftError
from weft.model.agent import Command
from weft.model.damage import Damage
from weft.model.ids import GrantID, PermissionID
from weft.model.permission import USUAL_TERMS, Grant, GrantTerms, Reply
from weft.model.wire import Wire, always
from weft.model.workspace import ToolInfo
from weft.server.route import Answer, Call, Wide, route
from weft.server.routes.permissions import LONGEST, find_asker


class ReplyInput(Wire, frozen=True, kw_only=True):
    """An answer; `grant` says how far an `always` reaches, and for how long."""

    reply: Reply
    message: Annotated[str, Meta(max_length=LONGEST)] = ""
    grant: GrantTerms = USUAL_TERMS


async def reply_permission(call: Call) -> bool:
    """Allow it, once or on terms, or not."""
    answer: ReplyInput = call.body
    id = PermissionID(call.names["requestID"])
    api = await find_asker(call, lambda api: api.list_permissions(), id)
    await api.reply_permission(id, answer.reply, message=answer.message, grant=answer.grant)
    return True


async def list_grants(call: Call) -> list[Grant]:
    """What agents were allowed for more than once."""
    return await call.api.list_grants()


async def revoke_grant(call: Call) -> bool:
    """Take back what was allowed."""
    await call.api.revoke_grant(GrantID(call.names["grantID"]))
    return True


async def catch_up_shares(call: Call) -> bool:
    """Bring what is shown elsewhere up to date, as far as its server lets us."""
    await call.api.sharing.catch_up()
    return True


async def get_command(call: Call) -> Command:
    """One command."""
    return await call.api.get_command(call.names["name"])


async def list_tools(call: Call) -> list[ToolInfo]:
    """The tools as any model is told of them."""
    return await call.api.surroundings.list_tools()


async def list_damage(call: Call) -> list[Damage]:
    """Stored documents that cannot be read, and why. Every document is read for it."""
    return await call.api.surroundings.list_damage()


AROUND_ROUTES = (
    route("GET", "/weft/damage", "weft.damage", list_damage, gives=list[Damage]),
    route(
        "POST",
        "/weft/permission/{requestID}/reply",
        "weft.permission.reply",
        reply_permission,
        takes=ReplyInput,
    ),
    route("GET", "/weft/grant", "weft.grant.list", list_grants),
    route("DELETE", "/weft/grant/{grantID}", "weft.grant.revoke", revoke_grant),
    route("POST", "/weft/share/catch-up", "weft.share.catchUp", catch_up_shares),
    route("GET", "/weft/command/{name}", "weft.command.get", get_command),
    route("GET", "/weft/tool", "weft.tool.list", list_tools),
)


NOT_READY = 503


class Ready(Wire, frozen=True, kw_only=True):
    """Whether work may be sent here; if not, why not."""

    ready: bool
    reasons: tuple[str, ...] = always(())


async def get_ready(call: Wide) -> Answer:
    """Whether the server takes work: its store can be written to, and it is not about to end."""
    reasons: list[str] = []
    if call.premises.ending:
        reasons.append("the server is ending")
    else:
        try:
            await (await call.premises.open(call.premises.here)).surroundings.check_store()
        except WeftError as error:
            reasons.append(f"{type(error).__name__}: nothing can be stored")
            call.premises.note(f"not ready: {type(error).__name__}: {error}")
    return Answer(
        value=Ready(ready=not reasons, reasons=tuple(reasons)), status=NOT_READY if reasons else 200
    )


async def get_metrics(call: Wide) -> str:
    """Numbers of the server, in the text format of Prometheus."""
    raise NotImplementedError(call.path)


CARE_ROUTES = (
    route("GET", "/weft/ready", "weft.ready", get_ready, gives=Ready),
    route("GET", "/weft/metrics", "weft.metrics", get_metrics, media="text/plain"),
)
