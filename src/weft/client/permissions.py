"""Permissions, questions and grants, over HTTP."""

from typing import Any

from weft.client.http import delete, get, need_weft, own, post
from weft.client.runs import RemoteRuns
from weft.errors import NotFoundError
from weft.model.ids import GrantID, PermissionID, QuestionID, checked
from weft.model.permission import USUAL_TERMS, Grant, GrantTerms, PermissionRequest, QuestionRequest, Reply


class RemoteAsking(RemoteRuns):
    """`Permissions` and `Questions`, kept by a server."""

    async def list_permissions(self) -> list[PermissionRequest]:
        return await self._line.ask(get("/permission"), list[PermissionRequest])

    async def reply_permission(
        self, id: PermissionID, reply: Reply, *, message: str = "", grant: GrantTerms = USUAL_TERMS
    ) -> None:
        path = f"/permission/{checked('permission', id)}/reply"
        body: dict[str, Any] = {"reply": reply} | ({"message": message} if message else {})
        if self._line.ours:
            body |= {} if grant == USUAL_TERMS else {"grant": grant}
            await self._line.ask(post(own(path), body), bool)
            return
        if grant != USUAL_TERMS:
            need_weft(self._line, "an always that ends, or reaches no further than it should")
        if id not in {each.id for each in await self.list_permissions()}:  # OpenCode says yes to anything
            raise NotFoundError("permission request", id)
        await self._line.ask(post(path, body), bool)

    async def list_grants(self) -> list[Grant]:
        need_weft(self._line, "listing what was granted")
        return await self._line.ask(get(own("/grant")), list[Grant])

    async def revoke_grant(self, id: GrantID) -> None:
        path = f"/grant/{checked('grant', id)}"
        need_weft(self._line, "taking a grant back")
        await self._line.ask(delete(own(path)), bool)

    async def list_questions(self) -> list[QuestionRequest]:
        return await self._line.ask(get("/question"), list[QuestionRequest])

    async def reply_question(self, id: QuestionID, answers: tuple[tuple[str, ...], ...]) -> None:
        path = f"/question/{checked('question', id)}/reply"
        await self._must_be_open(id)
        await self._line.ask(post(path, {"answers": answers}), bool)

    async def reject_question(self, id: QuestionID) -> None:
        path = f"/question/{checked('question', id)}/reject"
        await self._must_be_open(id)
        await self._line.ask(post(path), bool)

    async def _must_be_open(self, id: QuestionID) -> None:
        if not self._line.ours and id not in {each.id for each in await self.list_questions()}:
            raise NotFoundError("question", id)
