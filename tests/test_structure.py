"""Tests mirror src: the test of ``src/graphrerank/A/B.py`` is ``tests/A/test_B.py``, or it is named here."""

import runpy
from pathlib import Path

from tests.support import ROOT

SOURCES = ROOT / "src" / "graphrerank"
TESTS = ROOT / "tests"
# Tests of one idea across files, each in the nearest folder.
CROSS_CUTTING = {
    "test_extending.py": "docs/extending.md, as a package of somebody else's",
    "test_imports.py": "layers, circles, and what importing loads",
    "test_pages.py": "code of README and docs",
    "test_readme.py": "README and docs",
    "test_release.py": ".ci/release.py",
    "test_security.py": "SECURITY.md",
    "test_structure.py": "this",
    "test_writers.py": "who writes files",
    "cli/test_answers.py": "answers= behind systems, and a run that is killed",
    "cli/test_base.py": "the checkpoint that ships as base",
    "cli/test_commands.py": "train.py, evaluate.py and serve.py one after another",
    "cli/test_configs.py": "conf",
    "cli/test_corpus_graphs.py": "commands on graphs built from passages",
    "cli/test_cross_encoder_scores.py": "commands on checkpoints that read a cross-encoder's scores",
    "cli/test_default_job.py": "the README's numbers",
    "cli/test_export_formats.py": "serve.py with several formats",
    "cli/test_granker_head.py": "commands on GRanker's head",
    "cli/test_granker_layers.py": "commands on a cross-encoder's last layers",
    "cli/test_own_folder.py": "commands on a newcomer's folder",
    "cli/test_pipelines.py": "commands on pipelines",
    "cli/test_processes.py": "commands as processes",
    "cli/test_ray_launcher.py": "src/hydra_plugins",
    "cli/test_run_retriever.py": "commands on the user's own candidates",
    "cli/test_runs_again.py": "commands on finished runs",
    "cli/test_sql_schema.py": "commands on a database",
    "cli/test_ten_minutes.py": "docs/ten_minutes.md",
    "integrations/test_lightrag.py": "the service as the rerank endpoint of LightRAG",
    "cli/test_stranger.py": "a stranger's manifest",
    "data/test_enriched_folder.py": "edges from passages, as settings of a folder",
    "evaluation/html/test_browser.py": "the page in a browser",
    "indexes/retag/test_podcast.py": "an index of real chunks",
    "inference/test_probabilities.py": "calibrated probabilities of each reranker",
    "language_models/test_forms.py": "the forms of conf/prompt",
    "language_models/test_local_model_answers.py": "a real small model",
    "losses/test_loss_laws.py": "laws of all losses",
    "pipelines/test_device.py": "all pipelines on another device",
    "pipelines/test_every_pipeline.py": "laws of all pipelines of conf",
    "pipelines/ket/test_against_naive.py": "KET-RAG's algorithms, transcribed",
    "serving/page/test_in_browser.py": "the service's page in a browser",
    "serving/test_deploy.py": "the deployment's files",
    "serving/test_fuzz.py": "requests drawn from the schema",
    "serving/test_http.py": "routes, limits, key and log",
    "serving/test_running_corpus.py": "the service as processes: search",
    "serving/test_running_documents.py": "a corpus that grows while it is served",
    "serving/test_running_formats.py": "the service as processes: formats",
    "serving/test_onnx_page.py": "docs/onnx.md",
    "serving/test_running_attacks.py": "the service as processes: hostile requests and overload",
    "serving/test_running_service.py": "the service as processes: clients, faults, its end",
    "serving/test_untrusted.py": "a stranger's checkpoint or artifact",
    "training/test_granker_training.py": "GRanker's models in the training loop",
}
# Source files without a test of their own name, by the test that covers them.
COVERED = {
    "data/builders/test_locomo.py": ("data/builders/conversations.py",),
    "data/builders/test_multi_hop.py": (
        "data/builders/hotpotqa.py", "data/builders/musique.py", "data/builders/two_wiki.py",
    ),
    "data/documents/test_formats.py": ("data/documents/document.py",),
    "data/builders/test_registry.py": ("data/builders/draft.py", "data/builders/table_retrieval.py"),

    "cli/test_commands.py": (
        "cli/schema.py", "cli/session.py", "cli/systems.py", "cli/train.py", "cli/train_model.py",
        "cli/training_session.py", "data/feature_columns.py", "experiments/session.py", "metrics/_validation.py",
    ),
    "cli/test_tracking.py": ("cli/report_tables.py", "cli/results.py", "cli/tracked_runs.py"),
    "cli/test_runs_again.py": ("cli/verify.py",),
    "experiments/benchmark/test_job.py": ("experiments/benchmark/page.py",),
    "cli/test_compare.py": ("evaluation/study_files.py",),
    "cli/test_pipelines.py": ("experiments/fastinsight/job.py",),
    "cli/test_stranger.py": ("cli/compose.py",),
    "cli/test_prepare.py": ("cli/grow.py",),
    "data/corpus_folder/test_derived_growth.py": (
        "data/corpus_folder/derived_columns.py", "data/corpus_folder/entity_growth.py",
        "data/corpus_folder/mention_growth.py", "data/corpus_folder/name_index.py",
        "data/corpus_folder/term_index.py", "data/derived_edges.py",
    ),
    "data/corpus_folder/test_growth.py": (
        "data/corpus_folder/compaction.py", "data/corpus_folder/edge_rows.py",
        "data/corpus_folder/growing_columns.py", "data/corpus_folder/node_numbers.py",
    ),
    "data/corpus_folder/test_opening.py": ("graphs/word_index.py",),
    "data/corpus_folder/test_preparation.py": ("data/corpus_folder/assembly.py", "data/corpus_folder/parts.py"),
    "data/engines/test_ray_data.py": ("data/engines/local.py", "data/enrichment/entity_names.py"),
    "data/readers/test_folder.py": (
        "data/readers/documents.py", "data/readers/edges_by_source.py",
        "data/enrichment/incidence.py", "data/readers/edge_list.py", "data/readers/judgements.py",
    ),
    "data/test_streamed_batches.py": ("data/candidate_shards.py",),
    "data/test_pair_cache.py": ("graphs/pair_encoder.py",),
    "evaluation/test_answering.py": ("evaluation/answer_tables.py",),
    "evaluation/test_build_study.py": ("evaluation/across.py", "evaluation/ranked_system.py", "evaluation/seeds.py"),
    "evaluation/test_reranking.py": ("evaluation/system.py",),
    "evaluation/test_study.py": ("evaluation/findings.py", "evaluation/run_json.py"),
    "experiments/ea_graphrag/test_adapter_training.py": (
        "experiments/ea_graphrag/adapter_page.py", "experiments/ea_graphrag/path_runner.py",
        "experiments/ea_graphrag/routing_benchmark.py", "experiments/hashed_order.py",
    ),
    "experiments/grapher/test_job.py": ("experiments/grapher/steps.py", "experiments/steps.py"),
    "experiments/ket/test_job.py": ("experiments/ket/rerankers.py",),
    "experiments/retag/test_job.py": ("experiments/retag/choices.py",),
    "experiments/retag/test_summary_retrieval.py": ("experiments/retag/page.py",),
    "graphs/test_candidate_graphs.py": ("graphs/model_inputs.py",),
    "graphs/test_corpus_graph.py": ("graphs/edge_lists.py",),
    "graphs/test_entity_incidence.py": ("graphs/sparse_rows.py",),
    "indexes/facts/test_builder.py": ("indexes/encode.py", "indexes/facts/fact_graph.py"),
    "indexes/ket/test_builder.py": (
        "indexes/ket/costs.py", "indexes/ket/index.py", "indexes/ket/keyword_graph.py", "indexes/ket/report.py",
        "indexes/stages.py",
    ),
    "indexes/retag/test_builder.py": (
        "indexes/retag/assembly.py", "indexes/retag/extractive.py", "indexes/retag/language_steps.py",
        "indexes/retag/stages.py",
    ),
    "indexes/retag/test_community_summaries.py": ("indexes/retag/summary_material.py",),
    "indexes/retag/test_index.py": (
        "indexes/retag/communities.py", "indexes/retag/report.py", "indexes/retag/topics.py",
    ),
    "indexes/retag/test_update.py": ("indexes/retag/difference.py",),
    "inference/test_graph_reranker.py": ("inference/input_features.py", "inference/rerank_input.py"),
    "inference/test_hub.py": ("inference/model_card.py",),
    "integrations/test_langchain.py": ("integrations/metadata.py",),
    "losses/test_loss_laws.py": ("losses/_padding.py",),
    "models/test_manifest.py": ("models/entries.py", "models/parse_entries.py"),
    "models/test_gatv2.py": ("models/static_attention.py",),
    "models/test_granker_head.py": ("operators/classification_head.py",),
    "operators/test_qdrant_retriever.py": ("operators/dot_ranking.py",),
    "operators/test_qdrant_store.py": ("operators/vector_store.py",),
    "operators/test_expand.py": ("graphs/retriever.py",),
    "operators/test_hyde.py": ("pipelines/hypothetical_passages.py",),
    "operators/test_ircot.py": ("pipelines/chain_of_thought.py",),
    "pipelines/ket/test_against_naive.py": ("pipelines/ket/channels.py",),
    "pipelines/retag/test_search.py": ("pipelines/retag/setup.py",),
    "pipelines/test_every_pipeline.py": ("pipelines/graph_rerank.py", "pipelines/steiner_tree.py"),
    "pipelines/test_pipeline.py": (
        "pipelines/frontier.py", "pipelines/granker.py", "pipelines/page_rank.py", "pipelines/rerank.py",
        "pipelines/state.py", "pipelines/step.py", "pipelines/stex.py", "pipelines/until_budget.py",
        "pipelines/vector_search.py",
    ),
    "serving/test_artifact.py": ("models/integrity.py",),
    "serving/test_dispatcher.py": ("serving/messages.py",),
    "serving/test_formats.py": (
        "serving/formats/aot.py", "serving/formats/exportable.py", "serving/formats/onnx.py", "serving/formats/pt2.py",
        "serving/formats/registry.py", "serving/formats/torchscript.py",
    ),
    "serving/test_http.py": (
        "serving/http_guard.py", "serving/json_log.py", "serving/metrics.py", "serving/routes.py",
    ),
    "serving/test_parity.py": ("serving/parity_batches.py", "serving/schema.py"),
    "serving/test_rerank_engine.py": ("serving/engine.py",),
    "serving/test_running_service.py": ("serving/server.py",),
    "serving/test_untrusted.py": ("serving/formats/pt2_guard.py",),
    "knowledge/test_spacy_extractor.py": (
        "text/common_words.py", "text/dependency_relations.py", "text/noun_phrases.py", "text/spacy_pipeline.py",
    ),
    "syntax/test_syntax_features.py": (
        "syntax/features.py", "syntax/interactions.py", "syntax/meaning.py", "syntax/parsed_text.py",
        "syntax/structure.py", "syntax/wording.py",
    ),
    "training/test_adapter_validation.py": ("training/adapter_classifiers.py",),
}  # fmt: skip
FILES = {str(path.relative_to(SOURCES)) for path in SOURCES.rglob("*.py") if path.name != "__init__.py"}
PACKAGES = {f"{path.parent.relative_to(SOURCES)}.py" for path in SOURCES.rglob("__init__.py")}


