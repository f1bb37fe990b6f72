-- Pieces that several statements share; a statement names them in angle brackets.

-- turn_columns --
t.id, t.parent_turn_id, t.turn_type, t.status, t.started_at, t.completed_at, t.model, t.provider,
    t.role, t.toolset_name, t.tools_available, t.permissions_granted, t.permissions_used,
    t.input_tokens, t.output_tokens, t.cached_input_tokens, t.cache_write_tokens,
    t.reasoning_tokens, t.total_tokens, t.query_message_ids, t.response_message_id,
    t.has_children, t.tool_call_count, t.source_event_id, t.workspace_path,
    t.effective_config_json, t.error, t.projected, t.long_cache_write_tokens

-- message_columns --
-- The sequence of a message that has files, lints or codeblocks is turned below zero: with a column
-- of its own, every message would pay for what few have.
m.role, m.content, m.source, m.thinking, m.context_json, m.metadata_json, m.tool_call_id,
    m.id, m.turn_id, CASE WHEN m.has_details = 0 THEN m.sequence ELSE -1 - m.sequence END,
    m.created_at

-- call_columns --
c.tool_name, c.params_json, c.result_json, c.error, c.status, c.id, c.turn_id, c.message_id,
    c.tool_number, c.source_status, c.spawned_session_label, c.started_at, c.completed_at,
    c.sequence

-- stand_columns --
-- Of a thread, its head's place and where that segment begins.
g.fork_depth, p.segment_id, p.depth, p.input_tokens, p.output_tokens, p.cached_input_tokens,
    p.cache_write_tokens, p.reasoning_tokens, p.total_tokens, p.compaction_count,
    p.compaction_turn_id, p.model, p.provider, p.persona_id, p.system_prompt_hash, p.thread_key

-- stretch --
-- Of one segment, between two depths.
p.segment_id = :segment_id AND p.depth BETWEEN :from_depth AND :to_depth

-- model_used --
-- A compaction turn says no model: the thread's does not change by it. Its summariser's was used.
COALESCE(t.model, CASE WHEN t.turn_type = 'compaction' THEN
        (SELECT NULLIF(c.model, 'none') FROM compactions c WHERE c.turn_id = t.id) END)

-- provider_used --
COALESCE(t.provider, CASE WHEN t.turn_type = 'compaction' THEN
        (SELECT c.provider FROM compactions c WHERE c.turn_id = t.id) END)

-- headline_columns --
-- How a turn's first message begins, rather one that is no harness's, and the ids next to its own.
COALESCE((
        SELECT substr(m.content, 1, CAST(:text_max AS INTEGER)) FROM messages m
        WHERE m.turn_id = t.id AND m.role = 'user' AND COALESCE(m.source, 'human') <> 'event'
        AND (substr(m.content, 1, 1) <> '<' OR substr(m.content, 1, 9) = '<command-')
        ORDER BY m.sequence LIMIT 1
    ), (
        SELECT substr(m.content, 1, CAST(:text_max AS INTEGER)) FROM messages m
        WHERE m.turn_id = t.id AND m.content IS NOT NULL AND m.role <> 'system'
        ORDER BY m.sequence LIMIT 1
    )),
    (SELECT max(b.id) FROM turns b WHERE b.id < t.id),
    (SELECT min(b.id) FROM turns b WHERE b.id > t.id)

-- prompts_of_thread --
-- How the last and the first prompt of a session's thread begin. Programs write other messages that
-- begin with <, and those of the source event.
(
        SELECT substr(m.content, 1, CAST(:text_max AS INTEGER)) FROM messages m
        WHERE m.turn_id = p.turn_id AND m.role = 'user' AND COALESCE(m.source, 'human') <> 'event'
        AND (substr(m.content, 1, 1) <> '<' OR substr(m.content, 1, 9) = '<command-')
        ORDER BY m.sequence LIMIT 1
    ),
    (
        SELECT substr(m.content, 1, CAST(:text_max AS INTEGER))
        FROM places r JOIN messages m ON m.turn_id = r.turn_id
        WHERE r.depth = 1 AND r.segment_id = (
            WITH RECURSIVE chain (id, jump_id) AS (
                SELECT g.id, g.jump_id FROM segments g WHERE g.id = p.segment_id
                UNION ALL
                SELECT g.id, g.jump_id FROM chain JOIN segments g ON g.id = chain.jump_id
            )
            SELECT id FROM chain WHERE jump_id IS NULL
        )
        AND m.role = 'user' AND COALESCE(m.source, 'human') <> 'event'
        AND (substr(m.content, 1, 1) <> '<' OR substr(m.content, 1, 9) = '<command-')
        ORDER BY m.sequence LIMIT 1
    )

