-- The word index: what waits for it, what is put into it, and what is found.

-- await_index --
INSERT INTO search_waiting (turn_id) VALUES (:turn_id) ON CONFLICT <await_again>;

-- await_index_all --
INSERT INTO search_waiting (turn_id) SELECT t.id FROM turns t WHERE 1 = 1 ON CONFLICT DO NOTHING;

-- unindexed_count --
-- Up to so many.
SELECT count(*) FROM (SELECT 1 FROM search_waiting LIMIT :limit) AS counted;

-- unindexed --
-- The turns that the index does not know as they are now, newest first; and whether they never
-- change again.
SELECT
    t.id, t.started_at, COALESCE(p.segment_id, 0), COALESCE(p.depth, 0),
    CASE WHEN t.projected = 0 AND t.status IN ('completed', 'failed') THEN 1 ELSE 0 END
FROM search_waiting w
CROSS JOIN turns t
LEFT JOIN places p ON p.turn_id = t.id
WHERE t.id = w.turn_id
ORDER BY t.started_at DESC, t.id DESC;

-- due_for_index --
-- Turns being written wait until they are sealed. On a server several programs index at once, each
-- other turns.
SELECT w.turn_id FROM search_waiting w
WHERE NOT EXISTS (SELECT 1 FROM live_turns l WHERE l.turn_id = w.turn_id)
ORDER BY w.turn_id LIMIT :limit
<lock_waiting>;

-- delete_waiting --
DELETE FROM search_waiting WHERE turn_id IN <ids>;

-- new_doc --
<new_doc>;

-- new_docs --
<new_docs>;

-- numbers_taken --
-- How many of these numbers.
<numbers_taken>;

-- insert_doc --
INSERT INTO search_docs (id, turn_id) VALUES (:id, :turn_id);

-- insert_words --
<insert_words>;

-- insert_pieces --
<insert_pieces>;

-- forget_words --
-- All of them.
<forget_words>;

-- forget_all_docs --
DELETE FROM search_docs;

-- forget_vectors --
DELETE FROM search_vectors
WHERE doc_id IN (SELECT d.id FROM search_docs d WHERE d.turn_id IN <ids>);

-- forget_docs --
<forget_docs>;

-- document_turns --
SELECT
    t.id, t.started_at, t.turn_type, t.status, t.model, t.workspace_path, t.error,
    CASE
        WHEN t.status IN ('completed', 'failed') THEN t.tool_call_count
        ELSE (SELECT count(*) FROM tool_calls c WHERE c.turn_id = t.id)
    END
FROM turns t WHERE t.id IN <ids>;

-- document_messages --
SELECT m.turn_id, m.has_details, m.role, m.content, m.thinking, m.sequence, m.id
FROM messages m WHERE m.turn_id IN <ids> ORDER BY m.turn_id, m.sequence;

-- document_calls --
SELECT c.turn_id, c.tool_name, c.status, c.params_json, c.result_json, c.error, c.sequence
FROM tool_calls c WHERE c.turn_id IN <ids> ORDER BY c.turn_id, c.sequence;

-- document_files --
SELECT m.turn_id, f.kind, f.file_path
FROM messages m JOIN message_files f ON f.message_id = m.id
WHERE m.turn_id IN <ids> AND m.has_details = 1 AND f.kind IN ('read', 'written')
ORDER BY f.id;

-- document_codeblocks --
SELECT m.turn_id, b.content
FROM messages m JOIN message_codeblocks b ON b.message_id = m.id
WHERE m.turn_id IN <ids> AND m.has_details = 1
ORDER BY m.turn_id, b.message_id, b.idx;

-- document_summaries --
SELECT c.turn_id, c.summary
FROM compactions c JOIN turns t ON t.id = c.turn_id
WHERE c.turn_id IN <ids> AND t.turn_type = 'compaction';

-- document_partials --
SELECT p.turn_id, p.content FROM partial_texts p WHERE p.turn_id IN <ids>
ORDER BY p.turn_id, p.piece;

-- search_newest --
<matched>
SELECT m.id, d.turn_id, p.segment_id, p.depth
FROM matched m
CROSS JOIN search_docs d
CROSS JOIN places p
WHERE d.id = m.id AND p.turn_id = d.turn_id
AND <is_indexed>
ORDER BY m.id DESC LIMIT :limit;

