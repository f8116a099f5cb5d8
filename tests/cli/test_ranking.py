from graphrerank.cli.ranking import training_config


def test_trained_alike_but_for_seed_and_folders() -> None:
    def manifest(**changed: object) -> dict:
        config = {"seed": 1, "paths": {"run_dir": "a"}, "model": {"heads": 4}, **changed}
        return {"name": "gatv2", "config": config, "data": {"choice": "attack"}}

    one = training_config(manifest(), "gatv2")
    assert one == training_config(manifest(seed=2, paths={"run_dir": "b"}), "gatv2")
    assert one != training_config(manifest(model={"heads": 8}), "gatv2")
    assert one != training_config({**manifest(), "name": "mlp"}, "mlp")
    assert training_config({}, "gatv2") is None
