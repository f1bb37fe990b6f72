-- Lines of what waits to be asked, one per session.

-- queue_entry --
SELECT <queue_columns>, q.request_hash FROM queue q WHERE q.id = :id;

-- entries_by_prefix --
-- At most three: one is the answer, more are ambiguous. The upper end closes the range of the prefix.
SELECT <queue_columns> FROM queue q WHERE q.id >= :prefix AND q.id < :upper ORDER BY q.id LIMIT 3;

-- insert_queue_entry --
INSERT INTO queue (
    id, session_label, mode, status, enqueued_at, ready_at, error, ask_json, request_hash
) VALUES (
    :id, :session_label, :mode, :status, :enqueued_at, :ready_at, :error, :ask_json, :request_hash
);

-- waiting_count --
SELECT count(*) FROM queue WHERE session_label = :label AND status = 'waiting';

-- waiting_entries --
-- The beginning of a session's line.
SELECT <queue_columns> FROM queue q
WHERE q.session_label = :label AND q.status = 'waiting'
ORDER BY q.position LIMIT :limit;

-- first_waiting --
-- The first of a session's line, and how many in it interrupt.
SELECT <queue_columns>, (
    SELECT count(*) FROM queue i
    WHERE i.session_label = :label AND i.status = 'waiting' AND i.mode IN ('interrupt', 'steer')
    AND i.mode = 'interrupt'
)
FROM queue q
WHERE q.session_label = :label AND q.status = 'waiting'
ORDER BY q.position LIMIT 1;

-- delay_batch --
-- A batch waits for one more message, but none longer than patience_ms.
UPDATE queue SET ready_at = CASE
    WHEN enqueued_at + :patience_ms < :ready_at THEN enqueued_at + :patience_ms ELSE :ready_at END
WHERE session_label = :label AND status = 'waiting' AND mode = 'collect' AND ready_at > :now;

-- end_batch --
-- Nothing is collected past a message of another mode: what waited before it waits no longer.
UPDATE queue SET ready_at = :now
WHERE session_label = :label AND status = 'waiting' AND ready_at > :now;

-- leave_out --
UPDATE queue SET ask_json = :ask_json WHERE id = :id;

-- drop_entry --
UPDATE queue SET status = 'dropped', error = :error WHERE id = :id;

-- ready_session --
-- The session that waits longest and that nobody answers now; on a server, ours until we commit.
SELECT s.label FROM queue q JOIN sessions s ON s.label = q.session_label
WHERE q.status = 'waiting' AND q.ready_at <= :now
AND NOT EXISTS (
    SELECT 1 FROM queue c WHERE c.session_label = q.session_label AND c.status = 'claimed'
)
ORDER BY q.position LIMIT 1
<lock_idle>;

-- any_ready --
-- Whether a line is to be answered that nobody answers now.
SELECT 1 FROM queue q
WHERE q.status = 'waiting' AND q.ready_at <= :now
AND NOT EXISTS (
    SELECT 1 FROM queue c WHERE c.session_label = q.session_label AND c.status = 'claimed'
)
LIMIT 1;

-- is_claimed --
SELECT 1 FROM queue WHERE session_label = :label AND status = 'claimed' LIMIT 1;

-- claim_entries --
-- All that waits in a line up to a position.
UPDATE queue SET status = 'claimed', turn_id = :turn_id, writer_id = :writer_id
WHERE session_label = :label AND status = 'waiting' AND position <= :upto;

-- claim --
-- The entries that the turn of this id is to answer.
SELECT <queue_columns> FROM queue q
WHERE q.turn_id = :turn_id AND q.writer_id = :writer_id AND q.status = 'claimed'
ORDER BY q.position;

-- holds_claim --
-- No row: the claim was taken from us, because we seemed to be dead.
SELECT 1 FROM queue
WHERE turn_id = :turn_id AND writer_id = :writer_id AND status = 'claimed' LIMIT 1;

-- finish_entries --
-- The turn that answered them is sealed, or could not begin.
UPDATE queue SET
    status = :status, error = :error, writer_id = NULL,
    ask_json = CASE WHEN :status = 'done' THEN NULL ELSE ask_json END
WHERE turn_id = :turn_id AND writer_id = :writer_id AND status = 'claimed';

-- return_entries --
-- They are to be answered by another turn.
UPDATE queue SET status = 'waiting', turn_id = NULL, writer_id = NULL, stop_at = NULL
WHERE turn_id = :turn_id AND writer_id = :writer_id AND status = 'claimed';

-- retie_entries --
-- Another turn answers them, by the same writer.
UPDATE queue SET turn_id = :other WHERE turn_id = :turn_id AND status = 'claimed';

