"""Rank of this process in distributed training."""

import os
from collections.abc import Mapping


def is_first_process(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether this process has rank 0, or trains alone.

    Args:
        environment: Environment variables, as set by torchrun, Lightning or Slurm. Defaults to those of this process.

    Returns:
        True for the first process.

    Example:
        >>> [is_first_process(e) for e in ({}, {"LOCAL_RANK": "1"}, {"RANK": "0", "LOCAL_RANK": "0"}, {"RANK": "4"})]
        [True, False, True, False]
    """
    if "RANK" in environment:  # torchrun sets the rank across all machines.
        ranks = ["RANK"]
    elif "LOCAL_RANK" in environment or "NODE_RANK" in environment:
        ranks = ["LOCAL_RANK", "NODE_RANK"]
    else:
        ranks = ["SLURM_PROCID"]
    return all(environment.get(rank, "0") == "0" for rank in ranks)
