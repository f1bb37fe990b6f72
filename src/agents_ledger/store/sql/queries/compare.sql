-- What the turns of a thread did between two depths.

-- range_files --
-- The files their messages name.
<range>
SELECT DISTINCT m.turn_id, f.kind, f.file_path
FROM range CROSS JOIN places p CROSS JOIN messages m CROSS JOIN message_files f
WHERE p.segment_id = range.segment_id AND p.depth BETWEEN :from_depth AND range.upto
AND m.turn_id = p.turn_id AND m.has_details = 1 AND f.message_id = m.id;

-- range_calls --
<range>
SELECT c.turn_id, c.tool_name, c.status, c.params_json, c.id, p.depth, c.sequence
FROM range
JOIN places p ON p.segment_id = range.segment_id
    AND p.depth BETWEEN :from_depth AND range.upto
JOIN tool_calls c ON c.turn_id = p.turn_id;

-- call_result --
SELECT result_json FROM tool_calls WHERE turn_id = :turn_id AND id = :id;

-- turn_answer --
-- How a turn's response begins.
SELECT substr(m.content, 1, CAST(:text_max AS INTEGER))
FROM turns t JOIN messages m ON m.id = t.response_message_id
WHERE t.id = :turn_id;

-- calls_of_turns --
SELECT c.turn_id, c.status, c.id, c.sequence, c.tool_name, c.params_json, c.started_at
FROM tool_calls c WHERE c.turn_id IN <ids> ORDER BY c.turn_id, c.sequence;

-- thread_segments --
-- The place of each turn, marked by 1, and the segments above it with how far down they are its
-- thread.
WITH RECURSIVE chain (turn_id, segment_id, depth, is_own) AS (
    SELECT p.turn_id, p.segment_id, p.depth, 1 FROM places p WHERE p.turn_id IN <ids>
    UNION ALL
    SELECT c.turn_id, g.parent_id, g.fork_depth, 0
    FROM chain c JOIN segments g ON g.id = c.segment_id
    WHERE g.parent_id IS NOT NULL
)
SELECT turn_id, segment_id, depth, is_own FROM chain;

-- turn_started_at --
SELECT started_at FROM turns WHERE id = :id;