-- search_cutoff --
-- How far back the newest so many reach.
<matched>
SELECT m.id FROM matched m ORDER BY m.id DESC LIMIT 1 OFFSET :count;

-- search_each --
-- Places of matches in a list, and numbers of the turns that match in its range.
<matched_each>;

-- search_ranked --
<ranked>
SELECT m.id, d.turn_id, p.segment_id, p.depth, m.score
FROM matched m
CROSS JOIN search_docs d
CROSS JOIN places p
WHERE d.id = m.id AND p.turn_id = d.turn_id
AND <is_indexed>
ORDER BY m.score DESC, m.id DESC LIMIT :limit;

-- search_scope --
-- The threads of some sessions: their segments, each with how far down.
WITH RECURSIVE chain (segment_id, upto) AS (
    SELECT p.segment_id, p.depth
    FROM sessions s JOIN places p ON p.turn_id = s.thread_id
    WHERE (CAST(:label AS TEXT) IS NULL OR s.label = :label)
    AND (CAST(:origin AS TEXT) IS NULL OR lower(COALESCE(s.origin, 'native')) = :origin)
    AND (CAST(:persona_id AS TEXT) IS NULL OR s.persona_id = :persona_id)
    UNION
    SELECT g.parent_id, g.fork_depth
    FROM chain JOIN segments g ON g.id = chain.segment_id
    WHERE g.parent_id IS NOT NULL
)
SELECT segment_id, max(upto) FROM chain GROUP BY segment_id;

-- session_origins --
SELECT DISTINCT lower(COALESCE(s.origin, 'native')) FROM sessions s;

-- turn_forks --
-- Whether threads part at a turn: it has several children, or a session was forked there.
SELECT CASE WHEN
    (SELECT count(*) FROM turns c WHERE c.parent_turn_id = :turn_id AND c.status = 'completed') > 1
    OR EXISTS (
        SELECT 1 FROM session_history h WHERE h.thread_id = :turn_id AND h.reason = 'fork'
    )
THEN 1 ELSE 0 END;

-- turns_below --
-- About how many turns stand at or below some turns.
<tails>
SELECT COALESCE(sum(1 + (
    SELECT max(p.depth) FROM places p WHERE p.segment_id = tail.segment_id
) - tail.from_depth), 0) FROM tail;

-- tails --
-- The segments at or below some turns, each with the depth at which it begins to be below.
<tails>
SELECT turn_id, segment_id, from_depth FROM tail;

-- heads --
-- Where every session points.
SELECT p.segment_id, p.depth, s.created_at, s.label, COALESCE(a.title, s.source_title)
FROM sessions s
JOIN places p ON p.turn_id = s.thread_id
LEFT JOIN annotations a ON a.session_label = s.label;

-- holders_by_heads --
-- The sessions whose thread holds a turn, for some turns.
<tails>
SELECT <holder_columns>
FROM sessions s
CROSS JOIN places p
CROSS JOIN tail
LEFT JOIN annotations a ON a.session_label = s.label
WHERE p.turn_id = s.thread_id AND tail.segment_id = p.segment_id AND tail.from_depth <= p.depth;

-- holders_by_turns --
-- The same, found from the turns.
<tails>
SELECT <holder_columns>
FROM tail
CROSS JOIN places p
CROSS JOIN sessions s
LEFT JOIN annotations a ON a.session_label = s.label
WHERE p.segment_id = tail.segment_id AND p.depth >= tail.from_depth AND s.thread_id = p.turn_id;

-- session_count --
-- Up to so many.
SELECT count(*) FROM (SELECT 1 FROM sessions LIMIT :limit) AS counted;

-- session_that_held --
-- The session that reached a turn first, or that writes it now.
SELECT s.label, COALESCE(a.title, s.source_title)
FROM (
    SELECT h.session_label AS label, h.id AS number FROM session_history h
    WHERE h.thread_id = :turn_id
    UNION ALL
    SELECT l.session_label, 0 FROM live_turns l WHERE l.turn_id = :turn_id
) AS held
JOIN sessions s ON s.label = held.label
LEFT JOIN annotations a ON a.session_label = s.label
ORDER BY held.number LIMIT 1;

