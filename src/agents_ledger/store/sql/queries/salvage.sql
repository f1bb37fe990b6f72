-- What makes a ledger of the rows that were read from a damaged one. Those named salvage_*, mend_*,
-- tidy_* and flag_* are run in this order, each returns the key of every row it changed, and the
-- comment says what was done.

-- salvage_turn_rebuilt --
-- The row of a turn was lost; it is rebuilt from its messages, its place and the turns that hang on it.
INSERT INTO turns (
    id, parent_turn_id, status, started_at, completed_at, model, provider, error, projected
)
SELECT
    x.id,
    COALESCE(
        (
            SELECT q.turn_id FROM places p
            JOIN places q ON q.segment_id = p.segment_id AND q.depth = p.depth - 1
            WHERE p.turn_id = x.id
        ),
        (
            SELECT q.turn_id FROM places p
            JOIN segments s ON s.id = p.segment_id AND s.fork_depth = p.depth - 1
            JOIN places q ON q.segment_id = s.parent_id AND q.depth = s.fork_depth
            WHERE p.turn_id = x.id
        )
    ),
    'completed',
    COALESCE((SELECT min(m.created_at) FROM messages m WHERE m.turn_id = x.id), 0),
    COALESCE((SELECT max(m.created_at) FROM messages m WHERE m.turn_id = x.id), 0),
    (SELECT p.model FROM places p WHERE p.turn_id = x.id),
    (SELECT p.provider FROM places p WHERE p.turn_id = x.id),
    'the row of this turn was lost',
    CASE WHEN EXISTS (SELECT 1 FROM turn_sources f WHERE f.turn_id = x.id)
        OR EXISTS (SELECT 1 FROM bus_turns b WHERE b.turn_id = x.id) THEN 1 ELSE 0 END
FROM (
    SELECT p.turn_id AS id FROM places p
    UNION SELECT m.turn_id FROM messages m
    UNION SELECT c.turn_id FROM tool_calls c
    UNION SELECT t.parent_turn_id FROM turns t
    UNION SELECT c.turn_id FROM compactions c
) AS x
WHERE x.id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM turns t WHERE t.id = x.id)
RETURNING id, parent_turn_id;

-- salvage_session_rebuilt --
-- The row of a session was lost; it is rebuilt from its history.
INSERT INTO sessions (label, thread_id, persona_id, created_at, updated_at)
SELECT
    h.session_label,
    (
        SELECT x.thread_id FROM session_history x
        WHERE x.session_label = h.session_label ORDER BY x.id DESC LIMIT 1
    ),
    COALESCE((
        SELECT p.persona_id FROM session_history x JOIN places p ON p.turn_id = x.thread_id
        WHERE x.session_label = h.session_label ORDER BY x.id DESC LIMIT 1
    ), 'main'),
    min(h.changed_at),
    max(h.changed_at)
FROM session_history h
WHERE NOT EXISTS (SELECT 1 FROM sessions s WHERE s.label = h.session_label)
GROUP BY h.session_label
RETURNING label, thread_id;

-- salvage_block_unbased --
-- Source records were lost because those that they are packed against are.
DELETE FROM source_blocks
WHERE base_file_id IS NOT NULL
AND NOT EXISTS (SELECT 1 FROM source_files f WHERE f.id = source_blocks.base_file_id)
RETURNING file_id, start;

-- old_places --
SELECT turn_id, persona_id, system_prompt_hash, thread_key FROM places;

-- forget_places --
DELETE FROM places;

-- forget_segments --
DELETE FROM segments;

-- mend_unsourced --
-- The source records of a turn were lost; it is kept as if it had been recorded here.
UPDATE turns SET projected = 0
WHERE projected = 1 AND NOT EXISTS (SELECT 1 FROM turn_sources x WHERE x.turn_id = turns.id)
AND NOT EXISTS (SELECT 1 FROM bus_turns b WHERE b.turn_id = turns.id)
RETURNING id, status;

-- mend_late_writer --
-- A turn that was sealed was still listed as being written.
DELETE FROM live_turns
WHERE NOT EXISTS (
    SELECT 1 FROM turns t WHERE t.id = live_turns.turn_id AND t.status IN ('pending', 'streaming')
)
RETURNING turn_id, writer_id;

