-- Turns in one line each, and trees with their runs folded.

-- headline --
SELECT <turn_columns>, p.depth, <headline_columns>
FROM turns t JOIN places p ON p.turn_id = t.id
WHERE t.id = :turn_id;

-- latest_roots --
-- Newest first by time; pages continue behind a root. Those of subagents, whose trees hang on the calls that
-- spawned them, only if :subagents is 1.
SELECT t.id FROM turns t
WHERE t.parent_turn_id IS NULL AND t.started_at >= :since AND t.started_at < :until AND (
    CAST(:before AS TEXT) IS NULL
    OR (t.started_at, t.id) < (SELECT b.started_at, b.id FROM turns b WHERE b.id = :before)
)
AND (CAST(:subagents AS BIGINT) = 1 OR NOT EXISTS (
    SELECT 1 FROM session_history h JOIN sessions s ON s.label = h.session_label
    WHERE h.thread_id = t.id AND s.is_subagent = 1
))
ORDER BY t.started_at DESC, t.id DESC LIMIT :limit;

-- tree_segments --
-- The segments at or below a turn: where each hangs, and how many of its turns are below.
<within>
SELECT s.id, s.parent_id, s.fork_depth, tail.last_depth - tail.from_depth + 1
FROM tail JOIN segments s ON s.id = tail.segment_id;

-- tree_nodes --
-- The turns that stand out at or below a turn: the first and last of every segment, those where
-- one forks off and those right behind them, heads, compactions, those that spawned subagents; with
-- :fold = 0 all. The latest, if there are too many; the top itself is always the first row.
<within>, node (segment_id, depth) AS (
    SELECT segment_id, from_depth FROM tail
    UNION
    SELECT segment_id, last_depth FROM tail
    UNION
    SELECT s.parent_id, s.fork_depth + step.below
    FROM tail
    JOIN segments s ON s.id = tail.segment_id
    JOIN tail up ON up.segment_id = s.parent_id AND up.from_depth <= s.fork_depth
    CROSS JOIN (SELECT 0 AS below UNION ALL SELECT 1) AS step
    WHERE s.fork_depth + step.below <= up.last_depth
    UNION
    SELECT p.segment_id, p.depth
    FROM tail CROSS JOIN places p
    WHERE p.segment_id = tail.segment_id
    AND p.depth BETWEEN tail.from_depth AND tail.last_depth
    AND (
        CAST(:fold AS BIGINT) = 0
        OR EXISTS (SELECT 1 FROM sessions s WHERE s.thread_id = p.turn_id)
        OR EXISTS (SELECT 1 FROM sessions s WHERE s.parent_turn_id = p.turn_id)
        OR EXISTS (SELECT 1 FROM compactions c WHERE c.turn_id = p.turn_id)
    )
), latest (turn_id, node_count) AS (
    SELECT p.turn_id, count(*) OVER ()
    FROM node
    JOIN tail ON tail.segment_id = node.segment_id AND tail.from_depth <= node.depth
    JOIN places p ON p.segment_id = node.segment_id AND p.depth = node.depth
    JOIN turns t ON t.id = p.turn_id
    ORDER BY CASE WHEN p.turn_id = :turn_id THEN 0 ELSE 1 END, t.started_at DESC, t.id DESC
    LIMIT :limit
)
SELECT latest.node_count, p.segment_id, <turn_columns>, p.depth, <headline_columns>
FROM latest
JOIN places p ON p.turn_id = latest.turn_id
JOIN turns t ON t.id = latest.turn_id
ORDER BY p.depth, t.id;

-- tree_heads --
-- The sessions whose head is at or below a turn.
<within>
SELECT <session_columns>
FROM tail CROSS JOIN places p CROSS JOIN sessions s
LEFT JOIN annotations a ON a.session_label = s.label
WHERE p.segment_id = tail.segment_id
AND p.depth BETWEEN tail.from_depth AND tail.last_depth
AND s.thread_id = p.turn_id AND s.status <> 'deleted'
ORDER BY s.created_at, s.label;

-- tree_subagents --
-- The sessions that were spawned at or below a turn, with the size of their threads and how the
-- parameters of the call begin.
<within>
SELECT COALESCE(h.depth, 0), COALESCE(h.total_tokens, 0),
    substr(c.params_json, 1, CAST(:text_max AS INTEGER)), <session_columns>
FROM tail CROSS JOIN places p CROSS JOIN sessions s
LEFT JOIN places h ON h.turn_id = s.thread_id
LEFT JOIN annotations a ON a.session_label = s.label
LEFT JOIN tool_calls c ON c.turn_id = s.parent_turn_id AND c.id = s.spawn_tool_call_id
WHERE p.segment_id = tail.segment_id
AND p.depth BETWEEN tail.from_depth AND tail.last_depth
AND s.parent_turn_id = p.turn_id
ORDER BY s.created_at, s.label;

-- turn_subagents --
-- The sessions that calls of some turns spawned: the size of their threads, what they were asked
-- and what they answered.
SELECT c.turn_id, c.id, COALESCE(h.depth, 0), COALESCE(h.total_tokens, 0),
    substr(c.params_json, 1, CAST(:text_max AS INTEGER)), t.status, c.status,
    substr(m.content, 1, CAST(:text_max AS INTEGER)),
    substr(c.result_json, 1, CAST(:text_max AS INTEGER)), <session_columns>
FROM tool_calls c
JOIN sessions s ON s.label = c.spawned_session_label
LEFT JOIN annotations a ON a.session_label = s.label
LEFT JOIN turns t ON t.id = s.thread_id
LEFT JOIN places h ON h.turn_id = t.id
LEFT JOIN messages m ON m.turn_id = t.id AND m.id = t.response_message_id
WHERE c.turn_id IN <ids> AND c.spawned_session_label IS NOT NULL;

-- branches --
-- What hangs on a turn, a page at a time.
WITH page (id) AS (
    SELECT t.id FROM turns t
    WHERE t.parent_turn_id = :turn_id AND t.id > :after
    ORDER BY t.id LIMIT :limit
)
SELECT <turn_columns>, p.depth, <headline_columns>
FROM page
JOIN turns t ON t.id = page.id
JOIN places p ON p.turn_id = t.id
ORDER BY t.id;
