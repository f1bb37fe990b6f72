-- What was used: tokens by hour, model and project, and tools by day.

-- usage_hours --
-- Every turn that began between two times, once.
SELECT t.started_at / 3600000, <model_used>, <provider_used>, t.workspace_path, <spent_columns>
FROM turns t
WHERE t.started_at >= :since AND t.started_at < :until
GROUP BY 1, 2, 3, 4;

-- summed_usage --
-- The same of days that are summed up.
SELECT u.hour, u.model, u.provider, u.workspace_path, u.turns, u.failed, u.untold, u.tool_calls,
    u.input_tokens, u.output_tokens, u.cached_input_tokens, u.cache_write_tokens,
    u.reasoning_tokens, u.total_tokens, u.fresh_input_tokens, u.paid_output_tokens,
    u.long_cache_write_tokens
FROM summary_days d JOIN usage_sums u ON u.day = d.day
WHERE d.day >= :first AND d.day < :after;

-- usage_by_agent --
-- The same, with the agent: the origin of the session that an imported turn was
-- derived for, or that a recorded turn was the head of.
WITH agent_of_file (file_id, agent) AS (
    SELECT x.file_id, min(s.origin)
    FROM session_sources x JOIN sessions s ON s.label = x.session_label
    GROUP BY x.file_id
)
SELECT t.started_at / 3600000, <model_used>, <provider_used>, t.workspace_path, COALESCE((
        SELECT min(a.agent) FROM turn_sources x JOIN agent_of_file a ON a.file_id = x.file_id
        WHERE x.turn_id = t.id
    ), (
        SELECT min(s.origin) FROM session_history h JOIN sessions s ON s.label = h.session_label
        WHERE h.thread_id = t.id
    ), 'native'), <spent_columns>
FROM turns t
WHERE t.started_at >= :since AND t.started_at < :until
GROUP BY 1, 2, 3, 4, 5;

-- usage_of_range --
-- The turns of a thread between two depths that began between two times.
<range>
SELECT NULL, <model_used>, <provider_used>, t.workspace_path, <spent_columns>
FROM range
JOIN places p ON p.segment_id = range.segment_id
    AND p.depth BETWEEN :from_depth AND range.upto
JOIN turns t ON t.id = p.turn_id
WHERE t.started_at >= :since AND t.started_at < :until
GROUP BY 1, 2, 3, 4;

-- usage_of_turns --
SELECT t.id, <model_used>, <provider_used>, <spent_columns>
FROM turns t
WHERE t.id IN <ids>
GROUP BY 1, 2, 3;

-- usage_of_sessions --
-- Of sessions and, marked by 0, of the subagents below them. Turns on several threads count once.
WITH RECURSIVE family (root, label, thread_id) AS (
    SELECT s.label, s.label, s.thread_id FROM sessions s WHERE s.label IN <ids>
    UNION
    SELECT f.root, s.label, s.thread_id
    FROM family f JOIN sessions s ON s.parent_session_label = f.label AND s.is_subagent = 1
), chain (root, label, segment_id, upto) AS (
    SELECT f.root, f.label, p.segment_id, p.depth
    FROM family f JOIN places p ON p.turn_id = f.thread_id
    UNION ALL
    SELECT c.root, c.label, g.parent_id, g.fork_depth
    FROM chain c JOIN segments g ON g.id = c.segment_id
    WHERE g.parent_id IS NOT NULL
), part (root, segment_id, upto, own_upto) AS (
    SELECT c.root, c.segment_id, max(c.upto),
        max(CASE WHEN c.label = c.root THEN c.upto ELSE 0 END)
    FROM chain c GROUP BY c.root, c.segment_id
)
SELECT part.root, CASE WHEN p.depth <= part.own_upto THEN 1 ELSE 0 END, <model_used>,
    <provider_used>, <spent_columns>
FROM part
JOIN places p ON p.segment_id = part.segment_id AND p.depth <= part.upto
JOIN turns t ON t.id = p.turn_id
GROUP BY 1, 2, 3, 4;

-- segment_ends --
-- The last turn of every segment, and its depth.
SELECT p.segment_id, p.turn_id, p.depth
FROM segments g
JOIN places p ON p.segment_id = g.id
    AND p.depth = (SELECT max(e.depth) FROM places e WHERE e.segment_id = g.id);

-- session_heads --
-- Where each session points, oldest first, with the tokens of its thread and its agent.
SELECT s.label, s.thread_id, s.updated_at, p.segment_id, p.depth, p.total_tokens,
    COALESCE(s.origin, 'native')
FROM sessions s JOIN places p ON p.turn_id = s.thread_id
WHERE s.status <> 'deleted'
ORDER BY s.created_at, s.label;

-- head_segments --
-- Where every segment hangs that hangs on another.
SELECT id, parent_id, fork_depth FROM segments WHERE parent_id IS NOT NULL;

-- tokens_at --
-- The tokens of a thread down to a place.
SELECT total_tokens FROM places WHERE segment_id = :segment_id AND depth = :depth;

-- tool_days --
-- Tool calls of the turns that began between two times.
SELECT <tool_columns>
FROM turns t JOIN tool_calls c ON c.turn_id = t.id
WHERE t.started_at >= :since AND t.started_at < :until
GROUP BY 1, 2, 3;

-- summed_tools --
-- The same of days that are summed up.
SELECT s.tool_name, s.status, s.step, CAST(sum(s.calls) AS BIGINT),
    CAST(sum(s.duration_ms) AS BIGINT), max(s.longest_ms), max(s.last_at)
FROM summary_days d JOIN tool_sums s ON s.day = d.day
WHERE d.day >= :first AND d.day < :after
GROUP BY 1, 2, 3;

-- summed_days --
SELECT day FROM summary_days WHERE day >= :first AND day < :after ORDER BY day;

-- first_turn_at --
-- Of those that say when they began.
SELECT min(started_at) FROM turns WHERE started_at > 0;

-- turns_by_day --
SELECT t.started_at / 86400000, count(*) FROM turns t
WHERE t.started_at >= :since AND t.started_at < :until
GROUP BY 1;

-- lock_summaries --
-- On a server: waits for those who change old turns, and lets none begin until we commit.
<lock_summaries>;

-- forget_usage_sums --
-- Those that count no longer.
DELETE FROM usage_sums
WHERE day >= :first AND day <= :last AND day NOT IN (SELECT d.day FROM summary_days d);

-- forget_tool_sums --
DELETE FROM tool_sums
WHERE day >= :first AND day <= :last AND day NOT IN (SELECT d.day FROM summary_days d);

-- sum_usage --
-- Of the days between two times that have no sums yet.
INSERT INTO usage_sums
SELECT t.started_at / 86400000, t.started_at / 3600000, COALESCE(t.model, ''),
    COALESCE(t.provider, ''), COALESCE(t.workspace_path, ''), <spent_columns>
FROM turns t
WHERE <unsummed>
GROUP BY 1, 2, 3, 4, 5;

-- sum_tools --
INSERT INTO tool_sums
SELECT t.started_at / 86400000, <tool_columns>
FROM turns t JOIN tool_calls c ON c.turn_id = t.id
WHERE <unsummed>
GROUP BY 1, 2, 3, 4;

-- insert_summary_day --
INSERT INTO summary_days (day) VALUES (:day) ON CONFLICT DO NOTHING;
