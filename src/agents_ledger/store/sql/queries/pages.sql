-- Sessions and threads as pages show them.

-- session_lines --
-- Latest first, with the size of each thread. Pages continue after (updated_at, label). What is
-- counted is counted for the sessions of the page alone.
WITH page (label) AS (
    SELECT s.label
    FROM sessions s
    LEFT JOIN annotations a ON a.session_label = s.label
    LEFT JOIN places p ON p.turn_id = s.thread_id
    LEFT JOIN turns t ON t.id = s.thread_id
    WHERE s.updated_at <= :before_at
    AND (s.updated_at < :before_at OR s.label > :after_label)
    AND s.updated_at >= :since
    AND (CAST(:status AS TEXT) IS NULL OR s.status = :status)
    AND (CAST(:origin AS TEXT) IS NULL OR COALESCE(s.origin, 'native') = :origin)
    AND (CAST(:persona_id AS TEXT) IS NULL OR s.persona_id = :persona_id)
    AND (CAST(:any_model AS BIGINT) = 1 OR p.model IN <ids>)
    AND (CAST(:any_project AS BIGINT) = 1 OR t.workspace_path IN <projects>)
    AND (CAST(:subagents AS BIGINT) = 1 OR s.is_subagent = 0)
    -- A subagent whose file was never seen is shown where an imported turn tells of it.
    AND (
        s.thread_id IS NOT NULL OR s.is_subagent = 0
        OR COALESCE((SELECT u.projected FROM turns u WHERE u.id = s.parent_turn_id), 0) = 0
    )
    AND (CAST(:starred AS BIGINT) = 0 OR a.starred = 1)
    AND (
        CAST(:text AS TEXT) IS NULL OR lower(s.label) LIKE :text ESCAPE '\'
        OR lower(COALESCE(a.title, s.source_title, '')) LIKE :text ESCAPE '\'
        OR lower(COALESCE(s.task_description, '')) LIKE :text ESCAPE '\'
    )
    ORDER BY s.updated_at DESC, s.label
    LIMIT :limit
)
SELECT
    COALESCE(p.depth, 0), COALESCE(p.total_tokens, 0), COALESCE(p.compaction_count, 0), p.model,
    t.workspace_path, t.status,
    <prompts_of_thread>,
    (
        SELECT substr(m.content, 1, CAST(:text_max AS INTEGER)) FROM messages m
        WHERE m.id = t.response_message_id
    ),
    (SELECT count(*) FROM segments g WHERE g.parent_id = p.segment_id AND g.fork_depth <= p.depth),
    (SELECT count(*) FROM sessions c WHERE c.parent_session_label = s.label),
    (SELECT max(n.label) FROM sessions n WHERE n.label < s.label),
    (SELECT min(n.label) FROM sessions n WHERE n.label > s.label),
    <session_columns>
FROM page
JOIN sessions s ON s.label = page.label
LEFT JOIN annotations a ON a.session_label = s.label
LEFT JOIN places p ON p.turn_id = s.thread_id
LEFT JOIN turns t ON t.id = s.thread_id
ORDER BY s.updated_at DESC, s.label;

-- window_messages --
-- The messages between two depths of a thread, long texts cut.
<range>
SELECT
    m.role, substr(m.content, 1, CAST(:text_max AS INTEGER)), m.source,
    substr(m.thinking, 1, CAST(:text_max AS INTEGER)), NULL, NULL, m.tool_call_id,
    m.id, m.turn_id, m.sequence, m.created_at, length(m.content), length(m.thinking)
FROM range
JOIN places p ON p.segment_id = range.segment_id
    AND p.depth BETWEEN :from_depth AND range.upto
JOIN messages m ON m.turn_id = p.turn_id
ORDER BY m.turn_id, m.sequence;

-- window_tool_calls --
-- The same of tool calls; of results only the length, and where it has an end of its own.
<range>
SELECT
    c.tool_name, substr(c.params_json, 1, CAST(:text_max AS INTEGER)), NULL,
    substr(c.error, 1, CAST(:text_max AS INTEGER)), c.status, c.id, c.turn_id, c.message_id,
    c.tool_number, c.source_status, c.spawned_session_label, c.started_at, c.completed_at,
    c.sequence, length(c.params_json), length(c.result_json), length(c.error)
FROM range
JOIN places p ON p.segment_id = range.segment_id
    AND p.depth BETWEEN :from_depth AND range.upto
JOIN tool_calls c ON c.turn_id = p.turn_id
ORDER BY c.turn_id, c.sequence;

