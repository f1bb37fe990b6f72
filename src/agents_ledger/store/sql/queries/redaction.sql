-- What is removed from the ledger, and what says so.

-- insert_redaction --
INSERT INTO redactions (id, reason, actor, selection_json, started_at, purges)
VALUES (:id, :reason, :actor, :selection_json, :now, :purges);

-- finish_redaction --
UPDATE redactions SET finished_at = :now, places = :places, spans = :spans, turns = :turns
WHERE id = :id;

-- unscrubbed_redactions --
SELECT id FROM redactions WHERE scrubbed_at IS NULL;

-- note_scrubbed --
UPDATE redactions SET scrubbed_at = :now
WHERE scrubbed_at IS NULL AND id <= :latest;

-- redactions --
-- The latest first.
SELECT
    id, reason, actor, selection_json, started_at, finished_at, scrubbed_at, purges, places, spans,
    turns
FROM redactions ORDER BY id DESC LIMIT :limit;

-- redactions_count --
SELECT count(*) FROM redactions;

-- redactions_of_turn --
SELECT
    r.id, r.reason, r.actor, r.selection_json, r.started_at, r.finished_at, r.scrubbed_at, r.purges,
    r.places, r.spans, r.turns
FROM redactions r
WHERE r.id IN (SELECT p.redaction_id FROM redacted_places p WHERE p.turn_id = :turn_id)
ORDER BY r.id;

-- insert_redacted_place --
INSERT INTO redacted_places (redaction_id, table_name, row_key, column_name, turn_id)
VALUES (:redaction_id, :table_name, :row_key, :column_name, :turn_id)
ON CONFLICT DO NOTHING;

-- insert_redacted_span --
-- A span may become longer: what was removed before is part of it.
INSERT INTO redacted_spans (file_id, start, length, redaction_id)
VALUES (:file_id, :start, :length, :redaction_id)
ON CONFLICT (file_id, start) DO UPDATE SET length = excluded.length
WHERE excluded.length > redacted_spans.length;

-- redacted_spans --
SELECT start, length FROM redacted_spans WHERE file_id = :file_id ORDER BY start;

-- insert_redacted_value --
INSERT INTO redacted_values (
    digest, key_id, length, word, word_start, word_length, kind, family, redaction_id
) VALUES (
    :digest, :key_id, :length, :word, :word_start, :word_length, :kind, :family, :redaction_id
)
ON CONFLICT DO NOTHING;

-- redacted_values --
SELECT digest, length, word, word_start, word_length, kind, family
FROM redacted_values WHERE key_id = :key_id;

-- redacted_value_keys --
SELECT DISTINCT key_id FROM redacted_values;

-- insert_redacted_id --
INSERT INTO redacted_ids (derived_id, id) VALUES (:derived_id, :id) ON CONFLICT DO NOTHING;

-- redacted_ids --
SELECT derived_id, id FROM redacted_ids;

-- overwrite_block --
UPDATE source_blocks SET data = :data WHERE file_id = :file_id AND start = :start;

-- blocks_based_on --
SELECT file_id, start FROM source_blocks WHERE base_file_id = :file_id;

-- note_overwritten --
-- A database is compared row by row the next time; every file is derived again.
UPDATE source_files SET
    tail_hash = :tail_hash, derived_bytes = -1,
    size = CASE WHEN kind = 'rows' THEN -1 ELSE size END,
    cursor_json = CASE WHEN kind = 'rows' THEN NULL ELSE cursor_json END
WHERE id = :id;

-- turns_of_scope_sessions --
-- Every turn that these sessions ever pointed at, with all before it.
WITH RECURSIVE above (id) AS (
    SELECT s.thread_id FROM sessions s WHERE s.label IN <ids> AND s.thread_id IS NOT NULL
    UNION
    SELECT h.thread_id FROM session_history h
    WHERE h.session_label IN <ids> AND h.thread_id IS NOT NULL
    UNION
    SELECT l.turn_id FROM live_turns l WHERE l.session_label IN <ids>
    UNION
    SELECT t.parent_turn_id FROM turns t JOIN above a ON a.id = t.id
    WHERE t.parent_turn_id IS NOT NULL
)
SELECT id FROM above;

-- sessions_with_subagents --
WITH RECURSIVE below (label) AS (
    SELECT s.label FROM sessions s WHERE s.label IN <ids>
    UNION
    SELECT s.label FROM sessions s JOIN below b ON s.parent_session_label = b.label
)
SELECT label FROM below;

-- turns_of_project --
SELECT id FROM turns
WHERE workspace_path = :folder
    OR substr(workspace_path, 1, length(CAST(:folder AS TEXT)) + 1) = CAST(:folder AS TEXT) || '/';

-- sessions_at_turns --
-- The sessions whose heads are among these turns.
SELECT label FROM sessions WHERE thread_id IN <ids>;