-- mend_open_turn --
-- A turn was being written, and nothing says by whom; it has failed.
UPDATE turns SET status = 'failed', error = COALESCE(error, 'it was being written when it was lost')
WHERE status IN ('pending', 'streaming') AND projected = 0
AND NOT EXISTS (SELECT 1 FROM live_turns l WHERE l.turn_id = turns.id)
RETURNING id, status;

-- mend_failed_unsaid --
-- Why a turn failed was lost.
UPDATE turns SET error = 'the reason was lost'
WHERE status = 'failed' AND projected = 0 AND error IS NULL
RETURNING id, status;

-- mend_end --
-- When a turn ended was lost; it ends when it began.
UPDATE turns SET completed_at = started_at
WHERE status IN ('completed', 'failed') AND projected = 0 AND completed_at IS NULL
RETURNING id, status;

-- mend_not_ended --
-- A turn that is being written has not ended.
UPDATE turns SET completed_at = NULL
WHERE status IN ('pending', 'streaming') AND projected = 0 AND completed_at IS NOT NULL
RETURNING id, status;

-- mend_request --
-- What makes a retry of a turn safe was lost: to record it again is refused.
UPDATE turns SET request_hash = :nothing WHERE projected = 0 AND request_hash IS NULL
RETURNING id, status;

-- mend_open_call --
-- How a tool call ended was lost.
UPDATE tool_calls SET status = 'cancelled', error = COALESCE(error, 'no result recorded')
WHERE status IN ('pending', 'running') AND EXISTS (
    SELECT 1 FROM turns t WHERE t.id = tool_calls.turn_id
    AND (t.status = 'completed' OR (t.status = 'failed' AND t.projected = 0))
)
RETURNING turn_id, id;

-- mend_call_message --
-- A tool call named a message of another turn.
UPDATE tool_calls SET message_id = NULL
WHERE message_id IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM messages m WHERE m.id = tool_calls.message_id AND m.turn_id = tool_calls.turn_id
)
RETURNING turn_id, id;

-- mend_compaction_type --
-- That a turn is a compaction was lost.
UPDATE turns SET turn_type = 'compaction'
WHERE turn_type <> 'compaction' AND EXISTS (SELECT 1 FROM compactions c WHERE c.turn_id = turns.id)
RETURNING id, status;

-- mend_compaction_lost --
-- The record of a compaction was lost; its turn is an ordinary one.
UPDATE turns SET turn_type = 'normal'
WHERE turn_type = 'compaction' AND NOT EXISTS (
    SELECT 1 FROM compactions c WHERE c.turn_id = turns.id
)
RETURNING id, status;

-- all_compactions --
SELECT turn_id, summarized_through_turn_id, first_kept_turn_id, summary FROM compactions;

-- delete_compaction --
DELETE FROM compactions WHERE turn_id = :turn_id;

-- all_parents --
SELECT id, parent_turn_id FROM turns;

-- cut_parent --
UPDATE turns SET parent_turn_id = NULL WHERE id = :id;

-- place_values --
SELECT
    parent_turn_id, status, turn_type, model, provider, input_tokens, output_tokens,
    cached_input_tokens, cache_write_tokens, reasoning_tokens, total_tokens
FROM turns WHERE id = :id;

-- parents_that_freeze --
SELECT DISTINCT t.id FROM turns c JOIN turns t ON t.id = c.parent_turn_id
WHERE c.projected = 0 AND t.projected = 1;

-- salvage_history_lost --
-- A line of a session's history named a turn that is lost.
DELETE FROM session_history
WHERE thread_id IS NOT NULL
AND NOT EXISTS (SELECT 1 FROM places p WHERE p.turn_id = session_history.thread_id)
RETURNING session_label, thread_id;

-- lost_heads --
SELECT s.label, s.thread_id, (
    SELECT h.thread_id FROM session_history h
    WHERE h.session_label = s.label ORDER BY h.id DESC LIMIT 1
)
FROM sessions s
WHERE s.thread_id IS NOT NULL
AND NOT EXISTS (SELECT 1 FROM places p WHERE p.turn_id = s.thread_id);

