-- Lines of what waits to be asked.

CREATE TABLE queue (
    position <serial_key>,
    id TEXT NOT NULL UNIQUE,
    session_label TEXT NOT NULL REFERENCES sessions (label) DEFERRABLE INITIALLY IMMEDIATE,
    mode TEXT NOT NULL CHECK (mode IN ('followup', 'collect', 'interrupt', 'steer')),
    status TEXT NOT NULL
        CHECK (status IN ('waiting', 'claimed', 'done', 'failed', 'cancelled', 'dropped')),
    enqueued_at BIGINT NOT NULL,
    ready_at BIGINT NOT NULL,         -- a batch waits until then for one more message
    turn_id TEXT,
    writer_id TEXT REFERENCES writers (id) DEFERRABLE INITIALLY IMMEDIATE,
    stop_at BIGINT,                   -- somebody wants its turn to stop, since then
    error TEXT,
    ask_json TEXT,                    -- NULL once its turn is completed and has it all
    request_hash <bytes> NOT NULL
);
CREATE INDEX idx_queue_session ON queue (session_label, position);
CREATE INDEX idx_queue_line ON queue (session_label, position) WHERE status = 'waiting';
CREATE INDEX idx_queue_waiting ON queue (position) WHERE status = 'waiting';
CREATE INDEX idx_queue_claimed ON queue (session_label) WHERE status = 'claimed';
CREATE INDEX idx_queue_urgent ON queue (session_label)
    WHERE status = 'waiting' AND mode IN ('interrupt', 'steer');
CREATE INDEX idx_queue_stopping ON queue (turn_id) WHERE status = 'claimed' AND stop_at IS NOT NULL;
CREATE INDEX idx_queue_writer ON queue (writer_id) WHERE writer_id IS NOT NULL;
CREATE INDEX idx_queue_turn ON queue (turn_id) WHERE turn_id IS NOT NULL;

CREATE INDEX idx_sessions_task ON sessions (label) WHERE task_status IN ('pending', 'running');
