"""Flags in the environment."""

import pytest

from weft.config.flags import Flags, read_flags


def test_an_empty_environment_sets_no_flag() -> None:
    assert read_flags({}) == Flags()


@pytest.mark.parametrize("value", ["1", "true", "TRUE", "True"])
def test_a_flag_is_on_for_one_and_true(value: str) -> None:
    assert read_flags({"OPENCODE_DISABLE_PRUNE": value}) == Flags(disable_prune=True)


@pytest.mark.parametrize("value", ["", "0", "false", "yes", "on", " 1"])
def test_a_flag_is_off_for_anything_else(value: str) -> None:
    assert read_flags({"OPENCODE_DISABLE_PRUNE": value}) == Flags()


def test_disabling_share_needs_the_exact_value() -> None:
    assert read_flags({"OPENCODE_DISABLE_SHARE": "true"}).disable_share
    assert not read_flags({"OPENCODE_DISABLE_SHARE": "TRUE"}).disable_share


def test_disabling_claude_code_disables_its_prompt_and_skills() -> None:
    assert read_flags({"OPENCODE_DISABLE_CLAUDE_CODE": "1"}) == Flags(
        disable_claude_code_prompt=True, disable_claude_code_skills=True
    )


def test_the_experimental_flag_sets_five_others() -> None:
    assert read_flags({"OPENCODE_EXPERIMENTAL": "1"}) == Flags(
        exa=True, plan_mode=True, lsp_tool=True, icon_discovery=True, oxfmt=True
    )


@pytest.mark.parametrize("variable", ["OPENCODE_ENABLE_EXA", "OPENCODE_EXPERIMENTAL_EXA"])
def test_the_exa_flag_has_two_names(variable: str) -> None:
    assert read_flags({variable: "1"}) == Flags(exa=True)


def test_the_file_watcher_flag_has_its_real_name() -> None:
    assert read_flags({"OPENCODE_EXPERIMENTAL_FILEWATCHER": "1"}) == Flags(filewatcher=True)
    assert read_flags({"OPENCODE_EXPERIMENTAL_WATCHER": "1"}) == Flags()


def test_variables_with_numbers_and_names_set_their_flags() -> None:
    env = {
        "OPENCODE_EXPERIMENTAL_BASH_DEFAULT_TIMEOUT_MS": "5000",
        "OPENCODE_EXPERIMENTAL_OUTPUT_TOKEN_MAX": "64000",
        "OPENCODE_EXPERIMENTAL_BASH_MAX_OUTPUT_LENGTH": "1",
        "OPENCODE_CLIENT": "acp",
        "OPENCODE_SERVER_PASSWORD": "p",
        "OPENCODE_MODELS_URL": "https://m.example",
        "OPENCODE_FAKE_VCS": "git",
        "WEFT_STORE": "sqlite:/s.db",
        "WEFT_CONFIG_ORDER": "opencode",
    }
    assert read_flags(env) == Flags(
        bash_default_timeout_ms=5000,
        output_token_max=64000,
        bash_max_output_length=1,
        client="acp",
        server_password="p",
        models_url="https://m.example",
        fake_vcs="git",
        store="sqlite:/s.db",
        opencode_order=True,
    )


def test_without_a_value_how_long_a_command_may_run_is_left_to_the_tool() -> None:
    """A second default here would win over the tool's own."""
    assert read_flags({}).bash_default_timeout_ms is None


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "many", "1e3", "9" * 40, "\u0663"])
def test_an_invalid_number_is_a_warning_and_the_default_is_used(value: str) -> None:
    assert read_flags({"OPENCODE_EXPERIMENTAL_OUTPUT_TOKEN_MAX": value}) == Flags(
        warnings=(
            "OPENCODE_EXPERIMENTAL_OUTPUT_TOKEN_MAX: expected a whole number above 0; using the default",
        )
    )


def test_an_unknown_order_is_a_warning() -> None:
    assert read_flags({"WEFT_CONFIG_ORDER": "mine"}) == Flags(
        warnings=('WEFT_CONFIG_ORDER: expected "weft" or "opencode"; using "weft"',)
    )
