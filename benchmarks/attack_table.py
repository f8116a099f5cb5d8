"""Print the table of docs/results_attack.md: every feature mode with three seeds.

``python benchmarks/attack_table.py`` runs ``train.py`` once per mode and seed, one run after the other. With warm
caches, this takes about 25 minutes on two cores. Runs that are already in the output folder are not repeated.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

from command_line import add_run_folder

ROOT = Path(__file__).parents[1]
MODES = ("scores", "paper", "full")
MEASURES = ("PR@5", "PR@10", "R@10", "nDCG@10")
FROZEN = {"retriever": "retriever", "ppr": "PPR", "gcs": "GCS"}
TRAINED = {"mlp": "MLP", "gatv2": "GATv2"}


def run(folder: Path, mode: str, seed: int) -> dict[str, dict]:
    """Train one mode with one seed and return the results of its systems."""
    run_dir = folder / f"{mode}-{seed}"
    if not (run_dir / "metrics.json").is_file():
        print(f"features={mode} seed={seed}", file=sys.stderr, flush=True)
        overrides = ["data=attack", "retriever=hybrid", f"features={mode}", f"seed={seed}", f"hydra.run.dir={run_dir}"]
        subprocess.run([sys.executable, str(ROOT / "train.py"), *overrides], check=True, stdout=subprocess.DEVNULL)
    return json.loads((run_dir / "metrics.json").read_text())["datasets"]["attack"]["systems"]


def row(name: str, runs: list[dict]) -> str:
    """Format the row of a system: mean and standard deviation over seeds in percent, median latency in milliseconds."""
    cells = []
    for measure in MEASURES:
        percents = [100 * numbers[measure] for numbers in runs]
        spread = f" ± {statistics.stdev(percents):.1f}" if len(set(percents)) > 1 else ""
        cells.append(f"{statistics.mean(percents):.1f}{spread}")
    cells += [f"{statistics.median(numbers['latency_ms'][key] for numbers in runs):.2f}" for key in ("p50", "p95")]
    return f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    """Run the missing trainings and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_run_folder(parser, "attack_table")
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=[1, 2, 3], help="seeds to train with (default: %(default)s)"
    )
    parser.add_argument(
        "--modes", nargs="+", default=list(MODES), choices=MODES, help="feature modes to train; all by default"
    )
    arguments = parser.parse_args()
    runs = {mode: [run(arguments.folder.resolve(), mode, seed) for seed in arguments.seeds] for mode in arguments.modes}
    print(f"| system | features | {' | '.join(MEASURES)} | p50 ms | p95 ms |")
    print(f"| --- | --- | {'--: | ' * (len(MEASURES) + 2)}".rstrip())
    for key, name in FROZEN.items():
        print(row(f"{name} | ", [systems[key] for mode in arguments.modes for systems in runs[mode]]))
    for mode in arguments.modes:
        for key, name in TRAINED.items():
            print(row(f"{name} | `{mode}`", [systems[key] for systems in runs[mode]]))


if __name__ == "__main__":
    main()
