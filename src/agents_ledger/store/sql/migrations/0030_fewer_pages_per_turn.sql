-- Indexes that every turn paid for, and that no statement of ours reads.
DROP INDEX IF EXISTS idx_tool_calls_tool;
DROP INDEX IF EXISTS idx_turns_leaf;
DROP INDEX IF EXISTS idx_places_persona;

-- Turns being written are few: the table is its own index.
CREATE TABLE kept_live_turns AS SELECT turn_id, writer_id, session_label FROM live_turns;
CREATE TABLE kept_partial_texts AS SELECT turn_id, piece, content FROM partial_texts;
DROP TABLE partial_texts;
DROP TABLE live_turns;
CREATE TABLE live_turns (
    turn_id TEXT PRIMARY KEY REFERENCES turns (id) DEFERRABLE INITIALLY IMMEDIATE,
    writer_id TEXT NOT NULL REFERENCES writers (id) DEFERRABLE INITIALLY IMMEDIATE,
    session_label TEXT NOT NULL REFERENCES sessions (label) DEFERRABLE INITIALLY IMMEDIATE
) <clustered>;
CREATE TABLE partial_texts (
    turn_id TEXT NOT NULL REFERENCES live_turns (turn_id) DEFERRABLE INITIALLY IMMEDIATE,
    piece BIGINT NOT NULL,
    content TEXT NOT NULL,
    PRIMARY KEY (turn_id, piece)
);
INSERT INTO live_turns (turn_id, writer_id, session_label)
SELECT turn_id, writer_id, session_label FROM kept_live_turns;
INSERT INTO partial_texts (turn_id, piece, content)
SELECT turn_id, piece, content FROM kept_partial_texts;
DROP TABLE kept_partial_texts;
DROP TABLE kept_live_turns;
