"""Redact secrets in settings before they are shown."""

import re
from collections.abc import Collection, Mapping
from typing import Any

REDACTED = "***"
# Shorter values would redact ordinary words.
MIN_SECRET_LENGTH = 8

# Patterns that are compiled when they are first used: most commands show no settings.
_SECRET_KEY = r"(?i)token|secret|passw|passphrase|authori[sz]ation|credential|cookie|bearer|key(?:[-_]?id)?$"
# Token limits are not secrets.
_NOT_SECRET_KEY = r"(?i)tokens|max[-_]?token|token[-_]?(?:limit|budget|max|count)"
# Every value below these keys is redacted: its name may be anything.
_REDACTED_SECTIONS = ("headers", "environment", "env")
_SECRET_TEXT = (
    r"(?P<before>(?i:\bbearer\s+|\bbasic\s+|//[^/\s:@]*:(?=[^/\s@]*@)|[?&][\w-]*(?:key|token|secret|password)[\w-]*=))"
    r"[^\s@&]+|\b(?:(?:sk|pk|rk|ghp|gho|ghs|xox[abp]|glpat)[-_]|AKIA|AIza)[A-Za-z0-9_-]{12,}"
)
_ACTIONS = ("allow", "ask", "deny")
_SECRET_ARGUMENT = r"(?i)(?P<flag>-{0,2}[\w-]*(?:key|token|secret|password|passwd|auth)[\w-]*)(?P<rest>=.*)?"


def redact_settings(value: Any, *, secrets: Collection[str] = ()) -> Any:
    """Return a copy in which every secret is redacted: by its key, by its form, or because it is one of `secrets`."""
    return _SettingsRedactor(secrets).visit(value, "")


def list_secret_values(env: Mapping[str, str]) -> set[str]:
    """Return the values of environment variables whose names suggest a secret."""
    return {value for name, value in env.items() if len(value) >= MIN_SECRET_LENGTH and _is_secret(name)}


def _is_secret(key: str) -> bool:
    return bool(re.search(_SECRET_KEY, key)) and not re.search(_NOT_SECRET_KEY, key)


class _SettingsRedactor:
    def __init__(self, secrets: Collection[str]) -> None:
        longest_first = sorted(secrets, key=len, reverse=True)
        pattern = "|".join(map(re.escape, longest_first))
        self._secrets = re.compile(pattern) if pattern else None

    def visit(self, value: Any, key: str) -> Any:
        if isinstance(value, dict):
            return {name: self._visit_item(item, name, key) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return self._visit_arguments(value, key)
        if isinstance(value, str):
            return (
                REDACTED if value and _is_secret(key) and value not in _ACTIONS else self._redact_text(value)
            )
        return value

    def _visit_item(self, item: Any, name: str, key: str) -> Any:
        is_redacted = key in _REDACTED_SECTIONS and isinstance(item, str) and item
        return REDACTED if is_redacted else self.visit(item, name)

    def _redact_text(self, text: str) -> str:
        text = self._secrets.sub(REDACTED, text) if self._secrets is not None else text
        return re.sub(_SECRET_TEXT, lambda match: f"{match['before'] or ''}{REDACTED}", text)

    def _visit_arguments(self, values: list[Any] | tuple[Any, ...], key: str) -> list[Any]:
        """Redact secrets in a command line: `--token abc`, `API_KEY=abc`."""
        redacted: list[Any] = []
        secret_follows = False
        for value in values:
            argument = (
                re.fullmatch(_SECRET_ARGUMENT, value) if isinstance(value, str) and key == "command" else None
            )
            if secret_follows and isinstance(value, str):
                redacted.append(REDACTED)
            elif argument is not None and argument["rest"]:
                redacted.append(f"{argument['flag']}={REDACTED}")
            else:
                redacted.append(self.visit(value, key))
            secret_follows = argument is not None and not argument["rest"] and value.startswith("-")
        return redacted
