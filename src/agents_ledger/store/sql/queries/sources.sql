-- Source records kept for ever, and the projection derived from them.

-- source_file --
-- The latest generation of a file.
SELECT <source_file_columns> FROM source_files f
WHERE f.path = :path ORDER BY f.generation DESC LIMIT 1;

-- source_file_by_id --
SELECT <source_file_columns> FROM source_files f WHERE f.id = :id;

-- source_files_of_records --
-- The files that already told of the turns of any of these records.
SELECT DISTINCT s.file_id
FROM messages m JOIN turn_sources s ON s.turn_id = m.turn_id
WHERE m.id IN <ids>
UNION
SELECT s.file_id
FROM repeated_records r JOIN turn_sources s ON s.turn_id = r.turn_id
WHERE r.id IN <ids>;

-- source_file_of_records --
-- One of the files that told of each of these records.
SELECT x.id, MIN(s.file_id)
FROM (
    SELECT id, turn_id FROM messages WHERE id IN <ids>
    UNION ALL
    SELECT id, turn_id FROM repeated_records WHERE id IN <ids>
) AS x JOIN turn_sources s ON s.turn_id = x.turn_id
GROUP BY x.id;

-- files_of_sessions --
SELECT DISTINCT file_id FROM session_sources WHERE session_label IN <ids>;

-- files_of_children --
SELECT DISTINCT s.file_id
FROM source_links l JOIN session_sources s ON s.session_label = l.child_label
WHERE l.parent_label IN <ids>
UNION
SELECT s.file_id
FROM sessions c JOIN session_sources s ON s.session_label = c.label
WHERE c.parent_session_label IN <ids>;

-- files_of_spawners --
SELECT DISTINCT s.file_id
FROM sessions c JOIN session_sources s ON s.session_label = c.parent_session_label
WHERE c.label IN <ids>;

-- files_of_parents --
-- By label or alias.
SELECT DISTINCT s.file_id
FROM names n JOIN session_sources s ON s.session_label = n.session_label
WHERE n.name IN <ids>;

-- source_files_of_family --
SELECT <source_file_columns> FROM source_files f
WHERE f.family = :family ORDER BY f.path, f.generation;

-- source_files_under --
SELECT <source_file_columns> FROM source_files f
WHERE f.path >= :prefix AND f.path < :upper ORDER BY f.path, f.generation;

-- source_files_of_session --
SELECT <source_file_columns> FROM source_files f
JOIN session_sources s ON s.file_id = f.id
WHERE s.session_label = :label ORDER BY f.path, f.generation;

-- sessions_of_file --
-- The sessions in use that were derived from a file, where the import put them and where they are.
SELECT s.session_label, i.head_turn_id, x.thread_id
FROM session_sources s
JOIN sessions x ON x.label = s.session_label
JOIN session_imports i ON i.session_label = s.session_label
WHERE s.file_id = :file_id AND x.status = 'active';

-- files_of_label --
SELECT file_id FROM session_sources WHERE session_label = :label;

-- labels_of_paths --
-- The sessions that were derived from any of these files.
SELECT DISTINCT s.session_label
FROM source_files f JOIN session_sources s ON s.file_id = f.id
WHERE f.path IN <ids>;

-- families_of_sessions --
SELECT DISTINCT f.family, f.source
FROM session_sources s JOIN source_files f ON f.id = s.file_id
WHERE s.session_label IN <ids> OR s.session_label IN (
    SELECT n.session_label FROM names n WHERE n.name IN <ids> AND n.reason = 'rename'
);

-- source_files_behind --
-- Kept, but not derived by this version of its reader.
SELECT <source_file_columns> FROM source_files f
WHERE f.derived_bytes <> f.kept_bytes ORDER BY f.id;

-- all_source_files --
SELECT <source_file_columns> FROM source_files f ORDER BY f.id;

-- insert_source_file --
INSERT INTO source_files (
    source, path, generation, family, kind, size, mtime_ns, kept_bytes, tail_hash, cursor_json,
    first_seen_at, seen_at
) VALUES (
    :source, :path, :generation, :family, :kind, :size, :mtime_ns, 0, NULL, NULL, :now, :now
)
ON CONFLICT DO NOTHING
RETURNING id;

-- grow_source_file --
-- No row returned: another import was quicker.
UPDATE source_files SET
    size = :size, mtime_ns = :mtime_ns, kept_bytes = :kept_bytes, tail_hash = :tail_hash,
    cursor_json = :cursor_json, seen_at = :now
