-- Every rule, as the statement that selects what breaks it: an id, and a detail for people.

-- audit_parent_missing --
-- Every turn but a root has a parent.
SELECT t.id, t.parent_turn_id
FROM turns t LEFT JOIN turns p ON p.id = t.parent_turn_id
WHERE t.parent_turn_id IS NOT NULL AND p.id IS NULL;

-- audit_thread_missing --
-- Every turn has its thread.
SELECT t.id, t.status
FROM turns t LEFT JOIN places p ON p.turn_id = t.id
WHERE p.turn_id IS NULL;

-- audit_place_wrong --
-- A turn follows its parent in a segment, or begins a segment that branches off its parent.
SELECT t.id, p.depth
FROM turns t
JOIN places p ON p.turn_id = t.id
LEFT JOIN segments s ON s.id = p.segment_id
LEFT JOIN places q ON q.turn_id = t.parent_turn_id
WHERE s.id IS NULL
OR (t.parent_turn_id IS NULL AND (p.depth <> 1 OR s.parent_id IS NOT NULL OR s.fork_depth <> 0))
OR (t.parent_turn_id IS NOT NULL AND (
    q.turn_id IS NULL
    OR p.depth <> q.depth + 1
    OR (p.segment_id <> q.segment_id
        AND (s.parent_id IS NULL OR s.parent_id <> q.segment_id OR s.fork_depth <> q.depth))
));

-- audit_place_joined --
-- A failed turn begins a segment of its own: failures never nest.
SELECT t.id, t.status
FROM turns t
JOIN places p ON p.turn_id = t.id
JOIN segments s ON s.id = p.segment_id
WHERE t.status = 'failed' AND p.depth <> s.fork_depth + 1;

-- audit_segment_wrong --
-- Level and jump of a segment follow from those above it.
SELECT s.id, s.level
FROM segments s
LEFT JOIN segments p ON p.id = s.parent_id
LEFT JOIN segments j1 ON j1.id = p.jump_id
LEFT JOIN segments j2 ON j2.id = j1.jump_id
WHERE (s.parent_id IS NULL AND (s.level <> 0 OR s.jump_id IS NOT NULL))
OR (s.parent_id IS NOT NULL AND (
    p.id IS NULL OR s.level <> p.level + 1 OR s.jump_id IS NULL OR s.jump_depth IS NULL
    OR s.jump_id <> CASE WHEN j2.id IS NOT NULL AND p.level - j1.level = j1.level - j2.level
        THEN j2.id ELSE p.id END
    OR s.jump_depth <> CASE WHEN j2.id IS NOT NULL AND p.level - j1.level = j1.level - j2.level
        THEN j1.jump_depth ELSE s.fork_depth END
));

-- audit_segment_empty --
-- Every segment begins with a turn.
SELECT s.id, s.fork_depth
FROM segments s LEFT JOIN places p ON p.segment_id = s.id AND p.depth = s.fork_depth + 1
WHERE p.turn_id IS NULL;

-- audit_thread_totals --
-- A thread's tokens are its parent's and the turn's own.
SELECT t.id, p.total_tokens
FROM turns t
JOIN places p ON p.turn_id = t.id
LEFT JOIN places q ON q.turn_id = t.parent_turn_id
WHERE p.input_tokens <> COALESCE(q.input_tokens, 0) + COALESCE(t.input_tokens, 0)
OR p.output_tokens <> COALESCE(q.output_tokens, 0) + COALESCE(t.output_tokens, 0)
OR p.cached_input_tokens <> COALESCE(q.cached_input_tokens, 0) + COALESCE(t.cached_input_tokens, 0)
OR p.cache_write_tokens <> COALESCE(q.cache_write_tokens, 0) + COALESCE(t.cache_write_tokens, 0)
OR p.reasoning_tokens <> COALESCE(q.reasoning_tokens, 0) + COALESCE(t.reasoning_tokens, 0)
OR p.total_tokens <> COALESCE(q.total_tokens, 0) + COALESCE(t.total_tokens, 0);

