"""The paths of our directories depend on the environment alone."""

import pytest

from weft.errors import DirectoryError
from weft.host.paths import Paths, find_user_name, paths_from


def test_the_default_directories_are_below_home() -> None:
    assert paths_from({"HOME": "/home/ada"}) == Paths(
        data="/home/ada/.local/share/opencode",
        config="/home/ada/.config/opencode",
        cache="/home/ada/.cache/opencode",
        state="/home/ada/.local/state/opencode",
        home="/home/ada",
        os_home="/home/ada",
    )


def test_xdg_variables_move_each_directory() -> None:
    env = {
        "HOME": "/home/ada",
        "XDG_DATA_HOME": "/d",
        "XDG_CONFIG_HOME": "/c",
        "XDG_CACHE_HOME": "/k",
        "XDG_STATE_HOME": "/s",
        "OPENCODE_TEST_HOME": "/elsewhere",
    }
    assert paths_from(env) == Paths(
        data="/d/opencode",
        config="/c/opencode",
        cache="/k/opencode",
        state="/s/opencode",
        home="/elsewhere",
        os_home="/home/ada",
    )


@pytest.mark.parametrize("value", ["", "relative/place"])
def test_an_empty_or_relative_xdg_variable_is_ignored(value: str) -> None:
    assert paths_from({"HOME": "/h", "XDG_DATA_HOME": value}).data == "/h/.local/share/opencode"


def test_each_kind_of_data_has_its_own_path() -> None:
    paths = paths_from({"HOME": "/h", "XDG_DATA_HOME": "/d", "XDG_CACHE_HOME": "/k"})
    assert (paths.storage, paths.snapshots, paths.tool_output) == (
        "/d/opencode/storage",
        "/d/opencode/snapshot",
        "/d/opencode/tool-output",
    )
    assert (paths.plans, paths.worktrees, paths.auth_file) == (
        "/d/opencode/plans",
        "/d/opencode/worktree",
        "/d/opencode/auth.json",
    )
    assert (paths.log, paths.bin, paths.models_file) == (
        "/d/opencode/log",
        "/d/opencode/bin",
        "/k/opencode/models.json",
    )


def test_without_a_home_the_error_names_the_variable_to_set() -> None:
    with pytest.raises(DirectoryError) as caught:
        paths_from({})
    assert caught.value.hint == "set HOME to your home directory"


def test_the_user_name_comes_from_the_environment() -> None:
    assert find_user_name({"USER": "ada"}) == "ada"
    assert find_user_name({"LOGNAME": "grace", "USER": "ada"}) == "grace"
    assert find_user_name({}) is None
