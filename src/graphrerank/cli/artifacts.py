"""The artifact that is served or timed: a folder, a shipped one, or one exported here from a hub model's weights."""

from pathlib import Path

from omegaconf import DictConfig

from graphrerank.caching import hash_texts, short_hash
from graphrerank.checks import UserError
from graphrerank.files import hash_files
from graphrerank.inference.hub import is_hub_id, locate_model, model_source
from graphrerank.models.checkpoint import WEIGHTS, find_checkpoint, library_versions, load_checkpoint
from graphrerank.models.manifest import MANIFEST
from graphrerank.serving.export import export_artifact
from graphrerank.serving.formats import FORMATS


def artifact_folder(cfg: DictConfig) -> Path:
    """Find the artifact that ``artifact`` names.

    Of a model on the hub only manifest and safetensors are downloaded, which hold no program. They are exported into
    the cache, past the parity gate: TorchScript and its like never come from there.
    """
    if cfg.format not in (None, *FORMATS):
        raise UserError(f"`format` must be one of {list(FORMATS)} or null, got {cfg.format!r}")
    located = locate_model(str(cfg.artifact), revision=cfg.revision)
    if not is_hub_id(str(cfg.artifact)):
        folder = find_checkpoint(located)
        if not (folder / MANIFEST).is_file():
            raise UserError(
                f"`artifact` must be a folder that an export wrote (graphrerank export checkpoint={cfg.artifact} "
                f"artifact=DIR), got {cfg.artifact!r}, which has no {MANIFEST}"
            )
        return folder
    print(model_source(str(cfg.artifact), located), flush=True)
    downloaded, formats = Path(located), [cfg.format or "torchscript"]
    content = hash_files([downloaded / MANIFEST, downloaded / WEIGHTS])
    parts = [content, *formats, *(f"{name} {version}" for name, version in library_versions().items())]
    key = short_hash(hash_texts(parts))
    folder = Path(cfg.paths.cache) / "artifacts" / key
    if not folder.is_dir():
        print(f"exporting {cfg.artifact} from its weights", flush=True)
        export_artifact(load_checkpoint(downloaded), folder, formats)
    return folder
