"""Worktrees over HTTP."""

from weft.client.asked import Asked, get, post, to_query
from weft.client.http import Line
from weft.client.paths import need_weft, own
from weft.errors import UnsupportedError
from weft.model.around.worktree import WorktreeInfo

WORKTREE = "/experimental/worktree"


class RemoteWorktrees:
    def __init__(self, line: Line) -> None:
        self._line = line

    async def list_worktrees(self) -> list[WorktreeInfo]:
        need_weft(self._line, "describing worktrees")
        return await self._line.ask(get(own("/worktree")), list[WorktreeInfo])

    async def create_worktree(
        self, name: str | None = None, *, start: bool = True, also: str = ""
    ) -> WorktreeInfo:
        if not start:
            raise UnsupportedError(
                "making a worktree and not making it ready, over HTTP",
                hint="a server does so that was started with --no-shell",
            )
        given = {"name": name, "startCommand": also or None}
        body = {field: value for field, value in given.items() if value is not None}
        return await self._line.ask(post(WORKTREE, body, long=True), WorktreeInfo)

    async def remove_worktree(self, directory: str, *, force: bool = False) -> str:
        """A server does not say where what stood in it is kept."""
        await self._line.ask(_forced(Asked(method="DELETE", path=WORKTREE), directory, force=force), bool)
        return ""

    async def reset_worktree(self, directory: str, *, force: bool = False) -> str:
        await self._line.ask(_forced(post(f"{WORKTREE}/reset"), directory, force=force), bool)
        return ""


def _forced(asked: Asked, directory: str, *, force: bool) -> Asked:
    query = to_query({"force": force or None})
    return Asked(method=asked.method, path=asked.path, query=query, body={"directory": directory}, long=True)
