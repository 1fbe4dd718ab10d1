"""Tests of the engine's house: that every name of the contract is there."""

import dataclasses
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

from Agent.context_engine import ContextEngineService, InvalidInputError
from Agent.context_engine.core import objects

OBJECTS = {
    "RequestContext": "account_id, user_id, agent_id, session_id, trace_id",
    "ContextNode": "uri, parent_uri, context_type, category, owner_space, abstract, overview, content, metadata",
    "RelationEdge": "from_uri, to_uri, relation_type, reason, weight",
    "SessionArchive": "session_id, archive_uri, summary, recent_messages, stats",
    "CandidateMemory": "category, owner_scope, routing_key, abstract, overview, content, confidence, source_refs, key,"
    " at",
    "WritePlan": "action, target_uri, node_patch, relation_ops, outbox_events, reason, expected_version, candidate_id",
    "WriteResult": "uri, action, node_version, created, updated",
    "CommitResult": "archive, write_results, outbox_events, stats, status, commit_id",
    "IndexRecord": "id, uri, parent_uri, context_type, category, level, text, filters, metadata, part, sequence",
    "IndexBatchResult": "claimed, succeeded, failed, retried",
    "OutboxEvent": "event_id, event_type, uri, payload, status, retry_count, created_at, sequence",
    "TypedQuery": "text, context_type, categories, target_uri, top_k, filters, hints",
    "SeedHit": "uri, score, category, owner_space, abstract, has_overview, has_content",
    "RetrievedBlock": "uri, level_hit, abstract, overview, content_excerpt, relations, score, match_reason",
    "SearchResult": "query_plan, seed_hits, blocks, total, omitted, note",
    "NodeSummary": "uri, name, is_dir, has_children, category, updated_at",
    "NodeStat": "uri, exists, version, size, updated_at",
    "MoveProjection": "old_uri, new_uri, old_parent_uri, new_parent_uri",
    "VectorHit": "id, uri, score, level, filters, metadata",
    "EmbeddingVector": "dense_vector, sparse_vector, model",
    "RerankScore": "uri, score, reason",
    "RelationIndexRecord": "id, from_uri, to_uri, relation_type, metadata",
    "NodeHit": "uri, score, level, part, reason, at, says, speaker, subjects, sequence",
}

SIGNATURES = """
extraction.ProfileExtractor: extract(messages, archive, ctx)
extraction.PreferenceExtractor: extract(messages, archive, ctx)
extraction.EntityEventExtractor: extract(messages, archive, ctx)
extraction.ProcedureExtractor: extract(messages, archive, ctx)
core.objects.CandidateExtractor: extract(messages, archive, ctx)
core.objects.MergePolicy: plan(candidate, existing_node, ctx)
commit.policies.ProfilePolicy: plan(candidate, existing_node, ctx)
commit.policies.AggregateTopicPolicy: plan(candidate, existing_node, ctx)
commit.policies.AppendOnlyPolicy: plan(candidate, existing_node, ctx)
commit.policies.SkillToolPolicy: plan(candidate, existing_node, ctx)
service.ContextEngineService: commit_session(ctx, messages, used_contexts=None, used_tools=None, options=None) ·
    search_memory(ctx, query, target_uri=None, categories=None, top_k=10, session_archive=None) ·
    read_memory(ctx, uri, level='L1', expand_relations=False, max_relations=0) · get_node(ctx, uri) ·
    list_children(ctx, uri, recursive=False, depth=1) · extract_again(ctx, archive_uri) ·
    remember(ctx, text, category='preferences', routing_key='', at=0.0) · history(ctx, uri, limit=50) ·
    move_node(ctx, from_uri, to_uri) · delete_node(ctx, uri, recursive=False) · confirm(ctx, query, uri) ·
    brief(ctx, budget_tokens=600) · undo(ctx, commit_id) · forget(ctx, uri) · adopt(ctx, uri)
fs.context_fs.ContextFS: resolve_path(ctx, uri) · exists(ctx, uri) · stat_node(ctx, uri) · write_node(ctx, node) ·
    read_node(ctx, uri, include_content=True) · write_level(ctx, uri, level, text) · read_level(ctx, uri, level) ·
    write_metadata(ctx, uri, metadata) · read_metadata(ctx, uri) · move_node(ctx, from_uri, to_uri) ·
    delete_node(ctx, uri, recursive=False) · list_children(ctx, uri, recursive=False, depth=1) · undo(ctx, commit_id) ·
    adopt(ctx, uri) · prune(before)
fs.context_fs.RelationStore: get_edges(ctx, uri) · upsert_edges(ctx, uri, edges) · append_edges(ctx, uri, edges) ·
    remove_edges(ctx, uri, to_uris=None, relation_types=None)
commit.commit_coordinator.CommitCoordinator: commit(ctx, messages, used_contexts=None, used_tools=None, options=None)
commit.archive_builder.ArchiveBuilder: build_archive(ctx, messages, used_contexts=None, used_tools=None)
commit.candidate_pipeline.CandidatePipeline: extract_candidates(ctx, archive, messages) ·
    normalize_candidates(ctx, candidates)
commit.policy_router.PolicyRouter: select_policy(candidate, ctx) · build_plan(candidate, ctx)
commit.context_writer.ContextWriter: apply_plan(ctx, plan) · merge_node(ctx, uri, patch) ·
    append_node(ctx, uri, patch)
commit.relation_writer.RelationWriter: apply_edges(ctx, uri, relation_ops)
index.outbox_store.OutboxStore: append(event) · append_batch(events) · claim_batch(worker_id, limit) ·
    mark_done(event_id, worker_id=None) · mark_failed(event_id, error, retryable=True, worker_id=None) ·
    renew(event_id, worker_id) · requeue(event_id=None)
index.index_worker.IndexWorker: run_once(limit=100) · handle_event(event, ctx) · reconcile(uri, recursive=False)
index.index_projector.IndexProjector: build_context_records(node) · build_relation_records(uri, edges) ·
    build_move_records(from_uri, to_uri)
retrieval.query_planner.QueryPlanner: plan(query, session_archive=None, hints=None, ctx=None)
retrieval.l0_retriever.L0Retriever: search(typed_query, ctx)
retrieval.hierarchical_searcher.HierarchicalSearcher: expand(typed_query, seeds, ctx) ·
    score_children(parent_uri, typed_query, ctx)
retrieval.memory_read_service.MemoryReadService:
    read(uri, level='L1', expand_relations=False, max_relations=0, ctx=None) · read_batch(uris, level='L1', ctx=None)
retrieval.assembler.RetrievalAssembler: assemble(typed_query, hits, ctx)
core.objects.LLM: complete_json(prompt, schema, ctx=None)
core.objects.Embedder: embed_texts(texts, model=None)
core.objects.VectorIndex: upsert(records) · delete_by_uri(uri) · move_uri(from_uri, to_uri) ·
    search(query_vector, filters, top_k, level=0)
core.objects.Reranker: rerank(query, documents, top_k=None)
core.objects.GraphStore: upsert_edges(edges) · remove_edges(from_uri) · neighbors(uri, relation_types=None, depth=1)
providers.LLMClientAdapter: complete_json(prompt, schema, ctx=None)
"""
"""Of each part, as the contract lists them: where it is imported from, and its functions."""


