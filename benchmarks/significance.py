"""Time paired randomisation tests of many systems: ours against ranx's Fisher test.

``python benchmarks/significance.py`` tests all pairs of ten systems in four measures over the same queries, with 10,000
permutations each, on one thread. It checks that the p-values agree within the Monte Carlo error, and prints seconds of
CPU and the peak of resident memory. ranx computes an evenly spaced part of the comparisons, and its median time is
scaled to all of them. The script needs ``pip install ranx``.
"""

import argparse
import math
import resource
import time

import numba
import numpy as np
import torch
from ranx.statistical_tests.fisher_randomization_test import fisher_randomization_test

from graphrerank.evaluation.significance import randomization_tests


def peak_mib() -> float:
    """Return the peak resident memory of this process in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Check both implementations, time them, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--systems", type=int, default=10, help="number of systems (default: %(default)s)")
    parser.add_argument("--measures", type=int, default=4, help="number of measures (default: %(default)s)")
    parser.add_argument("--queries", type=int, default=3_000, help="number of queries (default: %(default)s)")
    parser.add_argument(
        "--permutations", type=int, default=10_000, help="number of permutations per test (default: %(default)s)"
    )
    parser.add_argument(
        "--timed", type=int, default=18, help="number of comparisons that ranx computes (default: %(default)s)"
    )
    parser.add_argument("--all", action="store_true", help="let ranx compute all comparisons")
    parser.add_argument(
        "--repeats", type=int, default=3, help="number of repetitions of our test (default: %(default)s)"
    )
    args = parser.parse_args()
    torch.set_num_threads(1)
    numba.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    shape = args.systems, args.measures, args.queries
    quality = torch.rand(1, *shape[1:], generator=generator, dtype=torch.float64)
    better = torch.linspace(0, 0.02, args.systems, dtype=torch.float64).reshape(-1, 1, 1)
    scores = (quality + better + 0.2 * torch.randn(shape, generator=generator, dtype=torch.float64)).clamp(0, 1)
    pairs = [(a, b) for a in range(args.systems) for b in range(a + 1, args.systems)]
    comparisons = [(pair, measure) for pair in range(len(pairs)) for measure in range(args.measures)]
    count = len(comparisons) if args.all else min(args.timed, len(comparisons))
    asked = [comparisons[place] for place in np.linspace(0, len(comparisons) - 1, count).astype(int)]

    numbers = scores.numpy()
    fisher_randomization_test(numbers[0, 0], numbers[1, 0], n_permutations=10)  # The first call compiles.
    before = peak_mib()
    seconds, peer_seconds = [], []
    first, second = torch.tensor(pairs).T
    for _ in range(args.repeats):
        begin = time.process_time()
        ours, _ = randomization_tests(scores[first] - scores[second], permutations=args.permutations)
        seconds.append(time.process_time() - begin)
    peak = peak_mib()
    worst = 0.0
    for pair, measure in asked:
        a, b = pairs[pair]
        begin = time.process_time()
        theirs, _ = fisher_randomization_test(
            numbers[a, measure], numbers[b, measure], n_permutations=args.permutations
        )
        peer_seconds.append(time.process_time() - begin)
        error = math.sqrt(2 * max(theirs * (1 - theirs), 1 / args.permutations) / args.permutations)
        worst = max(worst, abs(float(ours[pair, measure]) - theirs) / error)
    assert worst < 5, f"a p-value is {worst:.1f} standard errors from ranx's"

    scaled = float(np.median(peer_seconds)) * len(comparisons)
    mine = float(np.median(seconds))
    print(f"{args.systems} systems, {args.measures} measures, {args.queries:,} queries, {len(comparisons)} comparisons")
    print(f"ranx computed {count} of them; p-values differ by at most {worst:.1f} standard errors")
    print("| ours, CPU s | ranx, CPU s | ratio | our peak, MiB | of it before, MiB |")
    print("| --: | --: | --: | --: | --: |")
    print(f"| {mine:.2f} | {scaled:.1f} | {scaled / mine:.0f}x | {peak:.0f} | {before:.0f} |")


if __name__ == "__main__":
    main()