-- point_to --
UPDATE sessions SET thread_id = :turn_id WHERE label = :label;

-- heads_unlogged --
SELECT s.label, s.thread_id, s.updated_at
FROM sessions s
LEFT JOIN session_history h ON h.id = (
    SELECT max(x.id) FROM session_history x WHERE x.session_label = s.label
)
WHERE COALESCE(s.thread_id, '') <> COALESCE(h.thread_id, '');

-- log_salvaged --
INSERT INTO session_history (session_label, thread_id, changed_at, reason)
VALUES (:label, :turn_id, :at, 'rollback');

-- set_session_times --
-- A session was updated when it last moved; only the source of an imported one can grow later.
UPDATE sessions SET updated_at = (
    SELECT h.changed_at FROM session_history h
    WHERE h.session_label = sessions.label AND h.reason <> 'rename' ORDER BY h.id DESC LIMIT 1
)
WHERE EXISTS (
    SELECT 1 FROM session_history h
    WHERE h.id = (
        SELECT max(x.id) FROM session_history x
        WHERE x.session_label = sessions.label AND x.reason <> 'rename'
    )
    AND (sessions.updated_at < h.changed_at
        OR (COALESCE(sessions.origin, 'native') = 'native'
            AND sessions.updated_at > h.changed_at))
);

-- tidy_head_live --
-- A session pointed to a turn that was not sealed.
UPDATE turns SET status = 'completed', completed_at = COALESCE(completed_at, started_at)
WHERE status IN ('pending', 'streaming')
AND EXISTS (SELECT 1 FROM sessions s WHERE s.thread_id = turns.id)
RETURNING id, status;

-- tidy_name_missing --
-- The name of a session was lost; it answers to its label.
INSERT INTO names (name, session_label, created_at)
SELECT s.label, s.label, s.created_at FROM sessions s
WHERE NOT EXISTS (SELECT 1 FROM names n WHERE n.name = s.label)
RETURNING name, session_label;

-- tidy_name_elsewhere --
-- The label of an active session led elsewhere; it answers to its label.
UPDATE names SET session_label = name
WHERE session_label <> name
AND EXISTS (SELECT 1 FROM sessions s WHERE s.label = names.name AND s.status = 'active')
RETURNING name, session_label;

-- tidy_alias_chain --
-- An alias led to a session that does not stand for itself.
DELETE FROM names
WHERE name <> session_label AND NOT EXISTS (
    SELECT 1 FROM names t WHERE t.name = names.session_label AND t.session_label = t.name
)
AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.label = names.name)
RETURNING name, session_label;

-- tidy_merged --
-- Where a merged session went is lost; it answers to its label.
UPDATE names SET session_label = name
WHERE name <> session_label AND NOT EXISTS (
    SELECT 1 FROM names t WHERE t.name = names.session_label AND t.session_label = t.name
)
RETURNING name, session_label;

-- tidy_subagent --
-- Which call spawned a subagent was lost.
UPDATE sessions SET spawn_tool_call_id = NULL
WHERE spawn_tool_call_id IS NOT NULL AND (
    parent_session_label IS NULL OR NOT EXISTS (
        SELECT 1 FROM tool_calls c
        WHERE c.turn_id = sessions.parent_turn_id AND c.id = sessions.spawn_tool_call_id
        AND c.spawned_session_label = sessions.label
    )
)
RETURNING label, parent_turn_id;

-- tidy_spawned --
-- Which subagent a call spawned was lost.
UPDATE tool_calls SET spawned_session_label = NULL
WHERE spawned_session_label IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM sessions s
    WHERE s.label = tool_calls.spawned_session_label AND s.is_subagent = 1
    AND s.spawn_tool_call_id = tool_calls.id AND s.parent_turn_id = tool_calls.turn_id
)
RETURNING turn_id, id;

-- tidy_task_turn --
-- Which task a turn belongs to was lost; its messages tell.
INSERT INTO bus_turns (turn_id, task_id)
SELECT b.turn_id, min(b.task_id) FROM bus_messages b
WHERE b.turn_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM bus_turns x WHERE x.turn_id = b.turn_id)
GROUP BY b.turn_id
RETURNING turn_id, task_id;

