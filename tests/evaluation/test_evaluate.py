from graphrerank.evaluation.evaluate import training_config
from graphrerank.models.manifest import RerankerManifest, parse_manifest
from tests.support.manifests import make_manifest


def test_trained_alike_but_for_seed_and_folders() -> None:
    def manifest(name: str = "gatv2", **changed: object) -> RerankerManifest:
        config = {"seed": 1, "paths": {"run_dir": "a"}, "model": {"heads": 4}, **changed}
        parsed = parse_manifest(make_manifest("granker_head", {}, name=name, config=config), "somewhere")
        assert isinstance(parsed, RerankerManifest)
        return parsed

    one = training_config(manifest())
    assert one == training_config(manifest(seed=2, paths={"run_dir": "b"}))
    assert one != training_config(manifest(model={"heads": 8}))
    assert one != training_config(manifest("mlp"))
    assert training_config(manifest().without("config")) is None
