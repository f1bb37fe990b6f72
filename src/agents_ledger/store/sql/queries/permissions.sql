-- What was available, granted and used.

-- judged_calls --
-- Calls of turns that say what they had or were granted, in a time; oldest first.
SELECT
    c.turn_id, c.id, c.tool_name, c.status, c.started_at, COALESCE(p.persona_id, 'main'),
    t.tools_available, t.permissions_granted
FROM turns t
JOIN places p ON p.turn_id = t.id
JOIN tool_calls c ON c.turn_id = t.id
WHERE t.started_at >= :since AND t.started_at < :until
AND (t.tools_available IS NOT NULL OR t.permissions_granted IS NOT NULL)
AND (CAST(:persona_id AS TEXT) IS NULL OR COALESCE(p.persona_id, 'main') = :persona_id)
ORDER BY t.started_at, c.turn_id, c.sequence;

-- unjudged_calls --
-- How many calls there are of turns that say neither.
SELECT count(*)
FROM turns t
JOIN places p ON p.turn_id = t.id
JOIN tool_calls c ON c.turn_id = t.id
WHERE t.started_at >= :since AND t.started_at < :until
AND t.tools_available IS NULL AND t.permissions_granted IS NULL
AND (CAST(:persona_id AS TEXT) IS NULL OR COALESCE(p.persona_id, 'main') = :persona_id);
