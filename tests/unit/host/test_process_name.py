"""The name of a process in leases: it stays the same, and no other process has it."""

import subprocess
import sys

from weft.host.processes import describe_process


def test_the_name_of_a_process_is_unique_even_if_its_number_is_reused() -> None:
    program = "from weft.host.processes import describe_process; print(describe_process())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    own, other = describe_process(), done.stdout.strip()
    assert own == describe_process()
    # Without number and machine, which two containers may have in common.
    assert own.rpartition(" ")[2] != other.rpartition(" ")[2]
