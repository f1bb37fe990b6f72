-- Turns while they are being written, and those whose writer died.

-- insert_writer --
-- A writer that was seen a moment ago is left as it is.
INSERT INTO writers (id, seen_at) VALUES (:id, <server_now>)
ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at
WHERE writers.seen_at NOT BETWEEN excluded.seen_at - 5000 AND excluded.seen_at;

-- renew_writer --
UPDATE writers SET seen_at = <server_now> WHERE id = :id;

-- delete_writer --
DELETE FROM writers WHERE id = :id
AND NOT EXISTS (SELECT 1 FROM live_turns l WHERE l.writer_id = writers.id)
AND NOT EXISTS (SELECT 1 FROM queue q WHERE q.writer_id = writers.id)
AND NOT EXISTS (SELECT 1 FROM bus_calls c WHERE c.writer_id = writers.id)
AND NOT EXISTS (SELECT 1 FROM bus_streams s WHERE s.writer_id = writers.id);

-- other_writers --
-- Writers that may have died: when each was last seen, and how long ago, in milliseconds.
SELECT w.id, w.seen_at, <server_now> - w.seen_at FROM writers w WHERE w.id <> :id;

-- writer_unseen_since --
-- Locks a writer that has not been seen since then: it cannot renew its lease meanwhile.
SELECT 1 FROM writers WHERE id = :id AND seen_at = :seen_at
<lock_live>;

-- insert_live_turn --
INSERT INTO live_turns (turn_id, writer_id, session_label)
VALUES (:turn_id, :writer_id, :session_label);

-- live_turn --
-- A turn we may still write: no row: it is sealed, or another process writes it.
SELECT session_label FROM live_turns WHERE turn_id = :turn_id AND writer_id = :writer_id
<lock_live>;

-- live_turns --
-- Of one session, or of all.
SELECT turn_id FROM live_turns
WHERE CAST(:label AS TEXT) IS NULL OR session_label = :label
ORDER BY turn_id;

-- writer_turns --
SELECT turn_id, session_label FROM live_turns WHERE writer_id = :writer_id ORDER BY turn_id;

-- unfinished_turn --
-- A session's head, the turn that is being written on it, and its metadata if these name one whose
-- writer died. The latest such turn.
SELECT s.thread_id, l.turn_id, s.metadata_json
FROM names n
JOIN sessions s ON s.label = n.session_label
LEFT JOIN live_turns l ON l.session_label = s.label
WHERE n.name = :key
    AND (l.turn_id IS NOT NULL OR s.metadata_json LIKE '%"interrupted_turn_id"%')
ORDER BY l.turn_id DESC LIMIT 1;

-- writer_left --
-- Whether a writer has turns, calls or streams under way.
SELECT CASE WHEN
    EXISTS (SELECT 1 FROM live_turns l WHERE l.writer_id = :writer_id)
    OR EXISTS (SELECT 1 FROM bus_calls c WHERE c.writer_id = :writer_id)
    OR EXISTS (SELECT 1 FROM bus_streams s WHERE s.writer_id = :writer_id)
THEN 1 ELSE 0 END;

-- delete_live_turn --
DELETE FROM live_turns WHERE turn_id = :turn_id;

-- insert_partial --
INSERT INTO partial_texts (turn_id, piece, content)
SELECT :turn_id, COALESCE(max(piece), -1) + 1, :content
FROM partial_texts WHERE turn_id = :turn_id;

-- partials --
-- Of a turn of ours, or of one that belongs to a task.
SELECT content FROM (
    SELECT content, piece FROM partial_texts WHERE turn_id = :turn_id
    UNION ALL
    SELECT x.content, x.piece
    FROM bus_streams s JOIN bus_stream_texts x ON x.stream_id = s.id
    WHERE s.turn_id = :turn_id
) AS pieces ORDER BY piece;

-- delete_partials --
DELETE FROM partial_texts WHERE turn_id = :turn_id;

-- mark_streaming --
UPDATE turns SET status = 'streaming' WHERE id = :turn_id AND status = 'pending';

-- last_sequence --
SELECT max(sequence) FROM (
    SELECT max(sequence) AS sequence FROM messages WHERE turn_id = :turn_id
    UNION ALL
    SELECT max(sequence) FROM tool_calls WHERE turn_id = :turn_id
) AS both_kinds;

-- finish_tool_call --
-- No row written: there is no such call, or it is finished already.
UPDATE tool_calls SET
    status = :status, result_json = :result_json, error = :error, completed_at = :completed_at
WHERE turn_id = :turn_id AND id = :id AND status IN ('pending', 'running');

-- call_outcome --
-- What came of a call, and the session it spawned.
SELECT status, result_json, error, spawned_session_label FROM tool_calls
WHERE turn_id = :turn_id AND id = :id;

-- message_turn --
SELECT turn_id FROM messages WHERE id = :id;

-- was_head --
-- Whether a session ever stood on a turn.
SELECT 1 FROM session_history WHERE thread_id = :turn_id LIMIT 1;

-- close_tool_calls --
-- Completing or failing a turn leaves no call open.
UPDATE tool_calls SET
    status = 'cancelled', error = 'no result recorded', completed_at = :completed_at
WHERE turn_id = :turn_id AND status IN ('pending', 'running');

-- spawn_from_call --
UPDATE tool_calls SET spawned_session_label = :label
WHERE turn_id = :turn_id AND id = :id AND spawned_session_label IS NULL;

-- live_parent --
SELECT
    t.parent_turn_id, p.persona_id, p.system_prompt_hash, p.thread_key, t.model, t.provider,
    p.segment_id
FROM turns t JOIN places p ON p.turn_id = t.id WHERE t.id = :turn_id;

-- seal_turn --
UPDATE turns SET
    status = :status, completed_at = :completed_at, error = :error, model = :model,
    provider = :provider, response_message_id = :response_message_id,
    permissions_used = COALESCE(CAST(:permissions_used AS TEXT), permissions_used),
    input_tokens = :input_tokens, output_tokens = :output_tokens,
    cached_input_tokens = :cached_input_tokens, cache_write_tokens = :cache_write_tokens,
    reasoning_tokens = :reasoning_tokens, total_tokens = :total_tokens,
    tool_call_count = (SELECT count(*) FROM tool_calls c WHERE c.turn_id = turns.id)
WHERE id = :id;
