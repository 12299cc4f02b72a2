"""Sign texts with an SSH key, and check such signatures, by `ssh-keygen -Y`."""

import os
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from typing import Final

from weft.errors import InvalidInputError, WeftError

SECONDS: Final = 60.0
SIGNATURE_SUFFIX: Final = ".sig"
KEY_TYPES: Final = ("ssh-", "ecdsa-", "sk-")


def sign_text(text: bytes, *, key: str, namespace: str) -> str:
    """Return a signature. `key` is the file of a private key, or of a public key whose private key an agent has.

    Raise `InvalidInputError` if the key cannot be used. A passphrase is asked for on the terminal.
    """
    with tempfile.TemporaryDirectory(prefix="weft-sign-") as directory:
        path = _write(directory, "text", text)
        done = _run(["sign", "-q", "-f", key, "-n", namespace, path])
        if done.returncode != 0:
            raise InvalidInputError(
                "--sign", f"{key} cannot sign: {_last_line(done.stderr)}", hint="name the file of an SSH key"
            )
        with open(path + SIGNATURE_SUFFIX, encoding="ascii") as file:
            return file.read()


def find_signer(text: bytes, signature: str, *, allowed: str, namespace: str) -> str | None:
    """Return who signed a text, None if nobody did who is named in the file `allowed` (see ALLOWED SIGNERS in ssh-keygen(1)).

    Raise `InvalidInputError` if there is no such file, or it is a bare public key.
    """
    if not os.path.isfile(allowed):
        raise InvalidInputError(
            "--signed-by",
            f"there is no file {allowed}",
            hint="it has a line for each signer: NAME KEYTYPE KEY, as in ~/.ssh/allowed_signers",
        )
    with open(allowed, encoding="utf-8", errors="replace") as file:
        if any(line.startswith(KEY_TYPES) for line in file):
            raise InvalidInputError(
                "--signed-by",
                f"{allowed} has a key without the name of its signer",
                hint=f'put a name before it: echo "$USER $(cat {shlex.quote(allowed)})" > allowed_signers',
            )
    with tempfile.TemporaryDirectory(prefix="weft-sign-") as directory:
        path = _write(directory, "signature", signature.encode("ascii", "replace"))
        found = _run(["find-principals", "-s", path, "-f", allowed])
        for name in found.stdout.decode(errors="replace").splitlines() if found.returncode == 0 else ():
            args = ["verify", "-f", allowed, "-I", name, "-n", namespace, "-s", path]
            if _run(args, text).returncode == 0:
                return name
    return None


def _write(directory: str, name: str, content: bytes) -> str:
    path = os.path.join(directory, name)
    with open(path, "wb") as file:
        file.write(content)
    return path


def _run(args: Sequence[str], text: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    try:
        return subprocess.run(
            ["ssh-keygen", "-Y", *args], input=text, capture_output=True, timeout=SECONDS, check=False
        )
    except FileNotFoundError as error:
        raise WeftError("ssh-keygen is not installed", hint="install OpenSSH 8.9 or later") from error
    except subprocess.TimeoutExpired as error:
        raise WeftError(f"ssh-keygen gave no answer within {SECONDS:g} s") from error


def _last_line(errors: bytes) -> str:
    lines = errors.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "ssh-keygen gave no reason"