LISTED = {str(path.relative_to(TESTS)) for path in TESTS.rglob("test_*.py")}


def source_of(test: str) -> str:
    return str(Path(test).with_name(Path(test).name.removeprefix("test_")))


def test_a_test_has_the_path_of_what_it_tests() -> None:
    mirrored = {test for test in LISTED if source_of(test) in FILES | PACKAGES}
    assert sorted(LISTED - mirrored) == sorted(CROSS_CUTTING)


def test_a_source_file_has_a_test_by_its_path_or_is_named() -> None:
    named = [source for sources in COVERED.values() for source in sources]
    mirrored = FILES & set(map(source_of, LISTED))
    assert sorted(FILES - mirrored - set(named)) == []  # without a test
    assert sorted(mirrored & set(named)) == []  # named in vain
    assert sorted(set(named) - FILES) == []
    assert len(named) == len(set(named))
    assert set(COVERED) <= LISTED


def test_no_source_file_is_long() -> None:
    lengths = {name: len((SOURCES / name).read_text(encoding="utf-8").splitlines()) for name in FILES}
    assert {name: length for name, length in lengths.items() if length > 350} == {}


def test_each_mutation_of_the_benchmark_stands_once_in_its_file() -> None:
    mutations = runpy.run_path(str(ROOT / "benchmarks" / "mutations.py"))["MUTATIONS"]
    texts = {each.file: (SOURCES / each.file).read_text(encoding="utf-8") for each in mutations}
    assert [each for each in mutations if texts[each.file].count(each.old) != 1] == []
