"""What every store must do, as checks: each is given an empty store, and fails by an assertion."""

from weft.testing.store_keeping import KEEPING
from weft.testing.store_reading import READING
from weft.testing.store_trash import TRASHING
from weft.testing.store_values import Check
from weft.testing.store_writing import WRITING

CHECKS: tuple[Check, ...] = (*WRITING, *READING, *KEEPING, *TRASHING)