WHERE id = :id AND kept_bytes = :kept_before
RETURNING id;

-- give_source_file --
UPDATE source_files SET source = :source, family = :family WHERE path = :path AND source = :before;

-- mark_derived --
UPDATE source_files SET derived_bytes = :derived_bytes, derived_version = :derived_version
WHERE id = :id;

-- insert_block --
INSERT INTO source_blocks (file_id, start, length, base_file_id, base_length, data)
VALUES (:file_id, :start, :length, :base_file_id, :base_length, :data);

-- base_of_file --
-- What a file was packed against, by its first block.
SELECT base_file_id FROM source_blocks
WHERE file_id = :file_id AND start = 0 AND base_file_id IS NOT NULL;

-- block_starts --
SELECT start FROM source_blocks WHERE file_id = :file_id ORDER BY start;

-- blocks_from --
-- The next blocks of a file.
SELECT start, length, base_file_id, base_length, data FROM source_blocks
WHERE file_id = :file_id AND start >= :start ORDER BY start LIMIT :limit;

-- block_at --
SELECT start, length, base_file_id, base_length, data FROM source_blocks
WHERE file_id = :file_id AND start = :start;

-- delete_faults --
DELETE FROM source_faults WHERE file_id = :file_id;

-- delete_faults_at --
-- Those of one record.
DELETE FROM source_faults WHERE file_id = :file_id AND position = :position;

-- insert_fault --
INSERT INTO source_faults (file_id, position, line, what)
VALUES (:file_id, :position, :line, :what)
ON CONFLICT DO NOTHING;

-- has_source_titles --
SELECT 1 FROM source_titles LIMIT 1;

-- source_titles --
-- What files call the sessions of these records.
SELECT <title_columns>
FROM source_titles t JOIN source_files f ON f.id = t.file_id
WHERE t.record_id IN <ids>;

-- unshown_titles --
SELECT <title_columns>
FROM source_titles t JOIN source_files f ON f.id = t.file_id
WHERE t.shown = 0;

-- note_title_shown --
-- Unless it is another by now.
UPDATE source_titles SET shown = 1
WHERE file_id = :file_id AND record_id = :record_id AND position = :position AND title = :title;

-- upsert_source_title --
-- Nothing comes back where the same was known.
INSERT INTO source_titles (file_id, record_id, position, title)
VALUES (:file_id, :record_id, :position, :title)
ON CONFLICT (file_id, record_id)
DO UPDATE SET position = excluded.position, title = excluded.title, shown = 0
WHERE source_titles.title <> excluded.title OR source_titles.position <> excluded.position
RETURNING record_id;

-- faults --
SELECT f.path, x.what, x.position, x.line
FROM source_faults x JOIN source_files f ON f.id = x.file_id
ORDER BY f.path, x.position
LIMIT :limit;

-- lock_projection --
-- One projection at a time; where the whole database has one writer, that is so already.
<lock_projection>;

-- known_turns --
-- What is stored of these turns: enough to tell what changed.
SELECT t.id, t.request_hash, t.parent_turn_id, t.projected,
    CASE WHEN t.status IN ('completed', 'failed') AND (
        t.projected = 0
        OR EXISTS (
            SELECT 1 FROM places p JOIN segments s ON s.id = p.segment_id
            WHERE p.turn_id = t.id AND p.depth <= s.frozen_depth
        )
    ) THEN 1 ELSE 0 END,
    CASE WHEN t.status IN ('completed', 'failed') THEN COALESCE(t.response_message_id, '') END
FROM turns t WHERE t.id IN <ids>;

-- parents_of_ours --
-- The imported turns that turns of ours among these stand on.
SELECT DISTINCT p.id FROM turns t JOIN turns p ON p.id = t.parent_turn_id
WHERE t.id IN <ids> AND t.projected = 0 AND p.projected = 1;

-- has_frozen --
-- Whether a turn of ours stands on an imported one anywhere.
SELECT 1 FROM segments WHERE frozen_depth > 0 LIMIT 1;

-- frozen_records --
-- Of these records those that are in a turn that does not change any more.
SELECT m.id FROM messages m JOIN frozen_turns f ON f.id = m.turn_id WHERE m.id IN <ids>;