-- window_branches --
-- What hangs on the turns between two depths of a thread: the thread itself, and beside it the first
-- :most of each turn. With the number of each, and of how many.
<range>, child (id, number, total) AS (
    SELECT t.id, row_number() OVER (PARTITION BY t.parent_turn_id ORDER BY t.id),
        count(*) OVER (PARTITION BY t.parent_turn_id)
    FROM range CROSS JOIN places p CROSS JOIN turns t
    WHERE p.segment_id = range.segment_id
    AND p.depth BETWEEN :from_depth AND range.upto AND t.parent_turn_id = p.turn_id
)
SELECT child.number, child.total, <turn_columns>, c.depth, <headline_columns>
FROM child
JOIN turns t ON t.id = child.id
JOIN places c ON c.turn_id = t.id
WHERE child.number <= :most OR EXISTS (
    SELECT 1 FROM range WHERE range.segment_id = c.segment_id AND c.depth <= range.upto + 1
)
ORDER BY c.depth, t.id;

-- import_runs --
-- Latest first; pages continue below an id.
SELECT id, started_at, finished_at, imported, upserted, skipped, failed, report_json
FROM import_runs
WHERE CAST(:before AS TEXT) IS NULL OR id < :before
ORDER BY id DESC LIMIT :limit;

-- import_run --
SELECT id, started_at, finished_at, imported, upserted, skipped, failed, report_json
FROM import_runs WHERE id = :id;

-- import_run_of_request --
SELECT created_at, response_json FROM session_import_requests WHERE run_id = :id
ORDER BY created_at, idempotency_key;

-- imported_as --
-- Where a session came from.
SELECT
    source, source_provider, source_session_id, source_session_fingerprint, session_label,
    head_turn_id, imported_at, updated_at, last_run_id
FROM session_imports WHERE session_label = :label
ORDER BY source, source_provider, source_session_id;

-- source_faults --
-- What could not be understood, the latest files first; pages continue behind one.
SELECT x.file_id, f.source, f.path, x.position, x.line, x.what
FROM source_faults x JOIN source_files f ON f.id = x.file_id
WHERE x.file_id <= :file_id AND (
    x.file_id < :file_id OR x.position < :position
    OR (x.position = :position AND x.what > :what)
)
ORDER BY x.file_id DESC, x.position DESC, x.what LIMIT :limit;

-- turn_source_files --
SELECT <source_file_columns>
FROM turn_sources x JOIN source_files f ON f.id = x.file_id
WHERE x.turn_id = :turn_id ORDER BY f.id;

-- moves_since --
-- Every move of every session behind one, oldest first.
SELECT id, session_label, thread_id, changed_at, reason FROM session_history
WHERE id > :after ORDER BY id LIMIT :limit;

-- last_move --
SELECT COALESCE(max(id), 0) FROM session_history;

-- session_models --
-- Every model that answered a session last.
SELECT DISTINCT p.model FROM sessions s JOIN places p ON p.turn_id = s.thread_id
WHERE s.thread_id IS NOT NULL AND p.model IS NOT NULL ORDER BY 1;

-- session_projects --
-- Every project in which a session worked last.
SELECT DISTINCT t.workspace_path FROM sessions s JOIN turns t ON t.id = s.thread_id
WHERE t.workspace_path IS NOT NULL ORDER BY 1;

-- choices --
-- The words that sessions can be filtered by, of the latest ones.
WITH latest AS (
    SELECT s.origin, s.persona_id, s.thread_id FROM sessions s
    ORDER BY s.updated_at DESC LIMIT :limit
)
SELECT DISTINCT 'origin', COALESCE(origin, 'native') FROM latest
UNION
SELECT DISTINCT 'persona', persona_id FROM latest
UNION
SELECT DISTINCT 'model', p.model FROM latest JOIN places p ON p.turn_id = latest.thread_id
WHERE p.model IS NOT NULL
UNION
SELECT DISTINCT 'project', t.workspace_path FROM latest JOIN turns t ON t.id = latest.thread_id
WHERE t.workspace_path IS NOT NULL
ORDER BY 1, 2;

-- heads_below --
-- The active session whose head stands on a turn or below it, the latest; of each segment only the
-- last :near turns are looked at, where heads usually are.
<below>, near (segment_id, from_depth) AS (
    SELECT tail.segment_id, CASE WHEN ends.depth > tail.from_depth THEN ends.depth
        ELSE tail.from_depth END
    FROM tail JOIN (
        SELECT segment_id, (
            SELECT max(q.depth) FROM places q WHERE q.segment_id = tail.segment_id
        ) - :near AS depth FROM tail
    ) AS ends ON ends.segment_id = tail.segment_id
)
SELECT s.label
FROM near CROSS JOIN places p CROSS JOIN sessions s
WHERE p.segment_id = near.segment_id AND p.depth >= near.from_depth
AND s.thread_id = p.turn_id AND s.status = 'active'
ORDER BY s.updated_at DESC, s.label LIMIT 1;