-- audit_thread_latest --
-- A thread's model and provider are the latest recorded on it, apart from those of compactions.
SELECT t.id, p.model
FROM turns t
JOIN places p ON p.turn_id = t.id
LEFT JOIN places q ON q.turn_id = t.parent_turn_id
WHERE (
    COALESCE(p.model, '') <> COALESCE(t.model, q.model, '')
    OR COALESCE(p.provider, '') <> COALESCE(t.provider, q.provider, '')
) AND (
    t.turn_type <> 'compaction' OR COALESCE(p.model, '') <> COALESCE(q.model, '')
    OR COALESCE(p.provider, '') <> COALESCE(q.provider, '')
);

-- audit_thread_compactions --
-- A thread counts its compactions and knows the latest.
SELECT t.id, p.compaction_count
FROM turns t
JOIN places p ON p.turn_id = t.id
LEFT JOIN places q ON q.turn_id = t.parent_turn_id
WHERE p.compaction_count
    <> COALESCE(q.compaction_count, 0) + CASE WHEN t.turn_type = 'compaction' THEN 1 ELSE 0 END
OR COALESCE(p.compaction_turn_id, '')
    <> CASE WHEN t.turn_type = 'compaction' THEN t.id ELSE COALESCE(q.compaction_turn_id, '') END;

-- audit_prompt_missing --
-- A thread's system prompt is stored.
SELECT p.turn_id, p.system_prompt_hash
FROM places p LEFT JOIN system_prompts s ON s.hash = p.system_prompt_hash
WHERE p.system_prompt_hash IS NOT NULL AND s.hash IS NULL;

-- audit_children_flag --
-- has_children is set if a child exists.
SELECT t.id, t.has_children
FROM turns t
WHERE t.has_children
    <> CASE WHEN EXISTS (SELECT 1 FROM turns c WHERE c.parent_turn_id = t.id) THEN 1 ELSE 0 END;

-- audit_child_of_live --
-- Only sealed turns have children.
SELECT t.id, p.id
FROM turns p JOIN turns t ON t.parent_turn_id = p.id
WHERE p.status IN ('pending', 'streaming') AND p.projected = 0;

-- audit_call_count --
-- tool_call_count counts the tool calls, once a turn is sealed.
SELECT t.id, t.tool_call_count
FROM turns t
WHERE t.status IN ('completed', 'failed')
AND t.tool_call_count <> (SELECT count(*) FROM tool_calls c WHERE c.turn_id = t.id);

-- audit_query_messages --
-- query_message_ids lists messages of the turn, and nothing else.
SELECT t.id, t.query_message_ids
FROM turns t
WHERE COALESCE(t.query_message_ids, '[]') <> '[]'
AND (
    t.query_message_ids NOT LIKE '["%"]'
    OR (length(t.query_message_ids) - length(replace(t.query_message_ids, '"', ''))) / 2
    <> (SELECT count(*) FROM messages m
        WHERE m.turn_id = t.id AND <position>(t.query_message_ids, '"' || m.id || '"') > 0)
);

-- audit_response_message --
-- The response is an assistant's message of the turn.
SELECT t.id, t.response_message_id
FROM turns t LEFT JOIN messages m ON m.id = t.response_message_id
WHERE t.response_message_id IS NOT NULL
AND (m.id IS NULL OR m.turn_id <> t.id OR m.role <> 'assistant');

-- audit_turn_times --
-- A sealed native turn has an end time; an open turn has none.
SELECT t.id, t.status
FROM turns t
WHERE t.projected = 0 AND (t.status IN ('completed', 'failed')) <> (t.completed_at IS NOT NULL);

-- audit_failed_unsaid --
-- A failed native turn has an error text.
SELECT t.id, t.status
FROM turns t WHERE t.status = 'failed' AND t.projected = 0 AND t.error IS NULL;

-- audit_request_missing --
-- A native turn has the hash that recognises a retry.
SELECT t.id, t.status FROM turns t WHERE t.projected = 0 AND t.request_hash IS NULL;