-- project_message --
-- A record that is now understood to belong to another turn moves there. One of a task that was
-- saved whole can be selected by its task.
INSERT INTO messages (
    id, turn_id, role, content, source, sequence, created_at, thinking, context_json,
    metadata_json, tool_call_id, has_details, task_id, timestamp
) VALUES (
    :id, :turn_id, :role, :content, :source, :sequence, :created_at, :thinking, :context_json,
    :metadata_json, :tool_call_id, :has_details,
    CASE WHEN substr(CAST(:id AS TEXT), 1, 5) = 'task:' THEN (
        SELECT b.task_id FROM bus_messages b
        WHERE b.id = substr(CAST(:id AS TEXT), 6) AND b.partial = 0
    ) END,
    CASE WHEN substr(CAST(:id AS TEXT), 1, 5) = 'task:' THEN (
        SELECT b.timestamp FROM bus_messages b
        WHERE b.id = substr(CAST(:id AS TEXT), 6) AND b.partial = 0
    ) END
)
ON CONFLICT (id) DO UPDATE SET
    turn_id = excluded.turn_id, role = excluded.role, content = excluded.content,
    source = excluded.source, sequence = excluded.sequence, created_at = excluded.created_at,
    thinking = excluded.thinking, context_json = excluded.context_json,
    metadata_json = excluded.metadata_json, tool_call_id = excluded.tool_call_id,
    has_details = excluded.has_details;

-- detailed_messages --
-- Those of these messages that have files, lints or code blocks.
SELECT id FROM messages WHERE id IN <ids> AND has_details = 1;

-- forget_files --
DELETE FROM message_files WHERE message_id IN <ids>;

-- forget_lints --
DELETE FROM message_lints WHERE message_id IN <ids>;

-- forget_codeblocks --
DELETE FROM message_codeblocks WHERE message_id IN <ids>;

-- pending_turns --
-- Those of these turns that wait for an answer.
SELECT id FROM turns WHERE id IN <ids> AND status IN ('pending', 'streaming');

-- turns_of_file --
SELECT turn_id FROM turn_sources WHERE file_id = :file_id AND turn_id > :after
ORDER BY turn_id LIMIT :limit;

-- files_of_turn --
SELECT file_id FROM turn_sources WHERE turn_id = :turn_id;

-- insert_turn_source --
INSERT INTO turn_sources (turn_id, file_id) VALUES (:turn_id, :file_id) ON CONFLICT DO NOTHING;

-- insert_session_source --
INSERT INTO session_sources (session_label, file_id) VALUES (:label, :file_id)
ON CONFLICT DO NOTHING;

-- rewrite_turn --
UPDATE turns SET
    parent_turn_id = :parent_turn_id, turn_type = :turn_type, status = :status,
    started_at = :started_at, completed_at = :completed_at, model = :model, provider = :provider,
    role = :role, toolset_name = :toolset_name, tools_available = :tools_available,
    permissions_granted = :permissions_granted, permissions_used = :permissions_used,
    input_tokens = :input_tokens, output_tokens = :output_tokens,
    cached_input_tokens = :cached_input_tokens, cache_write_tokens = :cache_write_tokens,
    reasoning_tokens = :reasoning_tokens, total_tokens = :total_tokens,
    query_message_ids = :query_message_ids, response_message_id = :response_message_id,
    tool_call_count = :tool_call_count, source_event_id = :source_event_id,
    workspace_path = :workspace_path, effective_config_json = :effective_config_json,
    error = :error, request_hash = :request_hash, long_cache_write_tokens = :long_cache_write_tokens
WHERE id = :id;

-- delete_turn_files --
DELETE FROM message_files
WHERE message_id IN (SELECT m.id FROM messages m WHERE m.turn_id = :turn_id);

-- delete_turn_lints --
DELETE FROM message_lints
WHERE message_id IN (SELECT m.id FROM messages m WHERE m.turn_id = :turn_id);

-- delete_turn_codeblocks --
DELETE FROM message_codeblocks
WHERE message_id IN (SELECT m.id FROM messages m WHERE m.turn_id = :turn_id);

-- delete_turn_calls --
-- Some at once: what it takes to undo a statement is held in memory.
DELETE FROM tool_calls
WHERE turn_id = :turn_id
AND id IN (SELECT c.id FROM tool_calls c WHERE c.turn_id = :turn_id LIMIT :limit);

