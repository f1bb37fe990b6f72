-- The log of evidence.

-- insert_evidence --
-- With the last move of a session, if a label is passed.
INSERT INTO evidence (kind, subject, move_id, opening, hash, payload) VALUES (
    :kind, :subject,
    (SELECT max(h.id) FROM session_history h WHERE h.session_label = CAST(:label AS TEXT)),
    :opening, :hash, :payload
);

-- move_to_cover --
-- The last of a session, and whether it leads to a turn derived from source records.
SELECT h.thread_id, h.changed_at, h.reason, COALESCE(t.projected, 0)
FROM session_history h LEFT JOIN turns t ON t.id = h.thread_id
WHERE h.session_label = :label
ORDER BY h.id DESC LIMIT 1;

-- evidence_from --
-- The next leaves of the log.
SELECT position, kind, subject, move_id, opening, hash, payload FROM evidence
WHERE position > :after ORDER BY position LIMIT :limit;

-- evidence_of --
-- The leaves of a turn, a block or a session, and what was removed of it.
SELECT position, kind, subject, move_id, opening, hash, payload FROM evidence
WHERE subject = :subject ORDER BY position;

-- evidence_hashes --
-- The leaf hashes of the log, in order.
SELECT hash FROM evidence WHERE position > :after AND position <= :upto ORDER BY position;

-- evidence_size --
-- The position of the last leaf, and how many are not sequenced yet.
SELECT
    COALESCE((SELECT max(position) FROM evidence WHERE position > 0), 0),
    (SELECT count(*) FROM evidence WHERE position < 0);

-- evidence_renames --
-- Labels of sessions, and those they had before.
SELECT h.session_label, e.payload FROM evidence e JOIN session_history h ON h.id = e.move_id
WHERE e.kind = 'move' AND e.payload IS NOT NULL;

-- evidence_removals --
-- What was redacted or purged, in order.
SELECT position, kind, subject, opening, payload FROM evidence
WHERE kind IN ('redaction', 'purge') ORDER BY ABS(position);

-- evidence_coverage --
SELECT position, payload FROM evidence WHERE kind = 'coverage' ORDER BY position LIMIT 1;

-- uncovered_turns --
-- Sealed turns of ours without a leaf, after one of them.
SELECT t.id FROM turns t
WHERE t.id > :after AND t.projected = 0 AND t.status IN ('completed', 'failed')
AND NOT EXISTS (SELECT 1 FROM evidence e WHERE e.subject = t.id AND e.kind = 'turn')
ORDER BY t.id LIMIT :limit;

-- uncovered_blocks --
-- Blocks of source records without a leaf.
SELECT b.file_id, f.path, f.generation, b.start, b.length
FROM source_blocks b JOIN source_files f ON f.id = b.file_id
WHERE b.file_id > :after AND NOT EXISTS (
    SELECT 1 FROM evidence e
    WHERE e.subject = CAST(b.file_id AS TEXT) || '/' || CAST(b.start AS TEXT) AND e.kind = 'source'
)
ORDER BY b.file_id, b.start LIMIT :limit;

-- lock_evidence --
-- Positions are given by one at a time; where the whole database has one writer, that is so already.
<lock_evidence>;

-- sequence_evidence --
-- The next leaves that wait, in the order they were written: their numbers count down.
UPDATE evidence SET position = waiting.place
FROM (
    SELECT
        e.position AS number,
        (SELECT CASE WHEN max(l.position) > 0 THEN max(l.position) ELSE 0 END FROM evidence l)
            + row_number() OVER (ORDER BY e.position DESC) AS place
    FROM (
        SELECT position FROM evidence WHERE position < 0 ORDER BY position DESC LIMIT :limit
    ) e
) waiting
WHERE evidence.position = waiting.number;

-- all_moves --
SELECT id, session_label FROM session_history;

-- moves_between --
SELECT h.id, h.session_label, h.thread_id, h.changed_at, h.reason, COALESCE(t.projected, 0)
FROM session_history h LEFT JOIN turns t ON t.id = h.thread_id
WHERE h.id > :after AND h.id <= :upto ORDER BY h.id LIMIT :limit;

-- insert_move_evidence --
INSERT INTO evidence (kind, subject, move_id, hash) VALUES ('move', :subject, :move_id, :hash);

-- expect_sealing --
-- What was copied from a ledger without evidence is sealed in the background.
INSERT INTO ledger_settings (name, value, changed_at)
SELECT x.name, x.value, :now FROM (
    SELECT 'evidence' AS name, 'behind' AS value
    UNION ALL
    SELECT 'evidence.moves', '0 ' || COALESCE((SELECT max(h.id) FROM session_history h), 0)
) x
WHERE NOT EXISTS (SELECT 1 FROM evidence) AND NOT EXISTS (SELECT 1 FROM ledger_settings s WHERE s.name = 'evidence')
AND (EXISTS (SELECT 1 FROM turns) OR EXISTS (SELECT 1 FROM sessions) OR EXISTS (SELECT 1 FROM source_files));

-- latest_checkpoint --
SELECT size, peaks, note, taken_at FROM evidence_checkpoints ORDER BY size DESC LIMIT 1;

-- checkpoint_notes --
SELECT note FROM evidence_checkpoints ORDER BY size;

-- insert_checkpoint --
INSERT INTO evidence_checkpoints (size, peaks, note, taken_at)
VALUES (:size, :peaks, :note, :taken_at) ON CONFLICT DO NOTHING;

-- set_opening --
UPDATE evidence SET opening = :opening WHERE position = :position;

-- blocks_of_turn --
-- The blocks of source records that an imported turn was derived from.
SELECT CAST(b.file_id AS TEXT) || '/' || CAST(b.start AS TEXT)
FROM turn_sources x JOIN source_blocks b ON b.file_id = x.file_id
WHERE x.turn_id = :turn_id ORDER BY b.file_id, b.start;

-- imported_turns --
-- Those derived from source records that are not continued here.
SELECT t.id FROM turns t
WHERE t.id > :after AND t.projected = 1
AND EXISTS (SELECT 1 FROM turn_sources x WHERE x.turn_id = t.id)
AND NOT EXISTS (SELECT 1 FROM frozen_turns f WHERE f.id = t.id)
ORDER BY t.id LIMIT :limit;

-- derive_all_again --
UPDATE source_files SET derived_bytes = -1, derived_version = 0;