-- raw_turn --
SELECT * FROM turns WHERE id = :key;

-- raw_session --
SELECT * FROM sessions WHERE label = :key;

-- raw_message --
SELECT * FROM messages WHERE id = :key;

-- raw_place --
SELECT * FROM places WHERE turn_id = :key;

-- raw_calls --
SELECT * FROM tool_calls WHERE turn_id = :key ORDER BY sequence LIMIT 200;

-- raw_compaction --
SELECT * FROM compactions WHERE turn_id = :key;

-- failed_turns --
-- The latest turns that failed.
SELECT t.id FROM turns t WHERE t.status = 'failed' ORDER BY t.started_at DESC LIMIT :limit;

-- some_turns --
SELECT id FROM turns LIMIT :limit;

-- latest_turn_at --
SELECT started_at FROM turns ORDER BY started_at DESC LIMIT 1;

-- session_names --
-- Some sessions with the prompts that name them.
SELECT <prompts_of_thread>, <session_columns>
FROM sessions s
LEFT JOIN annotations a ON a.session_label = s.label
LEFT JOIN places p ON p.turn_id = s.thread_id
WHERE s.label IN <ids>;

-- recent_file_calls --
-- The calls of the latest turns, of tools that may read or write files. Long parameters are cut.
SELECT c.turn_id, t.started_at, c.status, c.tool_name,
    substr(c.params_json, 1, CAST(:text_max AS INTEGER))
FROM (SELECT id, started_at FROM turns ORDER BY started_at DESC LIMIT :latest) AS t
JOIN tool_calls c ON c.turn_id = t.id
WHERE lower(c.tool_name) LIKE '%read%' OR lower(c.tool_name) LIKE '%view%'
    OR lower(c.tool_name) LIKE '%open%' OR lower(c.tool_name) LIKE '%write%'
    OR lower(c.tool_name) LIKE '%edit%' OR lower(c.tool_name) LIKE '%create%'
    OR lower(c.tool_name) LIKE '%replace%' OR lower(c.tool_name) LIKE '%diff%'
    OR lower(c.tool_name) LIKE '%insert%' OR lower(c.tool_name) LIKE '%delete%'
    OR lower(c.tool_name) LIKE '%patch%';

-- recent_message_files --
-- The files that messages of the latest turns name.
SELECT m.turn_id, t.started_at, f.kind, f.file_path
FROM (SELECT id, started_at FROM turns ORDER BY started_at DESC LIMIT :latest) AS t
JOIN messages m ON m.turn_id = t.id AND m.has_details = 1
JOIN message_files f ON f.message_id = m.id
WHERE f.kind IN ('read', 'written');

-- calls_of_tool --
-- Of some turns, or those of them that failed.
SELECT c.turn_id, c.id, substr(c.params_json, 1, 2000), c.status, c.started_at,
    substr(c.error, 1, 400), c.sequence
FROM tool_calls c
WHERE c.turn_id IN <ids> AND c.tool_name = :tool_name
AND (CAST(:failed AS BIGINT) = 0 OR c.status = 'failed')
ORDER BY c.turn_id, c.sequence DESC;

-- growing_sessions --
-- Imported sessions whose source had a record since then, with the time of the last one. A fork and
-- a move of a head also set the time of a session; they are no records of the source.
SELECT s.label, s.thread_id, s.updated_at
FROM sessions s JOIN turns t ON t.id = s.thread_id
WHERE s.updated_at >= :since AND s.status = 'active' AND s.is_subagent = 0 AND t.projected = 1
AND (CAST(:label AS TEXT) IS NULL OR s.label = :label)
AND NOT EXISTS (
    SELECT 1 FROM session_history h
    WHERE h.session_label = s.label AND h.changed_at = s.updated_at AND h.reason <> 'import'
)
ORDER BY s.updated_at DESC, s.label LIMIT :limit;

-- live_progress --
-- The turns being written now: how many steps they have, and how many calls came to an end.
SELECT l.turn_id, l.session_label,
    (SELECT count(*) FROM messages m WHERE m.turn_id = l.turn_id)
        + (SELECT count(*) FROM tool_calls c WHERE c.turn_id = l.turn_id)
        + (
            SELECT count(*) FROM tool_calls c
            WHERE c.turn_id = l.turn_id AND c.completed_at IS NOT NULL
        )
FROM live_turns l
WHERE CAST(:label AS TEXT) IS NULL OR l.session_label = :label
ORDER BY l.turn_id;
