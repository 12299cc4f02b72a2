"""The path of a session's plan file."""

import pytest
from msgspec.structs import replace

from given.conversation import SESSION
from given.engine import PLACE
from weft.model.session import SessionInfo, SessionTime
from weft.session.lifecycle import get_plan_path

MADE = SessionInfo(id=SESSION, slug="calm-loom", time=SessionTime(created=17, updated=18))
CHECKOUT = replace(PLACE, worktree="/checkout", project=replace(PLACE.project, vcs="git"))


def test_a_plan_is_in_the_checkout_or_else_in_the_data_directory() -> None:
    assert get_plan_path(MADE, CHECKOUT, "/data/plans") == "/checkout/.opencode/plans/17-calm-loom.md"
    assert get_plan_path(MADE, PLACE, "/data/plans") == "/data/plans/17-calm-loom.md"


def test_a_session_without_a_slug_uses_its_id() -> None:
    assert get_plan_path(replace(MADE, slug=""), PLACE, "/data/plans") == "/data/plans/17-ses_test.md"


@pytest.mark.parametrize("slug", ["x/../../../../etc/x", "..", "a\nb", "a\0b", "\ud800", "x" * 300])
def test_a_foreign_slug_that_is_no_plain_name_is_not_used(slug: str) -> None:
    assert get_plan_path(replace(MADE, slug=slug), PLACE, "/data/plans") == "/data/plans/17-ses_test.md"
