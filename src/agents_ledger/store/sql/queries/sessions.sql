-- Sessions, their names, and the history of their heads.

-- find_session --
-- A session by any of its names; on a server its row stays ours until we commit.
SELECT s.label, s.thread_id, s.persona_id, s.status
FROM names n JOIN sessions s ON s.label = n.session_label
WHERE n.name = :key
<lock_sessions>;

-- find_session_exactly --
SELECT s.label, s.thread_id, s.persona_id, s.status FROM sessions s WHERE s.label = :key
<lock_sessions>;

-- standing_sessions --
-- Active sessions by their names, with the place of their head and whether it has children; only
-- those whose next turn goes right behind it: nothing stands there, and it is no projection. No
-- lock: only who writes alone asks this.
SELECT
    n.name, s.label, s.thread_id, s.persona_id, s.status,
    p.segment_id, p.depth, p.input_tokens, p.output_tokens, p.cached_input_tokens,
    p.cache_write_tokens, p.reasoning_tokens, p.total_tokens, p.compaction_count,
    p.compaction_turn_id, p.model, p.provider, p.persona_id, p.system_prompt_hash, p.thread_key,
    t.has_children
FROM names n
JOIN sessions s ON s.label = n.session_label
JOIN places p ON p.turn_id = s.thread_id
JOIN turns t ON t.id = s.thread_id
WHERE n.name IN <ids> AND s.status = 'active' AND t.projected = 0
    AND NOT EXISTS (
        SELECT 1 FROM places q WHERE q.segment_id = p.segment_id AND q.depth = p.depth + 1
    );

-- session --
SELECT <session_columns>
FROM names n
JOIN sessions s ON s.label = n.session_label
LEFT JOIN annotations a ON a.session_label = s.label
WHERE n.name = :key;

-- sessions_known_as --
-- At most three sessions by the id that their source gave them, or how it begins; those of people first.
SELECT label, is_subagent FROM sessions
WHERE COALESCE(origin_session_id, label) >= :prefix
AND COALESCE(origin_session_id, label) < :upper AND origin_session_id IS NOT NULL
ORDER BY is_subagent, label LIMIT 3;

-- sessions_labelled --
-- At most three sessions by how their label begins; those of people first.
SELECT label, is_subagent FROM sessions WHERE label >= :prefix AND label < :upper
ORDER BY is_subagent, label LIMIT 3;

-- session_exactly --
SELECT <session_columns>
FROM sessions s LEFT JOIN annotations a ON a.session_label = s.label
WHERE s.label = :key;

-- list_sessions --
-- Latest first. Pages continue after (updated_at, label).
SELECT <session_columns>
FROM sessions s LEFT JOIN annotations a ON a.session_label = s.label
WHERE (CAST(:status AS TEXT) IS NULL OR s.status = :status)
AND (CAST(:persona_id AS TEXT) IS NULL OR s.persona_id = :persona_id)
AND (CAST(:origin AS TEXT) IS NULL OR COALESCE(s.origin, 'native') = :origin)
AND (CAST(:parent AS TEXT) IS NULL OR s.parent_session_label = :parent)
AND (s.updated_at < :before_at OR (s.updated_at = :before_at AND s.label > :after_label))
ORDER BY s.updated_at DESC, s.label
LIMIT :limit;

-- insert_session --
-- No row written: there is one of that label.
INSERT INTO sessions (
    label, thread_id, persona_id, agent_id, created_as, is_subagent, parent_session_label,
    parent_turn_id, spawn_tool_call_id, task_description, task_status, routing_key, origin,
    origin_session_id, created_at, updated_at
) VALUES (
    :label, :thread_id, :persona_id, :agent_id, :created_as, :is_subagent, :parent_session_label,
    :parent_turn_id, :spawn_tool_call_id, :task_description, :task_status, :routing_key, :origin,
    :origin_session_id, :created_at, :created_at
)
ON CONFLICT DO NOTHING;

-- insert_name --
-- No row written: the name is taken.
INSERT INTO names (name, session_label, created_at, reason)
VALUES (:name, :session_label, :created_at, :reason)
ON CONFLICT DO NOTHING;

-- move_head --
-- The one statement that moves a head: only from where the caller saw it. The time is that of the
-- clock, even if it is behind the last move; of an import, the latest its sources told.
UPDATE sessions
SET thread_id = :to_turn,
    updated_at = CASE
        WHEN CAST(:is_import AS INTEGER) = 1 AND updated_at > :now THEN updated_at ELSE :now
    END
WHERE label = :label AND COALESCE(thread_id, '') = COALESCE(CAST(:from_turn AS TEXT), '');

-- log_move --
-- Where a session points since now.
INSERT INTO session_history (session_label, thread_id, changed_at, reason)
SELECT label, thread_id, updated_at, :reason FROM sessions WHERE label = :label;

