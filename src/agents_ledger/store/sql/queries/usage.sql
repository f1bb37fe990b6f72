-- What was used: tokens by hour, model and project, and tools by day.

-- usage_hours --
-- Every turn that began between two times, once.
SELECT t.started_at / 3600000, <model_used>, <provider_used>, t.workspace_path, <spent_columns>
FROM turns t
WHERE t.started_at >= :since AND t.started_at < :until
GROUP BY 1, 2, 3, 4;

-- usage_of_range --
-- The turns of a thread between two depths.
<range>
SELECT <model_used>, <provider_used>, <spent_columns>
FROM range
JOIN places p ON p.segment_id = range.segment_id
    AND p.depth BETWEEN :from_depth AND range.upto
JOIN turns t ON t.id = p.turn_id
GROUP BY 1, 2;

-- session_heads --
-- Where each session points, oldest first, with the tokens of its thread.
SELECT s.label, s.thread_id, s.updated_at, p.segment_id, p.depth, p.total_tokens
FROM sessions s JOIN places p ON p.turn_id = s.thread_id
WHERE s.status <> 'deleted'
ORDER BY s.created_at, s.label;

-- head_segments --
-- The segments on the way to any session's head.
WITH RECURSIVE up (id) AS (
    SELECT p.segment_id FROM sessions s JOIN places p ON p.turn_id = s.thread_id
    UNION
    SELECT g.parent_id FROM up JOIN segments g ON g.id = up.id WHERE g.parent_id IS NOT NULL
)
SELECT g.id, g.parent_id, g.fork_depth FROM up JOIN segments g ON g.id = up.id;

-- tokens_at --
-- The tokens of a thread down to a place.
SELECT total_tokens FROM places WHERE segment_id = :segment_id AND depth = :depth;

-- tool_days --
-- Tool calls of the turns that began between two times, by the step their duration falls in. Step
-- 0: they do not say how long they took.
SELECT t.started_at / 86400000, c.tool_name, c.status,
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
FROM turns t JOIN tool_calls c ON c.turn_id = t.id
WHERE t.started_at >= :since AND t.started_at < :until
GROUP BY 1, 2, 3, 4;
