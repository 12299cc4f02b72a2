"""Secrets are redacted wherever configuration is shown."""

import pytest

from weft.config.secrets import REDACTED, list_secret_values, redact_settings


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"apiKey": "x"}, {"apiKey": REDACTED}),
        ({"api_key": "x", "accessKeyId": "x"}, {"api_key": REDACTED, "accessKeyId": REDACTED}),
        ({"clientSecret": "x", "clientId": "x"}, {"clientSecret": REDACTED, "clientId": "x"}),
        ({"password": "x", "Authorization": "x"}, {"password": REDACTED, "Authorization": REDACTED}),
        ({"headers": {"X-Any": "x"}}, {"headers": {"X-Any": REDACTED}}),
        (
            {"environment": {"A": "x"}, "env": {"B": "x"}},
            {"environment": {"A": REDACTED}, "env": {"B": REDACTED}},
        ),
        ({"env": ["OPENAI_API_KEY"]}, {"env": ["OPENAI_API_KEY"]}),
        (
            {"max_tokens": "5", "setCacheKey": True, "apiKey": ""},
            {"max_tokens": "5", "setCacheKey": True, "apiKey": ""},
        ),
        ({"url": "https://u:p@h/x"}, {"url": f"https://u:{REDACTED}@h/x"}),
        ({"url": "https://h/x?api_key=1&b=2"}, {"url": f"https://h/x?api_key={REDACTED}&b=2"}),
        ({"url": "https://h:80/x"}, {"url": "https://h:80/x"}),
        ({"any": "Bearer abc"}, {"any": f"Bearer {REDACTED}"}),
        ({"any": "sk-abcdefghijklmnop"}, {"any": REDACTED}),
        ({"any": "skateboarding-holiday"}, {"any": "skateboarding-holiday"}),
        ({"command": ["x", "--token", "t", "y"]}, {"command": ["x", "--token", REDACTED, "y"]}),
        (
            {"command": ["x", "--api-key=t", "API_KEY=t"]},
            {"command": ["x", f"--api-key={REDACTED}", f"API_KEY={REDACTED}"]},
        ),
        ({"permission": {"read": {"*token*": "deny"}}}, {"permission": {"read": {"*token*": "deny"}}}),
        ({"a": [1, None, {"token": "x"}]}, {"a": [1, None, {"token": REDACTED}]}),
    ],
)
def test_secrets_and_values_that_look_like_secrets_are_redacted(value: object, shown: object) -> None:
    assert redact_settings(value) == shown


def test_secrets_of_the_environment_are_redacted_everywhere() -> None:
    env = {"MY_TOKEN": "abcdefgh", "SHORT_KEY": "abc", "PATH": "/usr/bin:/bin"}
    assert list_secret_values(env) == {"abcdefgh"}
    assert redact_settings({"x": "pre-abcdefgh-post"}, secrets=list_secret_values(env)) == {
        "x": f"pre-{REDACTED}-post"
    }
