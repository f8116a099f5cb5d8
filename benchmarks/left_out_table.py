"""python benchmarks/left_out_table.py --datasets DIR: for each data set, a model that was trained without it.

Trains as ``experiment=base``, without the MLP and with two epochs, once for each set of the mix that is left out, and
evaluates on that set's test split with ``data.edges=auto``; writes docs/left_out.md. A run that is already in the
output folder is read, not repeated. Some 10 minutes a set on one core, with cached vectors.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from base_table import AUTO, EXPAND, MEASURES, ROOT, percent

from graphrerank.evaluation.run_json import with_new_names

TWO_WIKI, HOTPOT = ["two_wiki", "two_wiki_auto", "two_wiki_drafted"], ["hotpotqa", "hotpotqa_auto"]
LEFT_OUT = {  # test set -> what is left out of the mix
    "spider": ["spider", "spider_auto", "spider_drafted"],
    "bird": ["bird_train_auto", "bird_train_drafted"],  # and bird_train itself
    "2wikimultihopqa": TWO_WIKI,
    "hotpotqa": HOTPOT,
    "scifact": ["scifact", "scifact_auto", "scifact_drafted"],
    "nfcorpus": ["nfcorpus", "nfcorpus_auto"],
    "attack": ["attack", "attack_paths"],
    "2wikimultihopqa, no multi-hop data": [*TWO_WIKI, *HOTPOT],
    "hotpotqa, no multi-hop data": [*TWO_WIKI, *HOTPOT],
}
NO_BIRD = ["data=spider", "~mix.spider", "~shares.bird_train"]  # the first set of the mix is another
SYSTEMS = {"retriever": "retriever", "gcs": "GCS", "gatv2": "without the set"}


def command(script: str, run_dir: Path, settings: list[str]) -> None:
    """Run a command, unless its run is there."""
    if not (run_dir / "metrics.json").is_file():
        print(f"{script} {' '.join(settings)}", file=sys.stderr, flush=True)
        call = [sys.executable, str(ROOT / script), *settings, f"hydra.run.dir={run_dir}"]
        subprocess.run(call, check=True, stdout=subprocess.DEVNULL)


def run(arguments: argparse.Namespace, title: str) -> tuple[dict, dict]:
    """Train without a set and evaluate on it; return the results and those of ``base``."""
    folder = arguments.folder.resolve()
    common = [f"paths.datasets={arguments.datasets.resolve()}", *arguments.settings]
    left_out = [f"~{group}.{name}" for name in LEFT_OUT[title] for group in ("mix", "shares")]
    settings = ["experiment=base", "~ablations.mlp", "trainer.max_epochs=2", *left_out]
    trained, name = folder / "trained" / title.replace(", ", "_").replace(" ", "_"), title.partition(",")[0]
    command("train.py", trained, [*settings, *(NO_BIRD if name == "bird" else []), *common])
    found = []
    for checkpoint, run_dir in ((str(trained), folder / "judged" / trained.name), ("base", folder / "base" / name)):
        judged = [f"checkpoint={checkpoint}", f"data={name}", EXPAND, "counterfactuals=[]", *common]
        command("evaluate.py", run_dir, [*judged, *([] if name == "attack" else [AUTO])])
        (results,) = with_new_names(json.loads((run_dir / "metrics.json").read_text()))["datasets"].values()
        found.append(results)
    return found[0], found[1]


def rows(title: str, found: dict, base: dict) -> list[str]:
    """Lay out one set."""
    lines = []
    for system, label in SYSTEMS.items():
        cells = [percent(found["systems"][system][measure]) for measure in MEASURES]
        lines.append(f"| {title if not lines else ''} | {label} | {' | '.join(cells)} |")
    cells = [percent(base["systems"]["gatv2"][measure]) for measure in MEASURES]
    return [*lines, f"|  | `base`, which saw it | {' | '.join(cells)} |"]


def main() -> None:
    """Run what is missing and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", type=Path, required=True)
    parser.add_argument("--settings", nargs="*", default=[], help="of both commands, added to every run")
    parser.add_argument("--sets", nargs="*", default=list(LEFT_OUT), choices=list(LEFT_OUT))
    parser.add_argument("--folder", type=Path, default=Path("runs/left_out"))
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "left_out.md")
    arguments = parser.parse_args()
    table = [line for title in arguments.sets for line in rows(title, *run(arguments, title))]
    header = [f"| data set | system | {' | '.join(MEASURES)} |", f"| --- | --- |{' --: |' * len(MEASURES)}"]
    arguments.out.write_text(PAGE.format(table="\n".join([*header, *table])), encoding="utf-8")
    print(arguments.out)


PAGE = """# Data sets that the model never saw

Written by `python benchmarks/left_out_table.py --datasets DIR`. For each set a model that was trained on all others of
the mix (`python train.py experiment=base '~ablations.mlp' trainer.max_epochs=2`, without the set), one seed, on the
set's test split (Spider and BIRD: dev) with `data.edges=auto retriever=hybrid_expand`; the last row of each set is the
checkpoint that ships, which was trained on its train split, for six epochs. Percent.

{table}
"""


if __name__ == "__main__":
    main()
