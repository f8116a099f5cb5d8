"""Set-up of a service from plain arguments, without configuration files.

:func:`~graphrerank.serving.setup.service.rerank_service` puts together the service of a reranker, and
:func:`~graphrerank.serving.server.run` answers its requests until a signal ends it.
:mod:`~graphrerank.serving.setup.corpus` loads a corpus to search, and
:mod:`~graphrerank.serving.setup.artifact_source` finds the artifact to serve.
"""
