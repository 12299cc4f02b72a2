"""What `weft serve --share` changes about a server, and what it refuses to."""

from argparse import Namespace

import pytest

from weft.cli.serving.door import Entrance
from weft.cli.share.serving import let_look, to_pages
from weft.config.schema import Config, Enterprise
from weft.errors import InvalidInputError
from weft.server.access import Door
from weft.share.contract import ShareSettings, to_share_settings

LOCKED, OPEN = Entrance(door=Door(password="pw")), Entrance(door=Door(password=None))


def test_pages_are_where_the_server_is_or_where_others_reach_it() -> None:
    here = "http://127.0.0.1:4096"
    assert to_pages(Namespace(share=False, share_url=None), here) == ""
    assert to_pages(Namespace(share=True, share_url=None), here) == here
    assert to_pages(Namespace(share=True, share_url="https://e.test/x/"), here) == "https://e.test/x"


@pytest.mark.parametrize(
    ("share", "share_url", "url"),
    [
        (False, "https://e.test", "http://127.0.0.1:1"),
        (True, "javascript:x", "http://127.0.0.1:1"),
        (True, None, "http://0.0.0.0:1"),
        (True, None, "http://[::]:1"),
    ],
)
def test_an_address_that_nobody_could_use_is_refused(share: bool, share_url: str | None, url: str) -> None:
    with pytest.raises(InvalidInputError, match="--share-url"):
        to_pages(Namespace(share=share, share_url=share_url), url)


def test_a_server_without_a_password_is_not_shown_to_the_world() -> None:
    assert let_look(LOCKED, "") == LOCKED
    door = let_look(LOCKED, "https://e.test").door
    assert (door.password, door.open_to_all, door.hosts) == ("pw", "/s/", frozenset({"e.test"}))
    assert let_look(OPEN, "http://127.0.0.1:4096").door.open_to_all == "/s/"
    with pytest.raises(InvalidInputError, match="no password"):
        let_look(OPEN, "https://e.test")


def test_settings_say_whether_and_where() -> None:
    company = Config(share="auto", enterprise=Enterprise(url="https://share.test/"))
    assert to_share_settings(Config(), {}, "") == ShareSettings()
    assert to_share_settings(company, {}, "") == ShareSettings(mode="auto", server="https://share.test")
    assert to_share_settings(Config(), {"OPENCODE_AUTO_SHARE": "1"}, "x").mode == "auto"
    for config, env in (
        (company, {"OPENCODE_DISABLE_SHARE": "true"}),
        (Config(share="disabled"), {"OPENCODE_AUTO_SHARE": "1"}),
    ):
        assert to_share_settings(config, env, "").mode == "disabled"