-- delete_turn_messages --
DELETE FROM messages
WHERE id IN (SELECT m.id FROM messages m WHERE m.turn_id = :turn_id LIMIT :limit);

-- delete_turn_compaction --
DELETE FROM compactions WHERE turn_id = :turn_id;

-- turn_is_named --
-- Whether anything beside its own rows names a turn.
SELECT CASE WHEN
    EXISTS (SELECT 1 FROM turns t WHERE t.parent_turn_id = :turn_id)
    OR EXISTS (SELECT 1 FROM session_history h WHERE h.thread_id = :turn_id)
    OR EXISTS (SELECT 1 FROM sessions s WHERE s.thread_id = :turn_id)
    OR EXISTS (SELECT 1 FROM sessions s WHERE s.parent_turn_id = :turn_id)
    OR EXISTS (SELECT 1 FROM session_imports i WHERE i.head_turn_id = :turn_id)
    OR EXISTS (SELECT 1 FROM compactions c WHERE c.summarized_through_turn_id = :turn_id)
    OR EXISTS (SELECT 1 FROM compactions c WHERE c.first_kept_turn_id = :turn_id)
THEN 1 ELSE 0 END;

-- ends_of_turn --
SELECT query_message_ids, response_message_id FROM turns WHERE id = :id;

-- answered_with_records --
-- The answered turns that have these records of a turn now. Where files told of it, only those of the
-- same files: another that tells the session anew may call another record so.
SELECT x.id, x.turn_id
FROM (
    SELECT id, turn_id FROM messages WHERE id IN <ids>
    UNION ALL
    SELECT id, turn_id FROM repeated_records WHERE id IN <ids>
) AS x JOIN turns t ON t.id = x.turn_id
WHERE t.status NOT IN ('pending', 'streaming')
AND (NOT EXISTS (SELECT 1 FROM turn_sources a WHERE a.turn_id = :turn_id) OR EXISTS (
    SELECT 1
    FROM turn_sources a JOIN source_files f ON f.id = a.file_id
    JOIN source_files g ON g.path = f.path
    JOIN turn_sources b ON b.file_id = g.id
    WHERE a.turn_id = :turn_id AND b.turn_id = x.turn_id
));

-- summarise_all --
UPDATE compactions SET summarized_through_turn_id = :through, first_kept_turn_id = NULL
WHERE turn_id = :turn_id;

-- heads_told_anew --
-- The heads that imports gave last to the sessions of a turn: those that stood on it once, and the one
-- of a file that has no other.
SELECT i.head_turn_id
FROM session_imports i
WHERE i.head_turn_id IS NOT NULL AND i.session_label IN (
    SELECT h.session_label FROM session_history h WHERE h.thread_id = :turn_id
    UNION ALL
    SELECT min(o.session_label)
    FROM turn_sources s JOIN session_sources o ON o.file_id = s.file_id
    WHERE s.turn_id = :turn_id
    GROUP BY s.file_id HAVING count(*) = 1
)
ORDER BY i.session_label, i.source, i.source_provider, i.source_session_id;

-- empty_turn --
UPDATE turns SET
    turn_type = 'normal', status = 'failed', error = :error, query_message_ids = '[]',
    response_message_id = NULL, tool_call_count = 0, input_tokens = NULL, output_tokens = NULL,
    cached_input_tokens = NULL, cache_write_tokens = NULL, reasoning_tokens = NULL,
    total_tokens = NULL, request_hash = NULL, long_cache_write_tokens = NULL
WHERE id = :id;

-- delete_turn_sources --
DELETE FROM turn_sources WHERE turn_id = :turn_id;

-- repeated_records --
SELECT id, turn_id FROM repeated_records WHERE id IN <ids>;

-- upsert_repeated_record --
INSERT INTO repeated_records (id, turn_id) VALUES (:id, :turn_id)
ON CONFLICT (id) DO UPDATE SET turn_id = excluded.turn_id
WHERE repeated_records.turn_id <> excluded.turn_id;

-- delete_repeated_records --
DELETE FROM repeated_records WHERE turn_id = :turn_id;

-- delete_turn --
DELETE FROM turns WHERE id = :id;

-- unmark_childless --
UPDATE turns SET has_children = 0
WHERE id = :id AND NOT EXISTS (SELECT 1 FROM turns c WHERE c.parent_turn_id = :id);

