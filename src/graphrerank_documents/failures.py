"""Note the files for which a step of indexing failed, so that one file never ends the whole run."""

import logging
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager

LOGGER = logging.getLogger(__name__)


@contextmanager
def noting_failure(failures: MutableMapping[str, list[str]], name: str, step: str) -> Iterator[None]:
    """Note an exception of the block instead of raising it.

    Only errors of the block itself are noted: KeyboardInterrupt and other exits pass. The traceback is logged at the
    level DEBUG.

    Args:
        failures: Names of the files that failed, by reason, to which the failure is added.
        name: Name of the file or document that the block processes.
        step: Description of what failed, such as ``links cannot be resolved``. With the type of the error it is the
            reason.

    Example:
        >>> failures = {}
        >>> with noting_failure(failures, "a.md", "cannot be divided into passages"):
        ...     [][0]
        >>> failures
        {'cannot be divided into passages (IndexError)': ['a.md']}

    Yields:
        None.
    """
    try:
        yield
    except Exception as error:  # whatever an untrusted file causes
        LOGGER.debug("%s: %s", name, step, exc_info=True)
        names = failures.setdefault(f"{step} ({type(error).__name__})", [])
        if name not in names[-1:]:
            names.append(name)
