"""Callbacks of users."""

import lightning as L


class LogsToWandb(L.Callback):
    """A callback of a user that logs with the functions of the module ``wandb``."""

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Log the number of parameters to the current run."""
        import wandb

        wandb.log({"user/parameters": sum(parameter.numel() for parameter in pl_module.parameters())})
        assert wandb.run is trainer.loggers[-1].experiment
