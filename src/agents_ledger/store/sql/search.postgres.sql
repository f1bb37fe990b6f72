-- The word index on PostgreSQL: a tsvector for each part of a turn, long parts in pieces. Beside
-- search.sqlite.sql.

-- words_table --
CREATE TABLE search_words (
    doc_id BIGINT NOT NULL REFERENCES search_docs (id) ON DELETE CASCADE,
    part TEXT NOT NULL,
    piece BIGINT NOT NULL,
    words TSVECTOR NOT NULL,
    PRIMARY KEY (doc_id, part, piece)
)

-- words_lookup --
CREATE INDEX idx_search_words ON search_words USING GIN (words)

-- words_settings --
SELECT 1

-- new_doc --
-- One by one is for SQLite.
SELECT 1

-- new_docs --
-- Numbers that others are unlikely to take meanwhile. No row returned: that one is taken.
INSERT INTO search_docs (id, turn_id)
SELECT
    w.low + ((CAST(hashtext(w.turn_id) AS BIGINT) + :tried) & (CAST(:room AS BIGINT) - 1)),
    w.turn_id
FROM json_to_recordset(CAST(:docs AS JSON)) AS w (turn_id TEXT, low BIGINT)
ON CONFLICT (id) DO NOTHING
RETURNING id, turn_id

-- numbers_taken --
-- Of no use here: others may take them meanwhile.
SELECT 1

-- insert_words --
SELECT 1

-- insert_pieces --
INSERT INTO search_words (doc_id, part, piece, words)
SELECT w.id, w.part, w.piece, CAST(w.words AS TSVECTOR)
FROM json_to_recordset(CAST(:pieces AS JSON)) AS w (id BIGINT, part TEXT, piece BIGINT, words TEXT)

-- forget_words --
DELETE FROM search_words

-- forget_docs --
DELETE FROM search_docs WHERE turn_id IN <ids>

-- matched --
-- Every group that is asked for, and nothing of group 0.
WITH asked (n, parts, words) AS (
    SELECT q.n, q.parts, CAST(q.words AS TSQUERY)
    FROM json_to_recordset(CAST(:match AS JSON)) AS q (n BIGINT, parts TEXT, words TEXT)
), matched (id) AS (
    SELECT w.doc_id
    FROM asked q
    JOIN search_words w ON w.words @@ q.words AND strpos(q.parts, ' ' || w.part || ' ') > 0
    WHERE w.doc_id >= :low AND w.doc_id < :high
    GROUP BY w.doc_id
    HAVING count(DISTINCT q.n) FILTER (WHERE q.n > 0)
        = (SELECT count(DISTINCT n) FROM asked WHERE n > 0)
    AND NOT bool_or(q.n = 0)
)

-- matched_each --
-- Each match that is asked for, by itself.
SELECT a.n - 1, w.doc_id
FROM json_array_elements(CAST(:matches AS JSON)) WITH ORDINALITY AS a (asked, n)
CROSS JOIN LATERAL json_to_record(a.asked) AS r (low BIGINT, high BIGINT, match TEXT)
CROSS JOIN LATERAL json_to_recordset(CAST(r.match AS JSON)) AS q (parts TEXT, words TEXT)
JOIN search_words w
ON w.words @@ CAST(q.words AS TSQUERY) AND strpos(q.parts, ' ' || w.part || ' ') > 0
WHERE w.doc_id >= r.low AND w.doc_id < r.high

-- ranked --
-- As matched; words that few have weigh more.
WITH asked (n, parts, words) AS (
    SELECT q.n, q.parts, CAST(q.words AS TSQUERY)
    FROM json_to_recordset(CAST(:match AS JSON)) AS q (n BIGINT, parts TEXT, words TEXT)
), found (id, n, score, words) AS (
    SELECT w.doc_id, q.n, ts_rank(w.words, q.words, 1) * <part_weights>, q.words
    FROM asked q
    JOIN search_words w ON w.words @@ q.words AND strpos(q.parts, ' ' || w.part || ' ') > 0
    WHERE w.doc_id >= :low AND w.doc_id < :high
), rarity (words, weight) AS (
    SELECT f.words, ln(1 + (SELECT count(*) FROM search_docs) / count(DISTINCT f.id))
    FROM found f GROUP BY f.words
), matched (id, score) AS (
    SELECT f.id, sum(f.score * r.weight)
    FROM found f JOIN rarity r ON r.words = f.words
    GROUP BY f.id
    HAVING count(DISTINCT f.n) FILTER (WHERE f.n > 0)
        = (SELECT count(DISTINCT n) FROM asked WHERE n > 0)
    AND NOT bool_or(f.n = 0)
)
