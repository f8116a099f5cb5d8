"""Training by several processes: which of them this one is."""

import os
from collections.abc import Mapping


def is_first_process(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether this process is the first of those that train together, or alone.

    Example:
        >>> [is_first_process(e) for e in ({}, {"LOCAL_RANK": "1"}, {"RANK": "0", "LOCAL_RANK": "0"}, {"RANK": "4"})]
        [True, False, True, False]
    """
    if "RANK" in environment:  # torchrun: the rank over all machines
        ranks = ["RANK"]
    elif "LOCAL_RANK" in environment or "NODE_RANK" in environment:
        ranks = ["LOCAL_RANK", "NODE_RANK"]
    else:
        ranks = ["SLURM_PROCID"]
    return all(environment.get(rank, "0") == "0" for rank in ranks)