-- subtree --
<below>
SELECT t.id, t.parent_turn_id
FROM tail
JOIN places p ON p.segment_id = tail.segment_id AND p.depth >= tail.from_depth
JOIN turns t ON t.id = p.turn_id
ORDER BY p.depth;

-- turn_metrics --
-- What a turn adds to its thread.
SELECT t.parent_turn_id, t.status, t.turn_type, t.model, t.provider, t.input_tokens,
    t.output_tokens, t.cached_input_tokens, t.cache_write_tokens, t.reasoning_tokens,
    t.total_tokens
FROM turns t WHERE t.id = :id;

-- freeze --
-- Raise the frozen depth of a segment; no row returned: it is that deep already.
UPDATE segments SET frozen_depth = :depth WHERE id = :id AND frozen_depth < :depth
RETURNING parent_id, fork_depth;

-- session_import --
SELECT source_session_fingerprint, session_label, head_turn_id FROM session_imports
WHERE source = :source AND source_provider = :provider AND source_session_id = :session_id;

-- imported_under --
-- Whether a session of a source stands under this label.
SELECT 1 FROM session_imports WHERE session_label = :label LIMIT 1;

-- upsert_session_import --
INSERT INTO session_imports (
    source, source_provider, source_session_id, source_session_fingerprint, session_label,
    head_turn_id, imported_at, updated_at, last_run_id
) VALUES (
    :source, :provider, :session_id, :fingerprint, :label, :head_turn_id, :now, :now, :run_id
)
ON CONFLICT (source, source_provider, source_session_id) DO UPDATE SET
    source_session_fingerprint = excluded.source_session_fingerprint,
    head_turn_id = excluded.head_turn_id,
    updated_at = CASE
        WHEN session_imports.source_session_fingerprint = excluded.source_session_fingerprint
        THEN session_imports.updated_at
        ELSE excluded.updated_at
    END;

-- import_session --
-- What a source says of its session; people's own words stand in annotations. The metadata of a
-- merged session hold what unmerging it restores.
UPDATE sessions SET
    persona_id = :persona_id, agent_id = :agent_id,
    is_subagent = CASE WHEN spawn_tool_call_id IS NULL THEN :is_subagent ELSE 1 END,
    task_description = :task_description, task_status = :task_status,
    routing_key = :routing_key, origin = :origin, origin_session_id = :origin_session_id,
    source_title = :source_title,
    metadata_json = CASE WHEN EXISTS (
        SELECT 1 FROM names n WHERE n.name = :label AND n.session_label <> :label
    ) THEN metadata_json ELSE :metadata_json END,
    created_at = CASE
        WHEN :created_at > 0 AND (created_at = 0 OR :created_at < created_at) THEN :created_at
        ELSE created_at
    END
WHERE label = :label;

-- session_grew --
-- Its head is where it was, and holds more.
UPDATE sessions SET updated_at = :at WHERE label = :label AND updated_at < :at;

-- mark_source_has_more --
UPDATE sessions SET source_has_more = 1 WHERE label = :label;

-- insert_source_link --
INSERT INTO source_links (child_label, parent_label) VALUES (:child, :parent)
ON CONFLICT (child_label) DO UPDATE SET parent_label = excluded.parent_label;

-- leave_parent --
-- A child whose records name no parent any more, nor does a call.
UPDATE sessions SET parent_session_label = NULL
WHERE label = :label AND parent_turn_id IS NULL AND spawn_tool_call_id IS NULL
AND parent_session_label = (SELECT l.parent_label FROM source_links l WHERE l.child_label = :label);

-- delete_source_link --
DELETE FROM source_links WHERE child_label = :child;

-- follow_source_links --
-- A child whose parent has come, or is another than before.
UPDATE sessions SET is_subagent = 1, parent_session_label = (
    SELECT l.parent_label FROM source_links l WHERE l.child_label = sessions.label
)
WHERE (
    parent_session_label IS NULL
    OR (label = :label AND parent_turn_id IS NULL AND spawn_tool_call_id IS NULL)
)
AND label IN (
    SELECT l.child_label FROM source_links l JOIN sessions p ON p.label = l.parent_label
    WHERE l.parent_label = :label OR l.child_label = :label
);

