"""Check for the optional packages that integrations need."""

from importlib.util import find_spec

from weft.errors import MissingPackageError


def require_package(module: str, requirement: str) -> None:
    """Raise `MissingPackageError` if a module is not installed. `requirement` is what to install."""
    if find_spec(module) is None:
        raise MissingPackageError(module, requirement)
