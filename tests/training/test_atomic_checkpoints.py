from pathlib import Path

import lightning as L
import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate

from graphrerank.cli import schema
from graphrerank.training.atomic_checkpoints import AtomicCheckpoints
from tests.support import ROOT


def test_a_full_disk_leaves_the_older_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, save = tmp_path / "checkpoints" / "last.ckpt", torch.save
    AtomicCheckpoints().save_checkpoint({"epoch": 1}, path)

    def fills_the_disk(content: object, target: Path) -> None:
        save(content, target)
        target.write_bytes(target.read_bytes()[:100])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", fills_the_disk)
    with pytest.raises(OSError, match="No space left"):
        AtomicCheckpoints().save_checkpoint({"epoch": 2}, str(path))
    assert torch.load(path, weights_only=True) == {"epoch": 1}
    assert [file.name for file in path.parent.iterdir()] == ["last.ckpt"]


def test_what_it_writes_is_on_the_targets_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lightning's own writer used the system's temporary folder, from where a move may be a copy."""
    written, save = [], torch.save

    def note(content: object, target: Path) -> None:
        written.append(Path(target).parent)
        save(content, target)

    monkeypatch.setattr(torch, "save", note)
    AtomicCheckpoints().save_checkpoint({"epoch": 1}, tmp_path / "last.ckpt")
    assert written == [tmp_path]


def test_options_of_remote_file_systems_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="`storage_options` must be None"):
        AtomicCheckpoints().save_checkpoint({}, tmp_path / "a.ckpt", storage_options={"key": 1})


@pytest.mark.parametrize("trainer", sorted(path.stem for path in (ROOT / "conf" / "trainer").glob("*.yaml")))
def test_every_trainer_writes_so(trainer: str) -> None:
    if trainer == "ray":
        pytest.importorskip("ray.train", reason="Ray Train is optional", exc_type=ImportError)
    schema.register()
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        plugins = compose("train", overrides=[f"trainer={trainer}"]).trainer.plugins
    built = L.Trainer(accelerator="cpu", logger=False, plugins=[instantiate(plugin) for plugin in plugins])
    assert isinstance(built.strategy.checkpoint_io, AtomicCheckpoints)
