"""The `weft` command. `--version` is answered before anything else is imported."""

from __future__ import annotations

import codecs
import gc
import os
import sys

from weft.version import VERSION

# Importing `typing` takes half of the time of `weft --version`. Type checkers take this name for true, as they do the one in there.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO

ESCAPE_HANDLER = "weft.escaped"
# How many more objects must exist before Python looks for cycles again. With its default of 700 it does so 150 times while
# our modules are imported, and finds nothing. Runs leave next to no cycles behind: memory after 120 of them is the same.
COLLECT_AFTER = 100_000


def main() -> int:
    open_streams()
    if sys.argv[1:] in (["--version"], ["-v"]):
        sys.stdout.write(f"{VERSION}\n")
        return 0
    gc.set_threshold(COLLECT_AFTER, *gc.get_threshold()[1:])
    import_msgspec()
    from weft.cli.main import run_command  # noqa: PLC0415  `--version` does not need it

    try:
        return run_command(sys.argv[1:], own_process=True)
    finally:
        # When it exits, Python looks for cycles among all objects several times, except among frozen ones.
        gc.freeze()


def open_streams() -> None:
    """Make sure that the standard streams can be read and written, however the process was started.

    A closed stream is replaced by the null device: otherwise the next file that is opened would get its number, and
    printed text would end up in that file. Characters that the encoding of an output does not have are escaped as in
    JSON, so that JSON stays valid. Bytes of the input that are not text become escapes such as `\\xfc`.
    """
    codecs.register_error(ESCAPE_HANDLER, escape)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream: TextIO | None = getattr(sys, name)
        if stream is None:
            stream = open_null_device(number)
            setattr(sys, name, stream)
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is None:
            continue
        if number == 0:
            reconfigure(errors="backslashreplace")
        elif stream.errors == "strict" or codecs.lookup(stream.encoding).name != "utf-8":
            reconfigure(errors=ESCAPE_HANDLER)


def open_null_device(number: int) -> TextIO:
    """Open the null device under this file descriptor."""
    descriptor = os.open(os.devnull, os.O_RDWR)
    if descriptor != number:
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.set_inheritable(number, True)  # so that programs which we start have it, too
    return open(number, "r" if number == 0 else "w", encoding="utf-8", closefd=False)


def escape(error: UnicodeError) -> tuple[str, int]:
    """Replace characters that cannot be encoded with JSON escapes: an error handler for `codecs`."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[index : index + 4]}" for index in range(0, len(units), 4)), error.end


def import_msgspec() -> None:
    """Import msgspec without `typing_extensions`, which it tries before `typing`.

    `typing` is enough on every Python that we support, and importing `typing_extensions` takes a fifth of the time of
    `weft session list`. Later imports of `typing_extensions` work as usual.
    """
    name = "typing_extensions"
    if name not in sys.modules:
        # None makes the import fail.
        sys.modules[name] = None  # type: ignore[assignment]
        try:
            import msgspec  # noqa: F401, PLC0415  it must happen while the other name is hidden
        finally:
            del sys.modules[name]


if __name__ == "__main__":
    sys.exit(main())
