"""A denied command is never allowed within any shell structure, and judging never fails. Nothing is run."""

import shlex
from functools import reduce

from hypothesis import example, given
from hypothesis import strategies as st

from given.examples import examples
from given.gate_harness import rules
from weft.local.permissions import explain
from weft.tool.shell.judgement import judge_command
from weft.tool.shell.paths import CommandLocation

WHERE = CommandLocation(
    directory="/nowhere",
    worktree="/nowhere",
    roots=("/nowhere",),
    environment={"HOME": "/home/ada", "SHELL": "/bin/sh"},
)
NO_RM = (rules("*:*:allow", "bash:rm *:deny"),)

SPELLINGS = (
    "rm x",
    "'rm' x",
    '"rm" x',
    "r\\m x",
    "r''m x",
    "/bin/rm x",
    "$'rm' x",
    "$'\\x72m' x",
    "rm\tx",
    "X=1 rm x",
    ">y rm x",
    "rm x <y >z 2>&1",
    "N=rm; $N x",
    "$(echo rm) x",
    "`echo rm` x",
    "r{m,m} x",
)
# `{}` stands for a command, and `{q}` for one in quotes.
AROUND = (
    "ls; {}",
    "{}; ls",
    "ls && {}",
    "{} || ls",
    "ls | {}",
    "{} | cat",
    "ls & {}",
    "ls\n{}\nls",
    "! {}",
    "( {} )",
    "{{ {}; }}",
    "if true; then {}; fi",
    "if {}; then ls; else ls; fi",
    "if false; then ls; else {}; fi",
    "while false; do {}; done",
    "until {}; do ls; done",
    "for i in 1 2; do {}; done",
    "case x in y) ls;; x) {};; esac",
    "f() {{ {}; }}; f",
    "function g {{ {}; }}",
    "echo $({})",
    'echo "a $({}) b"',
    "echo ${{Y:-$({})}}",
    "cat <({})",
    "ls > >({})",
    "Z=$({})",
    "Z=$({}) ls",
    "export Z=$({})",
    '[ -n "$({})" ]',
    "[[ -n $({}) ]]",
    "cat <<E\n$({})\nE\n",
    "sh -c {q}",
    "bash -ec {q}",
    "eval {q}",
    "sh <<< {q}",
    "sh <<'E'\n{}\nE\n",
    "echo {q} | sh",
    "trap {q} EXIT",
    "env sh -c {q}",
    "timeout 5 sh -c {q}",
    "sudo -u me sh -c {q}",
    "find . -exec sh -c {q} \\;",
    "ls | xargs sh -c {q}",
    "git submodule foreach {q}",
    "time {}",
    "exec {}",
    "command {}",
    "env {}",
    "nohup {}",
    "nice -n 5 {}",
    "echo ls # {}\n{}",
)


def embed(text: str, around: str) -> str:
    return (
        around.replace("{q}", "{0}").format(shlex.quote(text))
        if "{q}" in around
        else around.format(*[text] * 2)
    )


# A command nested in one structure, and that in the next.
structures = st.builds(
    lambda spelling, around: reduce(embed, around, spelling),
    st.sampled_from(SPELLINGS),
    st.lists(st.sampled_from(AROUND), max_size=4),
)


@examples(600)
@given(structures)
def test_a_forbidden_command_is_found_in_any_structure(command: str) -> None:
    assert explain(command, WHERE, NO_RM).verdict != "allow"


@examples(300)
@given(st.lists(st.sampled_from(AROUND), max_size=3))
def test_a_parsed_command_is_denied(around: list[str]) -> None:
    """A command that can be parsed is denied, not merely asked about."""
    command = reduce(embed, around, "rm x")
    explanation = explain(command, WHERE, NO_RM)
    unread = any(each.part.why for each in explanation.parts)
    assert explanation.verdict == "deny" or unread


SHELL = st.text(alphabet="ab rm/.'\"\\$(){}[]<>|&;`~*?=!#\n\t-_0@:,+%^", max_size=60)


@examples(600)
@given(st.one_of(st.text(max_size=200), SHELL))
@example("\udc80")
@example("⟦")
@example("$(" * 300)
@example("((" * 50 + "))" * 50)
@example("a" * 300_000)
@example("a|" * 4000)
@example("{" + "a," * 200 + "}")
@example("~\0")
@example("<[**]")
@example("cd $'\\x80'; cat x")
def test_judging_never_fails_and_is_deterministic(text: str) -> None:
    first = judge_command(text, WHERE)
    assert first.requests
    assert judge_command(text, WHERE) == first


def test_judging_does_not_fail_if_a_directory_changes_meanwhile() -> None:
    assert judge_command("zip -r x /proc/1", WHERE).requests


@examples(300)
@given(SHELL)
def test_every_text_is_requested_as_a_command(text: str) -> None:
    assert [each.permission for each in judge_command(text, WHERE).requests].count("bash") == 1
