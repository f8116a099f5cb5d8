"""Prices of requests in CPU seconds: defaults, a fit to measurements on this machine, and later corrections."""

import statistics
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

# CPU seconds for one unit of each count of a request, on a busy machine. These prices apply until the service has
# measured its own, and to counts that its measurements do not cover.
DEFAULT_PRICES: Mapping[str, float] = {
    "requests": 3e-3,
    "documents": 15e-6,
    "characters": 4e-7,  # new words take twice as long, cached ones half as long
    "edges": 4e-6,
    "vector_numbers": 1e-8,
    "query_characters_by_documents": 2e-9,
    "query_characters_by_edges": 3e-10,
    "explanations": 5e-3,
    "explained_edges": 1e-4,
    "explained_nodes": 8e-6,  # nodes of all graphs that lack one edge
    "explained_graph_edges": 3e-6,  # directed edges of these graphs
    "encoded_texts": 2e-3,  # with a small encoder
    "encoded_characters": 5e-5,
    "searches": 0.01,
    "search_query_characters": 1e-4,
    "filters": 0.01,
    "growths": 0.1,  # mostly waiting for the disk
    "new_edges": 1e-5,
    "feedback": 2e-3,  # mostly waiting for the disk
}
NUM_RATIOS = 15  # number of recent batches whose median is the measured speed, which is robust against outliers
PRIOR_WEIGHT = 0.02  # weight of the scaled default prices relative to one measurement
ENCODING = "encoding"  # kind of work of an encoder


class Work(NamedTuple):
    """Estimated work of a request.

    Attributes:
        seconds: CPU seconds, without encoding.
        num_documents: Number of documents that count for the size of a batch.
        encoded_chars: Number of characters to encode, if the service has an encoder.
        kind: Kind of work. Estimates of each kind are corrected by measurements of that kind.
        counts: Number of units by the names of :data:`DEFAULT_PRICES`. ``seconds`` is their price.
    """

    seconds: float
    num_documents: int = 1
    encoded_chars: int = 0
    kind: str = ""
    counts: Mapping[str, float] = {}


@dataclass(frozen=True)
class Prices:
    """CPU seconds for one unit of each count of a request.

    Attributes:
        seconds: Price of one unit by name. All other counts have their default price.
    """

    seconds: Mapping[str, float]

    def of(self, counts: Mapping[str, float]) -> float:
        """Return the total price of counts in CPU seconds.

        Args:
            counts: Number of units by name.

        Example:
            >>> Prices({"documents": 0.5}).of({"documents": 4})
            2.0
        """
        total, prices = 0.0, self._by_name
        for name, count in counts.items():
            total += prices[name] * count
        return total

    @cached_property
    def _by_name(self) -> Mapping[str, float]:
        """Prices of all counts."""
        return {**DEFAULT_PRICES, **self.seconds}

    def reprice(self, work: Work) -> Work:
        """Return work at these prices.

        Args:
            work: Estimated work.

        Returns:
            The work with new ``seconds``, or the same work if it has no counts.
        """
        return work._replace(seconds=self.of(work.counts)) if work.counts else work


DEFAULTS = Prices({})


def work_of(counts: Mapping[str, float], **fields: Any) -> Work:
    """Return the work for counts at the default prices.

    Args:
        counts: Number of units by name.
        **fields: Other fields of :class:`Work`.

    Returns:
        The estimated work.
    """
    return Work(DEFAULTS.of(counts), counts=counts, **fields)


def fit_prices(measured: Sequence[tuple[Mapping[str, float], float]]) -> Prices:
    """Fit prices to measurements by non-negative least squares of relative errors.

    The default prices, scaled by the median ratio of measured and default price, serve as a weak prior. A price that
    the measurements do not determine therefore only changes with the speed of the machine.

    Args:
        measured: Counts of a request and the measured CPU seconds, for each measurement.

    Returns:
        Fitted prices of all counts that occur, or the default prices if nothing was measured.
    """
    import numpy as np  # imported here because the settings of the command line import this module
    from scipy.optimize import nnls

    names = sorted(set(chain.from_iterable(counts for counts, _ in measured)))
    pairs = [(counts, seconds) for counts, seconds in measured if seconds > 0 and DEFAULTS.of(counts) > 0]
    if not names or not pairs:
        return DEFAULTS
    scale = statistics.median(seconds / DEFAULTS.of(counts) for counts, seconds in pairs)
    # in units of the scaled default prices, so that all coefficients are of order 1
    units = np.array([scale * DEFAULT_PRICES[name] for name in names])
    rows = np.array([[counts.get(name, 0.0) for name in names] for counts, _ in pairs]) * units
    seconds = np.array([seconds for _, seconds in pairs])
    weight = PRIOR_WEIGHT * np.eye(len(names))
    coefficients, _ = nnls(
        np.concatenate([rows / seconds[:, None], weight]),
        np.concatenate([np.ones(len(pairs)), PRIOR_WEIGHT * np.ones(len(names))]),
    )
    return Prices({name: float(price) for name, price in zip(names, coefficients * units, strict=True)})


class MeasuredSpeeds:
    """Measured seconds per estimated second of work, for each kind of work.

    The speed of a kind is the median over recent batches in which the kind made up at least half of the estimated work.
    An unknown kind has the median speed of all batches.
    """

    def __init__(self) -> None:
        self._all = deque([1.0], NUM_RATIOS)
        self._by_kind: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=NUM_RATIOS))
        self._median: dict[str, float] = {}
        self.overall = 1.0

    def of(self, kind: str) -> float:
        """Return the measured seconds per estimated second of a kind of work.

        Args:
            kind: Kind of work.
        """
        return self._median.get(kind, self.overall)

    def learn(self, estimated: Mapping[str, float], seconds: float) -> None:
        """Update the speeds with one batch.

        Args:
            estimated: Estimated seconds of the batch by kind of work, before correction.
            seconds: Measured seconds of the batch.
        """
        expected = {kind: self.of(kind) * estimate for kind, estimate in estimated.items()}
        if not (total := sum(expected.values())):
            return
        self._all.append(seconds / sum(estimated.values()))
        self.overall = statistics.median(self._all)
        for kind, share in expected.items():
            if 2 * share >= total:
                self._by_kind[kind].append(share / estimated[kind] * seconds / total)
                self._median[kind] = statistics.median(self._by_kind[kind])
