"""``serve.py mode=export``, ``graphrerank export``, and the export that ``serve.py checkpoint=RUN`` begins with."""

import json
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import httpx
import pytest
import torch
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from graphrerank.artifacts import export as exporting
from graphrerank.artifacts.formats import FORMATS
from graphrerank.artifacts.parity import random_graphs
from graphrerank.cli import export, schema
from graphrerank.cli.http_service import artifact_folder
from graphrerank.models.checkpoint import Checkpoint, load_checkpoint, load_primary, save_weights
from graphrerank.models.manifest import write_manifest
from tests.support import ROOT
from tests.support.commands import RunCommand
from tests.support.models import small_checkpoint
from tests.support.running import running

WITHOUT_GRAPHRERANK = """
import sys
sys.modules["graphrerank"] = None  # `import graphrerank` fails from now on
import torch
model, inputs, scores = sys.argv[1:]
torch.save(torch.jit.load(model)(*torch.load(inputs)), scores)
try:
    import graphrerank
except ImportError:
    print("no graphrerank")
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A checkpoint folder of a small model."""
    return write_run(tmp_path / "run", small_checkpoint())


def write_run(folder: Path, checkpoint: Checkpoint) -> Path:
    save_weights(folder, checkpoint.model)
    write_manifest(folder, checkpoint.manifest.content)
    return folder


@pytest.fixture
def serve(tmp_path: Path):
    """Compose ``conf/serve.yaml`` and return the artifact that would be served."""

    def find(*overrides: str) -> Path:
        return artifact_folder(settings_of(tmp_path, *overrides))

    return find


def settings_of(tmp_path: Path, *overrides: str) -> DictConfig:
    schema.register()
    folders = (f"paths.cache={tmp_path}/cache", f"paths.runs={tmp_path}/runs", f"paths.run_dir={tmp_path}/out")
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        return compose("serve", overrides=[*folders, *overrides])


