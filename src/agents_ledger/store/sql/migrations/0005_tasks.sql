-- Tasks of the Agent Bus.

-- Tasks of the Agent Bus: what was saved is the record, their sessions and turns are derived from it.
-- The views tasks, calls and task_messages carry the seed's columns.
CREATE TABLE bus_tasks (
    id TEXT PRIMARY KEY,
    parent_task_id TEXT REFERENCES bus_tasks (id) DEFERRABLE INITIALLY IMMEDIATE,
    completion_status TEXT,           -- NULL: in progress
    system_prompt_hash TEXT NOT NULL REFERENCES system_prompts (hash) DEFERRABLE INITIALLY IMMEDIATE,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    session_label TEXT NOT NULL UNIQUE REFERENCES sessions (label) DEFERRABLE INITIALLY IMMEDIATE,
    head_turn_id TEXT REFERENCES turns (id) DEFERRABLE INITIALLY IMMEDIATE -- put there by the bus: it moves no other
);
CREATE INDEX idx_bus_tasks_created ON bus_tasks (created_at, id);
CREATE INDEX idx_bus_tasks_updated ON bus_tasks (updated_at);
CREATE INDEX idx_bus_tasks_status ON bus_tasks (completion_status, created_at, id);
CREATE INDEX idx_bus_tasks_parent ON bus_tasks (parent_task_id, created_at, id);

-- Their order within a task is time, then position. partial: cut short when its writer died.
CREATE TABLE bus_messages (
    position <serial_key>,
    id TEXT NOT NULL UNIQUE,
    task_id TEXT NOT NULL REFERENCES bus_tasks (id) DEFERRABLE INITIALLY IMMEDIATE,
    role TEXT NOT NULL CHECK (role IN ('system', 'user', 'assistant')),
    content TEXT NOT NULL,
    timestamp BIGINT NOT NULL,
    partial BIGINT NOT NULL DEFAULT 0,
    turn_id TEXT REFERENCES turns (id) DEFERRABLE INITIALLY IMMEDIATE
);
CREATE INDEX idx_bus_messages_task ON bus_messages (task_id, timestamp, position);
CREATE INDEX idx_bus_messages_turn ON bus_messages (turn_id, timestamp, position);

-- writer_id: the process that executes a call in progress. If it dies, the call failed.
CREATE TABLE bus_calls (
    position <serial_key>,
    id TEXT NOT NULL UNIQUE,
    task_id TEXT NOT NULL REFERENCES bus_tasks (id) DEFERRABLE INITIALLY IMMEDIATE,
    ability_name TEXT NOT NULL,
    parameters TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('pending', 'in_progress', 'completed', 'failed')),
    details TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    start_message_id TEXT NOT NULL REFERENCES bus_messages (id) DEFERRABLE INITIALLY IMMEDIATE,
    end_message_id TEXT REFERENCES bus_messages (id) DEFERRABLE INITIALLY IMMEDIATE,
    writer_id TEXT REFERENCES writers (id) DEFERRABLE INITIALLY IMMEDIATE,
    revision BIGINT NOT NULL DEFAULT 0,
    derived_revision BIGINT           -- as its turn has it; NULL: not yet
);
CREATE INDEX idx_bus_calls_task ON bus_calls (task_id, created_at, position);
CREATE INDEX idx_bus_calls_created ON bus_calls (created_at);
CREATE INDEX idx_bus_calls_start ON bus_calls (start_message_id);
CREATE INDEX idx_bus_calls_in_progress ON bus_calls (task_id) WHERE status = 'in_progress';
CREATE INDEX idx_bus_calls_writer ON bus_calls (writer_id) WHERE writer_id IS NOT NULL;

-- Which task a projected turn was derived from.
CREATE TABLE bus_turns (
    turn_id TEXT PRIMARY KEY REFERENCES turns (id) DEFERRABLE INITIALLY IMMEDIATE,
    task_id TEXT NOT NULL REFERENCES bus_tasks (id) DEFERRABLE INITIALLY IMMEDIATE
);
CREATE INDEX idx_bus_turns_task ON bus_turns (task_id);

-- Messages that stream in now, under the id they will have; their text comes in pieces.
CREATE TABLE bus_streams (
    id TEXT PRIMARY KEY,
    task_id TEXT NOT NULL REFERENCES bus_tasks (id) DEFERRABLE INITIALLY IMMEDIATE,
    writer_id TEXT NOT NULL REFERENCES writers (id) DEFERRABLE INITIALLY IMMEDIATE,
    turn_id TEXT REFERENCES turns (id) DEFERRABLE INITIALLY IMMEDIATE
);
CREATE INDEX idx_bus_streams_task ON bus_streams (task_id);
CREATE INDEX idx_bus_streams_turn ON bus_streams (turn_id);
CREATE INDEX idx_bus_streams_writer ON bus_streams (writer_id);

CREATE TABLE bus_stream_texts (
    stream_id TEXT NOT NULL REFERENCES bus_streams (id) DEFERRABLE INITIALLY IMMEDIATE,
    piece BIGINT NOT NULL,
    content TEXT NOT NULL,
    PRIMARY KEY (stream_id, piece)
);