-- session_columns --
s.label, s.thread_id, s.persona_id, s.agent_id, s.created_as, s.is_subagent,
    s.parent_session_label, s.parent_turn_id, s.spawn_tool_call_id, s.task_description,
    s.task_status, s.routing_key, COALESCE(s.origin, 'native'), s.origin_session_id, s.created_at, s.updated_at,
    s.status, COALESCE(a.title, s.source_title), COALESCE(a.starred, 0), a.note, s.metadata_json,
    s.source_has_more

-- title_columns --
t.record_id, t.file_id, f.path, f.generation, t.position, t.title

-- compaction_columns --
c.summary, c.summarized_through_turn_id, c.first_kept_turn_id, c.turns_summarized,
    c.compaction_type, c.model, c.provider, c.tokens_before, c.tokens_after, c.summary_tokens,
    c.summarization_input_tokens, c.summarization_output_tokens, c.duration_ms, c.trigger,
    c.metadata_json, c.turn_id

-- range --
-- The segments of a thread between two depths, each with how far down it belongs to the thread.
WITH RECURSIVE chain (segment_id, upto) AS (
    SELECT segment_id, depth FROM places WHERE turn_id = :turn_id
    UNION ALL
    SELECT s.parent_id, s.fork_depth
    FROM chain JOIN segments s ON s.id = chain.segment_id
    WHERE s.parent_id IS NOT NULL AND s.fork_depth >= :from_depth
), range (segment_id, upto) AS (
    SELECT segment_id, CASE WHEN upto < :to_depth THEN upto ELSE :to_depth END FROM chain
)

-- below --
-- The segments at or below a turn, each with the depth at which it begins to be below.
WITH RECURSIVE tail (segment_id, from_depth) AS (
    SELECT segment_id, depth FROM places WHERE turn_id = :turn_id
    UNION ALL
    SELECT s.id, s.fork_depth + 1
    FROM tail JOIN segments s ON s.parent_id = tail.segment_id AND s.fork_depth >= tail.from_depth
)

-- tails --
-- The same for some turns.
WITH RECURSIVE tail (turn_id, segment_id, from_depth) AS (
    SELECT p.turn_id, p.segment_id, p.depth FROM places p WHERE p.turn_id IN <ids>
    UNION ALL
    SELECT tail.turn_id, g.id, g.fork_depth + 1
    FROM tail JOIN segments g ON g.parent_id = tail.segment_id AND g.fork_depth >= tail.from_depth
)

-- is_indexed --
-- A turn that waits is not in the index as it is now.
NOT EXISTS (SELECT 1 FROM search_waiting w WHERE w.turn_id = d.turn_id)

-- holder_columns --
tail.turn_id, s.created_at, s.label, COALESCE(a.title, s.source_title)

-- within --
-- The segments at or below a turn down to a depth, each with the first and last depth it has there.
WITH RECURSIVE chain (segment_id, from_depth) AS (
    SELECT segment_id, depth FROM places WHERE turn_id = :turn_id
    UNION ALL
    SELECT s.id, s.fork_depth + 1
    FROM chain
    JOIN segments s ON s.parent_id = chain.segment_id
        AND s.fork_depth >= chain.from_depth AND s.fork_depth < :to_depth
), tail (segment_id, from_depth, last_depth) AS (
    SELECT chain.segment_id, chain.from_depth, (
        SELECT max(p.depth) FROM places p
        WHERE p.segment_id = chain.segment_id AND p.depth <= :to_depth
    )
    FROM chain
)

-- source_file_columns --
f.id, f.source, f.path, f.generation, f.family, f.kind, f.size, f.mtime_ns, f.kept_bytes, f.tail_hash,
    f.cursor_json, f.derived_bytes, f.derived_version

