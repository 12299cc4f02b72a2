"""Search files for a pattern where ripgrep is not installed.

A script that `grep` runs in a separate process with `limit pattern file-with-names`. It prints what ripgrep prints with
`--null`: name, NUL, line number, colon, line. It imports the standard library only.
"""

import os
import re
import sys

MAX_LINE_LENGTH = 10_000
SNIFF_BYTES = 8192
MAX_FILE_BYTES = 256 << 20


def scan(limit: int, pattern: str, names: list[bytes]) -> int:
    """Print up to `limit` matches. Return 2 if a file could not be read, else 0."""
    regex = re.compile(pattern)
    code = 0
    for name in names:
        try:
            limit = _scan_file(name, regex, limit)
        except OSError:
            code = 2
        if limit <= 0:
            break
    return code


def _scan_file(name: bytes, regex: "re.Pattern[str]", limit: int) -> int:
    """Print up to `limit` matches in one file, and return how many more may be printed."""
    out = sys.stdout.buffer
    with open(name, "rb") as file:
        if b"\0" in file.read(SNIFF_BYTES) or os.fstat(file.fileno()).st_size > MAX_FILE_BYTES:
            return limit
        file.seek(0)
        for number, raw in enumerate(file, 1):
            line = raw.rstrip(b"\r\n").decode(errors="replace")
            if regex.search(line):
                out.write(b"%s\0%d:%s\n" % (name, number, line[:MAX_LINE_LENGTH].encode()))
                limit -= 1
                if limit <= 0:
                    break
    return limit


if __name__ == "__main__":
    with open(sys.argv[3], "rb") as list_file:
        file_names = [name for name in list_file.read().split(b"\0") if name]
    sys.exit(scan(int(sys.argv[1]), sys.argv[2], file_names))
