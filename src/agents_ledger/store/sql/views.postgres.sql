-- Views that carry the seeds' names over our leaner tables. Made anew after every migration.
-- Beside views.sqlite.sql; they differ in how a list of ids is made and walked.

-- ancestry is computed only when it is selected: for one turn it costs its depth.
CREATE VIEW threads AS
SELECT
    p.turn_id,
    (
        WITH RECURSIVE chain (segment_id, upto) AS (
            SELECT p.segment_id, p.depth
            UNION ALL
            SELECT s.parent_id, s.fork_depth
            FROM chain JOIN segments s ON s.id = chain.segment_id
            WHERE s.parent_id IS NOT NULL
        )
        SELECT json_agg(x.turn_id ORDER BY x.depth)::text
        FROM chain JOIN places x ON x.segment_id = chain.segment_id AND x.depth <= chain.upto
    ) AS ancestry,
    p.total_tokens, p.depth, p.persona_id, p.system_prompt_hash, p.thread_key,
    p.input_tokens, p.output_tokens, p.cached_input_tokens, p.cache_write_tokens,
    p.reasoning_tokens, p.compaction_count, p.compaction_turn_id, p.model, p.provider
FROM places p;

-- Turns that never change again: native ones once sealed, projected ones a native turn stands on.
CREATE VIEW frozen_turns AS
SELECT t.id FROM turns t
WHERE t.status IN ('completed', 'failed')
AND (
    t.projected = 0
    OR EXISTS (
        SELECT 1 FROM places p JOIN segments s ON s.id = p.segment_id
        WHERE p.turn_id = t.id AND p.depth <= s.frozen_depth
    )
);

CREATE VIEW session_aliases AS
SELECT name AS alias, session_label, created_at, reason FROM names WHERE name <> session_label;

CREATE VIEW agent_sessions AS
SELECT
    s.label AS id, s.origin AS source, p.model, s.created_at,
    (
        SELECT count(*) FROM json_array_elements_text(
    (SELECT t.ancestry FROM threads t WHERE t.turn_id = s.thread_id)::json
) WITH ORDINALITY AS a (value, key)
        JOIN messages m ON m.turn_id = a.value
    ) AS message_count,
    s.parent_session_label AS parent_session_id,
    c.message_id AS parent_message_id,
    s.spawn_tool_call_id AS tool_call_id,
    s.task_description, s.task_status, s.is_subagent,
    p.total_tokens AS context_tokens_used,
    (SELECT workspace_path FROM turns h WHERE h.id = s.thread_id) AS workspace_path
FROM sessions s
LEFT JOIN places p ON p.turn_id = s.thread_id
LEFT JOIN tool_calls c ON c.turn_id = s.parent_turn_id AND c.id = s.spawn_tool_call_id;

-- A message stands once in every session whose thread holds it.
CREATE VIEW agent_messages AS
SELECT
    m.id, s.label AS session_id, m.role, m.content,
    row_number() OVER (PARTITION BY s.label ORDER BY a.key, m.sequence) - 1 AS sequence,
    m.created_at AS timestamp, m.context_json, m.metadata_json, m.thinking, m.turn_id
FROM sessions s
CROSS JOIN LATERAL json_array_elements_text(
    (SELECT t.ancestry FROM threads t WHERE t.turn_id = s.thread_id)::json
) WITH ORDINALITY AS a (value, key)
JOIN messages m ON m.turn_id = a.value;

-- One row per turn: with one per session the seed's recursive query would double at every level.
-- A turn in several sessions names the one that reached it first.
CREATE VIEW agent_turns AS
SELECT
    t.id,
    (
        SELECT h.session_label FROM session_history h WHERE h.thread_id = t.id ORDER BY h.id LIMIT 1
    ) AS session_id,
    t.parent_turn_id, t.query_message_ids, t.response_message_id, t.model,
    t.total_tokens AS token_count, COALESCE(t.completed_at, t.started_at) AS timestamp,
    t.has_children, t.tool_call_count
FROM turns t;

CREATE VIEW agent_tool_calls AS
SELECT
    c.id, c.message_id, s.label AS session_id, c.tool_name, c.tool_number, c.params_json,
    c.result_json, c.status, c.spawned_session_label AS child_session_id,
    c.started_at, c.completed_at, c.turn_id
FROM sessions s
CROSS JOIN LATERAL json_array_elements_text(
    (SELECT t.ancestry FROM threads t WHERE t.turn_id = s.thread_id)::json
) WITH ORDINALITY AS a (value, key)
JOIN tool_calls c ON c.turn_id = a.value;
