-- What hooks read of a SQLite ledger (store/sqlite/hook_reader.py): few statements, so that a hook
-- loads nothing else.

-- project_sessions --
-- The sessions that were last in a project, most recent first. Only the most recent of all sessions
-- are looked at: no index knows projects.
SELECT s.label, COALESCE(a.title, s.source_title), COALESCE(s.origin, 'native'), s.updated_at,
    s.thread_id, p.segment_id, p.depth, t.status
FROM (
    SELECT * FROM sessions
    WHERE is_subagent = 0 AND status = 'active' AND thread_id IS NOT NULL
    ORDER BY updated_at DESC LIMIT :looked_at
) s
CROSS JOIN turns t ON t.id = s.thread_id
CROSS JOIN places p ON p.turn_id = t.id
LEFT JOIN annotations a ON a.session_label = s.label
WHERE (t.workspace_path = :project
    OR substr(t.workspace_path, 1, length(:project) + 1) IN (:project || '/', :project || '\'))
AND COALESCE(s.origin_session_id, s.label) <> :except_session
ORDER BY s.updated_at DESC LIMIT :limit

-- project_folders --
-- The folders in a project in which the most recent of all sessions took place.
SELECT DISTINCT t.workspace_path
FROM (
    SELECT thread_id FROM sessions
    WHERE status = 'active' AND thread_id IS NOT NULL
    ORDER BY updated_at DESC LIMIT :looked_at
) s
CROSS JOIN turns t ON t.id = s.thread_id
WHERE substr(t.workspace_path, 1, length(:project) + 1) IN (:project || '/', :project || '\')

-- last_turns --
-- The last turns of a segment up to a depth, the newest first.
SELECT p.turn_id, t.status
FROM places p CROSS JOIN turns t ON t.id = p.turn_id
WHERE p.segment_id = :segment_id AND p.depth <= :depth
ORDER BY p.depth DESC LIMIT :limit

-- turn_texts --
-- The beginning and the end of each message, which can be megabytes long; between them, marks of
-- the cut.
SELECT m.role, CASE WHEN length(m.content) > 6000
    THEN substr(m.content, 1, 3000) || '…' || char(10) || '…' || substr(m.content, -3000)
    ELSE m.content END
FROM messages m
WHERE m.turn_id = :turn_id AND m.role IN ('user', 'assistant') AND m.content <> ''
ORDER BY m.sequence

-- turns_with_word --
-- The newest turns of a project with a word, by number.
SELECT rowid FROM search_index WHERE search_index MATCH :match ORDER BY rowid DESC LIMIT :limit

-- indexed_turn --
SELECT t.id, t.workspace_path, t.started_at
FROM search_docs d JOIN turns t ON t.id = d.turn_id
WHERE d.id = :number AND t.turn_type = 'normal'

-- turn_session --
-- The session that reached a turn first, and whether all that have it are marked as deleted.
SELECT s.label, COALESCE(s.origin_session_id, s.label), COALESCE(a.title, s.source_title),
    MIN(s.status = 'deleted' OR COALESCE(above.status = 'deleted', 0))
FROM places p
CROSS JOIN places head ON head.segment_id = p.segment_id AND head.depth >= p.depth
CROSS JOIN sessions s ON s.thread_id = head.turn_id
LEFT JOIN sessions above ON above.label = s.parent_session_label
LEFT JOIN annotations a ON a.session_label = s.label
WHERE p.turn_id = :turn_id
GROUP BY p.turn_id