-- log_rename --
INSERT INTO session_history (session_label, thread_id, changed_at, reason)
SELECT label, thread_id, :now, 'rename' FROM sessions WHERE label = :label;

-- move_at --
-- By number, not by time: one move with a time in the future must not hide those made after it.
SELECT id, thread_id FROM session_history
WHERE session_label = :label AND changed_at <= :at
ORDER BY id DESC LIMIT 1;

-- move_after --
SELECT id, session_label, thread_id, changed_at, reason FROM session_history
WHERE session_label = :label AND id > :move_id
ORDER BY id LIMIT 1;

-- turn_ends --
-- When the turns of a thread between two depths ended, in no order.
<range>
SELECT p.depth, p.turn_id, COALESCE(t.completed_at, t.started_at)
FROM range
CROSS JOIN places p
CROSS JOIN turns t
WHERE p.segment_id = range.segment_id AND p.depth BETWEEN :from_depth AND range.upto
AND t.id = p.turn_id;

-- session_moves --
-- Latest first; pages continue below an id.
SELECT id, session_label, thread_id, changed_at, reason FROM session_history
WHERE session_label = :label AND id < :before_id
ORDER BY id DESC LIMIT :limit;

-- last_move_of --
-- The last line that is not about the session's name.
SELECT id FROM session_history
WHERE session_label = :label AND reason NOT IN ('rename', 'merge', 'unmerge')
ORDER BY id DESC LIMIT 1;

-- move_before --
-- The head a session had before one of its moves.
SELECT thread_id FROM session_history
WHERE session_label = :label AND id < :move_id
ORDER BY id DESC LIMIT 1;

-- move_exists --
SELECT 1 FROM session_history WHERE session_label = :label AND id = :move_id;

-- sessions_including --
-- Every session whose head ever stood on a turn or below it.
<below>
SELECT DISTINCT h.session_label
FROM tail
JOIN places p ON p.segment_id = tail.segment_id AND p.depth >= tail.from_depth
JOIN session_history h ON h.thread_id = p.turn_id
ORDER BY h.session_label;

-- aliases --
SELECT alias, session_label, created_at, reason FROM session_aliases ORDER BY alias;

-- aliases_of --
SELECT alias, session_label, created_at, reason FROM session_aliases
WHERE session_label = :label ORDER BY alias;

-- history_length --
-- Only lines that say where the head is: two sessions merged again end as they did before.
SELECT
    (
        SELECT count(*) FROM session_history h
        WHERE h.session_label = s.label AND h.reason NOT IN ('rename', 'merge', 'unmerge')
    ),
    s.updated_at
FROM sessions s WHERE s.label = :label;

-- repoint_names --
-- Aliases first, the label itself after them: at no moment is there a chain.
UPDATE names SET session_label = :to_label
WHERE session_label = :from_label AND name <> :from_label;

-- repoint_label --
UPDATE names SET session_label = :to_label, reason = :reason WHERE name = :from_label;

-- take_label_back --
UPDATE names SET session_label = :label, reason = NULL
WHERE name = :label AND session_label <> :label AND reason = :reason
RETURNING name;

-- take_alias_back --
-- Unless it was made to lead elsewhere since, or is the label of the other session now.
UPDATE names SET session_label = :to_label
WHERE name = :alias AND session_label = :from_label AND name <> session_label;

-- name --
SELECT session_label, reason FROM names WHERE name = :name;

-- delete_name --
-- An alias, never a label: a rename may have made it one meanwhile.
DELETE FROM names WHERE name = :name AND name <> session_label;

-- renamed_labels --
-- Former labels with the labels of today.
SELECT name, session_label FROM names WHERE name IN <ids> AND reason = 'rename';

-- copy_session --
-- A session under a new label; what refers to the old one is repointed, which is deleted then.
INSERT INTO sessions (
    label, thread_id, persona_id, agent_id, created_as, is_subagent, parent_session_label,
    parent_turn_id, spawn_tool_call_id, task_description, task_status, routing_key, origin,
    origin_session_id, created_at, updated_at, status, source_title, metadata_json, source_has_more
)
SELECT
    :to_label, thread_id, persona_id, agent_id, created_as, is_subagent, parent_session_label,
    parent_turn_id, spawn_tool_call_id, task_description, task_status, routing_key, origin,
    origin_session_id, created_at, updated_at, status, source_title, metadata_json, source_has_more
FROM sessions WHERE label = :from_label;

-- rename_label --
UPDATE names SET session_label = :to_label, reason = 'rename', created_at = :now
WHERE name = :from_label;

-- rename_annotation --
UPDATE annotations SET session_label = :to_label WHERE session_label = :from_label;

-- rename_history --
UPDATE session_history SET session_label = :to_label WHERE session_label = :from_label;

-- rename_live_turns --
UPDATE live_turns SET session_label = :to_label WHERE session_label = :from_label;

