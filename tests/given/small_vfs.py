"""A file layer of SQLite with a limited capacity, which counts how often a file is written to the disk itself."""

import apsw


class SmallVfs(apsw.VFS):
    """Refuses to let any file grow while it is `full`, except files whose name ends with `exempt`. Unregister it after use."""

    def __init__(self, name: str) -> None:
        super().__init__(name, base="")
        self.full = False
        self.exempt = ""
        self.syncs = 0

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return _SmallFile(self, name, flags)


class _SmallFile(apsw.VFSFile):
    def __init__(self, vfs: SmallVfs, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        super().__init__("", name, flags)
        self._vfs = vfs
        path = name.filename() if isinstance(name, apsw.URIFilename) else name or ""
        self._is_exempt = bool(vfs.exempt) and path.endswith(vfs.exempt)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        if self._vfs.full and not self._is_exempt and offset + len(data) > self.xFileSize():
            raise apsw.FullError("the disk is full")
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._vfs.syncs += 1
        super().xSync(flags)