-- tidy_task_words --
-- A message of a task was damaged in its turn; it is taken from the task.
UPDATE messages SET
    content = (SELECT b.content FROM bus_messages b WHERE b.id = substr(messages.id, 6)),
    role = (SELECT b.role FROM bus_messages b WHERE b.id = substr(messages.id, 6))
WHERE id LIKE 'task:%' AND EXISTS (
    SELECT 1 FROM bus_messages b WHERE b.id = substr(messages.id, 6)
    AND (messages.content IS NULL OR b.content <> messages.content OR b.role <> messages.role)
)
RETURNING turn_id, id;

-- tidy_task_message --
-- A message of a task was lost in its turn; it is taken from the task.
INSERT INTO messages (id, turn_id, role, content, sequence, created_at)
SELECT
    'task:' || b.id, b.turn_id, b.role, b.content,
    row_number() OVER (PARTITION BY b.turn_id ORDER BY b.position) + (
        SELECT COALESCE(max(x.sequence), -1) FROM (
            SELECT m.sequence FROM messages m WHERE m.turn_id = b.turn_id
            UNION ALL
            SELECT c.sequence FROM tool_calls c WHERE c.turn_id = b.turn_id
        ) AS x
    ),
    b.timestamp
FROM bus_messages b
WHERE b.turn_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.id = 'task:' || b.id)
RETURNING turn_id, id;

-- tidy_task_stray --
-- A message of a task stands in no turn of it.
DELETE FROM bus_messages
WHERE turn_id IS NULL
OR NOT EXISTS (
    SELECT 1 FROM bus_turns x
    WHERE x.turn_id = bus_messages.turn_id AND x.task_id = bus_messages.task_id
)
OR NOT EXISTS (
    SELECT 1 FROM messages m
    WHERE m.id = 'task:' || bus_messages.id AND m.turn_id = bus_messages.turn_id
)
RETURNING id, turn_id;

-- tidy_task_call --
-- A call of a task was lost in its turn.
DELETE FROM bus_calls
WHERE NOT EXISTS (
    SELECT 1 FROM bus_messages b JOIN tool_calls t ON t.turn_id = b.turn_id
    WHERE b.id = bus_calls.start_message_id AND b.task_id = bus_calls.task_id
    AND t.id = bus_calls.id AND t.tool_name = bus_calls.ability_name
)
OR EXISTS (
    SELECT 1 FROM bus_messages b
    WHERE b.id = bus_calls.end_message_id AND b.task_id <> bus_calls.task_id
)
RETURNING id, task_id;

-- tidy_task_open --
-- Who executes a call of a task was lost; it has failed.
UPDATE bus_calls SET status = 'failed' WHERE status = 'in_progress' AND writer_id IS NULL
RETURNING id, task_id;

-- tidy_task_writer --
-- A call of a task that had ended was still listed as being executed.
UPDATE bus_calls SET writer_id = NULL WHERE status <> 'in_progress' AND writer_id IS NOT NULL
RETURNING id, task_id;

-- tidy_queue_lost --
-- What an entry of the queue asks, or the turn that answered it, was lost.
DELETE FROM queue
WHERE (status = 'done' AND NOT EXISTS (SELECT 1 FROM turns t WHERE t.id = queue.turn_id))
OR (status <> 'done' AND ask_json IS NULL)
RETURNING id, session_label;

-- tidy_queue_claim --
-- Who answers an entry of the queue was lost; it has failed.
UPDATE queue SET status = 'failed', writer_id = NULL, error = COALESCE(error, 'its claim was lost')
WHERE status = 'claimed' AND (
    writer_id IS NULL OR turn_id IS NULL
    OR EXISTS (
        SELECT 1 FROM turns t WHERE t.id = queue.turn_id AND t.status IN ('completed', 'failed')
    )
)
RETURNING id, session_label;

-- tidy_queue_writer --
-- An entry of the queue that nobody claimed named a writer.
UPDATE queue SET writer_id = NULL WHERE status <> 'claimed' AND writer_id IS NOT NULL
RETURNING id, session_label;

