"""HTTP of our own for finding sessions again, counting them, and moving them between stores."""

from typing import Annotated

from msgspec import Meta, Struct, field

from weft.model.finding import Figures, Hit
from weft.model.ids import ProjectID
from weft.model.parcel import Parcel, Received
from weft.model.spent import Spending
from weft.server.route import Call, route
from weft.server.routes.own.sessions import SESSION
from weft.server.routes.sessions import session_in

LONGEST_WORDS = 10_000
MOST_HITS = 1000
MOST_DAYS = 36_500


class SearchQuery(Struct, frozen=True, kw_only=True):
    """Whatever is typed is a search; of what is very long, the beginning."""

    words: str
    limit: Annotated[int, Meta(ge=1, le=MOST_HITS)] = 20
    everywhere: bool = False


class FiguresQuery(Struct, frozen=True, kw_only=True):
    """Of the last so many days, 0 being today; of one project."""

    days: Annotated[int, Meta(ge=0, le=MOST_DAYS)] | None = None
    project: str | None = None


class ImportQuery(Struct, frozen=True, kw_only=True):
    dry_run: bool = field(default=False, name="dryRun")


async def search(call: Call) -> list[Hit]:
    """Sessions in which every word is said, the best first."""
    asked: SearchQuery = call.query
    return await call.api.search(asked.words[:LONGEST_WORDS], limit=asked.limit, everywhere=asked.everywhere)


async def get_figures(call: Call) -> Figures:
    """Sessions in numbers: what was spent, by day, model and project; which tools were used."""
    asked: FiguresQuery = call.query
    project = ProjectID(asked.project) if asked.project else None
    return await call.api.get_figures(days=asked.days, project=project)


async def get_spending(call: Call) -> Spending:
    """What a session spent, itself and with all below it."""
    return await call.api.get_spending(session_in(call))


async def export_session(call: Call) -> Parcel:
    """A session whole, to be taken to another store."""
    return await call.api.export_session(session_in(call))


async def import_session(call: Call) -> Received:
    """Take a session in, whole or not at all; or only say what would become of it."""
    asked: ImportQuery = call.query
    return await call.api.import_session(call.body, dry_run=asked.dry_run)


ROUTES = (
    route("GET", "/weft/search", "weft.search", search, query=SearchQuery),
    route("GET", "/weft/figures", "weft.figures", get_figures, query=FiguresQuery),
    route("GET", f"{SESSION}/spending", "weft.session.spending", get_spending),
    route("GET", f"{SESSION}/export", "weft.session.export", export_session),
    route("POST", "/weft/import", "weft.session.import", import_session, takes=Parcel, query=ImportQuery),
)
