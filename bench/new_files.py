"""What this machine's file system charges for creating files: CPU of a bare loop, before and after as many were removed.

    python bench/new_files.py [DIRECTORY ...]

A store of JSON files creates a file for each change of a document. ext4 without a journal, which many virtual machines have, does not
reuse an inode within minutes of its removal, and looks at each such inode before it creates a file. Measure file stores on
such a machine with that in mind, or below /dev/shm.
"""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator

DIRECTORIES, FILES = 5_000, 3
DOCUMENT = b"x" * 700


def create_files(root: str) -> None:
    for number in range(DIRECTORIES):
        os.mkdir(f"{root}/{number}")
        for file in range(FILES):
            fd = os.open(f"{root}/{number}/{file}.json", os.O_WRONLY | os.O_CREAT, 0o600)
            os.write(fd, DOCUMENT)
            os.close(fd)


def measure_rounds(place: str) -> Iterator[float]:
    """Yield the CPU of each round in microseconds for each file. After each round, all files are removed."""
    for _ in range(2):
        root = tempfile.mkdtemp(prefix="new-files-", dir=place)
        try:
            began = time.process_time()
            create_files(root)
            yield (time.process_time() - began) / (DIRECTORIES * FILES) * 1e6
        finally:
            shutil.rmtree(root)


def main() -> None:
    for place in sys.argv[1:] or [tempfile.gettempdir(), "/dev/shm"]:
        first, second = measure_rounds(place)
        print(f"{place}: {first:.0f} µs of CPU for each file; {second:.0f} µs after as many were removed")


if __name__ == "__main__":
    main()