-- file_blocks --
SELECT f.id, f.kept_bytes, f.path, b.start, b.length
FROM source_files f LEFT JOIN source_blocks b ON b.file_id = f.id
ORDER BY f.id, b.start;

-- cut_blocks --
DELETE FROM source_blocks WHERE file_id = :file_id AND start >= :kept;

-- cut_source_file --
UPDATE source_files SET kept_bytes = :kept, derived_bytes = :kept, tail_hash = NULL, cursor_json = NULL
WHERE id = :file_id;

-- rename_prompt --
UPDATE bus_tasks SET system_prompt_hash = :hash WHERE system_prompt_hash = :old;

-- delete_prompt --
DELETE FROM system_prompts WHERE hash = :hash;

-- steps_disordered --
-- Turns whose messages and calls have no order, or one that begins below 0.
SELECT DISTINCT x.turn_id FROM (
    SELECT m.turn_id, m.sequence FROM messages m
    UNION ALL
    SELECT c.turn_id, c.sequence FROM tool_calls c
) AS x
GROUP BY x.turn_id, x.sequence HAVING count(*) > 1 OR x.sequence < 0;

-- steps_in_order --
SELECT m.sequence, 0, m.id FROM messages m WHERE m.turn_id = :turn_id
UNION ALL
SELECT c.sequence, 1, c.id FROM tool_calls c WHERE c.turn_id = :turn_id
ORDER BY 1, 2, 3;

-- set_message_sequence --
UPDATE messages SET sequence = :sequence WHERE id = :id;

-- set_call_sequence --
UPDATE tool_calls SET sequence = :sequence WHERE turn_id = :turn_id AND id = :id;

-- true_children --
UPDATE turns SET has_children =
    CASE WHEN EXISTS (SELECT 1 FROM turns c WHERE c.parent_turn_id = turns.id) THEN 1 ELSE 0 END
WHERE has_children <>
    CASE WHEN EXISTS (SELECT 1 FROM turns c WHERE c.parent_turn_id = turns.id) THEN 1 ELSE 0 END;

-- flag_calls_lost --
-- A turn lost tool calls.
UPDATE turns SET tool_call_count = (SELECT count(*) FROM tool_calls c WHERE c.turn_id = turns.id)
WHERE status IN ('completed', 'failed')
AND tool_call_count <> (SELECT count(*) FROM tool_calls c WHERE c.turn_id = turns.id)
RETURNING id, tool_call_count;

-- flag_response_lost --
-- A turn lost its response.
UPDATE turns SET response_message_id = NULL
WHERE response_message_id IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM messages m
    WHERE m.id = turns.response_message_id AND m.turn_id = turns.id AND m.role = 'assistant'
)
RETURNING id, status;

-- queries_of_turns --
SELECT t.id, t.query_message_ids FROM turns t
WHERE COALESCE(t.query_message_ids, '[]') <> '[]'
AND (
    t.query_message_ids NOT LIKE '["%"]'
    OR (length(t.query_message_ids) - length(replace(t.query_message_ids, '"', ''))) / 2
    <> (SELECT count(*) FROM messages m
        WHERE m.turn_id = t.id AND <position>(t.query_message_ids, '"' || m.id || '"') > 0)
);

-- own_messages --
SELECT id, role FROM messages WHERE turn_id = :turn_id ORDER BY sequence;

-- set_query_messages --
UPDATE turns SET query_message_ids = :ids WHERE id = :id;

-- true_details --
UPDATE messages SET has_details = CASE
    WHEN EXISTS (SELECT 1 FROM message_files f WHERE f.message_id = messages.id)
        OR EXISTS (SELECT 1 FROM message_lints l WHERE l.message_id = messages.id)
        OR EXISTS (SELECT 1 FROM message_codeblocks b WHERE b.message_id = messages.id)
    THEN 1 ELSE 0 END
WHERE has_details <> CASE
    WHEN EXISTS (SELECT 1 FROM message_files f WHERE f.message_id = messages.id)
        OR EXISTS (SELECT 1 FROM message_lints l WHERE l.message_id = messages.id)
        OR EXISTS (SELECT 1 FROM message_codeblocks b WHERE b.message_id = messages.id)
    THEN 1 ELSE 0 END;