-- settle_claims --
-- Claims of a writer that is gone: what its turn answered is done or failed with it; what had not
-- begun waits again.
UPDATE queue SET
    status = COALESCE((
        SELECT CASE t.status WHEN 'completed' THEN 'done' ELSE 'failed' END
        FROM turns t WHERE t.id = queue.turn_id
    ), 'waiting'),
    error = (SELECT t.error FROM turns t WHERE t.id = queue.turn_id),
    turn_id = (SELECT t.id FROM turns t WHERE t.id = queue.turn_id),
    writer_id = NULL, stop_at = NULL
WHERE writer_id = :writer_id;

-- answer_in_passing --
-- A message for the turn that runs: it is part of it now. No row written: somebody else took it.
UPDATE queue SET status = 'done', turn_id = :turn_id, ask_json = NULL
WHERE id = :id AND status = 'waiting';

-- cancel_entry --
-- No row written: it waits no longer.
UPDATE queue SET status = 'cancelled', error = :error WHERE id = :id AND status = 'waiting';

-- stop_entries --
-- Asks whoever answers an entry to stop.
UPDATE queue SET stop_at = :now
WHERE turn_id = :turn_id AND status = 'claimed' AND stop_at IS NULL;

-- retry_entry --
UPDATE queue SET
    status = 'waiting', session_label = :label, turn_id = NULL, error = NULL, stop_at = NULL, ready_at = :now
WHERE id = :id AND status IN ('failed', 'cancelled', 'dropped');

-- claimed_turns --
-- The turns that answer a session's line now.
SELECT DISTINCT turn_id FROM queue WHERE session_label = :label AND status = 'claimed';

-- urgent_entries --
-- What whoever answers a line must notice at once: turns to be stopped, and messages that
-- interrupt or steer.
SELECT q.session_label, q.turn_id, 'stop' FROM queue q
WHERE q.status = 'claimed' AND q.stop_at IS NOT NULL
UNION ALL
SELECT q.session_label, q.id, q.mode FROM queue q
WHERE q.status = 'waiting' AND q.mode IN ('interrupt', 'steer');

-- queue_entries --
-- In the order of the lines: those waiting or being answered, or all.
SELECT <queue_columns> FROM queue q
WHERE (CAST(:label AS TEXT) IS NULL OR q.session_label = :label)
AND (:everything = 1 OR q.status IN ('waiting', 'claimed'))
AND q.position > :after
ORDER BY q.position LIMIT :limit;

-- last_answered --
-- The turn that answered a line last.
SELECT turn_id FROM queue
WHERE session_label = :label AND status IN ('done', 'failed', 'cancelled') AND turn_id IS NOT NULL
ORDER BY position DESC LIMIT 1;

-- lost_workers --
-- Workers whose task is not done though nothing is asked of them any more, with the last entry of
-- their line: its turn was failed for them, because its process died.
SELECT s.label, s.parent_session_label, q.turn_id, q.error
FROM sessions s JOIN queue q ON q.position = (
    SELECT max(x.position) FROM queue x WHERE x.session_label = s.label
)
WHERE s.is_subagent = 1 AND s.task_status IN ('pending', 'running')
AND q.status = 'failed' AND q.turn_id IS NOT NULL AND s.parent_session_label IS NOT NULL
AND NOT EXISTS (
    SELECT 1 FROM queue w
    WHERE w.session_label = s.label AND w.status IN ('waiting', 'claimed')
);

-- rollup --
-- What a session and all that were spawned below it used: each turn that answered their lines.
WITH RECURSIVE below (label) AS (
    SELECT label FROM sessions WHERE label = :label
    UNION
    SELECT s.label FROM below JOIN sessions s ON s.parent_session_label = below.label
), answered (turn_id) AS (
    SELECT DISTINCT q.turn_id FROM below JOIN queue q ON q.session_label = below.label
    WHERE q.turn_id IS NOT NULL
)
SELECT
    (SELECT count(*) FROM below), count(*),
    CAST(COALESCE(sum(t.input_tokens), 0) AS BIGINT),
    CAST(COALESCE(sum(t.output_tokens), 0) AS BIGINT),
    CAST(COALESCE(sum(t.total_tokens), 0) AS BIGINT),
    CAST(COALESCE(sum(t.completed_at - t.started_at), 0) AS BIGINT)
FROM answered a JOIN turns t ON t.id = a.turn_id;

-- repoint_queue --
UPDATE queue SET session_label = :to_label
WHERE session_label = :from_label AND status = 'waiting';