-- audit_sequence_doubled --
-- Messages and tool calls of a turn have one order.
SELECT x.turn_id, x.sequence
FROM (
    SELECT m.turn_id, m.sequence FROM messages m
    UNION ALL
    SELECT c.turn_id, c.sequence FROM tool_calls c
) AS x
GROUP BY x.turn_id, x.sequence
HAVING count(*) > 1;

-- audit_sequence_negative --
-- The order of messages and tool calls begins at 0.
SELECT m.id, m.sequence FROM messages m WHERE m.sequence < 0
UNION ALL
SELECT c.id, c.sequence FROM tool_calls c WHERE c.sequence < 0;

-- audit_details_flag --
-- has_details is set if a message has files, lints or codeblocks.
SELECT m.id, m.has_details
FROM messages m
WHERE m.has_details <> CASE
    WHEN EXISTS (SELECT 1 FROM message_files f WHERE f.message_id = m.id)
        OR EXISTS (SELECT 1 FROM message_lints l WHERE l.message_id = m.id)
        OR EXISTS (SELECT 1 FROM message_codeblocks b WHERE b.message_id = m.id)
    THEN 1 ELSE 0 END;

-- audit_call_open --
-- Every tool call of a completed turn, and of a failed native turn, has ended.
SELECT c.id, t.id
FROM turns t JOIN tool_calls c ON c.turn_id = t.id
WHERE c.status IN ('pending', 'running')
AND (t.status = 'completed' OR (t.status = 'failed' AND t.projected = 0));

-- audit_call_message --
-- The message a call came with belongs to its turn.
SELECT c.id, c.message_id
FROM tool_calls c LEFT JOIN messages m ON m.id = c.message_id
WHERE c.message_id IS NOT NULL AND (m.id IS NULL OR m.turn_id <> c.turn_id);

-- audit_compaction_missing --
-- Every compaction turn has its record.
SELECT t.id, t.status
FROM turns t LEFT JOIN compactions c ON c.turn_id = t.id
WHERE t.turn_type = 'compaction' AND c.turn_id IS NULL;

-- audit_compaction_extra --
-- Every compaction record has its compaction turn.
SELECT c.turn_id, t.turn_type
FROM compactions c LEFT JOIN turns t ON t.id = c.turn_id
WHERE t.id IS NULL OR t.turn_type <> 'compaction';

-- audit_compaction_off_thread --
-- The turns that a compaction summarised and kept are on its thread, kept after summarised.
WITH RECURSIVE named (turn_id, said_id, depth) AS (
    SELECT c.turn_id, c.summarized_through_turn_id, p.depth
    FROM compactions c LEFT JOIN places p ON p.turn_id = c.summarized_through_turn_id
    UNION ALL
    SELECT c.turn_id, c.first_kept_turn_id, p.depth
    FROM compactions c LEFT JOIN places p ON p.turn_id = c.first_kept_turn_id
    WHERE c.first_kept_turn_id IS NOT NULL
), up (turn_id, said_id, depth, segment_id, fork_depth, parent_id) AS (
    SELECT n.turn_id, n.said_id, n.depth, s.id, s.fork_depth, s.parent_id
    FROM named n
    JOIN places p ON p.turn_id = n.turn_id
    JOIN segments s ON s.id = p.segment_id
    UNION ALL
    SELECT u.turn_id, u.said_id, u.depth, s.id, s.fork_depth, s.parent_id
    FROM up u JOIN segments s ON s.id = u.parent_id
    WHERE u.fork_depth >= u.depth
)
SELECT n.turn_id, n.said_id
FROM named n
WHERE NOT EXISTS (
    SELECT 1 FROM up u JOIN places p ON p.segment_id = u.segment_id AND p.depth = u.depth
    WHERE u.turn_id = n.turn_id AND u.said_id = n.said_id AND p.turn_id = n.said_id
)
UNION ALL
SELECT c.turn_id, c.first_kept_turn_id
FROM compactions c
JOIN places k ON k.turn_id = c.first_kept_turn_id
JOIN places s ON s.turn_id = c.summarized_through_turn_id
WHERE k.depth <= s.depth;

