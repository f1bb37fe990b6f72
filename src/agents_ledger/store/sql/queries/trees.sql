-- Turns in one line each, and trees with their runs folded.

-- headline --
SELECT <turn_columns>, p.depth, <headline_columns>
FROM turns t JOIN places p ON p.turn_id = t.id
WHERE t.id = :turn_id;

-- latest_roots --
-- Newest first; pages continue below an id. Those of subagents, whose trees hang on the calls that
-- spawned them, only if :subagents is 1.
SELECT t.id FROM turns t
WHERE t.parent_turn_id IS NULL AND (CAST(:before AS TEXT) IS NULL OR t.id < :before)
AND (CAST(:subagents AS BIGINT) = 1 OR NOT EXISTS (
    SELECT 1 FROM session_history h JOIN sessions s ON s.label = h.session_label
    WHERE h.thread_id = t.id AND s.is_subagent = 1
))
ORDER BY t.id DESC LIMIT :limit;

-- tree_segments --
-- The segments at or below a turn: where each hangs, and how many of its turns are below.
<below>
SELECT s.id, s.parent_id, s.fork_depth,
    (SELECT max(p.depth) FROM places p WHERE p.segment_id = s.id) - tail.from_depth + 1
FROM tail JOIN segments s ON s.id = tail.segment_id;

-- tree_nodes --
-- The turns that stand out at or below a turn: the first and last of every segment, those where
-- one forks off and those right behind them, heads, compactions, those that spawned subagents; with
-- :fold = 0 all. The latest, if there are too many; the top itself is always the first row.
<below>, node (segment_id, depth) AS (
    SELECT segment_id, from_depth FROM tail
    UNION
    SELECT tail.segment_id,
        (SELECT max(p.depth) FROM places p WHERE p.segment_id = tail.segment_id)
    FROM tail
    UNION
    SELECT s.parent_id, s.fork_depth + step.below
    FROM tail
    JOIN segments s ON s.id = tail.segment_id
    JOIN tail up ON up.segment_id = s.parent_id AND up.from_depth <= s.fork_depth
    CROSS JOIN (SELECT 0 AS below UNION ALL SELECT 1) AS step
    UNION
    SELECT p.segment_id, p.depth
    FROM sessions s JOIN places p ON p.turn_id = s.thread_id
    UNION
    SELECT p.segment_id, p.depth
    FROM sessions s JOIN places p ON p.turn_id = s.parent_turn_id
    UNION
    SELECT p.segment_id, p.depth
    FROM compactions c JOIN places p ON p.turn_id = c.turn_id
    UNION
    SELECT p.segment_id, p.depth
    FROM tail JOIN places p ON p.segment_id = tail.segment_id
    WHERE CAST(:fold AS BIGINT) = 0
), latest (turn_id, node_count) AS (
    SELECT p.turn_id, count(*) OVER ()
    FROM node
    JOIN tail ON tail.segment_id = node.segment_id AND tail.from_depth <= node.depth
    JOIN places p ON p.segment_id = node.segment_id AND p.depth = node.depth
    ORDER BY CASE WHEN p.turn_id = :turn_id THEN 0 ELSE 1 END, p.turn_id DESC
    LIMIT :limit
)
SELECT latest.node_count, p.segment_id, <turn_columns>, p.depth, <headline_columns>
FROM latest
JOIN places p ON p.turn_id = latest.turn_id
JOIN turns t ON t.id = latest.turn_id
ORDER BY p.depth, t.id;

-- tree_heads --
-- The sessions whose head is at or below a turn.
<below>
SELECT <session_columns>
FROM sessions s
JOIN places p ON p.turn_id = s.thread_id
JOIN tail ON tail.segment_id = p.segment_id AND tail.from_depth <= p.depth
LEFT JOIN annotations a ON a.session_label = s.label
WHERE s.status <> 'deleted'
ORDER BY s.created_at, s.label;

-- tree_subagents --
-- The sessions that were spawned at or below a turn, with the size of their threads.
<below>
SELECT COALESCE(h.depth, 0), COALESCE(h.total_tokens, 0), <session_columns>
FROM sessions s
JOIN places p ON p.turn_id = s.parent_turn_id
JOIN tail ON tail.segment_id = p.segment_id AND tail.from_depth <= p.depth
LEFT JOIN places h ON h.turn_id = s.thread_id
LEFT JOIN annotations a ON a.session_label = s.label
ORDER BY s.created_at, s.label;
