"""Keep the heads of chains elsewhere, in a file or as a note in a git repository, signed on request; and read them again.

A place only grows. Each line is the set of heads at one time, and a store is verified only if every line agrees with it.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from weft.errors import DocumentError, GitError, InvalidInputError
from weft.host.files import Disk, read_bytes
from weft.host.git import Git
from weft.host.ssh import find_signer, sign_text
from weft.model.ids import SessionID
from weft.model.proof import AnchoredHead
from weft.model.wire import Wire, decode, encode
from weft.store.chain import read_chain
from weft.store.maintenance import StoreMaintenance

GIT: Final = "git"
NOTES_REF: Final = "refs/notes/weft-heads"
NAMESPACE: Final = "weft-heads"
MAX_BYTES: Final = 256 << 20


class Anchor(Wire, frozen=True, kw_only=True):
    """The heads of chains at a time (ms), and a signature of the same without it."""

    time: int
    heads: tuple[AnchoredHead, ...]
    signature: str | None = None


class AnchorCheck(Wire, frozen=True, kw_only=True):
    """The heads that count, who signed them, and what is wrong with the place itself."""

    heads: tuple[AnchoredHead, ...]
    signers: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def list_heads(store: StoreMaintenance, only: SessionID | None = None) -> list[AnchoredHead]:
    """Return the heads of all chains, or of one. Raise `InvalidInputError` if a chain is broken: an anchor must not confirm it."""
    found: list[AnchoredHead] = []
    for id in store.list_chains() if only is None else [only]:
        chain = read_chain(id, store.read_chain(id).lines)
        if chain.breaks:
            raise InvalidInputError(
                "SESSION",
                f"the chain of {id} is damaged: {chain.breaks[0]}",
                hint=f"weft storage verify {id}",
            )
        if chain.hashes:
            found.append(AnchoredHead(session=id, entries=len(chain.hashes), head=chain.head))
    return found


def add_anchor(
    place: str, heads: Sequence[AnchoredHead], *, now: int, environ: Mapping[str, str], key: str | None = None
) -> str:
    """Add heads to a place: a file, or `git` for a note at the last commit of the repository here. Return where they are.

    With a `key` they are signed.
    """
    anchor = Anchor(time=now, heads=tuple(heads))
    if key is not None:
        anchor = replace(anchor, signature=sign_text(encode(anchor), key=key, namespace=NAMESPACE))
    line = encode(anchor) + b"\n"
    if place == GIT:
        return _add_note(line.decode(), environ)
    before = _read_file(place) if os.path.exists(place) else b""
    if before and not before.endswith(b"\n"):
        line = b"\n" + line  # the last line was never written to its end
    Disk().extend(os.path.abspath(place), len(before), line)
    Disk().flush(os.path.abspath(place))
    return place


def _add_note(line: str, environ: Mapping[str, str]) -> str:
    git, here = Git(environ), os.getcwd()
    try:
        commit = git.find_commit(here)
        if commit is None:
            raise InvalidInputError(
                "PLACE", "there is no commit that a note could be attached to", hint="commit first"
            )
        before = git.list_notes(here, ref=NOTES_REF).get(commit, "")
        git.write_note(here, commit, before + line, ref=NOTES_REF)
    except GitError as error:
        raise InvalidInputError(
            "PLACE", f"no note can be written here: {error}", hint="name a file instead"
        ) from error
    return f"a note of commit {commit[:12]} (git notes --ref={NOTES_REF} show)"


def check_anchors(place: str, *, environ: Mapping[str, str], allowed: str | None = None) -> AnchorCheck:
    """Read the heads at a place. With `allowed`, a file of allowed signers, only those count that one of them signed.

    Raise `InvalidInputError` if there is nothing to read, or something other than heads.
    """
    heads, signers, problems = dict[AnchoredHead, None](), dict[str, None](), list[str]()
    lines = [line for line in _read_place(place, environ).splitlines() if line.strip()]
    if not lines:
        raise InvalidInputError("--anchor", f"{place} has no heads", hint=f"weft storage anchor {place}")
    for number, line in enumerate(lines, 1):
        try:
            anchor = decode(line.encode(), Anchor)
        except DocumentError as error:
            problems.append(f"line {number} of {place} cannot be read: {error.reason}")
            continue
        if allowed is not None:
            signer = _find_signer(anchor, allowed)
            if signer is None:
                problems.append(f"line {number} of {place} was not signed by anybody in {allowed}")
                continue
            signers[signer] = None
        heads |= dict.fromkeys(anchor.heads)
    return AnchorCheck(heads=tuple(heads), signers=tuple(signers), problems=tuple(problems))


def _find_signer(anchor: Anchor, allowed: str) -> str | None:
    unsigned = replace(anchor, signature=None)
    return find_signer(encode(unsigned), anchor.signature or "", allowed=allowed, namespace=NAMESPACE)


def _read_place(place: str, environ: Mapping[str, str]) -> str:
    try:
        if place == GIT:
            return _join(Git(environ).list_notes(os.getcwd(), ref=NOTES_REF).values())
    except GitError as error:
        raise InvalidInputError(
            "--anchor", f"notes cannot be read here: {error}", hint="name a file"
        ) from error
    return _read_file(place).decode("utf-8", "replace")


def _read_file(place: str) -> bytes:
    try:
        return read_bytes(place, limit=MAX_BYTES)
    except OSError as error:
        raise InvalidInputError(
            "--anchor",
            f"{place} cannot be read: {error.strerror or error}",
            hint=f"weft storage anchor {place}",
        ) from error


def _join(notes: Iterable[str]) -> str:
    return "\n".join(notes)
