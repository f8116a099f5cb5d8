"""An order of ids that depends on nothing but the ids and a seed."""

import hashlib
from collections.abc import Sequence


def hashed_order(ids: Sequence[str], seed: int) -> list[int]:
    """Order ids by a hash of them and the seed: the same on every machine, and in every subset of the ids."""
    keys = [hashlib.sha256(f"{seed} {entry}".encode()).digest() for entry in ids]
    return sorted(range(len(ids)), key=keys.__getitem__)