-- audit_head_missing --
-- A session points to a thread that exists.
SELECT s.label, s.thread_id
FROM sessions s LEFT JOIN places p ON p.turn_id = s.thread_id
WHERE s.thread_id IS NOT NULL AND p.turn_id IS NULL;

-- audit_head_live --
-- No head points to a turn that is still being written.
SELECT s.label, t.id
FROM sessions s JOIN turns t ON t.id = s.thread_id
WHERE t.status IN ('pending', 'streaming');

-- audit_head_unlogged --
-- A session's head is the last line of its history.
SELECT s.label, s.thread_id
FROM sessions s
LEFT JOIN session_history h ON h.id = (
    SELECT max(x.id) FROM session_history x WHERE x.session_label = s.label
)
WHERE COALESCE(s.thread_id, '') <> COALESCE(h.thread_id, '');

-- audit_history_time --
-- A session was updated when it last moved; only the source of an imported one can grow later. A
-- rename is no update, but earlier versions of this program made it one.
SELECT s.label, s.updated_at
FROM sessions s
JOIN session_history h ON h.id = (
    SELECT max(x.id) FROM session_history x WHERE x.session_label = s.label AND x.reason <> 'rename'
)
WHERE s.updated_at < h.changed_at OR (
    COALESCE(s.origin, 'native') = 'native' AND s.updated_at > h.changed_at
    AND NOT EXISTS (
        SELECT 1 FROM session_history n
        WHERE n.session_label = s.label AND n.id > h.id AND n.changed_at = s.updated_at
    )
);

-- audit_history_dangling --
-- Every line of the history names a session and a thread that exist.
SELECT h.session_label, h.thread_id
FROM session_history h
LEFT JOIN sessions s ON s.label = h.session_label
LEFT JOIN places p ON p.turn_id = h.thread_id
WHERE s.label IS NULL OR (h.thread_id IS NOT NULL AND p.turn_id IS NULL);

-- audit_name_missing --
-- Every session answers to its own label, or was merged away.
SELECT s.label, s.status
FROM sessions s LEFT JOIN names n ON n.name = s.label
WHERE n.name IS NULL OR (n.session_label <> s.label AND s.status = 'active');

-- audit_alias_chain --
-- An alias refers to a session, not to another alias.
SELECT n.name, n.session_label
FROM names n LEFT JOIN names t ON t.name = n.session_label
WHERE t.name IS NULL OR t.session_label <> t.name;

-- audit_subagent_disagrees --
-- A subagent's session and the call that spawned it name each other.
SELECT s.label, s.spawn_tool_call_id
FROM sessions s
LEFT JOIN tool_calls c ON c.turn_id = s.parent_turn_id AND c.id = s.spawn_tool_call_id
WHERE s.spawn_tool_call_id IS NOT NULL
AND (c.id IS NULL OR COALESCE(c.spawned_session_label, '') <> s.label
    OR s.parent_session_label IS NULL)
UNION ALL
SELECT s.label, c.id
FROM tool_calls c LEFT JOIN sessions s ON s.label = c.spawned_session_label
WHERE c.spawned_session_label IS NOT NULL
AND (s.label IS NULL OR s.is_subagent <> 1 OR COALESCE(s.spawn_tool_call_id, '') <> c.id
    OR COALESCE(s.parent_turn_id, '') <> c.turn_id);

-- audit_unfrozen --
-- A projected turn with a native child is frozen.
SELECT t.id, c.id
FROM turns c
JOIN turns t ON t.id = c.parent_turn_id
JOIN places p ON p.turn_id = t.id
JOIN segments s ON s.id = p.segment_id
WHERE c.projected = 0 AND t.projected = 1 AND p.depth > s.frozen_depth;

