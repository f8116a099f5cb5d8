"""Set up a service from plain arguments, without configuration files.

:func:`~graphrerank.serving.setup.service.rerank_service` assembles the service of a reranker, and
:func:`~graphrerank.serving.server.run` runs it until a signal ends it.
:mod:`~graphrerank.serving.setup.corpus` loads a corpus to search, and
:mod:`~graphrerank.serving.setup.artifact_source` locates the artifact to serve.
"""
