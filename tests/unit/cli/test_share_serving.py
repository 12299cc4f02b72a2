"""`weft serve --share`: the address of its pages, and who may see them."""

from argparse import Namespace

import pytest

from weft.cli.serve_access import ServerAccess, allow_share_pages, to_share_url
from weft.config.schema import Config, EnterpriseConfig
from weft.errors import InvalidInputError
from weft.server.access import AccessPolicy
from weft.share.contract import ShareSettings, to_share_settings

LOCKED, OPEN = (
    ServerAccess(policy=AccessPolicy(password="pw")),
    ServerAccess(policy=AccessPolicy(password=None)),
)


def test_pages_are_served_at_the_address_of_the_server_or_at_share_url() -> None:
    here = "http://127.0.0.1:4096"
    assert to_share_url(Namespace(share=False, share_url=None), here) == ""
    assert to_share_url(Namespace(share=True, share_url=None), here) == here
    assert to_share_url(Namespace(share=True, share_url="https://e.test/x/"), here) == "https://e.test/x"


@pytest.mark.parametrize(
    ("share", "share_url", "url"),
    [
        (False, "https://e.test", "http://127.0.0.1:1"),
        (True, "javascript:x", "http://127.0.0.1:1"),
        (True, None, "http://0.0.0.0:1"),
        (True, None, "http://[::]:1"),
    ],
)
def test_an_unusable_address_is_refused(share: bool, share_url: str | None, url: str) -> None:
    with pytest.raises(InvalidInputError, match="--share-url"):
        to_share_url(Namespace(share=share, share_url=share_url), url)


def test_a_server_without_a_password_is_not_shared_publicly() -> None:
    assert allow_share_pages(LOCKED, "") == LOCKED
    policy = allow_share_pages(LOCKED, "https://e.test").policy
    assert (policy.password, policy.open_to_all, policy.hosts) == ("pw", "/s/", frozenset({"e.test"}))
    assert allow_share_pages(OPEN, "http://127.0.0.1:4096").policy.open_to_all == "/s/"
    with pytest.raises(InvalidInputError, match="no password"):
        allow_share_pages(OPEN, "https://e.test")


def test_settings_and_environment_choose_the_mode_and_the_server() -> None:
    company = Config(share="auto", enterprise=EnterpriseConfig(url="https://share.test/"))
    assert to_share_settings(Config(), {}, "") == ShareSettings()
    assert to_share_settings(company, {}, "") == ShareSettings(mode="auto", server="https://share.test")
    assert to_share_settings(Config(), {"OPENCODE_AUTO_SHARE": "1"}, "x").mode == "auto"
    for config, env in (
        (company, {"OPENCODE_DISABLE_SHARE": "true"}),
        (Config(share="disabled"), {"OPENCODE_AUTO_SHARE": "1"}),
    ):
        assert to_share_settings(config, env, "").mode == "disabled"