-- audit_frozen_above --
-- If a segment is frozen, so is the segment it branches off.
SELECT s.id, s.frozen_depth
FROM segments s JOIN segments u ON u.id = s.parent_id
WHERE s.frozen_depth > 0 AND u.frozen_depth < s.fork_depth
AND EXISTS (
    SELECT 1 FROM places p JOIN turns t ON t.id = p.turn_id
    WHERE p.segment_id = u.id AND p.depth = s.fork_depth AND t.projected = 1
);

-- audit_source_gap --
-- The blocks of a file follow each other without gaps.
SELECT f.id, f.kept_bytes
FROM source_files f
WHERE f.kept_bytes <> COALESCE((SELECT sum(b.length) FROM source_blocks b WHERE b.file_id = f.id), 0);

-- audit_source_missing --
-- A projected turn has a source: files or a task.
SELECT t.id, t.status
FROM turns t
WHERE t.projected = 1 AND NOT EXISTS (SELECT 1 FROM turn_sources x WHERE x.turn_id = t.id)
AND NOT EXISTS (SELECT 1 FROM bus_turns b WHERE b.turn_id = t.id);

-- audit_task_message --
-- Every message of a task is, unchanged, in a turn of that task.
SELECT b.id, b.turn_id
FROM bus_messages b
LEFT JOIN bus_turns x ON x.turn_id = b.turn_id AND x.task_id = b.task_id
LEFT JOIN messages m ON m.id = 'task:' || b.id AND m.turn_id = b.turn_id
WHERE x.turn_id IS NULL OR m.id IS NULL OR m.content <> b.content OR m.role <> b.role;

-- audit_task_call --
-- Every call of a task is in the turn of the message that announced it, unless that turn was
-- frozen before.
SELECT c.id, b.turn_id
FROM bus_calls c
LEFT JOIN bus_messages b ON b.id = c.start_message_id
LEFT JOIN tool_calls t ON t.turn_id = b.turn_id AND t.id = c.id
WHERE (t.id IS NULL OR t.tool_name <> c.ability_name)
AND NOT EXISTS (SELECT 1 FROM frozen_turns f WHERE f.id = b.turn_id);

-- audit_task_reference --
-- The messages a call names belong to its task.
SELECT c.id, b.id
FROM bus_calls c JOIN bus_messages b ON b.id IN (c.start_message_id, c.end_message_id)
WHERE b.task_id <> c.task_id;

-- audit_task_writer --
-- A call has a writer exactly while it is in progress.
SELECT c.id, c.status
FROM bus_calls c
WHERE (c.status = 'in_progress') <> (c.writer_id IS NOT NULL);

-- audit_writer_missing --
-- A native turn that is not sealed has a writer.
SELECT t.id, t.status
FROM turns t LEFT JOIN live_turns l ON l.turn_id = t.id
WHERE t.status IN ('pending', 'streaming') AND t.projected = 0 AND l.turn_id IS NULL;

-- audit_writer_late --
-- A sealed turn has no writer and no partial text.
SELECT t.id, t.status
FROM turns t JOIN live_turns l ON l.turn_id = t.id
WHERE t.status IN ('completed', 'failed')
UNION ALL
SELECT p.turn_id, 'partial text'
FROM partial_texts p LEFT JOIN live_turns l ON l.turn_id = p.turn_id
WHERE l.turn_id IS NULL;

-- audit_line_divided --
-- A session's queue is answered by at most one turn at a time.
SELECT q.session_label, count(DISTINCT q.turn_id)
FROM queue q WHERE q.status = 'claimed'
GROUP BY q.session_label HAVING count(DISTINCT q.turn_id) > 1;

-- audit_claim_incomplete --
-- A claimed entry has a writer and its turn's id; no other entry has a writer.
SELECT q.id, q.status
FROM queue q
WHERE (q.status = 'claimed' AND (q.writer_id IS NULL OR q.turn_id IS NULL))
OR (q.status <> 'claimed' AND q.writer_id IS NOT NULL);

-- audit_claim_late --
-- No entry is claimed any more once its turn is sealed.
SELECT q.id, q.turn_id
FROM queue q JOIN turns t ON t.id = q.turn_id
WHERE q.status = 'claimed' AND t.status IN ('completed', 'failed');