-- sessions_of_persona --
SELECT label FROM sessions WHERE persona_id = :persona;

-- files_of_turns --
SELECT DISTINCT file_id FROM turn_sources WHERE turn_id IN <ids>;

-- turns_of_archived_file --
SELECT turn_id FROM turn_sources WHERE file_id = :file_id;

-- turn_of_redacted_message --
SELECT turn_id FROM messages WHERE id = :id;

-- call_of_turn --
SELECT id FROM tool_calls WHERE turn_id = :turn_id AND id = :id;

-- forget_request_hash --
-- What was passed is not known any more: a retry of the call is refused.
UPDATE turns SET request_hash = :hash WHERE id = :id AND projected = 0;

-- follow_fingerprint --
-- A frozen turn that its redacted records give again.
UPDATE turns SET request_hash = :after
WHERE id = :id AND projected = 1 AND request_hash = :before
AND EXISTS (SELECT 1 FROM frozen_turns f WHERE f.id = turns.id);

-- forget_queue_hash --
UPDATE queue SET request_hash = :hash WHERE position = :position;

-- forget_all_sums --
DELETE FROM summary_days;

-- forget_all_usage_sums --
DELETE FROM usage_sums;

-- forget_all_tool_sums --
DELETE FROM tool_sums;

-- prompts_of_turns_only --
-- System prompts that are in force at these turns and nowhere else.
SELECT DISTINCT p.system_prompt_hash FROM places p
WHERE p.turn_id IN <ids> AND p.system_prompt_hash IS NOT NULL;

-- prompt_turns --
SELECT turn_id FROM places WHERE system_prompt_hash = :hash;

-- insert_retention_run --
INSERT INTO retention_runs (id, started_at, finished_at, actor, report_json)
VALUES (:id, :started_at, :finished_at, :actor, :report_json);

-- retention_runs --
SELECT id, started_at, finished_at, actor, report_json FROM retention_runs
ORDER BY id DESC LIMIT :limit;

-- block_lengths --
SELECT start, length FROM source_blocks WHERE file_id = :file_id ORDER BY start;

-- ids_of_file --
-- Ids in an archived file, and facts about its turns.
SELECT t.id, m.id, m.tool_call_id, t.model, t.provider, t.workspace_path
FROM turn_sources s JOIN turns t ON t.id = s.turn_id LEFT JOIN messages m ON m.turn_id = t.id
WHERE s.file_id = :file_id
UNION
SELECT c.id, c.tool_name, NULL, NULL, NULL, NULL
FROM turn_sources s JOIN tool_calls c ON c.turn_id = s.turn_id
WHERE s.file_id = :file_id
UNION
SELECT x.label, x.origin_session_id, x.parent_session_label, x.agent_id, x.persona_id, NULL
FROM session_sources s JOIN sessions x ON x.label = s.session_label
WHERE s.file_id = :file_id;

-- retention_sessions --
-- Sessions with what rules ask for; the last column: whether somebody writes to it now.
SELECT
    s.label, s.origin, s.persona_id, s.updated_at, s.status, t.workspace_path,
    CASE WHEN EXISTS (SELECT 1 FROM live_turns l WHERE l.session_label = s.label)
        OR EXISTS (
            SELECT 1 FROM queue q
            WHERE q.session_label = s.label AND q.status IN ('waiting', 'claimed')
        )
    THEN 1 ELSE 0 END
FROM sessions s LEFT JOIN turns t ON t.id = s.thread_id
ORDER BY s.label;

-- text_size_of_turns --
SELECT COALESCE((
    SELECT sum(COALESCE(length(m.content), 0) + COALESCE(length(m.thinking), 0))
    FROM messages m WHERE m.turn_id IN <ids>
), 0) + COALESCE((
    SELECT sum(length(c.params_json) + COALESCE(length(c.result_json), 0))
    FROM tool_calls c WHERE c.turn_id IN <ids>
), 0);

-- turns_below_all --
WITH RECURSIVE below (id) AS (
    SELECT t.id FROM turns t WHERE t.parent_turn_id IN <ids>
    UNION
    SELECT t.id FROM turns t JOIN below b ON t.parent_turn_id = b.id
)
SELECT id FROM below;

-- sessions_pointing_at --
SELECT s.thread_id, s.label FROM sessions s WHERE s.thread_id IN <ids>
UNION
SELECT h.thread_id, h.session_label FROM session_history h WHERE h.thread_id IN <ids>
UNION
SELECT i.head_turn_id, i.session_label FROM session_imports i WHERE i.head_turn_id IN <ids>
UNION
SELECT s.parent_turn_id, s.label FROM sessions s WHERE s.parent_turn_id IN <ids>;

