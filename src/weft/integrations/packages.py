"""Check for the optional packages that integrations need."""

from importlib.util import find_spec

from weft.errors import MissingPackageError


def require_package(module: str, extra: str) -> None:
    """Raise `MissingPackageError` if a module is not installed. `extra` is the extra of weft that brings it."""
    if find_spec(module) is None:
        raise MissingPackageError(module, extra)