-- indexed_count --
-- Up to so many.
SELECT count(*) FROM (SELECT 1 FROM search_docs LIMIT :limit) AS counted;

-- recent_titles --
-- Of the sessions that changed last, with their ends and the numbers of these in the index.
SELECT COALESCE(a.title, s.source_title), t.id, t.started_at, p.segment_id, p.depth, d.id
FROM (
    SELECT label, thread_id, source_title FROM sessions ORDER BY updated_at DESC LIMIT :limit
) AS s
JOIN places p ON p.turn_id = s.thread_id
JOIN turns t ON t.id = s.thread_id
LEFT JOIN annotations a ON a.session_label = s.label
LEFT JOIN search_docs d ON d.turn_id = s.thread_id
WHERE COALESCE(a.title, s.source_title) IS NOT NULL;

-- word_count --
-- How many turns have a word, up to so many of the newest, and the oldest of these: below it
-- search_newest does not look, so they must be the newest.
<matched>
SELECT count(*), min(counted.id)
FROM (SELECT m.id FROM matched m ORDER BY m.id DESC LIMIT :limit) AS counted;

-- last_segment --
-- About how many there are.
SELECT max(s.id) FROM segments s;

-- segments_above --
-- A segment and those it hangs on, each with how far down it belongs to the thread.
WITH RECURSIVE chain (segment_id, upto) AS (
    SELECT s.id, CAST(9223372036854775807 AS BIGINT) FROM segments s WHERE s.id = :segment_id
    UNION ALL
    SELECT g.parent_id, g.fork_depth
    FROM chain JOIN segments g ON g.id = chain.segment_id
    WHERE g.parent_id IS NOT NULL
)
SELECT segment_id, upto FROM chain;

-- segment_end --
-- The last turns of a segment that others may hang on.
SELECT p.depth, p.turn_id
FROM places p JOIN turns t ON t.id = p.turn_id
WHERE p.segment_id = :segment_id AND t.status = 'completed'
ORDER BY p.depth DESC LIMIT :limit;

-- turn_by_thread_key --
SELECT p.turn_id FROM places p WHERE p.thread_key = :key;

-- session_by_routing_key --
-- The one that moved last, where several have it.
SELECT s.label, s.thread_id FROM sessions s
WHERE s.routing_key = :key AND s.status = 'active'
ORDER BY s.updated_at DESC, s.label LIMIT 1;

-- docs_without_vector --
SELECT d.id, d.turn_id FROM search_docs d
WHERE d.turn_id IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM search_vectors v WHERE v.doc_id = d.id AND v.model = :model
)
ORDER BY d.id DESC LIMIT :limit;

-- insert_vector --
INSERT INTO search_vectors (doc_id, model, vector)
SELECT d.id, CAST(:model AS TEXT), CAST(:vector AS <floats>) FROM search_docs d WHERE d.id = :doc_id
ON CONFLICT (doc_id, model) DO NOTHING;

-- vector_count --
-- Up to so many.
SELECT count(*) FROM (
    SELECT 1 FROM search_vectors v WHERE v.model = :model LIMIT :limit
) AS counted;

-- vector_length --
SELECT <vector_length> FROM search_vectors v WHERE v.model = :model LIMIT 1;

-- vectors --
SELECT d.id, d.turn_id, p.segment_id, p.depth, <vector_bytes>
FROM search_vectors v
JOIN search_docs d ON d.id = v.doc_id
JOIN places p ON p.turn_id = d.turn_id
WHERE v.model = :model AND v.doc_id >= :low AND v.doc_id < :high
AND <is_indexed>
ORDER BY v.doc_id DESC LIMIT :limit;

-- following_calls --
-- The calls of some turns of a segment, in order.
SELECT
    c.turn_id, c.tool_name, c.status, c.params_json, c.result_json, c.error, c.sequence,
    c.started_at
FROM places p JOIN tool_calls c ON c.turn_id = p.turn_id
WHERE p.segment_id = :segment_id AND p.depth BETWEEN :from_depth AND :to_depth
ORDER BY p.depth, c.sequence LIMIT :limit;
