-- The word index on SQLite: FTS5 without a copy of the text. Beside search.postgres.sql.

-- words_table --
CREATE VIRTUAL TABLE search_index USING fts5 (
    user, assistant, thinking, system, tool_call, tool_result, project, model, tool, file, state,
    content='', tokenize='unicode61 remove_diacritics 2'
)

-- words_lookup --
SELECT 1

-- words_settings --
-- Runs of the index are merged by ten: by four, as is usual, each word is written half as often
-- again, and what the merged runs leave stays empty for long. What one commit adds is one run.
INSERT INTO search_index (search_index, rank) VALUES ('automerge', 10), ('hashsize', 8388608)

-- new_doc --
-- The first number behind those taken. No row returned: there is none below :high.
INSERT INTO search_docs (id, turn_id)
SELECT next.id, :turn_id
FROM (
    SELECT COALESCE(
        (
            SELECT d.id + 1 FROM search_docs d
            WHERE d.id >= :low AND d.id < :high
            ORDER BY d.id DESC LIMIT 1  -- max() would look at all of them
        ),
        :low
    ) AS id
) AS next
WHERE next.id < :high
RETURNING id

-- new_docs --
-- Many at once is for a server, as are pieces.
SELECT 1

-- insert_pieces --
SELECT 1

-- numbers_taken --
SELECT count(*) FROM search_docs WHERE id IN (SELECT value FROM json_each(:numbers))

-- insert_words --
INSERT INTO search_index (
    rowid, user, assistant, thinking, system, tool_call, tool_result, project, model, tool, file,
    state
) VALUES (
    :id, :user, :assistant, :thinking, :system, :tool_call, :tool_result, :project, :model, :tool,
    :file, :state
)

-- forget_words --
INSERT INTO search_index (search_index) VALUES ('delete-all')

-- forget_docs --
-- The index cannot forget words without their text, so the number stays taken and leads nowhere.
UPDATE search_docs SET turn_id = NULL WHERE turn_id IN <ids>

-- matched --
WITH matched (id) AS (
    SELECT rowid FROM search_index
    WHERE search_index MATCH :match AND rowid >= :low AND rowid < :high
)

-- matched_each --
SELECT asked.key, search_index.rowid FROM json_each(:matches) AS asked CROSS JOIN search_index
WHERE search_index MATCH json_extract(asked.value, '$.match')
AND search_index.rowid >= json_extract(asked.value, '$.low')
AND search_index.rowid < json_extract(asked.value, '$.high')

-- ranked --
WITH matched (id, score) AS (
    SELECT rowid, -bm25(search_index, <part_weights>)
    FROM search_index
    WHERE search_index MATCH :match AND rowid >= :low AND rowid < :high
)
