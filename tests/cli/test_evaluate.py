import json
import shutil
from pathlib import Path


def _metrics(folder: Path) -> dict:
    return json.loads((folder / "metrics.json").read_text())["datasets"]["attack"]


def test_another_retriever_than_the_checkpoint_was_trained_with(trained: Path, run_command, tmp_path: Path) -> None:
    done = run_command(
        "evaluate.py", f"checkpoint={trained / 'gatv2' / 'checkpoints' / 'best.ckpt'}", "retriever=hybrid_expand",
        "retriever.top_k=30", "retriever.base_k=20", "retriever.num_seeds=10", f"hydra.run.dir={tmp_path}",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    before, after = _metrics(trained), _metrics(tmp_path)
    assert list(after["systems"]) == ["base_ranking", "ppr", "gcs", "gatv2"]
    assert after["candidates"] == before["candidates"] == 30
    assert after["base_ceiling"] == before["ceiling"] != after["ceiling"]
    assert {(entry["baseline"], entry["measure"]) for entry in after["comparisons"]} == {
        (baseline, measure) for baseline in ("base_ranking", "gcs") for measure in ("PR@10", "nDCG@10")
    }


def test_frozen_operators_take_their_restart_from_the_manifest(trained: Path, run_command, tmp_path: Path) -> None:
    shutil.copytree(trained / "gatv2", tmp_path / "run" / "gatv2")
    file = tmp_path / "run" / "gatv2" / "manifest.json"
    manifest = json.loads(file.read_text())
    manifest["operators"]["gcs"] = 1.0  # nothing flows: GCS is the base ranking
    file.write_text(json.dumps(manifest))
    done = run_command("evaluate.py", f"checkpoint={tmp_path / 'run'}", f"hydra.run.dir={tmp_path / 'out'}")
    assert done.returncode == 0, done.stderr
    for measure in ("PR@10", "R@5", "nDCG@10"):
        systems = _metrics(tmp_path / "out")["systems"]
        assert systems["gcs"][measure] == systems["base_ranking"][measure]
        assert systems["ppr"][measure] == _metrics(trained)["systems"]["ppr"][measure]
