"""Commands that are judged harmless, run by a real bash in a sandbox: none of them does what the rules forbid."""

from pathlib import Path

import pytest

from given.shell_commands import CommandGenerator
from given.shell_fuzz import find_holes, fuzz
from given.shell_trial import Effects, is_possible, make_trial_tree, open_trial

pytestmark = pytest.mark.skipif(not is_possible(), reason="bubblewrap cannot put up a sandbox here")


def test_a_trial_reports_what_a_command_did(tmp_path: Path) -> None:
    tree = make_trial_tree(tmp_path.resolve())
    commands = (
        "ls",
        "touch MARK",
        "md5sum settings",
        "/bin/rm build/out.o",
        "(sleep 0.01; echo x >../outside/y) &",
        "exec 3<>/dev/tcp/127.0.0.1/7777; echo x >/dev/tcp/127.0.0.1/7777",
        "ls",
    )
    with open_trial(tree) as trial:
        effects = [trial.run(command) for command in commands]
    assert effects == [
        Effects(),
        Effects(changed=("project/MARK",), ran=("touch",)),
        Effects(read=("project/.env",)),
        Effects(changed=("project/build/out.o",), ran=("rm",)),
        Effects(changed=("outside/y",)),
        Effects(reached=2),
        Effects(),
    ]
    assert (tree.project / "build" / "out.o").exists()


def test_the_effects_of_a_command_are_compared_with_the_rules() -> None:
    changed, read = Effects(changed=("project/MARK",)), Effects(read=("project/.env",))
    removed, hook = Effects(ran=("rm",)), Effects(changed=("project/.git/hooks/pre-commit",))
    reached = Effects(reached=1)
    assert [find_holes(deeds) for deeds in (Effects(), changed, read, removed, hook, reached)] == [
        (),
        ("plan",),
        ("default", "plan", "no-rm", "listed"),
        ("no-rm", "listed"),
        ("default", "plan", "no-rm", "listed"),
        ("default", "plan", "no-rm", "listed"),
    ]


def test_no_command_that_is_judged_harmless_does_anything_forbidden() -> None:
    found = fuzz(seed=20, count=400)
    assert found.holes == ()
    assert found.tried > 300
    assert found.run > 60


def test_the_same_seed_makes_the_same_commands() -> None:
    first, second = CommandGenerator(5).commands(), CommandGenerator(5).commands()
    assert [next(first) for _ in range(50)] == [next(second) for _ in range(50)]
