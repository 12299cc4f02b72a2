"""Secrets are redacted wherever configuration is shown."""

import pytest

from weft.config.secrets import MASK, list_secret_values, mask_secrets


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"apiKey": "x"}, {"apiKey": MASK}),
        ({"api_key": "x", "accessKeyId": "x"}, {"api_key": MASK, "accessKeyId": MASK}),
        ({"clientSecret": "x", "clientId": "x"}, {"clientSecret": MASK, "clientId": "x"}),
        ({"password": "x", "Authorization": "x"}, {"password": MASK, "Authorization": MASK}),
        ({"headers": {"X-Any": "x"}}, {"headers": {"X-Any": MASK}}),
        ({"environment": {"A": "x"}, "env": {"B": "x"}}, {"environment": {"A": MASK}, "env": {"B": MASK}}),
        ({"env": ["OPENAI_API_KEY"]}, {"env": ["OPENAI_API_KEY"]}),
        (
            {"max_tokens": "5", "setCacheKey": True, "apiKey": ""},
            {"max_tokens": "5", "setCacheKey": True, "apiKey": ""},
        ),
        ({"url": "https://u:p@h/x"}, {"url": f"https://u:{MASK}@h/x"}),
        ({"url": "https://h/x?api_key=1&b=2"}, {"url": f"https://h/x?api_key={MASK}&b=2"}),
        ({"url": "https://h:80/x"}, {"url": "https://h:80/x"}),
        ({"any": "Bearer abc"}, {"any": f"Bearer {MASK}"}),
        ({"any": "sk-abcdefghijklmnop"}, {"any": MASK}),
        ({"any": "skateboarding-holiday"}, {"any": "skateboarding-holiday"}),
        ({"command": ["x", "--token", "t", "y"]}, {"command": ["x", "--token", MASK, "y"]}),
        (
            {"command": ["x", "--api-key=t", "API_KEY=t"]},
            {"command": ["x", f"--api-key={MASK}", f"API_KEY={MASK}"]},
        ),
        ({"permission": {"read": {"*token*": "deny"}}}, {"permission": {"read": {"*token*": "deny"}}}),
        ({"a": [1, None, {"token": "x"}]}, {"a": [1, None, {"token": MASK}]}),
    ],
)
def test_secrets_and_values_that_look_like_secrets_are_redacted(value: object, shown: object) -> None:
    assert mask_secrets(value) == shown


def test_secrets_of_the_environment_are_redacted_everywhere() -> None:
    env = {"MY_TOKEN": "abcdefgh", "SHORT_KEY": "abc", "PATH": "/usr/bin:/bin"}
    assert list_secret_values(env) == {"abcdefgh"}
    assert mask_secrets({"x": "pre-abcdefgh-post"}, secrets=list_secret_values(env)) == {
        "x": f"pre-{MASK}-post"
    }
