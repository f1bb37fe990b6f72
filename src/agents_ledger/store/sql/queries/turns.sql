-- Recording turns and what they consist of.

-- insert_turn --
INSERT INTO turns (
    id, parent_turn_id, turn_type, status, started_at, completed_at, model, provider, role,
    toolset_name, tools_available, permissions_granted, permissions_used,
    input_tokens, output_tokens, cached_input_tokens, cache_write_tokens, reasoning_tokens,
    total_tokens, query_message_ids, response_message_id, has_children, tool_call_count,
    source_event_id, workspace_path, effective_config_json, error, projected, request_hash,
    long_cache_write_tokens
) VALUES (
    :id, :parent_turn_id, :turn_type, :status, :started_at, :completed_at, :model, :provider, :role,
    :toolset_name, :tools_available, :permissions_granted, :permissions_used,
    :input_tokens, :output_tokens, :cached_input_tokens, :cache_write_tokens, :reasoning_tokens,
    :total_tokens, :query_message_ids, :response_message_id, :has_children, :tool_call_count,
    :source_event_id, :workspace_path, :effective_config_json, :error, :projected, :request_hash,
    :long_cache_write_tokens
);

-- insert_message --
INSERT INTO messages (
    id, turn_id, role, content, source, sequence, created_at, thinking, context_json,
    metadata_json, tool_call_id, has_details
) VALUES (
    :id, :turn_id, :role, :content, :source, :sequence, :created_at, :thinking, :context_json,
    :metadata_json, :tool_call_id, :has_details
);

-- insert_tool_call --
INSERT INTO tool_calls (
    id, turn_id, message_id, tool_name, tool_number, params_json, result_json, error, status,
    source_status, spawned_session_label, started_at, completed_at, sequence
) VALUES (
    :id, :turn_id, :message_id, :tool_name, :tool_number, :params_json, :result_json, :error,
    :status, :source_status, :spawned_session_label, :started_at, :completed_at, :sequence
);

-- insert_message_file --
-- A message naming the same file and line twice says it once.
INSERT INTO message_files (message_id, kind, file_path, line_start, line_end)
VALUES (:message_id, :kind, :file_path, :line_start, :line_end)
ON CONFLICT DO NOTHING;

-- insert_message_lint --
INSERT INTO message_lints (
    message_id, file_path, message, lint_source, start_line, start_col, end_line, end_col, severity
) VALUES (
    :message_id, :file_path, :message, :lint_source, :start_line, :start_col, :end_line, :end_col,
    :severity
);

-- insert_message_codeblock --
INSERT INTO message_codeblocks (
    message_id, idx, language, content, file_path, line_start, line_end
) VALUES (:message_id, :idx, :language, :content, :file_path, :line_start, :line_end);

-- insert_compaction --
INSERT INTO compactions (
    turn_id, summary, summarized_through_turn_id, first_kept_turn_id, turns_summarized,
    compaction_type, model, provider, tokens_before, tokens_after, summary_tokens,
    summarization_input_tokens, summarization_output_tokens, duration_ms, trigger, metadata_json
) VALUES (
    :turn_id, :summary, :summarized_through_turn_id, :first_kept_turn_id, :turns_summarized,
    :compaction_type, :model, :provider, :tokens_before, :tokens_after, :summary_tokens,
    :summarization_input_tokens, :summarization_output_tokens, :duration_ms, :trigger,
    :metadata_json
);

-- insert_system_prompt --
INSERT INTO system_prompts (hash, content) VALUES (:hash, :content) ON CONFLICT DO NOTHING;

-- system_prompt --
SELECT content FROM system_prompts WHERE hash = :hash;

-- mark_parent --
UPDATE turns SET has_children = 1 WHERE id = :id AND has_children = 0;

-- mark_native_parent --
-- No row written: it has children already, or is a projection.
UPDATE turns SET has_children = 1 WHERE id = :id AND has_children = 0 AND projected = 0;

-- turn_projected --
SELECT projected FROM turns WHERE id = :id;

-- turn_request --
-- What is stored under an id: enough to tell a retry from another turn.
SELECT request_hash, status FROM turns WHERE id = :id;

-- config_above --
-- The configuration nearest on a thread, and whose it is. Turns of ours that store none are looked
-- through; what was imported says its own or none.
WITH RECURSIVE above (id, parent_turn_id, config_json, projected) AS (
    SELECT id, parent_turn_id, effective_config_json, projected FROM turns WHERE id = :turn_id
    UNION ALL
    SELECT t.id, t.parent_turn_id, t.effective_config_json, t.projected
    FROM above a JOIN turns t ON t.id = a.parent_turn_id
    WHERE a.config_json IS NULL AND a.projected = 0
)
SELECT config_json, id FROM above WHERE config_json IS NOT NULL;

-- turn_parent --
SELECT parent_turn_id FROM turns WHERE id = :id;

-- turn_status --
SELECT status FROM turns WHERE id = :id;

-- turns_by_prefix --
-- At most three: one is the answer, more are ambiguous. The upper end closes the range of the prefix.
SELECT id FROM turns WHERE id >= :prefix AND id < :upper ORDER BY id LIMIT 3;

-- child_turns --
SELECT <turn_columns>, p.depth
FROM turns t JOIN places p ON p.turn_id = t.id
WHERE t.parent_turn_id = :turn_id
ORDER BY t.id;

-- root_turns --
SELECT <turn_columns>, p.depth
FROM turns t JOIN places p ON p.turn_id = t.id
WHERE t.parent_turn_id IS NULL
ORDER BY t.id;

-- turn_compaction --
SELECT <compaction_columns> FROM compactions c WHERE c.turn_id = :turn_id;