-- labels_above_turn --
-- The sessions of the whole tree of these turns.
WITH RECURSIVE above (id) AS (
    SELECT t.id FROM turns t WHERE t.id IN <ids>
    UNION
    SELECT t.parent_turn_id FROM turns t JOIN above a ON a.id = t.id
    WHERE t.parent_turn_id IS NOT NULL
), tree (id) AS (
    SELECT id FROM above
    UNION
    SELECT t.id FROM turns t JOIN tree x ON t.parent_turn_id = x.id
)
SELECT DISTINCT h.session_label FROM session_history h JOIN tree x ON x.id = h.thread_id
UNION
SELECT s.label FROM sessions s JOIN tree x ON x.id = s.thread_id;

-- spawners_of_sessions --
SELECT c.spawned_session_label, c.turn_id FROM tool_calls c
WHERE c.spawned_session_label IN <ids>;

-- children_of_sessions --
SELECT s.label, s.parent_session_label FROM sessions s WHERE s.parent_session_label IN <ids>;

-- labels_of_file --
SELECT session_label FROM session_sources WHERE file_id = :file_id;

-- segments_of_turns --
SELECT DISTINCT segment_id FROM places WHERE turn_id IN <ids>;

-- purge_files_of_messages --
DELETE FROM message_files
WHERE message_id IN (SELECT m.id FROM messages m WHERE m.turn_id IN <ids>);

-- purge_lints --
DELETE FROM message_lints
WHERE message_id IN (SELECT m.id FROM messages m WHERE m.turn_id IN <ids>);

-- purge_codeblocks --
DELETE FROM message_codeblocks
WHERE message_id IN (SELECT m.id FROM messages m WHERE m.turn_id IN <ids>);

-- purge_tool_calls --
DELETE FROM tool_calls WHERE turn_id IN <ids>;

-- purge_messages --
DELETE FROM messages WHERE turn_id IN <ids>;

-- purge_compactions --
DELETE FROM compactions WHERE turn_id IN <ids>;

-- purge_turn_sources --
DELETE FROM turn_sources WHERE turn_id IN <ids>;

-- purge_repeated_records --
DELETE FROM repeated_records WHERE turn_id IN <ids>;

-- purge_bus_turns --
DELETE FROM bus_turns WHERE turn_id IN <ids>;

-- purge_waiting --
DELETE FROM search_waiting WHERE turn_id IN <ids>;

-- purge_places --
DELETE FROM places WHERE turn_id IN <ids>;

-- purge_segment --
DELETE FROM segments WHERE id = :id;

-- purge_turns --
DELETE FROM turns WHERE id IN <ids>;

-- purge_bus_calls --
DELETE FROM bus_calls
WHERE task_id IN (SELECT t.id FROM bus_tasks t WHERE t.session_label IN <ids>);

-- purge_bus_messages --
DELETE FROM bus_messages
WHERE task_id IN (SELECT t.id FROM bus_tasks t WHERE t.session_label IN <ids>);

-- purge_bus_tasks --
DELETE FROM bus_tasks WHERE session_label IN <ids>;

-- purge_history --
DELETE FROM session_history WHERE session_label IN <ids>;

-- purge_imports --
DELETE FROM session_imports WHERE session_label IN <ids>;

-- purge_session_sources --
DELETE FROM session_sources WHERE session_label IN <ids>;

-- purge_links --
DELETE FROM source_links WHERE child_label IN <ids>;

-- purge_annotations --
DELETE FROM annotations WHERE session_label IN <ids>;

-- purge_queue --
DELETE FROM queue WHERE session_label IN <ids>;

-- purge_names --
DELETE FROM names WHERE session_label IN <ids>;

-- purge_sessions --
DELETE FROM sessions WHERE label IN <ids>;

-- purge_faults --
DELETE FROM source_faults WHERE file_id = :file_id;

-- purge_titles --
DELETE FROM source_titles WHERE file_id = :file_id;

-- purge_spans --
DELETE FROM redacted_spans WHERE file_id = :file_id;

-- purge_blocks --
DELETE FROM source_blocks WHERE file_id = :file_id;

-- empty_source_file --
-- The row says that the file stays out.
UPDATE source_files SET
    kept_bytes = 0, derived_bytes = 0, derived_version = -2, tail_hash = NULL, cursor_json = NULL
WHERE id = :id;

-- purge_prompt --
-- Unless it is in force elsewhere.
DELETE FROM system_prompts WHERE hash = :hash
AND NOT EXISTS (SELECT 1 FROM places p WHERE p.system_prompt_hash = :hash)
AND NOT EXISTS (SELECT 1 FROM bus_tasks b WHERE b.system_prompt_hash = :hash);

-- all_labels --
SELECT label FROM sessions;

-- is_native --
SELECT 1 FROM turns WHERE id = :id AND projected = 0;
