"""Measure the space that a store and its other files take, and remove files that nothing refers to."""

import os
import re
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress

from msgspec.structs import replace

from weft.config.store_address import find_own_setting
from weft.errors import StoreError
from weft.host.paths import Paths
from weft.model.ids import SessionID
from weft.snapshot.gc import GcOptions, GcResult, collect_all
from weft.snapshot.location import LIMITS_KEY, choose_base, to_limits
from weft.store.findings import Leftover, LeftoverFailure, RemovedLeftovers
from weft.store.maintenance import StoreMaintenance, StoreRepairer
from weft.store.sizes import ProgressCallback, SizeCounter, StoreSizes, walk_files

OUTPUT_NAME = r"tool_[0-9A-Za-z]{20,40}"


def measure_space(
    store: StoreMaintenance, paths: Paths, *, on_progress: ProgressCallback = lambda _: None
) -> StoreSizes:
    """Measure a store and its snapshots; for the default store also tool outputs and the snapshots of OpenCode."""
    counter = SizeCounter(on_progress)
    store.measure(counter)
    places = {"undo": choose_base(paths, store.url)}
    if _is_default(store, paths):
        places |= {"tool-output": paths.tool_output, "snapshots": paths.snapshots}
    for kind, place in places.items():
        for file in walk_files(place):
            # OpenCode has one directory of snapshots for each project.
            counter.add(file.size, kind=kind, project=file.words[0] if kind == "snapshots" else "")
    return counter.sizes()


def _is_default(store: StoreMaintenance, paths: Paths) -> bool:
    return os.path.realpath(store.reader.address) == os.path.realpath(paths.storage)


def find_outputs(
    store: StoreMaintenance,
    paths: Paths,
    *,
    before: int,
    on_progress: ProgressCallback = lambda _: None,
) -> list[Leftover]:
    """Return tool outputs older than `before` (ms) that no part refers to. Parts are read only if there are old outputs.

    Outputs are shared by all stores, and only the parts of the default store are searched. That is enough for outputs older than a week:
    whatever names them, the next run removes those (`Spill.remove_old`).
    """
    old = _list_old_outputs(paths.tool_output, before) if _is_default(store, paths) else {}
    if not old:
        return []
    try:
        named = store.find_in_parts(OUTPUT_NAME, on_progress=on_progress)
    except StoreError:
        return []  # a part that cannot be read may refer to any output
    return [
        Leftover(
            kind="tool-output", where=f"{paths.tool_output}/{name}", reason="no part names it", bytes=size
        )
        for name, size in old.items()
        if name not in named
    ]


def _list_old_outputs(directory: str, before: int) -> dict[str, int]:
    """Return the names and sizes of all outputs that nobody changed since `before` (ms)."""
    try:
        names = [name for name in sorted(os.listdir(directory)) if re.fullmatch(OUTPUT_NAME, name)]
    except OSError:
        return {}
    old: dict[str, int] = {}
    for name in names:
        with suppress(OSError):
            found = os.lstat(f"{directory}/{name}")
            changed = int(max(found.st_mtime, found.st_ctime) * 1000)
            if stat.S_ISREG(found.st_mode) and changed < before:
                old[name] = found.st_size
    return old


def remove_leftovers(
    repairer: StoreRepairer, leftovers: Iterable[Leftover], outputs: Iterable[Leftover], *, before: int
) -> RemovedLeftovers:
    """Remove leftovers of a store, and tool outputs. A failure does not stop the others."""
    result = repairer.remove_leftovers(leftovers, before=before)
    removed, failed = list(result.removed), list(result.failed)
    for output in outputs:
        try:
            with suppress(FileNotFoundError):
                os.unlink(output.where)
            removed.append(output)
        except OSError as error:
            failed.append(LeftoverFailure(where=output.where, reason=error.strerror or str(error)))
    return replace(result, removed=tuple(removed), failed=tuple(failed))


def collect_snapshots(
    store: StoreMaintenance, paths: Paths, env: Mapping[str, str], *, now: int, dry_run: bool
) -> list[GcResult]:
    """Remove the snapshots that no session needs, in every directory that has any."""
    base = choose_base(paths, store.url)
    if not os.path.isdir(base):
        return []
    trashed = {session.id for bundle in store.reader.list_trash() for session in bundle.sessions}

    def is_alive(session: SessionID) -> bool:
        return store.has_session(session) or session in trashed

    budget = to_limits(find_own_setting(paths, LIMITS_KEY)).max_bytes
    return collect_all(base, env, GcOptions(is_alive=is_alive, now=now, budget=budget, dry_run=dry_run))
