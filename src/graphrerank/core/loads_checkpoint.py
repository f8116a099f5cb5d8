"""Base class of pipeline components that load a checkpoint."""


class LoadsCheckpoint:
    """Pipeline component whose checkpoint can be replaced when the pipeline is built.

    The constructor of a subclass has the keyword argument ``checkpoint``: a path, the name of a shipped checkpoint, or
    the folder of an artifact. A pipeline that is built with ``checkpoint=...`` passes that value to each scorer with
    this base class, in place of the checkpoint in its settings. A service uses this to build pipelines with the
    artifact that it serves.
    """