@pytest.fixture
def exports(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Shorten the parity gate; the list holds the folders that are exported to."""
    done: list[Path] = []

    def short(checkpoint, folder, *arguments, **settings):
        done.append(folder)
        return whole(checkpoint, folder, *arguments, num_batches=2, **settings)

    whole = exporting.export_artifact
    monkeypatch.setattr(exporting, "export_artifact", short)
    monkeypatch.setattr(export, "export_artifact", short)
    return done


@pytest.fixture
def quick_onnx(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a script in the place of ONNX, whose export takes seconds: its scores are those of artifacts' tests."""
    script = FORMATS["torchscript"]
    monkeypatch.setitem(FORMATS, "onnx", replace(FORMATS["onnx"], writer=script.writer, loader=script.loader))


@pytest.mark.usefixtures("exports")
def test_torchscript_of_serve_py_scores_in_a_process_without_graphrerank(
    trained: Path, run_command: RunCommand, tmp_path: Path
) -> None:
    """The two commands write the same file, and plain torch scores with it as the trained model does."""
    artifact, other = tmp_path / "artifact", tmp_path / "other"
    done = run_command(
        "serve.py", "mode=export", f"checkpoint={trained}", f"artifact={artifact}", "formats=[torchscript]"
    )
    assert done.stdout.splitlines()[-1] == str(artifact)
    run_command("export", f"checkpoint={trained}", f"artifact={other}")
    assert (artifact / "model.pt").read_bytes() == (other / "model.pt").read_bytes()
    assert (artifact / "manifest.json").read_bytes() == (other / "manifest.json").read_bytes()

    eager = load_primary(trained)
    drawn = random_graphs(eager.manifest, [3, 20], 30, torch.Generator().manual_seed(0))
    inputs = drawn.model_inputs(eager.manifest.inputs)
    torch.save(inputs, tmp_path / "inputs.pt")
    files = [str(artifact / "model.pt"), str(tmp_path / "inputs.pt"), str(tmp_path / "scores.pt")]
    plain = subprocess.run(
        [sys.executable, "-I", "-c", WITHOUT_GRAPHRERANK, *files], capture_output=True, text=True, check=False
    )
    assert plain.stdout == "no graphrerank\n", plain.stderr
    with torch.inference_mode():
        assert torch.load(tmp_path / "scores.pt").equal(eager.model(*inputs))


@pytest.mark.usefixtures("quick_onnx")
def test_without_formats_all_that_can_be_written_are_and_the_others_are_named(
    run: Path, exports, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys
) -> None:
    monkeypatch.setattr("graphrerank.artifacts.formats.shutil.which", lambda name: None)
    cfg = settings_of(tmp_path, "mode=export", f"checkpoint={run}", f"artifact={tmp_path / 'a'}")
    folder = export.export(cfg)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "aot: skipped, needs a C++ compiler, one of ['g++', 'clang++', 'cl'], but none is installed"
    assert [line.split(":")[0] for line in lines[1:-1]] == ["onnx", "safetensors", "torchscript"]
    assert lines[-1] == str(folder)
    assert {file.name for file in folder.iterdir()} == {"manifest.json", "model.onnx", "model.pt", "model.safetensors"}

    monkeypatch.setattr("graphrerank.artifacts.formats.missing_modules", lambda extra: ["onnxscript"])
    export.export(cfg)
    assert "onnx: skipped, needs onnxscript: pip install 'graphrerank[onnx]'" in capsys.readouterr().out.splitlines()
    assert {file.name for file in folder.iterdir()} == {"manifest.json", "model.pt", "model.safetensors"}
    assert json.loads((folder / "manifest.json").read_text())["artifact"]["parity"]["max_difference"].keys() == {
        "torchscript", "safetensors"
    }  # fmt: skip


def test_a_format_that_does_not_express_the_model_is_skipped_unless_it_is_named(
    exports, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(exportable, path: Path) -> None:
        path.write_text("half of it")
        raise RuntimeError("no such operator\nand its stack")

    monkeypatch.setattr("graphrerank.artifacts.formats.shutil.which", lambda name: None)
    monkeypatch.setitem(FORMATS, "onnx", replace(FORMATS["onnx"], writer=fail))
    skipped: dict[str, str] = {}
    folder = exporting.export_artifact(small_checkpoint(), tmp_path / "a", None, on_skip=skipped.__setitem__)
    assert skipped.keys() == {"aot", "onnx"}
    assert skipped["onnx"].startswith("format onnx cannot be written: no such operator")
    assert skipped["aot"].startswith("needs a C++ compiler")
    assert {file.name for file in folder.iterdir()} == {"manifest.json", "model.pt", "model.safetensors"}
    with pytest.raises(ValueError, match="format onnx cannot be written: no such operator"):
        exporting.export_artifact(small_checkpoint(), tmp_path / "b", ["torchscript", "onnx"])
    monkeypatch.setitem(FORMATS, "torchscript", replace(FORMATS["torchscript"], writer=fail))
    with pytest.raises(ValueError, match="format onnx cannot be written: no such operator"):  # nothing is left
        exporting.export_artifact(small_checkpoint(), tmp_path / "b", None)
    assert not (tmp_path / "b").exists()


def test_a_checkpoint_is_exported_once_and_again_when_it_changed(
    run: Path, serve, exports, tmp_path: Path, capsys
) -> None:
    first = serve(f"checkpoint={run}")
    assert first.parent == tmp_path / "runs" / "export"
    assert capsys.readouterr().out == f"exported {run} as torchscript\n"
    assert serve(f"checkpoint={run}") == first
    assert capsys.readouterr().out == f"already exported: {run} as torchscript\n"
    assert exports == [first]

    write_run(run, small_checkpoint(seed=5))
    second = serve(f"checkpoint={run}")
    assert second != first
    torch.testing.assert_close(
        load_checkpoint(second).model.state_dict(), load_checkpoint(run).model.state_dict(), rtol=0, atol=0
    )
    assert exports == [first, second]


@pytest.mark.usefixtures("quick_onnx")
def test_the_export_goes_to_artifact_and_is_replaced_when_it_is_not_that_of_the_checkpoint(
    run: Path, serve, exports, tmp_path: Path
) -> None:
    chosen = partial(serve, f"checkpoint={run}", f"artifact={tmp_path / 'mine'}")
    assert chosen() == chosen() == tmp_path / "mine"
    assert len(exports) == 1
    write_run(run, small_checkpoint(seed=5))
    chosen()
    assert len(exports) == 2
    (tmp_path / "mine" / "model.pt").write_bytes(b"half")  # damaged
    chosen()
    assert len(exports) == 3
    chosen("format=onnx")  # which it does not have yet
    assert len(exports) == 4
    chosen()  # it has more than enough
    assert len(exports) == 4
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    write_run(run, small_checkpoint(seed=6))
    with pytest.raises(
        ValueError, match=r"the folder must be empty or an artifact to replace, but it contains 'notes.txt'"
    ):
        chosen()


def test_a_failed_export_leaves_nothing_to_be_served(
    run: Path, serve, exports, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(exporting, "seal_manifest", stop)
        with pytest.raises(KeyboardInterrupt):
            serve(f"checkpoint={run}")
    assert list((tmp_path / "runs" / "export").iterdir()) == []
    folder = serve(f"checkpoint={run}")
    assert (folder / "model.pt").is_file()


def test_other_library_versions_export_again(run: Path, serve, exports, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(f"checkpoint={run}")
    monkeypatch.setattr(exporting, "library_versions", lambda: {"torch": "9.9"})
    serve(f"checkpoint={run}")
    assert len(exports) == 2


@pytest.mark.slow
def test_serve_py_exports_a_checkpoint_and_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body = {"query": "q", "documents": ["a q", "b"], "scores": [0.1, 0.9], "edges": [[0, 1]]}
    with running(tmp_path, "checkpoint=base", "encoder=none") as service:
        answer = httpx.post(f"{service.url}/v2/rerank", json=body, timeout=60)
        assert answer.status_code == 200, answer.text
        assert sorted(result["index"] for result in answer.json()["results"]) == [0, 1]
        info = httpx.get(f"{service.url}/info", timeout=60).json()
    lines = service.output.read_text().splitlines()
    assert lines[0] == "exported base as torchscript"
    folder = Path(lines[-1])
    assert (folder / "model.pt").is_file()
    assert "checkpoint" in info["model"]["artifact"]

    assert artifact_folder(settings_of(tmp_path, "checkpoint=base", f"paths.runs={tmp_path}")) == folder  # a restart
    assert capsys.readouterr().out == "already exported: base as torchscript\n"
    assert [path.name for path in (tmp_path / "export").iterdir()] == [folder.name]
