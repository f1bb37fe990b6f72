-- The word index, the turns that are in it, and those that wait for it.

CREATE TABLE search_docs (
    id <serial_key>,
    turn_id TEXT REFERENCES turns (id) DEFERRABLE INITIALLY IMMEDIATE
);
CREATE UNIQUE INDEX idx_search_docs_turn ON search_docs (turn_id) WHERE turn_id IS NOT NULL;
CREATE TABLE search_waiting (
    turn_id TEXT PRIMARY KEY
) <clustered>;
<words_table>;
<words_lookup>;
INSERT INTO search_waiting (turn_id) SELECT id FROM turns;
