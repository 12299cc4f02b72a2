"""The exit timer ends a process that belongs to us alone, and no other (`tests/e2e/test_exit.py` tests the first)."""

import threading

from weft.host.exit import ExitTimer


def test_a_process_that_weft_does_not_own_is_never_ended() -> None:
    last_resort, before = ExitTimer(own_process=False), threading.enumerate()
    last_resort.end_within(60, 7)
    try:
        assert threading.enumerate() == before
    finally:
        last_resort.disarm()
