-- Places, segments, and the threads they make.

-- place --
-- Where a turn stands, with the metrics of its thread.
SELECT
    segment_id, depth, input_tokens, output_tokens, cached_input_tokens, cache_write_tokens,
    reasoning_tokens, total_tokens, compaction_count, compaction_turn_id, model, provider,
    persona_id, system_prompt_hash, thread_key
FROM places WHERE turn_id = :turn_id;

-- session_stand --
-- The head of a session, and where that stands; NULLs while the session is empty.
SELECT s.thread_id, <stand_columns>
FROM names n
JOIN sessions s ON s.label = n.session_label
LEFT JOIN places p ON p.turn_id = s.thread_id
LEFT JOIN segments g ON g.id = p.segment_id
WHERE n.name = :key;

-- turn_stand --
SELECT p.turn_id, <stand_columns>
FROM places p JOIN segments g ON g.id = p.segment_id
WHERE p.turn_id = :turn_id;

-- insert_place --
-- No row written: the place is taken, and a segment is to be opened; or the key is.
INSERT INTO places (
    segment_id, depth, turn_id, input_tokens, output_tokens, cached_input_tokens,
    cache_write_tokens, reasoning_tokens, total_tokens, compaction_count, compaction_turn_id,
    model, provider, persona_id, system_prompt_hash, thread_key
) VALUES (
    :segment_id, :depth, :turn_id, :input_tokens, :output_tokens, :cached_input_tokens,
    :cache_write_tokens, :reasoning_tokens, :total_tokens, :compaction_count, :compaction_turn_id,
    :model, :provider, :persona_id, :system_prompt_hash, :thread_key
)
ON CONFLICT DO NOTHING;

-- open_segment --
-- A segment that hangs on the parent's at its depth. The jump doubles in length when the two jumps
-- above are equally long, else it leads one segment up.
INSERT INTO segments (parent_id, fork_depth, level, jump_id, jump_depth)
SELECT
    s.id, CAST(:fork_depth AS BIGINT), s.level + 1,
    CASE WHEN j2.id IS NOT NULL AND s.level - j1.level = j1.level - j2.level
        THEN j2.id ELSE s.id END,
    CASE WHEN j2.id IS NOT NULL AND s.level - j1.level = j1.level - j2.level
        THEN j1.jump_depth ELSE CAST(:fork_depth AS BIGINT) END
FROM segments s
LEFT JOIN segments j1 ON j1.id = s.jump_id
LEFT JOIN segments j2 ON j2.id = j1.jump_id
WHERE s.id = :parent_id
RETURNING id;

-- open_root_segment --
INSERT INTO segments (parent_id, fork_depth, level) VALUES (NULL, 0, 0) RETURNING id;

-- settle_place --
UPDATE places SET
    input_tokens = :input_tokens, output_tokens = :output_tokens,
    cached_input_tokens = :cached_input_tokens, cache_write_tokens = :cache_write_tokens,
    reasoning_tokens = :reasoning_tokens, total_tokens = :total_tokens, model = :model,
    provider = :provider
WHERE turn_id = :turn_id;

-- move_place --
UPDATE places SET segment_id = :segment_id WHERE turn_id = :turn_id;

-- delete_place --
DELETE FROM places WHERE turn_id = :turn_id RETURNING segment_id, system_prompt_hash;

-- delete_empty_segment --
DELETE FROM segments
WHERE id = :id AND NOT EXISTS (SELECT 1 FROM places p WHERE p.segment_id = :id);

-- ancestry --
-- Ids of a thread between two depths, in no order.
<range>
SELECT p.depth, p.turn_id
FROM range
JOIN places p ON p.segment_id = range.segment_id
    AND p.depth BETWEEN :from_depth AND range.upto;

-- thread_turns --
-- The turns of a thread between two depths, in no order: a sort here would copy every row.
<range>
SELECT <turn_columns>, p.depth
FROM range
JOIN places p ON p.segment_id = range.segment_id
    AND p.depth BETWEEN :from_depth AND range.upto
JOIN turns t ON t.id = p.turn_id;

-- thread_messages --
<range>
SELECT <message_columns>
FROM range
JOIN places p ON p.segment_id = range.segment_id
    AND p.depth BETWEEN :from_depth AND range.upto
JOIN messages m ON m.turn_id = p.turn_id;

-- thread_tool_calls --
<range>
SELECT <call_columns>
FROM range
JOIN places p ON p.segment_id = range.segment_id
    AND p.depth BETWEEN :from_depth AND range.upto
JOIN tool_calls c ON c.turn_id = p.turn_id;

-- segment_turns --
-- The same three for a part of a thread that stands in one segment: most do.
SELECT <turn_columns>, p.depth
FROM places p JOIN turns t ON t.id = p.turn_id
WHERE <stretch> ORDER BY p.depth;

-- segment_messages --
SELECT <message_columns>
FROM places p JOIN messages m ON m.turn_id = p.turn_id
WHERE <stretch> ORDER BY p.depth, m.sequence;

-- segment_tool_calls --
-- In the order of turns alone: the rest is sorted where it costs no copies.
SELECT <call_columns>
FROM places p JOIN tool_calls c ON c.turn_id = p.turn_id
WHERE <stretch> ORDER BY p.depth;

-- thread_said --
-- Of messages and calls what a transcript needs. Each column costs, also one that is empty.
<range>
SELECT p.depth, m.sequence, m.turn_id, m.role, m.content, m.metadata_json
FROM range
JOIN places p ON p.segment_id = range.segment_id
    AND p.depth BETWEEN :from_depth AND range.upto
