"""Search hyperparameters with Optuna from Python, prune trials that fall behind, and compare seeds of the best ones.

Usage: python examples/optuna_search.py [--data FOLDER] [--trials 20]

`graphrerank train hparams_search=optuna` is the same search from the command line.
"""

import argparse

import optuna

from graphrerank import fit
from graphrerank.evaluation.seeds import aggregate_runs
from graphrerank.training.trials import TrialPruning


def main() -> None:
    """Search for a learning rate and a loss, and compare the best setting with the default one."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", default="attack_paths", help="name of a data set, or path of its folder")
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=3, help="trainings of the best setting and of the default one")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--num-queries", type=int, default=1000, help="queries per split")
    arguments = parser.parse_args()

    def train(run_dir: str, callbacks: list[TrialPruning], **settings: object) -> float:
        """Train once and return the validation score of the best epoch."""
        reranker = fit(
            arguments.data,
            retriever="bm25",
            encoder=None,
            features="scores",
            max_epochs=arguments.epochs,
            num_queries=arguments.num_queries,
            callbacks=callbacks,
            run_dir=run_dir,
            **settings,
        )
        return reranker.checkpoint.manifest.content["validation"]["score"]

    def objective(trial: optuna.Trial) -> float:
        pruning = TrialPruning(trial)
        learning_rate = trial.suggest_float("learning_rate", 3e-4, 1e-2, log=True)
        loss = trial.suggest_categorical("loss", ["listwise", "lambdaloss"])
        score = train(f"runs/search/{trial.number}", [pruning], learning_rate=learning_rate, loss=loss)
        if pruning.is_pruned:
            raise optuna.TrialPruned
        return score

    study = optuna.create_study(direction="maximize", pruner=optuna.pruners.MedianPruner(n_warmup_steps=1))
    study.optimize(objective, n_trials=arguments.trials)
    print(f"Best of {len(study.trials)} trials: {study.best_value:.4f} with {study.best_params}")
    for seed in range(1, arguments.seeds + 1):
        train(f"runs/best/{seed}", [], seed=seed, **study.best_params)
        train(f"runs/default/{seed}", [], seed=seed)
    aggregate_runs(["runs/best", "runs/default"]).show()


if __name__ == "__main__":
    main()