def parts() -> Iterator[tuple[str, list[str]]]:
    """Yield each part with its functions."""
    for row in re.split(r"\n(?! )", SIGNATURES.strip()):
        name, _, functions = row.partition(":")
        yield name, [" ".join(each.split()) for each in functions.split("·")]


class TestAppendix:
    @pytest.mark.parametrize("name", OBJECTS)
    def test_an_object_has_every_field_in_its_order(self, name: str) -> None:
        fields = [field.name for field in dataclasses.fields(getattr(objects, name))]

        assert ", ".join(fields) == OBJECTS[name]

    @pytest.mark.parametrize(("name", "functions"), list(parts()))
    def test_a_part_has_every_function_with_its_signature(self, name: str, functions: list[str]) -> None:
        module, _, kind = name.rpartition(".")
        found: Any = getattr(import_module(f"Agent.context_engine.{module}"), kind)
        for wanted in functions:
            method = wanted.partition("(")[0]
            parameters = [
                parameter
                for parameter in inspect.signature(getattr(found, method)).parameters.values()
                if parameter.kind is not inspect.Parameter.KEYWORD_ONLY and parameter.name != "self"
            ]
            told = ", ".join(
                each.name if each.default is inspect.Parameter.empty else f"{each.name}={each.default!r}"
                for each in parameters
            )
            assert f"{method}({told})" == wanted

    def test_every_category_has_its_extractor_and_its_policy(self) -> None:
        extractors = {
            "ProfileExtractor": ("profile",),
            "PreferenceExtractor": ("preferences",),
            "EntityEventExtractor": ("entities", "events"),
            "ProcedureExtractor": ("cases", "patterns", "skills"),
        }
        policies = {
            "ProfilePolicy": ("profile",),
            "AggregateTopicPolicy": ("preferences", "entities", "patterns"),
            "AppendOnlyPolicy": ("events", "cases"),
            "SkillToolPolicy": ("skills", "tools"),
        }
        for module, wanted in (("extraction", extractors), ("commit.policies", policies)):
            made = import_module(f"Agent.context_engine.{module}")
            assert {name: getattr(made, name).categories for name in wanted} == wanted

    def test_a_request_without_its_ctx_is_refused(self) -> None:
        with ContextEngineService(None) as engine:
            with pytest.raises(InvalidInputError, match="ctx"):
                engine.planner.plan("tea")
            with pytest.raises(InvalidInputError, match="ctx"):
                engine.reader.read("ctx://acme/users/ada/memories/profile")
            with pytest.raises(InvalidInputError, match="ctx"):
                engine.reader.read_batch(["ctx://acme/users/ada/memories/profile"])
