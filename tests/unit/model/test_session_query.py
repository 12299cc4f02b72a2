"""A page from a sorted list is the same as from sessions in any order."""

from hypothesis import given
from hypothesis import strategies as st

from weft.model.ids import ProjectID, SessionID
from weft.model.session import SessionInfo, SessionTime
from weft.model.session_query import SORT_KEYS, Order, SessionQuery, select_page, select_sessions, to_cursor

times = st.integers(1, 9)


@st.composite
def sessions(draw: st.DrawFn) -> list[SessionInfo]:
    """Some sessions, many of them at the same time, in any order."""
    return [
        SessionInfo(
            id=SessionID(f"ses_{number}"),
            project_id=ProjectID("p"),
            directory="/d",
            title=draw(st.sampled_from(["warp", "weft"])),
            time=SessionTime(created=draw(times), updated=draw(times)),
        )
        for number in draw(st.permutations(range(draw(st.integers(0, 12)))))
    ]


@given(
    sessions=sessions(),
    order=st.sampled_from(["created", "updated"]),
    limit=st.none() | st.integers(0, 5),
    search=st.sampled_from([None, "weft"]),
    data=st.data(),
)
def test_a_page_of_a_sorted_list_is_the_page_of_all_sessions(
    sessions: list[SessionInfo], order: Order, limit: int | None, search: str | None, data: st.DataObject
) -> None:
    last = data.draw(st.none() | st.sampled_from(sessions)) if sessions else None
    after = None if last is None else to_cursor(last, order)
    query = SessionQuery(order=order, limit=limit, search=search, after=after)
    in_order = sorted(sessions, key=SORT_KEYS[order])
    assert select_page(in_order, query) == select_sessions(sessions, query)
