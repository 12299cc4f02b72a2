"""How commands in terminals of editors end."""

import signal

import pytest

from weft.api.editor import TerminalEnd
from weft.tool.shell.bash import to_exit_code


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (TerminalEnd(code=3), 3),
        (TerminalEnd(signal="SIGKILL"), 128 + signal.SIGKILL),
        (TerminalEnd(signal="TERM"), 128 + signal.SIGTERM),
        (TerminalEnd(signal="unheard of"), None),
        (TerminalEnd(), None),
    ],
)
def test_a_command_in_a_terminal_has_the_exit_code_that_a_shell_would_report(
    end: TerminalEnd, code: int | None
) -> None:
    assert to_exit_code(end) == code
