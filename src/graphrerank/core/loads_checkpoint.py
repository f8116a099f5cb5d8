"""Base class of the components of a pipeline that load a checkpoint."""


class LoadsCheckpoint:
    """Component that loads a checkpoint, which a pipeline can replace by another one.

    The constructor of a subclass has the keyword argument ``checkpoint``: a path, a shipped name, or the folder of an
    artifact. A pipeline that is built with ``checkpoint=...`` passes it to the scorer of each graph reranker whose
    class has this base, in the place of the one that its settings name. A service builds the pipelines of a corpus
    in this way for the artifact that it serves.
    """
