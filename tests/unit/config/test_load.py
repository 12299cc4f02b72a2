"""Configuration layers: their order, how they merge, and the source of each setting."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from weft.config.definitions import MAX_DIRECTORIES
from weft.config.layer import ConfigOrigin
from weft.config.load import LoadedConfig, load_config
from weft.config.schema import AgentConfig, CommandConfig, CompactionConfig, McpLocalConfig
from weft.errors import ConfigError


def themes(loaded: LoadedConfig) -> str | None:
    return loaded.config.theme


def put_theme(home: Any, path: Path, name: str) -> None:
    home.write(path, json.dumps({"theme": name}))


def test_without_files_only_the_defaults_apply(home: Any) -> None:
    loaded = home.load()
    assert (loaded.config.username, loaded.config.theme, loaded.problems, loaded.layers) == (
        "ada",
        None,
        (),
        (),
    )
    assert loaded.config.keybinds["leader"] == "ctrl+x"
    assert loaded.origins[("username",)] == ConfigOrigin(kind="default", path="", own=True)


def test_loading_writes_nothing(home: Any) -> None:
    path = home.write(home.project / "opencode.json", '{"theme": "x"}')
    home.write(home.project / ".opencode" / "agent" / "a.md", "words")
    before = {each: each.stat().st_mtime_ns for each in home.root.rglob("*")}
    home.load()
    assert {each: each.stat().st_mtime_ns for each in home.root.rglob("*")} == before
    assert path.read_text() == '{"theme": "x"}'


LAYERS = [
    ("global config.json", lambda home: home.config / "config.json"),
    ("global json", lambda home: home.config / "opencode.json"),
    ("global jsonc", lambda home: home.config / "opencode.jsonc"),
    ("home jsonc", lambda home: home.root / ".opencode" / "opencode.jsonc"),
    ("home json", lambda home: home.root / ".opencode" / "opencode.json"),
    ("custom", lambda home: home.root / "custom.json"),
    ("top jsonc", lambda home: home.project / "opencode.jsonc"),
    ("near jsonc", lambda home: home.project / "sub" / "opencode.jsonc"),
    ("top json", lambda home: home.project / "opencode.json"),
    ("near json", lambda home: home.project / "sub" / "opencode.json"),
    ("top directory", lambda home: home.project / ".opencode" / "opencode.json"),
    ("near directory", lambda home: home.project / "sub" / ".opencode" / "opencode.json"),
    ("custom directory", lambda home: home.root / "own" / "opencode.json"),
]


def test_each_layer_overrides_the_weaker_ones(home: Any) -> None:
    home.with_env(
        {"OPENCODE_CONFIG": str(home.root / "custom.json"), "OPENCODE_CONFIG_DIR": str(home.root / "own")}
    )
    put_theme(home, home.root / "custom.json", "-")
    seen = []
    for name, place in LAYERS:
        put_theme(home, place(home), name)
        seen.append(themes(home.load(home.project / "sub")))
    assert seen == _with_custom_first()
    home.with_env({"OPENCODE_CONFIG_CONTENT": '{"theme": "inline"}'})
    assert themes(home.load(home.project / "sub")) == "inline"


def _with_custom_first() -> list[str]:
    # The named file is there from the start, so nothing weaker than it is ever seen.
    names = [name for name, _ in LAYERS]
    return ["-"] * names.index("custom") + names[names.index("custom") :]


def test_the_layers_of_the_person_have_an_order(home: Any) -> None:
    seen = []
    for name, place in LAYERS[:5]:
        put_theme(home, place(home), name)
        seen.append(themes(home.load()))
    assert seen == [name for name, _ in LAYERS[:5]]


def test_as_in_opencode_the_top_directory_beats_the_nearest_and_home_beats_both(home: Any) -> None:
    home.with_env({"WEFT_CONFIG_ORDER": "opencode", "OPENCODE_CONFIG_CONTENT": '{"theme": "inline"}'})
    near = home.project / "sub"
    put_theme(home, near / "opencode.json", "near json")
    seen = [themes(home.load(near))]
    for name, directory in (("near", near), ("top", home.project), ("home", home.root)):
        put_theme(home, directory / ".opencode" / "opencode.json", name)
        seen.append(themes(home.load(near)))
    home.with_env({"OPENCODE_CONFIG_DIR": str(home.root / "own")})
    put_theme(home, home.root / "own" / "opencode.json", "own")
    seen.append(themes(home.load(near)))
    assert seen == ["inline", "near", "top", "home", "own"]


def test_as_in_opencode_a_global_agent_beats_a_file_of_the_project(home: Any) -> None:
    home.write(home.config / "agent" / "a.md", "global")
    home.write(home.project / "opencode.json", '{"agent": {"a": {"prompt": "project"}}}')
    assert home.load().config.agent == {"a": AgentConfig(prompt="project")}
    home.with_env({"WEFT_CONFIG_ORDER": "opencode"})
    assert home.load().config.agent == {"a": AgentConfig(prompt="global")}


def test_nothing_above_the_worktree_is_read(home: Any) -> None:
    put_theme(home, home.project.parent / "opencode.json", "above")
    put_theme(home, home.project.parent / ".opencode" / "opencode.json", "above")
    assert themes(home.load()) is None


def test_the_persons_own_directories_stay_trusted_inside_a_project(home: Any) -> None:
    home.project = home.root
    put_theme(home, home.root / ".opencode" / "opencode.json", "home")
    put_theme(home, home.config / "opencode.json", "global")
    loaded = home.load(home.config)
    assert [(layer.origin.kind, layer.origin.own) for layer in loaded.layers] == [
        ("global", True),
        ("home", True),
    ]


def test_project_configuration_can_be_disabled(home: Any) -> None:
    put_theme(home, home.project / "opencode.json", "file")
    put_theme(home, home.project / ".opencode" / "opencode.json", "directory")
    home.with_env({"OPENCODE_DISABLE_PROJECT_CONFIG": "1"})
    loaded = home.load()
    assert (themes(loaded), loaded.directories) == (None, ())


def test_a_custom_directory_that_is_already_known_is_read_once_and_last(home: Any) -> None:
    home.with_env({"OPENCODE_CONFIG_DIR": str(home.config)})
    put_theme(home, home.config / "opencode.json", "mine")
    put_theme(home, home.project / "opencode.json", "project")
    loaded = home.load()
    assert (themes(loaded), loaded.directories) == ("mine", (str(home.config),))
    assert len(loaded.layers) == 2


def test_a_root_json_beats_a_nested_jsonc(home: Any) -> None:
    home.write(home.project / "opencode.json", '{"username": "root"}')
    home.write(home.project / "sub" / "opencode.jsonc", '{"username": "nested"}')
    assert home.load(home.project / "sub").config.username == "root"


def test_instructions_and_plugins_are_joined_and_other_lists_replaced(home: Any) -> None:
    home.write(
        home.config / "opencode.json",
        '{"instructions": ["a", "b"], "plugin": ["p@1", "q"], "disabled_providers": ["x"]}',
    )
    home.write(
        home.project / "opencode.json",
        '{"instructions": ["c", "a"], "plugin": ["p@2"], "disabled_providers": ["y"]}',
    )
    loaded = home.load()
    config = loaded.config
    assert config.instructions == ("a", "b", "c")
    assert config.plugin == ("q", "p@2")
    assert config.disabled_providers == ("y",)
    own = [loaded.origins[key].own for key in (("instructions", "1"), ("instructions", "2"), ("plugin", "1"))]
    assert own == [True, False, False]


def test_the_order_of_permissions_is_kept(home: Any) -> None:
    home.write(
        home.config / "opencode.json", '{"permission": {"bash": {"z": "ask", "a": "deny"}, "*": "ask"}}'
    )
    home.write(
        home.project / "opencode.json",
        '{"permission": {"edit": "deny", "bash": {"m": "allow", "z": "deny"}}}',
    )
    permission = home.load().config.permission
    assert permission == {"bash": {"z": "deny", "a": "deny", "m": "allow"}, "*": "ask", "edit": "deny"}
    assert list(permission) == ["bash", "*", "edit"]
    assert list(permission["bash"]) == ["z", "a", "m"]


def test_a_permission_given_as_one_word_applies_to_everything(home: Any) -> None:
    home.write(home.config / "opencode.json", '{"permission": {"bash": "deny"}}')
    home.write(home.project / "opencode.json", '{"permission": "ask"}')
    assert list(home.load().config.permission.items()) == [("bash", "deny"), ("*", "ask")]


def test_the_old_tools_key_becomes_permissions_that_come_first(home: Any) -> None:
    home.write(
        home.project / "opencode.json",
        '{"permission": {"webfetch": "ask", "bash": "allow"}, "tools": {"write": false, "bash": false, "x": true}}',
    )
    permission = home.load().config.permission
    assert list(permission.items()) == [
        ("edit", "deny"),
        ("bash", "allow"),
        ("x", "allow"),
        ("webfetch", "ask"),
    ]


@pytest.mark.parametrize("tool", ["write", "edit", "patch", "multiedit"])
def test_every_old_tool_that_writes_maps_to_edit(home: Any, tool: str) -> None:
    home.write(home.project / "opencode.json", json.dumps({"tools": {tool: False}}))
    assert home.load().config.permission == {"edit": "deny"}


def test_old_keys_of_an_agent_become_new_ones_and_unknown_keys_options(home: Any) -> None:
    agent = {
        "tools": {"patch": False, "bash": True},
        "permission": {"bash": "ask"},
        "maxSteps": 4,
        "options": {"a": 1},
        "reasoningEffort": "high",
        "model": ["p/m", "p/n"],
    }
    home.write(home.project / "opencode.json", json.dumps({"agent": {"x": agent}}))
    assert home.load().config.agent == {
        "x": AgentConfig(
            tools={"patch": False, "bash": True},
            permission={"edit": "deny", "bash": "ask"},
            steps=4,
            max_steps=4,
            options={"a": 1, "reasoningEffort": "high"},
            model=("p/m", "p/n"),
        )
    }


def test_a_mode_becomes_a_primary_agent(home: Any) -> None:
    home.write(
        home.project / "opencode.json",
        '{"mode": {"x": {"prompt": "mode", "mode": "all"}}, "agent": {"x": {"prompt": "agent", "top_p": 0.5}}}',
    )
    assert home.load().config.agent == {"x": AgentConfig(prompt="mode", mode="primary", top_p=0.5)}


def test_the_permission_variable_overrides_the_files(home: Any) -> None:
    home.write(home.project / "opencode.json", '{"permission": {"bash": {"a": "ask"}, "edit": "ask"}}')
    home.with_env({"OPENCODE_PERMISSION": '{"bash": {"b": "deny"}, "edit": "deny"}'})
    loaded = home.load()
    assert loaded.config.permission == {"bash": {"a": "ask", "b": "deny"}, "edit": "deny"}
    assert loaded.origins[("permission", "edit")] == ConfigOrigin(
        kind="environment", path="OPENCODE_PERMISSION", own=True
    )


@pytest.mark.parametrize("text", ["deny", '"deny"'])
def test_the_permission_variable_may_be_one_word(home: Any, text: str) -> None:
    assert home.with_env({"OPENCODE_PERMISSION": text}).load().config.permission == {"*": "deny"}


def test_a_broken_permission_variable_is_a_problem_and_everything_asks(home: Any) -> None:
    loaded = home.with_env({"OPENCODE_PERMISSION": '{"bash": "sk-secret'}).load()
    assert [str(error) for error in loaded.problems] == [
        "OPENCODE_PERMISSION:1:10: bash: this string has no closing quote",
        'OPENCODE_PERMISSION: permission: expected "ask", "allow" or "deny"',
    ]
    assert loaded.config.permission == {"*": "ask"}


def test_a_broken_file_with_permissions_makes_everything_ask(home: Any) -> None:
    home.write(home.config / "opencode.json", '{"permission": {"bash": "allow"}}')
    broken = home.write(home.project / "opencode.json", '{"permission": {"bash": "deny"}')
    loaded = home.load()
    assert list(loaded.config.permission.items()) == [("bash", "allow"), ("*", "ask")]
    assert [str(error) for error in loaded.problems] == [
        f"{broken}:1:32: permission: a comma or a closing bracket is missing before this",
        f'{broken}: permission: the rules cannot be read; until the file is corrected, every permission is "ask"',
    ]


def test_flags_disable_compaction(home: Any) -> None:
    home.write(home.project / "opencode.json", '{"compaction": {"auto": true, "prune": true}}')
    home.with_env({"OPENCODE_DISABLE_AUTOCOMPACT": "1"})
    assert home.load().config.compaction == CompactionConfig(auto=False, prune=True)
    home.with_env({"OPENCODE_DISABLE_PRUNE": "true"})
    assert home.load().config.compaction == CompactionConfig(auto=False, prune=False)


def test_the_old_autoshare_key_sets_share(home: Any) -> None:
    home.write(home.config / "opencode.json", '{"autoshare": true}')
    loaded = home.load()
    assert (loaded.config.share, loaded.origins[("share",)].path) == (
        "auto",
        str(home.config / "opencode.json"),
    )
    home.write(home.project / "opencode.json", '{"share": "disabled"}')
    assert home.load().config.share == "disabled"


def test_configured_key_bindings_stay_and_the_others_get_defaults(home: Any) -> None:
    home.write(home.project / "opencode.json", '{"keybinds": {"leader": "ctrl+o"}}')
    keybinds = home.load().config.keybinds
    assert (keybinds["leader"], keybinds["session_new"], len(keybinds)) == ("ctrl+o", "<leader>n", 93)


def test_the_path_of_a_plugin_is_relative_to_its_file(home: Any) -> None:
    plugin = home.write(home.project / "tools" / "mine.ts", "")
    found = home.write(home.project / ".opencode" / "plugin" / "other.js", "")
    entries = ["./tools/mine.ts", "./not-there.ts", "@scope/pkg@1.2", "@scope/pkg@2.0"]
    home.write(home.project / "opencode.json", json.dumps({"plugin": entries}))
    assert home.load().config.plugin == (
        f"file://{plugin}",
        "./not-there.ts",
        "@scope/pkg@2.0",
        f"file://{found}",
    )


def test_the_old_toml_file_is_read_and_not_changed(home: Any) -> None:
    old = home.write(home.config / "config", 'provider = "p"\nmodel = "m"\ntheme = "dark"\n')
    config = home.load().config
    assert (config.model, config.theme, old.exists()) == ("p/m", "dark", True)
    assert not (home.config / "config.json").exists()


def test_an_mcp_server_may_be_split_across_layers(home: Any) -> None:
    home.write(home.config / "opencode.json", '{"mcp": {"s": {"type": "local", "command": ["x", "y"]}}}')
    home.write(home.project / "opencode.json", '{"mcp": {"s": {"enabled": false}, "t": {"enabled": true}}}')
    loaded = home.load()
    assert loaded.config.mcp == {"s": McpLocalConfig(command=("x", "y"), enabled=False)}
    assert (loaded.problems, [error.key for error in loaded.warnings]) == ((), ["mcp.t"])


def test_an_incomplete_entry_is_reported_for_the_layer_that_began_it(home: Any) -> None:
    path = home.write(home.config / "opencode.json", '{\n"command": {"c": {"agent": "build"}}}')
    home.write(home.project / "opencode.json", '{"command": {"c": {"description": "weave"}}}')
    loaded = home.load()
    assert [str(error) for error in loaded.problems] == [f'{path}:2:13: command.c: "template" is missing']
    assert loaded.config.command == {}


def test_an_incomplete_entry_is_reported_for_the_first_layer_of_which_anything_is_left(home: Any) -> None:
    first = home.write(home.config / "config.json", '{"mcp": {"s": {"headers": {"a": "1"}, "oauth": {}}}}')
    home.write(home.config / "opencode.json", '{"mcp": {"s": {"headers": {"b": "2"}}}}')
    home.write(home.project / "opencode.json", '{"mcp": {"s": {"headers": {"a": "3"}}}}')
    assert [str(error) for error in home.load().problems] == [f'{first}:1:10: mcp.s: "type" is missing']


MANY = [
    ("{%s}", '"unknown%d": 1', 120_000),
    ("{%s}", '"unknown%d": "{env:USER}"', 60_000),
    ('{"mcp": {%s}}', '"s%d": {"enabled": true}', 50_000),
    ('{"tools": {%s}}', '"t%d": true', 60_000),
    ('{"instructions": [%s]}', '"%d.md"', 120_000),
]


@pytest.mark.timeout(30)
@pytest.mark.parametrize(("around", "entry", "count"), MANY, ids=[entry for _, entry, _ in MANY])
def test_a_file_of_very_many_settings_is_read_in_linear_time(
    home: Any, around: str, entry: str, count: int
) -> None:
    home.write(home.project / "opencode.json", around % ",\n".join(entry % number for number in range(count)))
    loaded = home.load()
    assert loaded.problems == ()
    assert len(loaded.warnings) == (count if "enabled" in entry or "unknown" in entry else 0)


@pytest.mark.timeout(30)
def test_very_many_settings_in_two_files_have_the_origin_of_the_stronger_one(home: Any) -> None:
    rules = json.dumps({"permission": {f"p{number}": "ask" for number in range(50_000)}})
    for directory in (home.config, home.project):
        home.write(directory / "opencode.json", rules)
    assert home.load().origins[("permission", "p7")].kind == "project"


def test_only_the_first_thousand_mistakes_get_a_suggestion(home: Any) -> None:
    home.write(home.project / "opencode.json", json.dumps({f"modle{number}": 1 for number in range(1001)}))
    reported = [(error.key, error.near) for error in home.load().warnings]
    assert reported == [(f"modle{number}", "mode" if number < 1000 else "") for number in range(1001)]


def test_the_origin_of_every_setting_is_recorded(home: Any) -> None:
    mine = home.write(
        home.config / "opencode.json", '{"model": "a/b", "agent": {"x": {"prompt": "p", "steps": 1}}}'
    )
    theirs = home.write(home.project / "opencode.json", '{"agent": {"x": {"steps": 2}}}')
    origins = home.load().origins
    own = ConfigOrigin(kind="global", path=str(mine), own=True)
    assert {key: origin for key, origin in origins.items() if key[0] not in ("keybinds", "username")} == {
        ("model",): own,
        ("agent", "x", "prompt"): own,
        ("agent", "x", "steps"): ConfigOrigin(kind="project", path=str(theirs), own=False),
    }


def test_directories_are_listed_weakest_first(home: Any) -> None:
    near = home.project / "sub"
    for directory in (home.config, home.root / ".opencode", home.project / ".opencode", near / ".opencode"):
        directory.mkdir(parents=True)
    assert home.load(near).directories == (
        str(home.config),
        str(home.root / ".opencode"),
        str(home.project / ".opencode"),
        str(near / ".opencode"),
    )


def test_file_references_are_relative_to_the_file_or_to_home(home: Any) -> None:
    home.write(home.project / "prompt.md", '  Say "hi" for $& and $1.\n\n')
    home.write(home.root / "key", "k\n")
    home.write(
        home.project / "opencode.json",
        '{"agent": {"x": {"prompt": "{file:prompt.md}"}}, "provider": {"p": {"options": {"apiKey": "{file:~/key}"}}}}',
    )
    config = home.load().config
    assert config.agent == {"x": AgentConfig(prompt='Say "hi" for $& and $1.')}
    assert config.provider["p"].options == {"apiKey": "k"}


def test_an_untrusted_project_gets_no_substitutions(home: Any) -> None:
    home.with_env({"SECRET": "s"})
    home.write(home.config / "opencode.json", '{"theme": "{env:SECRET}"}')
    home.write(home.project / "opencode.json", '{"model": "{env:SECRET}", "default_agent": "plan"}')
    config = load_config(home.scope(trusted=False)).config
    assert (config.theme, config.model, config.default_agent) == ("s", None, "plan")


def test_a_missing_referenced_file_is_a_problem(home: Any) -> None:
    loaded = home.with_env({"OPENCODE_CONFIG": "nowhere.json"}).load()
    assert [str(error) for error in loaded.problems] == [
        f"{home.project}/nowhere.json: does not exist, but OPENCODE_CONFIG names it"
    ]


def test_a_broken_file_leaves_the_others_in_force(home: Any) -> None:
    home.write(home.config / "opencode.json", '{"theme": "mine"}')
    broken = home.write(home.project / "opencode.json", '{"model": "a/b",\n "theme" "theirs"}')
    loaded = home.load()
    assert themes(loaded) == "mine"
    assert [str(error) for error in loaded.problems] == [f"{broken}:2:10: a colon is missing after the key"]


def test_a_link_to_a_large_tree_is_not_read_to_its_end(home: Any) -> None:
    for number in range(MAX_DIRECTORIES + 10):
        (home.root / "disk" / str(number)).mkdir(parents=True)
        (home.root / "disk" / str(number) / "x.md").touch()
    (home.project / ".opencode" / "command").mkdir(parents=True)
    (home.project / ".opencode" / "command" / "all").symlink_to(home.root / "disk")
    loaded = home.load()
    assert [problem.reason for problem in loaded.problems] == [
        "has more than 2,000 directories; the others are not read"
    ]
    assert len(loaded.config.command) < MAX_DIRECTORIES


def test_a_strict_load_raises_the_first_problem(home: Any) -> None:
    home.write(home.project / "opencode.json", '{"snapshot": "no"}')
    with pytest.raises(ConfigError, match="snapshot: expected true or false, found a string"):
        home.load(strict=True)


def test_invalid_flags_are_warnings(home: Any) -> None:
    loaded = home.with_env({"OPENCODE_EXPERIMENTAL_OUTPUT_TOKEN_MAX": "x"}).load()
    assert [error.path for error in loaded.warnings] == ["environment"]


def auth(home: Any) -> None:
    entries = {
        "https://org.example/": {"type": "wellknown", "key": "ORG_TOKEN", "token": "t0ken"},
        "openai": {"type": "api", "key": "sk-1"},
    }
    home.write(Path(home.paths.auth_file), json.dumps(entries))


def test_the_configuration_of_an_organisation_is_the_weakest_layer(home: Any) -> None:
    auth(home)
    asked = []

    def fetch(url: str) -> bytes:
        asked.append(url)
        options = {"apiKey": "{env:ORG_TOKEN}", "baseURL": "{file:/etc/passwd}"}
        return json.dumps({"config": {"theme": "org", "provider": {"o": {"options": options}}}}).encode()

    home.write(home.config / "opencode.json", '{"theme": "mine", "small_model": "x/{env:ORG_TOKEN}"}')
    loaded = home.load(fetch=fetch)
    assert asked == ["https://org.example/.well-known/opencode"]
    assert (loaded.config.theme, loaded.config.small_model) == ("mine", "x/t0ken")
    assert loaded.config.provider["o"].options == {"apiKey": "t0ken"}
    assert loaded.environment == {"ORG_TOKEN": "t0ken"}
    # A user cannot repair the configuration of an organisation, so it does not prevent starting.
    assert (loaded.problems, [error.reason for error in loaded.warnings]) == (
        (),
        ["a file cannot be referenced here"],
    )
    # The next load has the same, also without a network.
    assert (home.load().config, len(asked)) == (loaded.config, 1)


def fail_to_connect(url: str) -> bytes:
    raise ConnectionRefusedError("with a secret")


def answer_html(url: str) -> bytes:
    return b"<html>secret</html>"


def answer_empty(url: str) -> bytes:
    return b"{}"


def test_an_organisation_that_does_not_answer_does_not_prevent_starting(home: Any) -> None:
    auth(home)
    home.write(home.config / "opencode.json", '{"theme": "mine"}')
    url = "https://org.example/.well-known/opencode"
    said = {}
    for fetch in (fail_to_connect, answer_html, answer_empty):
        loaded = home.load(fetch=fetch, strict=True)
        said[fetch.__name__] = (loaded.config.theme, [str(error) for error in loaded.warnings])
    assert said == {
        "fail_to_connect": ("mine", [f"{url}: could not be fetched (ConnectionRefusedError)"]),
        "answer_html": ("mine", [f"{url}: the answer is not JSON"]),
        "answer_empty": ("mine", []),
    }


def test_a_warning_says_that_nothing_was_fetched(home: Any) -> None:
    auth(home)
    assert [error.reason for error in home.load().warnings] == ["has not been fetched yet"]


def test_the_cached_configuration_of_an_organisation_is_used_if_it_does_not_answer(home: Any) -> None:
    auth(home)
    home.load(fetch=lambda _: b'{"config": {"theme": "org"}}')
    (copy,) = (Path(home.paths.cache) / "weft" / "remote").iterdir()
    os.utime(copy, (0, 0))
    for fetch, told in (
        (fail_to_connect, "could not be fetched (ConnectionRefusedError)"),
        (answer_html, "the answer is not JSON"),
    ):
        loaded = home.load(fetch=fetch, strict=True)
        assert loaded.config.theme == "org"
        assert [error.reason for error in loaded.warnings] == [f"{told}; using an earlier copy"]
    assert home.load(fetch=lambda _: b'{"config": {"theme": "new"}}').config.theme == "new"
    assert home.load(fetch=fail_to_connect).config.theme == "new"  # it is fresh: nothing is fetched


def test_an_invalid_login_url_is_reported_and_not_fetched(home: Any) -> None:
    entries = {"file:///etc": {"type": "wellknown", "key": "K", "token": "t"}}
    home.write(Path(home.paths.auth_file), json.dumps(entries))
    loaded = home.load(fetch=lambda _: b'{"config": {"theme": "org"}}')
    assert (loaded.config.theme, [error.reason for error in loaded.warnings]) == (
        None,
        ["is not an http or https address"],
    )


def test_a_broken_credentials_file_is_a_problem_that_quotes_nothing(home: Any) -> None:
    home.write(Path(home.paths.auth_file), '{"x": {"key": "sk-secret"')
    (problem,) = home.load().problems
    assert str(problem) == f"{home.paths.auth_file}: not JSON"
    assert problem.hint == "correct it; or move it away and store your keys again: weft auth login"


def test_a_command_in_json_is_parsed(home: Any) -> None:
    home.write(home.project / "opencode.json", '{"command": {"c": {"template": "do $1", "subtask": true}}}')
    assert home.load().config.command == {"c": CommandConfig(template="do $1", subtask=True)}


def test_a_float_without_a_fraction_is_an_integer(home: Any) -> None:
    home.write(home.project / "opencode.json", '{"agent": {"build": {"steps": 3.0}}, "subagent_depth": 0.0}')
    loaded = home.load()
    assert (loaded.problems, loaded.config.agent["build"].steps, loaded.config.subagent_depth) == ((), 3, 0)


@pytest.mark.parametrize("name", ["opencode.json", ".opencode/agent/x.md"])
@pytest.mark.parametrize("kind", ["pipe", "link to a device"])
def test_a_pipe_or_a_device_is_a_problem_and_nobody_waits_for_it(home: Any, name: str, kind: str) -> None:
    path = home.project / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    (problem,) = home.load().problems
    assert problem.path == str(path)
    assert "it is a pipe or a device" in str(problem)


def test_a_person_may_name_a_pipe_as_the_configuration(home: Any) -> None:
    reading, writing = os.pipe()
    os.write(writing, b'{"theme": "piped"}')
    os.close(writing)
    try:
        loaded = home.with_env({"OPENCODE_CONFIG": f"/dev/fd/{reading}"}).load()
    finally:
        os.close(reading)
    assert loaded.config.theme == "piped"
