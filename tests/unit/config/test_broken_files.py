"""Broken configuration: the error names file, line and key, loses as little as possible, and reveals no secret."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st

from given.damage import IN_ONE_DIRECTORY, damaged_bytes, damaged_values, to_json
from given.examples import examples
from weft.config.check import check_config
from weft.config.jsonc import JsoncDocument
from weft.config.load import LoadedConfig
from weft.config.schema import Config
from weft.errors import ConfigError

# The file; then the reported line, key, reason and nearest word; then the settings still in force.
WRONG_VALUES = [
    ('{\n"model": 1}', 2, "model", "expected a string, found a number", ""),
    ('{\n"model": null}', 2, "model", "expected a string, found null", ""),
    ('{\n\n"share": "autp"}', 3, "share", 'expected "auto", "disabled" or "manual"', "auto"),
    ('{"share":\n true}', 1, "share", 'expected "auto", "disabled" or "manual", found true or false', ""),
    ('{"logLevel": "debug"}', 1, "logLevel", 'expected "DEBUG", "ERROR", "INFO" or "WARN"', "DEBUG"),
    ('{"snapshot": "false"}', 1, "snapshot", "expected true or false, found a string", ""),
    ('{"autoupdate": "notfy"}', 1, "autoupdate", 'expected true or false or "notify"', "notify"),
    ('{"instructions": "a.md"}', 1, "instructions", "expected a list, found a string", ""),
    ('{"instructions": ["a.md",\n 1]}', 2, "instructions.1", "expected a string, found a number", ""),
    ('{"compaction": true}', 1, "compaction", "expected an object, found true or false", ""),
    ('{"compaction": {\n"auto": 1}}', 2, "compaction.auto", "expected true or false, found a number", ""),
    ('{"server": {"port": 0}}', 1, "server.port", "expected a whole number above 0", ""),
    ('{"server": {"port": 80.5}}', 1, "server.port", "expected a whole number above 0", ""),
    ('{"server": {"port": "80"}}', 1, "server.port", "expected a whole number above 0, found a string", ""),
    ('{"server": {"port": 1e999}}', 1, "server.port", "expected a whole number above 0, found a number", ""),
    ('{"tui": {"scroll_speed": 0}}', 1, "tui.scroll_speed", "expected a number of at least 0.001", ""),
    ('{"tui": {"scroll_acceleration": {}}}', 1, "tui.scroll_acceleration", '"enabled" is missing', ""),
    ('{"agent": []}', 1, "agent", "expected an object, found a list", ""),
    ('{"agent": {"x":\n {"steps": -1}}}', 2, "agent.x.steps", "expected a whole number above 0", ""),
    (
        '{"agent": {"x": {"mode": "primry"}}}',
        1,
        "agent.x.mode",
        'expected "all", "primary" or "subagent"',
        "primary",
    ),
    (
        '{"agent": {"x": {"color": "#ff"}}}',
        1,
        "agent.x.color",
        'expected a colour such as "#ff5733" or "accent", "error", "info", "primary", "secondary", "success" or "warning"',
        "",
    ),
    ('{"agent": {"x": {"model": 3}}}', 1, "agent.x.model", "expected a string or a list, found a number", ""),
    (
        '{"agent": {"x": {"temperature": "hot"}}}',
        1,
        "agent.x.temperature",
        "expected a number, found a string",
        "",
    ),
    (
        '{"agent": {"x": {"tools": {"bash": "no"}}}}',
        1,
        "agent.x.tools.bash",
        "expected true or false, found a string",
        "",
    ),
    ('{"command": {"c": {"description": "d"}}}', 1, "command.c", '"template" is missing', ""),
    ('{"mcp": {"s":\n{"type": "locl"}}}', 2, "mcp.s.type", 'expected "local" or "remote"', "local"),
    (
        '{"mcp": {"s": {"type": "local", "command": "run"}}}',
        1,
        "mcp.s.command",
        "expected a list, found a string",
        "",
    ),
    ('{"mcp": {"s": {"type": "remote"}}}', 1, "mcp.s", '"url" is missing', ""),
    ('{"mcp": {"s": {"command": ["run"]}}}', 1, "mcp.s", '"type" is missing', ""),
    ('{"provider": {"p": {"npm": 1}}}', 1, "provider.p.npm", "expected a string, found a number", ""),
    (
        '{"provider": {"p": {"options": {"timeout": "5"}}}}',
        1,
        "provider.p.options.timeout",
        "expected a whole number above 0 or true or false, found a string",
        "",
    ),
    (
        '{"provider": {"p": {"models": {"m": {"cost": {"input": 1}}}}}}',
        1,
        "provider.p.models.m.cost",
        '"output" is missing',
        "",
    ),
    ('{"formatter": "no"}', 1, "formatter", "expected true or false or an object, found a string", ""),
    ('{"lsp": {"py": {"command": [1]}}}', 1, "lsp.py.command.0", "expected a string, found a number", ""),
    ('{"keybinds": {"leader": 1}}', 1, "keybinds.leader", "expected a string, found a number", ""),
    (
        '{"experimental": {"mcp_timeout": 0}}',
        1,
        "experimental.mcp_timeout",
        "expected a whole number above 0",
        "",
    ),
]


@pytest.mark.parametrize(("text", "line", "key", "reason", "near"), WRONG_VALUES)
def test_a_wrong_value_is_reported_with_file_line_and_key(
    home: Any, text: str, line: int, key: str, reason: str, near: str
) -> None:
    path = home.write(home.project / "opencode.jsonc", text)
    problems = home.load().problems
    first = problems[0]
    assert (first.path, first.line, first.key, first.reason, first.near) == (
        str(path),
        line,
        key,
        reason,
        near,
    )


UNKNOWN_KEYS = [
    ('{\n"modle": "a/b"}', 2, "modle", "model"),
    ('{"smallModel": "a/b"}', 1, "smallModel", "small_model"),
    ('{"loglevel": "INFO"}', 1, "loglevel", "logLevel"),
    ('{"qqqq": 1}', 1, "qqqq", ""),
    ('{"compaction": {\n\n"pruen": true}}', 3, "compaction.pruen", "prune"),
    ('{"provider": {"p": {"model": {}}}}', 1, "provider.p.model", "models"),
    ('{"keybinds": {"leeder": "x"}}', 1, "keybinds.leeder", "leader"),
    ('{"agent": {"x": {"temprature": 1}}}', 1, "agent.x.temprature", "temperature"),
    ('{"experimental": {"batchtool": true}}', 1, "experimental.batchtool", "batch_tool"),
]


@pytest.mark.parametrize(("text", "line", "key", "near"), UNKNOWN_KEYS)
def test_an_unknown_key_is_a_warning_with_the_nearest_known_key(
    home: Any, text: str, line: int, key: str, near: str
) -> None:
    path = home.write(home.project / "opencode.json", text)
    loaded = home.load()
    warned = [(error.path, error.line, error.key, error.near) for error in loaded.warnings]
    assert (warned, loaded.problems) == ([(str(path), line, key, near)], ())


def test_an_invalid_key_is_dropped_alone(home: Any) -> None:
    text = '{"model": "a/b", "snapshot": 1, "agent": {"x": {"steps": 0, "prompt": "p"}, "y": 1}}'
    home.write(home.project / "opencode.json", text)
    config = home.load().config
    assert (config.model, config.snapshot, list(config.agent), config.agent["x"].prompt) == (
        "a/b",
        None,
        ["x"],
        "p",
    )


def test_a_wrong_value_leaves_that_of_the_weaker_layer_in_force(home: Any) -> None:
    home.write(home.config / "opencode.json", '{"snapshot": false}')
    home.write(home.project / "opencode.json", '{"snapshot": "yes"}')
    assert home.load().config.snapshot is False


@pytest.mark.parametrize(
    ("permission", "taken"),
    [
        ('{"bash": "deni", "edit": "allow"}', {"bash": "ask", "edit": "allow"}),
        ('{"bash": {"rm *": "never", "ls": "allow"}}', {"bash": {"rm *": "ask", "ls": "allow"}}),
        ('{"bash": ["deny"]}', {"bash": "ask"}),
        ('"no"', {"*": "ask"}),
        ("[]", {"*": "ask"}),
        ("false", {"*": "ask"}),
    ],
)
def test_an_invalid_rule_asks(home: Any, permission: str, taken: dict[str, Any]) -> None:
    home.write(home.project / "opencode.json", f'{{"permission": {permission}}}')
    loaded = home.load()
    assert loaded.config.permission == taken
    (error,) = loaded.problems
    assert error.reason == 'expected "ask", "allow" or "deny"'
    assert error.hint in (
        "did you mean 'deny'?",
        "correct it at this line and column; weft doctor checks it again",
    )


UNREADABLE = [
    ('{"a": 1', 1, "a"),
    ('{\n"model": "a/b"\n"theme": "x"}', 3, "model"),
    ('{"agent": {"x": {"prompt": "a\nb"}}}', 1, "agent.x.prompt"),
    ("[]", 1, ""),
    ("not json at all", 1, ""),
    ('{"a": 1}}', 1, ""),
    ('{"a": /* never closed', 1, "a"),
    ('{"theme": undefined}', 1, "theme"),
    (b"\xff\xfe{\x00}\x00", 1, ""),
    (b'{"a":\n "\xe9"}', 2, ""),
]


@pytest.mark.parametrize(("text", "line", "key"), UNREADABLE)
def test_a_file_that_is_not_json_is_reported_with_path_line_and_key(
    home: Any, text: str | bytes, line: int, key: str
) -> None:
    home.write(home.config / "opencode.json", '{"model": "a/b"}')
    path = home.write(home.project / "opencode.json", text)
    loaded = home.load()
    reported = [(error.path, error.line, error.key) for error in loaded.problems]
    assert (reported, loaded.config.model) == ([(str(path), line, key)], "a/b")


def test_a_directory_in_place_of_a_file_is_a_problem(home: Any) -> None:
    (home.project / "opencode.json").mkdir()
    assert [error.reason for error in home.load().problems] == ["cannot be read: Is a directory"]


def test_invalid_toml_is_reported_with_its_line(home: Any) -> None:
    path = home.write(home.config / "config", 'theme = "a"\nmodel = sk-secret\n')
    assert [str(error) for error in home.load().problems] == [f"{path}:2:9: not TOML"]


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("missing.txt", "does not exist"),
        (".", "is not a file"),
        ("binary", "is not UTF-8 text"),
    ],
)
def test_a_broken_file_reference_is_reported_with_its_line(home: Any, target: str, reason: str) -> None:
    home.write(home.project / "binary", b"\xff\xfe\xfd")
    path = home.write(home.project / "opencode.json", f'{{"model": "a/b",\n"theme": "{{file:{target}}}"}}')
    loaded = home.load()
    (error,) = loaded.problems
    assert (error.path, error.line, error.key) == (str(path), 2, "theme")
    assert error.reason == f'bad file reference: "{{file:{target}}}" {home.project / target} {reason}'
    assert (loaded.config.model, loaded.config.theme) == ("a/b", None)


SECRET = "sk-S3cr3tV4lu3"

SPOTS = [
    '{"provider": {"p": {"options": {"apiKey": SECRET}}}}',
    '{"provider": {"p": {"options": {"apiKey: "SECRET"}}}}',
    '{"provider": {"p": {"options": {"apiKey" "SECRET"}}}}',
    '{"provider": {"p": {"options": {"SECRET"}}}}',
    '{"provider": {"p": {"options": {"apiKey": "SECRET}}}}',
    '{"provider": {"p": {"options": {"apiKey": "SEC\nRET"}}}}',
    '{"provider": {"p": {"options": {"apiKey": "SECRET\\q"}}}}',
    '{"provider": {"p": {"options": {"apiKey": "SECRET" "x"}}}}',
    '{"provider": {"p": {"options": "SECRET"}}}',
    '{"provider": {"p": "SECRET"}}',
    '{"provider": "SECRET"}',
    '{"provider": {"p": {"options": {"apiKey": ["SECRET"]}}}}',
    '{"share": "SECRET"}',
    '{"agent": {"x": {"mode": "SECRET", "color": "SECRET", "steps": "SECRET"}}}',
    '{"permission": "SECRET"}',
    '{"permission": {"bash": "SECRET"}}',
    '{"mcp": {"s": {"type": "SECRET"}}}',
    '{"mcp": {"s": {"type": "remote", "url": ["SECRET"], "headers": "SECRET"}}}',
    '{"unknown": "SECRET"}',
    '{"snapshot": "{env:KEY}"}',
    '{"share": "{env:KEY}"}',
    '{"provider": {"p": {"options": {env:KEY}}}}',
    '{"theme": "x" {env:KEY}}',
    '"SECRET"',
    "SECRET",
    '["SECRET"]',
    '{"a": 1} SECRET',
    "/* SECRET",
    '{"theme": "{file:secret.txt}" oops}',
    '{"snapshot": "{file:secret.txt}"}',
]


def list_reported(loaded: LoadedConfig) -> str:
    return "\n".join(f"{error} {error.hint} {error.reason}" for error in (*loaded.problems, *loaded.warnings))


@pytest.mark.parametrize("text", SPOTS)
def test_the_report_about_a_broken_file_contains_no_secret(home: Any, text: str) -> None:
    home.with_env({"KEY": SECRET})
    home.write(home.project / "secret.txt", SECRET)
    home.write(home.project / "opencode.json", text.replace("SECRET", SECRET))
    loaded = home.load()
    assert loaded.problems or loaded.warnings
    assert SECRET not in list_reported(loaded)


@pytest.mark.parametrize(
    "text",
    [
        "---\ndescription: [SECRET\n---\n",
        "---\ndescription: {a: SECRET\n---\n",
        '---\ndescription: "SECRET\n---\n',
        "---\n- SECRET\n---\n",
        "---\nSECRET\n---\n",
        "---\nmode: SECRET\nsteps: SECRET\n---\n",
        "---\na: *SECRET\n---\n",
        "---\na: !!SECRET x\n---\n",
    ],
)
def test_the_report_about_a_broken_definition_contains_no_secret(home: Any, text: str) -> None:
    home.write(home.project / ".opencode" / "agent" / "a.md", text.replace("SECRET", SECRET))
    loaded = home.load()
    assert loaded.problems
    assert SECRET not in list_reported(loaded)


# A whole file with a secret where secrets are; hypothesis breaks it.
WHOLE = json.dumps(
    {
        "model": "a/b",
        "provider": {
            "p": {"options": {"apiKey": SECRET, "headers": {"Authorization": SECRET}}, "env": ["A"]}
        },
        "mcp": {"s": {"type": "local", "command": ["x", SECRET], "environment": {"T": SECRET}}},
        "permission": {"bash": {"*": "ask"}},
    },
    indent=1,
)


@given(
    st.integers(0, len(WHOLE) - 1),
    st.integers(0, 6),
    st.sampled_from(["", '"', ",", ":", "{", "}", "[", "]", "\\", "\n", "x", "1", "//", "/*"]),
)
def test_no_report_about_a_broken_file_contains_its_secrets(at: int, gone: int, put: str) -> None:
    assert SECRET not in "\n".join(_describe_problems(WHOLE[:at] + put + WHOLE[at + gone :]))


def _describe_problems(text: str) -> list[str]:
    try:
        document = JsoncDocument("f", text)
    except ConfigError as error:
        return [str(error), error.hint]
    _, findings = check_config(document.value)
    return [f"{finding.reason} {finding.near}" for finding in findings]


names = st.sampled_from(
    [*(field for field in Config.__struct_encode_fields__), "bash", "x", "type", "command"]
)
junk = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["ask", "auto", "local", "", "x/y"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(names, junk, max_size=6))
@examples(200, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_json_value_stops_loading(home: Any, value: dict[str, Any]) -> None:
    home.write(home.config / "opencode.json", json.dumps(value))
    assert isinstance(home.load().config, Config)


def test_a_list_with_an_incomplete_entry_is_dropped_and_named(home: Any) -> None:
    hooks = {"tool.execute.before": [{"matcher": "bash"}], "event": [{"command": ["true"]}]}
    home.write(home.config / "opencode.json", json.dumps({"experimental": {"weft": {"hooks": hooks}}}))
    loaded = home.load()
    path = ("experimental", "weft", "hooks", "tool.execute.before")
    assert [error.key for error in loaded.problems] == [".".join((*path, "0"))]
    assert path not in loaded.origins
    assert (*path[:-1], "event") in loaded.origins


TOML = [
    b"[",
    b"[" * 200,
    b"]" * 200,
    b"=",
    b"'''",
    b"inf",
    b"nan",
    b"0x",
    b"1" * 5000,
    b"[[a]]\n",
    b"a.b.c = 1\n",
]
CONFIG = {
    "$schema": "https://opencode.ai/config.json",
    "model": "a/b",
    "provider": {
        "p": {"options": {"apiKey": "{env:KEY}"}, "models": {"m": {"limit": {"context": 1, "output": 2}}}}
    },
    "mcp": {"s": {"type": "local", "command": ["x", "y"], "environment": {"T": "{file:a.txt}"}}},
    "permission": {"bash": {"*": "ask"}, "edit": "allow"},
    "agent": {"build": {"temperature": 0.5, "tools": {"bash": False}}},
    "experimental": {"weft": {"hooks": {"tool.execute.before": [{"command": ["true"]}]}}},
}


@given(data=st.data())
@IN_ONE_DIRECTORY
def test_no_bytes_in_a_configuration_file_stop_loading(home: Any, data: st.DataObject) -> None:
    raw = to_json(data.draw(damaged_values(CONFIG)))
    raw = (
        data.draw(damaged_bytes(raw, [b"//", b"/*", b"*/", b"{env:A}", b"{file:b}"]))
        if data.draw(st.booleans())
        else raw
    )
    home.write(home.config / "opencode.jsonc", raw)
    assert isinstance(home.load().config, Config)


@given(
    raw=damaged_bytes(
        b'provider = "a"\nmodel = "b"\n[agent.x]\ntemperature = 0.5\nat = 2001-01-01T00:00:00Z\n', TOML
    )
)
@example(raw=b"a = " + b"1" * 5000)
@example(raw=b"a = " + b"[" * 250 + b"]" * 250)
@IN_ONE_DIRECTORY
def test_no_bytes_in_a_legacy_file_stop_loading(home: Any, raw: bytes) -> None:
    home.write(home.config / "config", raw)
    assert isinstance(home.load().config, Config)