-- move_key --
-- A key of a source leads to its latest session. What it led to was put there by an import too.
UPDATE names SET session_label = :label
WHERE name = :key AND name <> session_label AND session_label <> :label
AND reason = 'import_reconciliation' AND EXISTS (
    SELECT 1 FROM sessions before JOIN sessions after ON after.origin = before.origin
    WHERE before.label = names.session_label AND after.label = :label
);

-- hang_on_turn --
-- The turn a subagent came from, where no call says more. It never hangs on itself.
UPDATE sessions SET parent_turn_id = :turn_id
WHERE label = :label AND spawn_tool_call_id IS NULL
AND EXISTS (SELECT 1 FROM turns t WHERE t.id = :turn_id);

-- spawning_call --
SELECT id FROM tool_calls WHERE turn_id = :turn_id AND spawned_session_label = :label;

-- unlink_subagent --
UPDATE sessions SET parent_turn_id = NULL, spawn_tool_call_id = NULL, parent_session_label = NULL
WHERE label = :label;

-- unlink_lost_subagents --
-- Sessions that name a call of these turns which no longer names them: what they say themselves
-- of their parent is left.
UPDATE sessions SET parent_turn_id = NULL, spawn_tool_call_id = NULL, parent_session_label = (
    SELECT l.parent_label FROM source_links l JOIN sessions p ON p.label = l.parent_label
    WHERE l.child_label = sessions.label
)
WHERE parent_turn_id IN <ids> AND spawn_tool_call_id IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM tool_calls c
    WHERE c.turn_id = sessions.parent_turn_id AND c.id = sessions.spawn_tool_call_id
    AND c.spawned_session_label = sessions.label
);

-- spawned_sessions --
SELECT label, parent_turn_id, parent_session_label FROM sessions WHERE parent_turn_id IN <ids>;

-- set_parent_session --
UPDATE sessions SET parent_session_label = :parent WHERE label = :label;

-- break_circle --
-- Sessions that are each other's parents: one of them that no call spawned has none.
WITH RECURSIVE above (label, parent, spawned_by) AS (
    SELECT label, parent_session_label, spawn_tool_call_id FROM sessions WHERE label = :label
    UNION
    SELECT s.label, s.parent_session_label, s.spawn_tool_call_id
    FROM above JOIN sessions s ON s.label = above.parent
)
UPDATE sessions SET parent_session_label = NULL
WHERE label = (SELECT min(label) FROM above WHERE spawned_by IS NULL)
AND EXISTS (SELECT 1 FROM above WHERE parent = :label);

-- insert_import_run --
INSERT INTO import_runs (
    id, started_at, finished_at, imported, upserted, skipped, failed, report_json
) VALUES (
    :id, :started_at, :finished_at, :imported, :upserted, :skipped, :failed, :report_json
);

-- import_request --
SELECT source, mode, request_hash, response_json FROM session_import_requests
WHERE idempotency_key = :key;

-- insert_import_request --
INSERT INTO session_import_requests (
    idempotency_key, source, mode, run_id, request_hash, response_json, created_at
) VALUES (:key, :source, :mode, :run_id, :request_hash, :response_json, :now)
ON CONFLICT (idempotency_key) DO NOTHING
RETURNING idempotency_key;

-- note_import_run --
UPDATE session_imports SET last_run_id = :run_id
WHERE source = :source AND source_provider = :provider AND source_session_id = :session_id;

-- insert_chunk --
INSERT INTO session_import_chunk_parts (
    source, upload_id, chunk_index, chunk_total, mode, run_id, persona_id, idempotency_key,
    source_provider, source_session_id, source_session_fingerprint, encoding, payload, created_at
) VALUES (
    :source, :upload_id, :chunk_index, :chunk_total, :mode, :run_id, :persona_id,
    :idempotency_key, :source_provider, :source_session_id, :source_session_fingerprint,
    :encoding, :payload, :now
)
ON CONFLICT (source, upload_id, chunk_index) DO UPDATE
SET payload = excluded.payload, created_at = excluded.created_at;

-- chunks --
SELECT chunk_index, chunk_total, mode, run_id, idempotency_key, source_provider,
    source_session_id, source_session_fingerprint, encoding, payload, persona_id
FROM session_import_chunk_parts
WHERE source = :source AND upload_id = :upload_id ORDER BY chunk_index;

-- delete_chunks --
DELETE FROM session_import_chunk_parts WHERE source = :source AND upload_id = :upload_id;

-- delete_old_chunks --
DELETE FROM session_import_chunk_parts WHERE created_at < :before;
