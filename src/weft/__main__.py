"""`weft`, the command. What needs nothing is answered before anything is imported."""

import codecs
import os
import sys
from typing import TextIO

from weft.version import VERSION

ESCAPED = "weft.escaped"


def main() -> int:
    open_streams()
    if sys.argv[1:] in (["--version"], ["-v"]):
        sys.stdout.write(f"{VERSION}\n")
        return 0
    import_msgspec()
    from weft.cli.main import run_command  # noqa: PLC0415  `--version` must not pay for it

    return run_command(sys.argv[1:], alone=True)


def open_streams() -> None:
    """Make the standard streams ones that can be read and written, whoever started us.

    A closed one leads nowhere: left closed, its number would go to the next file that is opened, and what is printed into
    that file. Characters that an output does not have are escaped the way JSON escapes them, so that JSON stays JSON; bytes
    on the input that are no text are shown as `\\xfc`.
    """
    codecs.register_error(ESCAPED, escape)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream: TextIO | None = getattr(sys, name)
        if stream is None:
            stream = open_nowhere(number)
            setattr(sys, name, stream)
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is None:
            continue
        if number == 0:
            reconfigure(errors="backslashreplace")
        elif stream.errors == "strict" or codecs.lookup(stream.encoding).name != "utf-8":
            reconfigure(errors=ESCAPED)


def open_nowhere(number: int) -> TextIO:
    opened = os.open(os.devnull, os.O_RDWR)
    if opened != number:
        os.dup2(opened, number)
        os.close(opened)
    os.set_inheritable(number, True)  # for programs that we start
    return open(number, "r" if number == 0 else "w", encoding="utf-8", closefd=False)


def escape(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    halves = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{halves[at : at + 4]}" for at in range(0, len(halves), 4)), error.end


def import_msgspec() -> None:
    """Import it without `typing_extensions`, which it tries before `typing`.

    On every Python we run on `typing` has what it wants, and the other costs a fifth of what listing sessions costs.
    Whoever needs it later finds it as always.
    """
    name = "typing_extensions"
    if name not in sys.modules:
        # None stands for: there is none.
        sys.modules[name] = None  # type: ignore[assignment]
        try:
            import msgspec  # noqa: F401, PLC0415
        finally:
            del sys.modules[name]


if __name__ == "__main__":
    sys.exit(main())