-- rename_queue --
UPDATE queue SET session_label = :to_label WHERE session_label = :from_label;

-- rename_sources --
UPDATE session_sources SET session_label = :to_label WHERE session_label = :from_label;

-- rename_imports --
UPDATE session_imports SET session_label = :to_label WHERE session_label = :from_label;

-- rename_parent --
UPDATE sessions SET parent_session_label = :to_label WHERE parent_session_label = :from_label;

-- rename_source_child --
UPDATE source_links SET child_label = :to_label WHERE child_label = :from_label;

-- rename_source_parent --
UPDATE source_links SET parent_label = :to_label WHERE parent_label = :from_label;

-- delete_renamed --
-- Its label is an alias now; a guard refuses to delete any other session.
DELETE FROM sessions WHERE label = :from_label;

-- set_session_status --
UPDATE sessions SET status = :status WHERE label = :label;

-- set_session_metadata --
UPDATE sessions SET metadata_json = :metadata_json WHERE label = :label;

-- update_session --
UPDATE sessions SET
    persona_id = :persona_id, agent_id = :agent_id, routing_key = :routing_key,
    task_description = :task_description, task_status = :task_status, origin = :origin,
    origin_session_id = :origin_session_id
WHERE label = :label;

-- set_task_status --
UPDATE sessions SET task_status = :status WHERE label = :label;

-- link_subagent --
-- Only a session nobody else spawned.
UPDATE sessions SET
    is_subagent = 1, parent_session_label = :parent_session_label,
    parent_turn_id = :parent_turn_id, spawn_tool_call_id = :spawn_tool_call_id
WHERE label = :label AND parent_turn_id IS NULL;

-- annotate --
INSERT INTO annotations (session_label, title, starred, note)
VALUES (:label, :title, :starred, :note)
ON CONFLICT (session_label) DO UPDATE
SET title = excluded.title, starred = excluded.starred, note = excluded.note;

-- lead_history --
UPDATE session_history SET thread_id = :to WHERE thread_id = :turn_id;

-- lead_heads --
UPDATE sessions SET thread_id = :to WHERE thread_id = :turn_id;

-- lead_imports --
UPDATE session_imports SET head_turn_id = :to WHERE head_turn_id = :turn_id;

-- has_deleted_sessions --
SELECT label FROM sessions WHERE status = 'deleted' LIMIT 1;

-- is_session_deleted --
-- Or a session that started it.
WITH RECURSIVE above (label, status, parent_label) AS (
    SELECT s.label, s.status, s.parent_session_label FROM sessions s WHERE s.label = :label
    UNION
    SELECT s.label, s.status, s.parent_session_label
    FROM above JOIN sessions s ON s.label = above.parent_label
)
SELECT label FROM above WHERE status = 'deleted' LIMIT 1;

-- turn_place --
SELECT p.segment_id, p.depth FROM places p WHERE p.turn_id = :turn_id;

-- deleted_segments --
-- The segments of trees in which deleted sessions are or were, each with the root of its tree, and
-- how far down threads of deleted sessions and of others reach in it.
WITH RECURSIVE gone (label) AS (
    SELECT s.label FROM sessions s WHERE s.status = 'deleted'
    UNION
    SELECT s.label FROM gone JOIN sessions s ON s.parent_session_label = gone.label
),
gone_up (segment_id, depth) AS (
    SELECT p.segment_id, p.depth
    FROM gone JOIN session_history h ON h.session_label = gone.label
    JOIN places p ON p.turn_id = h.thread_id
    UNION
    SELECT g.parent_id, g.fork_depth
    FROM gone_up JOIN segments g ON g.id = gone_up.segment_id
    WHERE g.parent_id IS NOT NULL
),
tree (segment_id, root_id) AS (
    SELECT g.id, g.id
    FROM (SELECT DISTINCT segment_id FROM gone_up) AS up JOIN segments g ON g.id = up.segment_id
    WHERE g.parent_id IS NULL
    UNION
    SELECT g.id, tree.root_id FROM tree JOIN segments g ON g.parent_id = tree.segment_id
),
shown_up (segment_id, depth) AS (
    SELECT p.segment_id, p.depth
    FROM tree CROSS JOIN places p CROSS JOIN sessions s
    WHERE p.segment_id = tree.segment_id AND s.thread_id = p.turn_id
    AND s.label NOT IN (SELECT label FROM gone)
    UNION
    SELECT g.parent_id, g.fork_depth
    FROM shown_up JOIN segments g ON g.id = shown_up.segment_id
    WHERE g.parent_id IS NOT NULL
)
SELECT tree.segment_id, tree.root_id,
    COALESCE((SELECT max(u.depth) FROM gone_up u WHERE u.segment_id = tree.segment_id), 0),
    COALESCE((SELECT max(u.depth) FROM shown_up u WHERE u.segment_id = tree.segment_id), 0)
FROM tree;
