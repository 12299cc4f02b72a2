"""An agent that the person named in the prompt: to use that one, nobody has to be asked."""

from typing import Any

from weft.errors import NotFoundError
from weft.model.ids import SessionID
from weft.model.message import AssistantMessage
from weft.model.part import AgentPart
from weft.model.permission import CallRef
from weft.store.contract import Store
from weft.tool.contract import Ask


def let_named(store: Store, session: SessionID, call: CallRef, ask: Ask) -> Ask:
    """The gate of a call, open for a task for an agent that the prompt names.

    OpenCode then lets every agent pass, and takes a name in a task that a model wrote for a person's, too.
    """

    async def asked(
        permission: str,
        *patterns: str,
        always: tuple[str, ...] = (),
        metadata: dict[str, Any] | None = None,
    ) -> None:
        if permission == "task" and patterns and set(patterns) <= await named_in_prompt(store, session, call):
            return
        await ask(permission, *patterns, always=always, metadata=metadata)

    return asked


async def named_in_prompt(store: Store, session: SessionID, call: CallRef) -> set[str]:
    """The agents that the prompt names which a call is made for. Of a child none: a model wrote its prompt."""
    try:
        if (await store.get_session(session)).parent_id is not None:
            return set()
    except NotFoundError:
        return set()
    answer = await store.find_message(session, call.message_id)
    if answer is None or not isinstance(answer.info, AssistantMessage) or not answer.info.parent_id:
        return set()
    prompt = await store.find_message(session, answer.info.parent_id)
    return {part.name for part in (prompt.parts if prompt else ()) if isinstance(part, AgentPart)}