-- spent_columns --
-- What turns used, summed up. Providers count in four ways: cached tokens as part of the input or
-- apart, reasoning as part of the output or apart; what the total has beyond input and output tells
-- which. The last three are input from no cache, output with all reasoning, and the cache writes that
-- are kept for an hour.
count(*),
    CAST(sum(CASE WHEN t.status = 'failed' THEN 1 ELSE 0 END) AS BIGINT),
    CAST(sum(CASE WHEN t.status IN ('completed', 'failed') AND t.turn_type = 'normal'
        AND t.total_tokens IS NULL
        THEN 1 ELSE 0 END) AS BIGINT),
    CAST(sum(t.tool_call_count) AS BIGINT),
    CAST(COALESCE(sum(t.input_tokens), 0) AS BIGINT),
    CAST(COALESCE(sum(t.output_tokens), 0) AS BIGINT),
    CAST(COALESCE(sum(t.cached_input_tokens), 0) AS BIGINT),
    CAST(COALESCE(sum(t.cache_write_tokens), 0) AS BIGINT),
    CAST(COALESCE(sum(t.reasoning_tokens), 0) AS BIGINT),
    CAST(COALESCE(sum(t.total_tokens), 0) AS BIGINT),
    CAST(sum(COALESCE(t.input_tokens, 0) - CASE
        WHEN COALESCE(t.cached_input_tokens, 0) + COALESCE(t.cache_write_tokens, 0) = 0 THEN 0
        WHEN COALESCE(t.total_tokens - COALESCE(t.input_tokens, 0) - COALESCE(t.output_tokens, 0), 0)
            - COALESCE(t.cached_input_tokens, 0) - COALESCE(t.cache_write_tokens, 0)
            IN (0, COALESCE(t.reasoning_tokens, 0)) THEN 0
        ELSE COALESCE(t.cached_input_tokens, 0) + COALESCE(t.cache_write_tokens, 0)
    END) AS BIGINT),
    CAST(sum(COALESCE(t.output_tokens, 0) + CASE
        WHEN COALESCE(t.reasoning_tokens, 0) = 0 THEN 0
        WHEN COALESCE(t.total_tokens - COALESCE(t.input_tokens, 0) - COALESCE(t.output_tokens, 0), 0)
            - t.reasoning_tokens
            IN (0, COALESCE(t.cached_input_tokens, 0) + COALESCE(t.cache_write_tokens, 0))
            THEN t.reasoning_tokens
        ELSE 0
    END) AS BIGINT),
    CAST(COALESCE(sum(t.long_cache_write_tokens), 0) AS BIGINT)

-- queue_columns --
q.position, q.id, q.session_label, q.mode, q.status, q.enqueued_at, q.ready_at, q.turn_id,
    q.writer_id, q.stop_at, q.error, q.ask_json

-- task_columns --
t.id, t.system_prompt, t.created_at, t.updated_at, t.parent_task_id, t.completion_status

-- task_times --
t.created_at BETWEEN :from_time AND :to_time

-- task_of_parent --
t.parent_task_id = :parent
AND (CAST(:status AS TEXT) IS NULL OR COALESCE(t.completion_status, 'null') = :status)

-- task_page --
ORDER BY t.created_at DESC, t.id DESC LIMIT :limit OFFSET :offset

-- task_call_columns --
c.id, c.task_id, c.ability_name, c.parameters, c.status, c.details, c.created_at, c.updated_at,
    c.start_message_id, c.end_message_id

-- unsummed --
t.started_at >= :since AND t.started_at < :until
    AND t.started_at / 86400000 NOT IN (SELECT d.day FROM summary_days d)

-- tool_columns --
-- Tool calls by name, status and the step their duration falls in; step 0: they do not say.
c.tool_name, c.status,
    CASE WHEN COALESCE(c.completed_at, 0) <= c.started_at THEN 0
        WHEN c.completed_at - c.started_at <= 1 THEN 1
        WHEN c.completed_at - c.started_at <= 2 THEN 2
        WHEN c.completed_at - c.started_at <= 5 THEN 5
        WHEN c.completed_at - c.started_at <= 10 THEN 10
        WHEN c.completed_at - c.started_at <= 20 THEN 20
        WHEN c.completed_at - c.started_at <= 50 THEN 50
        WHEN c.completed_at - c.started_at <= 100 THEN 100
        WHEN c.completed_at - c.started_at <= 200 THEN 200
        WHEN c.completed_at - c.started_at <= 500 THEN 500
        WHEN c.completed_at - c.started_at <= 1000 THEN 1000
        WHEN c.completed_at - c.started_at <= 2000 THEN 2000
        WHEN c.completed_at - c.started_at <= 5000 THEN 5000
        WHEN c.completed_at - c.started_at <= 10000 THEN 10000
        WHEN c.completed_at - c.started_at <= 20000 THEN 20000
        WHEN c.completed_at - c.started_at <= 50000 THEN 50000
        WHEN c.completed_at - c.started_at <= 100000 THEN 100000
        WHEN c.completed_at - c.started_at <= 200000 THEN 200000
        WHEN c.completed_at - c.started_at <= 500000 THEN 500000
        WHEN c.completed_at - c.started_at <= 1000000 THEN 1000000
        ELSE 10000000 END,
    count(*),
    CAST(sum(CASE WHEN COALESCE(c.completed_at, 0) > c.started_at
        THEN c.completed_at - c.started_at ELSE 0 END) AS BIGINT),
    max(CASE WHEN COALESCE(c.completed_at, 0) > c.started_at
        THEN c.completed_at - c.started_at ELSE 0 END),
    max(c.started_at)