-- audit_entry_unanswered --
-- An entry that is done has its turn; an entry that waits has its messages.
SELECT q.id, q.status
FROM queue q LEFT JOIN turns t ON t.id = q.turn_id
WHERE (q.status = 'done' AND t.id IS NULL)
OR (q.status <> 'done' AND q.ask_json IS NULL);
-- audit_turn_unindexed --
-- Every turn is in the word index, or waits for it.
SELECT t.id, t.status
FROM turns t
WHERE NOT EXISTS (SELECT 1 FROM search_docs d WHERE d.turn_id = t.id)
AND NOT EXISTS (SELECT 1 FROM search_waiting w WHERE w.turn_id = t.id);

-- indexed_turns --
-- What the word index should know as it is now. Turns being written are indexed once sealed.
SELECT d.id, d.turn_id FROM search_docs d
WHERE d.turn_id IS NOT NULL
AND NOT EXISTS (SELECT 1 FROM search_waiting w WHERE w.turn_id = d.turn_id)
AND NOT EXISTS (SELECT 1 FROM live_turns l WHERE l.turn_id = d.turn_id);

-- system_prompts --
SELECT s.hash, s.content FROM system_prompts s
WHERE NOT EXISTS (
    SELECT 1 FROM redacted_places p
    WHERE p.table_name = 'system_prompts' AND p.row_key = '["' || s.hash || '"]'
);

-- audit_usage_sums --
-- The daily totals match the turns of that day.
WITH found (
    day, turns, failed, untold, tool_calls, input, output, cached, written, reasoning, total, fresh,
    paid, hour
) AS (
    SELECT t.started_at / 86400000, <spent_columns> FROM turns t GROUP BY t.started_at / 86400000
), summed AS (
    SELECT u.day, sum(u.turns) AS turns, sum(u.failed) AS failed, sum(u.untold) AS untold,
        sum(u.tool_calls) AS tool_calls, sum(u.input_tokens) AS input,
        sum(u.output_tokens) AS output, sum(u.cached_input_tokens) AS cached,
        sum(u.cache_write_tokens) AS written, sum(u.reasoning_tokens) AS reasoning,
        sum(u.total_tokens) AS total, sum(u.fresh_input_tokens) AS fresh,
        sum(u.paid_output_tokens) AS paid, sum(u.long_cache_write_tokens) AS hour
    FROM usage_sums u GROUP BY u.day
)
SELECT d.day, COALESCE(s.turns, 0)
FROM summary_days d
LEFT JOIN summed s ON s.day = d.day
LEFT JOIN found x ON x.day = d.day
WHERE COALESCE(s.turns, 0) <> COALESCE(x.turns, 0)
OR s.failed <> x.failed OR s.untold <> x.untold OR s.tool_calls <> x.tool_calls
OR s.input <> x.input OR s.output <> x.output OR s.cached <> x.cached OR s.written <> x.written
OR s.reasoning <> x.reasoning OR s.total <> x.total OR s.fresh <> x.fresh OR s.paid <> x.paid
OR s.hour <> x.hour;

-- audit_tool_sums --
-- The same of its tool calls.
SELECT d.day, COALESCE(s.calls, 0)
FROM summary_days d
LEFT JOIN (
    SELECT day, sum(calls) AS calls, sum(duration_ms) AS duration FROM tool_sums GROUP BY day
) AS s ON s.day = d.day
LEFT JOIN (
    SELECT t.started_at / 86400000 AS day, count(*) AS calls,
        sum(CASE WHEN COALESCE(c.completed_at, 0) > c.started_at
            THEN c.completed_at - c.started_at ELSE 0 END) AS duration
    FROM turns t JOIN tool_calls c ON c.turn_id = t.id
    GROUP BY t.started_at / 86400000
) AS x ON x.day = d.day
WHERE COALESCE(s.calls, 0) <> COALESCE(x.calls, 0) OR s.duration <> x.duration;
