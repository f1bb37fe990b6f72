-- What was said, without what tools did.

-- thread_events --
-- Of the last turns of a thread, in no order.
<range>
SELECT e.id, e.timestamp, e.channel, e.direction, e.content, e.thread_id, e.source_adapter,
    e.source_id, e.metadata_json, p.depth
FROM range
CROSS JOIN places p
CROSS JOIN events e
WHERE p.segment_id = range.segment_id AND p.depth BETWEEN :from_depth AND range.upto
AND e.thread_id = p.turn_id;

-- events_between --
-- Of the turns that started between two times.
SELECT e.id, e.timestamp, e.channel, e.direction, e.content, e.thread_id, e.source_adapter,
    e.source_id, e.metadata_json, p.depth
FROM (
    SELECT t.id, t.started_at FROM turns t
    WHERE t.started_at >= :since AND t.started_at < :until
    ORDER BY t.started_at, t.id LIMIT :limit
) AS t
CROSS JOIN places p
CROSS JOIN events e
WHERE p.turn_id = t.id AND e.thread_id = t.id;