JOIN messages m ON m.turn_id = p.turn_id;

-- thread_called --
<range>
SELECT c.turn_id, c.id, c.params_json, c.result_json
FROM range
JOIN places p ON p.segment_id = range.segment_id
    AND p.depth BETWEEN :from_depth AND range.upto
JOIN tool_calls c ON c.turn_id = p.turn_id;

-- turn_files --
SELECT f.message_id, f.kind, f.file_path, f.line_start, f.line_end
FROM messages m JOIN message_files f ON f.message_id = m.id
WHERE m.turn_id = :turn_id ORDER BY f.id;

-- turn_lints --
SELECT
    l.message_id, l.file_path, l.message, l.lint_source, l.start_line, l.start_col, l.end_line,
    l.end_col, l.severity
FROM messages m JOIN message_lints l ON l.message_id = m.id
WHERE m.turn_id = :turn_id ORDER BY l.id;

-- turn_codeblocks --
SELECT b.message_id, b.content, b.language, b.file_path, b.line_start, b.line_end
FROM messages m JOIN message_codeblocks b ON b.message_id = m.id
WHERE m.turn_id = :turn_id ORDER BY b.message_id, b.idx;

-- ancestor_at --
-- The turn of a thread at a depth: jumps while the jump still starts below that depth.
WITH RECURSIVE up (id, fork_depth, parent_id, jump_id) AS (
    SELECT s.id, s.fork_depth, s.parent_id, s.jump_id
    FROM places p JOIN segments s ON s.id = p.segment_id
    WHERE p.turn_id = :turn_id
    UNION ALL
    SELECT n.id, n.fork_depth, n.parent_id, n.jump_id
    FROM up
    LEFT JOIN segments j ON j.id = up.jump_id
    JOIN segments n ON n.id = CASE WHEN j.fork_depth >= :depth THEN j.id ELSE up.parent_id END
    WHERE up.fork_depth >= :depth
)
SELECT p.turn_id
FROM up JOIN places p ON p.segment_id = up.id AND p.depth = :depth
WHERE up.fork_depth < :depth
AND p.depth <= (SELECT depth FROM places WHERE turn_id = :turn_id);

-- common_ancestor --
-- The deepest turn on both threads: lifts the path on the higher level until both stand on one
-- level, then both together, by jumps as long as these lead to different segments.
WITH RECURSIVE walk (a, a_depth, b, b_depth) AS (
    SELECT x.segment_id, x.depth, y.segment_id, y.depth
    FROM places x, places y
    WHERE x.turn_id = :a AND y.turn_id = :b
    UNION ALL
    SELECT
        CASE WHEN sa.level < sb.level THEN w.a
            WHEN (sa.level > sb.level AND ja.level >= sb.level)
                OR (sa.level = sb.level AND sa.jump_id <> sb.jump_id) THEN sa.jump_id
            ELSE sa.parent_id END,
        CASE WHEN sa.level < sb.level THEN w.a_depth
            WHEN (sa.level > sb.level AND ja.level >= sb.level)
                OR (sa.level = sb.level AND sa.jump_id <> sb.jump_id) THEN sa.jump_depth
            ELSE sa.fork_depth END,
        CASE WHEN sb.level < sa.level THEN w.b
            WHEN (sb.level > sa.level AND jb.level >= sa.level)
                OR (sa.level = sb.level AND sa.jump_id <> sb.jump_id) THEN sb.jump_id
            ELSE sb.parent_id END,
        CASE WHEN sb.level < sa.level THEN w.b_depth
            WHEN (sb.level > sa.level AND jb.level >= sa.level)
                OR (sa.level = sb.level AND sa.jump_id <> sb.jump_id) THEN sb.jump_depth
            ELSE sb.fork_depth END
    FROM walk w
    JOIN segments sa ON sa.id = w.a
    JOIN segments sb ON sb.id = w.b
    LEFT JOIN segments ja ON ja.id = sa.jump_id
    LEFT JOIN segments jb ON jb.id = sb.jump_id
    WHERE w.a <> w.b
)
SELECT p.turn_id
FROM walk w
JOIN places p ON p.segment_id = w.a
    AND p.depth = CASE WHEN w.a_depth < w.b_depth THEN w.a_depth ELSE w.b_depth END
WHERE w.a = w.b;

-- sibling_turns --
SELECT <turn_columns>, p.depth
FROM turns t JOIN places p ON p.turn_id = t.id
WHERE t.parent_turn_id = (SELECT parent_turn_id FROM turns WHERE id = :turn_id)
AND t.id <> :turn_id
ORDER BY t.id;

-- subtree_turns --
-- A turn and everything below it, shallow first.
<below>
SELECT <turn_columns>, p.depth
FROM tail
JOIN places p ON p.segment_id = tail.segment_id AND p.depth >= tail.from_depth
JOIN turns t ON t.id = p.turn_id
ORDER BY p.depth, t.id
LIMIT :limit;

-- thread_compactions --
-- The compactions of a thread, latest first: each place knows the latest one at or above it.
WITH RECURSIVE lineage (turn_id, distance) AS (
    SELECT compaction_turn_id, 0 FROM places WHERE turn_id = :turn_id
    UNION ALL
    SELECT up.compaction_turn_id, lineage.distance + 1
    FROM lineage
    JOIN turns t ON t.id = lineage.turn_id
    JOIN places up ON up.turn_id = t.parent_turn_id
)
SELECT <compaction_columns>
FROM lineage JOIN compactions c ON c.turn_id = lineage.turn_id
ORDER BY lineage.distance;
