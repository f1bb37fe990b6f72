-- The whole schema of a ledger today: one text for SQLite and PostgreSQL.
--
-- New ledgers are made from this file, older ones brought here by the numbered files in migrations/; a test compares
-- their sum with it.
-- Some words stand for what the engines spell differently (store/migrations.py): <serial_key>, <log_key>,
-- <bytes>, and <clustered>, which keeps a table in the order of its primary key where that exists.
--
-- Times are Unix milliseconds, flags are 0 or 1. JSON is text, kept as it came. Foreign keys can be deferred, so that
-- `copy` may write a tree in any order; nothing else defers them, because a group commit has to
-- learn of a violation at the statement that causes it.
-- Lookups by a word of few values have one partial index per rare word: the common word would be
-- found faster by reading the table, and every turn would pay for keeping it in an index.

CREATE TABLE schema_migrations (
    number BIGINT PRIMARY KEY,        -- of the migration's file
    name TEXT NOT NULL,               -- of the migration's file
    applied_at BIGINT NOT NULL
);

-- One exchange: what was asked, what the agent did, what it answered. Turns form trees.
CREATE TABLE turns (
    id TEXT PRIMARY KEY,              -- ULID of a native turn; derived from the source's ids for an imported one
    parent_turn_id TEXT REFERENCES turns (id) DEFERRABLE INITIALLY IMMEDIATE, -- NULL for a root
    turn_type TEXT NOT NULL DEFAULT 'normal' CHECK (turn_type IN ('normal', 'compaction')),
    status TEXT NOT NULL DEFAULT 'pending' -- completed and failed turns are sealed
        CHECK (status IN ('pending', 'streaming', 'completed', 'failed')),
    started_at BIGINT NOT NULL,
    completed_at BIGINT,              -- NULL while it is live
    model TEXT,                       -- that answered
    provider TEXT,                    -- of the model
    role TEXT NOT NULL DEFAULT 'unified' CHECK (role IN ('manager', 'worker', 'unified')),
    toolset_name TEXT,                -- the toolset of the policy it ran with
    tools_available TEXT,             -- JSON list of tool names
    permissions_granted TEXT,         -- JSON; see the guide to the broker
    permissions_used TEXT,            -- JSON; see the guide to the broker
    input_tokens BIGINT,              -- with cached ones; NULL: unknown, never 0
    output_tokens BIGINT,             -- with reasoning ones
    cached_input_tokens BIGINT,       -- read from the provider's cache
    cache_write_tokens BIGINT,        -- written to the provider's cache
    reasoning_tokens BIGINT,
    total_tokens BIGINT,
    query_message_ids TEXT,           -- JSON list of the messages that asked
    response_message_id TEXT,         -- the message that answered
    has_children BIGINT NOT NULL DEFAULT 0, -- a turn has this one as parent
    tool_call_count BIGINT NOT NULL DEFAULT 0,
    source_event_id TEXT,             -- the outside event that triggered it
    workspace_path TEXT,              -- the folder it worked in
    effective_config_json TEXT,       -- the configuration, with the origin of each value
    error TEXT,                       -- why a failed turn failed
    projected BIGINT NOT NULL DEFAULT 0, -- derived from source records or tasks: may be derived again
    request_hash <bytes>,             -- of what the caller passed; tells a retry from another turn of that id
    long_cache_write_tokens BIGINT      -- of cache_write_tokens, those kept for an hour instead of minutes
);
CREATE INDEX idx_turns_parent ON turns (parent_turn_id);
CREATE INDEX idx_turns_started ON turns (started_at);
CREATE INDEX idx_turns_compaction ON turns (started_at) WHERE turn_type = 'compaction';
CREATE INDEX idx_turns_pending ON turns (started_at) WHERE status = 'pending';
CREATE INDEX idx_turns_streaming ON turns (started_at) WHERE status = 'streaming';
CREATE INDEX idx_turns_failed ON turns (started_at) WHERE status = 'failed';
CREATE INDEX idx_turns_manager ON turns (started_at) WHERE role = 'manager';
CREATE INDEX idx_turns_worker ON turns (started_at) WHERE role = 'worker';
CREATE INDEX idx_turns_source_event ON turns (source_event_id) WHERE source_event_id IS NOT NULL;

-- A segment is a run of turns, each the first completed child of its parent. A further child
-- opens a segment that branches off its parent segment at fork_depth. jump_id leads to a segment further
-- up, jump_depth is the depth at which our path leaves it: any ancestor is O(log forks) away.
CREATE TABLE segments (
    id <serial_key>,
    parent_id BIGINT REFERENCES segments (id) DEFERRABLE INITIALLY IMMEDIATE, -- NULL for the segment of a root
    fork_depth BIGINT NOT NULL,       -- depth of the turn it branches off
    level BIGINT NOT NULL,            -- number of segments above it
    jump_id BIGINT,                   -- a segment further up
    jump_depth BIGINT,                -- where the path to the root leaves that segment
    frozen_depth BIGINT NOT NULL DEFAULT 0 -- projected turns down to here carry native ones: sealed
);
CREATE INDEX idx_segments_parent ON segments (parent_id, fork_depth);
CREATE INDEX idx_segments_frozen ON segments (frozen_depth) WHERE frozen_depth > 0;

-- Where a turn stands, and its thread's metrics: the sums over the turn and all its ancestors.
-- An array of ancestors per turn would be quadratic; the view `threads` computes it when asked.
CREATE TABLE places (
    segment_id BIGINT NOT NULL REFERENCES segments (id) DEFERRABLE INITIALLY IMMEDIATE,
    depth BIGINT NOT NULL,            -- 1 for a root
    turn_id TEXT NOT NULL UNIQUE REFERENCES turns (id) DEFERRABLE INITIALLY IMMEDIATE,
    input_tokens BIGINT NOT NULL,     -- sum over the thread, as all that follow
    output_tokens BIGINT NOT NULL,
    cached_input_tokens BIGINT NOT NULL,
    cache_write_tokens BIGINT NOT NULL,
    reasoning_tokens BIGINT NOT NULL,
    total_tokens BIGINT NOT NULL,
    compaction_count BIGINT NOT NULL,
    compaction_turn_id TEXT,          -- the latest compaction on the thread
    model TEXT,                       -- the latest said
    provider TEXT,
    persona_id TEXT,                  -- of the session it was recorded on
    system_prompt_hash TEXT,          -- the prompt in force
    thread_key TEXT,                  -- key by which programs address the thread
    PRIMARY KEY (segment_id, depth)
) <clustered>;
CREATE UNIQUE INDEX idx_places_key ON places (thread_key) WHERE thread_key IS NOT NULL;

-- System prompts are long and repeat: each is stored once.
CREATE TABLE system_prompts (
    hash TEXT PRIMARY KEY,            -- SHA-256 of the content
    content TEXT NOT NULL
);

-- A label that points to the head of a thread; never a container. thread_id NULL: empty.
CREATE TABLE sessions (
    label TEXT PRIMARY KEY,           -- the session's name
    thread_id TEXT REFERENCES places (turn_id) DEFERRABLE INITIALLY IMMEDIATE, -- its head: the id of a turn; NULL: empty
    persona_id TEXT NOT NULL DEFAULT 'main',
    agent_id TEXT,
    created_as TEXT NOT NULL DEFAULT 'user'
        CHECK (created_as IN ('user', 'system', 'subagent', 'fork', 'import')),
    is_subagent BIGINT NOT NULL DEFAULT 0,
    parent_session_label TEXT REFERENCES sessions (label) DEFERRABLE INITIALLY IMMEDIATE, -- of a subagent: the session that started it
    parent_turn_id TEXT REFERENCES turns (id) DEFERRABLE INITIALLY IMMEDIATE, -- of a subagent: the turn that started it
    spawn_tool_call_id TEXT,          -- of a subagent: the call that started it
    task_description TEXT,            -- what a subagent was asked to do
    task_status TEXT
        CHECK (task_status IN ('pending', 'running', 'completed', 'failed', 'cancelled')),
    routing_key TEXT,                 -- key by which programs address the session
    origin TEXT,                      -- the source it was imported from; native: recorded here
    origin_session_id TEXT,           -- its id there
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    status TEXT NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'archived', 'deleted')),
    source_title TEXT,                -- what the source calls it; people's own title is an annotation
    metadata_json TEXT,               -- what else the source says of it
    source_has_more BIGINT NOT NULL DEFAULT 0 -- the source went on after it was continued here
);
-- Its id in the views agent_*.
CREATE INDEX idx_sessions_known_as ON sessions (COALESCE(origin_session_id, label));
CREATE INDEX idx_sessions_persona ON sessions (persona_id);
CREATE INDEX idx_sessions_routing ON sessions (routing_key) WHERE routing_key IS NOT NULL;
CREATE INDEX idx_sessions_updated ON sessions (updated_at);
CREATE INDEX idx_sessions_head ON sessions (thread_id);
CREATE INDEX idx_sessions_parent ON sessions (parent_session_label)
    WHERE parent_session_label IS NOT NULL;
CREATE INDEX idx_sessions_parent_turn ON sessions (parent_turn_id)
    WHERE parent_turn_id IS NOT NULL;
CREATE INDEX idx_sessions_task ON sessions (label) WHERE task_status IN ('pending', 'running');
CREATE INDEX idx_sessions_deleted ON sessions (label) WHERE status = 'deleted';
CREATE INDEX idx_sessions_origin ON sessions (origin, origin_session_id) WHERE origin IS NOT NULL;

-- Every key a session answers to, its own label among them: one table, so that an alias and a label
-- cannot shadow each other. reason is NULL for a label that stands for itself.
CREATE TABLE names (
    name TEXT PRIMARY KEY,            -- a label or an alias
    session_label TEXT NOT NULL REFERENCES sessions (label) DEFERRABLE INITIALLY IMMEDIATE,
    created_at BIGINT NOT NULL,
    reason TEXT                       -- why the alias was made; NULL: it is the label itself
);
CREATE INDEX idx_names_session ON names (session_label);

-- What people write on a session: not part of the record.
CREATE TABLE annotations (
    session_label TEXT PRIMARY KEY REFERENCES sessions (label) DEFERRABLE INITIALLY IMMEDIATE,
    title TEXT,
    starred BIGINT NOT NULL DEFAULT 0,
    note TEXT
);

-- Every move of every session's head, in the order of id. thread_id NULL: it became empty.
CREATE TABLE session_history (
    id <serial_key>,                  -- orders the moves
    session_label TEXT NOT NULL REFERENCES sessions (label) DEFERRABLE INITIALLY IMMEDIATE,
    thread_id TEXT REFERENCES places (turn_id) DEFERRABLE INITIALLY IMMEDIATE, -- the new head; NULL: emptied
    changed_at BIGINT NOT NULL,
    reason TEXT NOT NULL              -- record, fork, move, rollback, undo, clear, import, rename, merge or unmerge
);
CREATE INDEX idx_session_history_label ON session_history (session_label, id, changed_at);
CREATE INDEX idx_session_history_thread ON session_history (thread_id);

CREATE TABLE messages (
    id TEXT PRIMARY KEY,
    turn_id TEXT NOT NULL REFERENCES turns (id) DEFERRABLE INITIALLY IMMEDIATE,
    role TEXT NOT NULL CHECK (role IN ('user', 'assistant', 'system', 'tool')),
    content TEXT,
    source TEXT,                      -- who began it: human, agent, cron ...
    sequence BIGINT NOT NULL,         -- one count per turn over messages and tool calls
    created_at BIGINT NOT NULL,
    thinking TEXT,
    context_json TEXT,                -- what the source attached to a prompt
    metadata_json TEXT,               -- what else the source recorded
    tool_call_id TEXT,                -- the call a tool message answers
    has_details BIGINT NOT NULL DEFAULT 0, -- it has files, lints or codeblocks: reads look only then
    task_id TEXT,                     -- the task of the bus it was saved in; its id there is without 'task:'
    timestamp BIGINT                  -- of a message of a task: created_at by the task's name for it
);
CREATE UNIQUE INDEX idx_messages_turn ON messages (turn_id, sequence);
CREATE INDEX idx_messages_system ON messages (turn_id) WHERE role = 'system';
CREATE INDEX idx_messages_tool ON messages (turn_id) WHERE role = 'tool';
CREATE INDEX idx_messages_task ON messages (task_id, timestamp) WHERE task_id IS NOT NULL;

-- Providers repeat call ids, so a call is known by its turn and its id.
CREATE TABLE tool_calls (
    id TEXT NOT NULL,                 -- unique within its turn
    turn_id TEXT NOT NULL REFERENCES turns (id) DEFERRABLE INITIALLY IMMEDIATE,
    message_id TEXT REFERENCES messages (id) DEFERRABLE INITIALLY IMMEDIATE, -- the message that made the call
    tool_name TEXT NOT NULL,
    tool_number BIGINT,               -- the provider's number of the tool
    params_json TEXT NOT NULL,
    result_json TEXT,
    error TEXT,
    status TEXT NOT NULL DEFAULT 'pending'
        CHECK (status IN ('pending', 'running', 'completed', 'failed', 'cancelled', 'rejected')),
    source_status TEXT,               -- the source's own word, where it has another
    spawned_session_label TEXT REFERENCES sessions (label) DEFERRABLE INITIALLY IMMEDIATE, -- the subagent it started
    started_at BIGINT NOT NULL,
    completed_at BIGINT,
    sequence BIGINT NOT NULL,         -- one count per turn over messages and tool calls
    PRIMARY KEY (turn_id, id)
);
CREATE INDEX idx_tool_calls_message ON tool_calls (message_id) WHERE message_id IS NOT NULL;
CREATE INDEX idx_tool_calls_spawned ON tool_calls (spawned_session_label)
    WHERE spawned_session_label IS NOT NULL;

-- Written before its turn, which a guard refuses otherwise: neither exists without the other.
CREATE TABLE compactions (
    turn_id TEXT PRIMARY KEY REFERENCES turns (id) DEFERRABLE INITIALLY DEFERRED,
    summary TEXT NOT NULL,
    summarized_through_turn_id TEXT NOT NULL REFERENCES turns (id) DEFERRABLE INITIALLY IMMEDIATE, -- the last turn the summary covers
    first_kept_turn_id TEXT REFERENCES turns (id) DEFERRABLE INITIALLY IMMEDIATE, -- the first turn that stays visible; NULL: none
    turns_summarized BIGINT,
    compaction_type TEXT NOT NULL DEFAULT 'summary', -- the strategy
    model TEXT NOT NULL,              -- that wrote the summary
    provider TEXT,
    tokens_before BIGINT,             -- of the context
    tokens_after BIGINT,              -- of the context
    summary_tokens BIGINT,
    summarization_input_tokens BIGINT, -- what writing the summary cost
    summarization_output_tokens BIGINT,
    duration_ms BIGINT,
    trigger TEXT,                     -- manual, context_limit, periodic or overflow_recovery
    metadata_json TEXT                -- parameters of the strategy
);

CREATE TABLE message_files (
    id <serial_key>,
    message_id TEXT NOT NULL REFERENCES messages (id) DEFERRABLE INITIALLY IMMEDIATE,
    kind TEXT NOT NULL CHECK (kind IN ('read', 'written', 'referenced', 'attached')),
    file_path TEXT NOT NULL,
    line_start BIGINT,                -- NULL: the whole file
    line_end BIGINT
);
-- A file without lines counts once too: NULLs would never be equal.
CREATE UNIQUE INDEX idx_message_files_message
    ON message_files (message_id, kind, file_path, COALESCE(line_start, -1));
CREATE INDEX idx_message_files_path ON message_files (file_path);

CREATE TABLE message_lints (
    id <serial_key>,
    message_id TEXT NOT NULL REFERENCES messages (id) DEFERRABLE INITIALLY IMMEDIATE,
    file_path TEXT,
    message TEXT,
    lint_source TEXT,                 -- the linter
    start_line BIGINT,
    start_col BIGINT,
    end_line BIGINT,
    end_col BIGINT,
    severity TEXT CHECK (severity IN ('error', 'warning', 'info'))
);
CREATE INDEX idx_message_lints_message ON message_lints (message_id);

CREATE TABLE message_codeblocks (
    id <serial_key>,
    message_id TEXT NOT NULL REFERENCES messages (id) DEFERRABLE INITIALLY IMMEDIATE,
    idx BIGINT NOT NULL,              -- order within the message
    language TEXT,
    content TEXT NOT NULL,
    file_path TEXT,
    line_start BIGINT,
    line_end BIGINT
);
CREATE UNIQUE INDEX idx_message_codeblocks_message ON message_codeblocks (message_id, idx);

-- Processes that have live turns. Whether one lives is determined by its lock, never by this row alone.
CREATE TABLE writers (
    id TEXT PRIMARY KEY,
    seen_at BIGINT NOT NULL           -- last renewal of its lease, on PostgreSQL
);

-- Turns being written now, with who writes them and where they will hang: few, so that the table is its own index.
CREATE TABLE live_turns (
    turn_id TEXT PRIMARY KEY REFERENCES turns (id) DEFERRABLE INITIALLY IMMEDIATE,
    writer_id TEXT NOT NULL REFERENCES writers (id) DEFERRABLE INITIALLY IMMEDIATE,
    session_label TEXT NOT NULL REFERENCES sessions (label) DEFERRABLE INITIALLY IMMEDIATE -- the session that will move to it
) <clustered>;

-- Text of a live turn as it streams in; becomes a message when the turn ends.
CREATE TABLE partial_texts (
    turn_id TEXT NOT NULL REFERENCES live_turns (turn_id) DEFERRABLE INITIALLY IMMEDIATE,
    piece BIGINT NOT NULL,            -- order of the pieces
    content TEXT NOT NULL,
    PRIMARY KEY (turn_id, piece)
);

-- What waits to be asked: one line per session, in the order of position. turn_id is chosen when an
-- entry is claimed, so that what it began can be told after a crash. Rows stay: an id is asked once.
CREATE TABLE queue (
    position <serial_key>,            -- order of the queue
    id TEXT NOT NULL UNIQUE,          -- chosen by the caller; asked once
    session_label TEXT NOT NULL REFERENCES sessions (label) DEFERRABLE INITIALLY IMMEDIATE,
    mode TEXT NOT NULL CHECK (mode IN ('followup', 'collect', 'interrupt', 'steer')),
    status TEXT NOT NULL
        CHECK (status IN ('waiting', 'claimed', 'done', 'failed', 'cancelled', 'dropped')),
    enqueued_at BIGINT NOT NULL,
    ready_at BIGINT NOT NULL,         -- a batch waits until then for one more message
    turn_id TEXT,                     -- the turn that answers it
    writer_id TEXT REFERENCES writers (id) DEFERRABLE INITIALLY IMMEDIATE, -- the process that answers it
    stop_at BIGINT,                   -- somebody wants its turn to stop, since then
    error TEXT,
    ask_json TEXT,                    -- NULL once its turn is completed and has it all
    request_hash <bytes> NOT NULL     -- recognises a retry
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

-- Files of other programs, as far as they are kept. One that was rewritten has several generations;
-- files of one family are derived together. derived_bytes behind kept_bytes: derive again.
CREATE TABLE source_files (
    id <serial_key>,
    source TEXT NOT NULL,             -- the importer
    path TEXT NOT NULL,
    generation BIGINT NOT NULL,       -- rises when a file is rewritten
    family TEXT NOT NULL,             -- files of one family are derived together
    kind TEXT NOT NULL CHECK (kind IN ('lines', 'document', 'rows')),
    size BIGINT NOT NULL,             -- when it was last read
    mtime_ns BIGINT NOT NULL,         -- when it was last read
    kept_bytes BIGINT NOT NULL,
    tail_hash <bytes>,                -- of the last bytes kept; recognises a rewritten file
    cursor_json TEXT,                 -- how far a database was read
    derived_bytes BIGINT NOT NULL DEFAULT -1, -- how much of it was derived
    derived_version BIGINT NOT NULL DEFAULT 0, -- version of the importer that derived it
    first_seen_at BIGINT NOT NULL,
    seen_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX idx_source_files_path ON source_files (path, generation);
CREATE INDEX idx_source_files_family ON source_files (family);
CREATE INDEX idx_source_files_behind ON source_files (id) WHERE derived_bytes <> kept_bytes;

-- Their bytes, packed with zstd; against the beginning of another, where base_file_id names it: the
-- generation before, or the file it was copied from. base_length NULL: against all of it.
CREATE TABLE source_blocks (
    file_id BIGINT NOT NULL REFERENCES source_files (id) DEFERRABLE INITIALLY IMMEDIATE,
    start BIGINT NOT NULL,            -- offset of the block's first byte
    length BIGINT NOT NULL,           -- of the block, uncompressed
    base_file_id BIGINT REFERENCES source_files (id) DEFERRABLE INITIALLY IMMEDIATE, -- compressed against this file
    data <bytes> NOT NULL,            -- zstd
    base_length BIGINT,
    PRIMARY KEY (file_id, start)
);

-- Which files a projected turn was derived from: who shares a turn is derived together.
CREATE TABLE turn_sources (
    turn_id TEXT NOT NULL REFERENCES turns (id) DEFERRABLE INITIALLY IMMEDIATE,
    file_id BIGINT NOT NULL REFERENCES source_files (id) DEFERRABLE INITIALLY IMMEDIATE,
    PRIMARY KEY (turn_id, file_id)
) <clustered>;
CREATE INDEX idx_turn_sources_file ON turn_sources (file_id);

-- Records that a source wrote again under new ids. They are no messages, but who has one of them is
-- of the same tree.
CREATE TABLE repeated_records (
    id TEXT PRIMARY KEY,              -- of the repeated record
    turn_id TEXT NOT NULL REFERENCES turns (id) DEFERRABLE INITIALLY IMMEDIATE -- the turn that has the original
) <clustered>;
CREATE INDEX idx_repeated_records_turn ON repeated_records (turn_id);

-- Which files a session was derived from.
CREATE TABLE session_sources (
    session_label TEXT NOT NULL REFERENCES sessions (label) DEFERRABLE INITIALLY IMMEDIATE,
    file_id BIGINT NOT NULL REFERENCES source_files (id) DEFERRABLE INITIALLY IMMEDIATE,
    PRIMARY KEY (session_label, file_id)
) <clustered>;
CREATE INDEX idx_session_sources_file ON session_sources (file_id);

-- Sessions of other sources by their own key, and the head the import gave them: it moves no other.
CREATE TABLE session_imports (
    source TEXT NOT NULL,
    source_provider TEXT NOT NULL,
    source_session_id TEXT NOT NULL,
    source_session_fingerprint TEXT NOT NULL, -- changes with the content
    session_label TEXT NOT NULL REFERENCES sessions (label) DEFERRABLE INITIALLY IMMEDIATE,
    head_turn_id TEXT REFERENCES turns (id) DEFERRABLE INITIALLY IMMEDIATE, -- the head that the import set
    imported_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    last_run_id TEXT NOT NULL,        -- of import_runs
    PRIMARY KEY (source, source_provider, source_session_id)
);
CREATE INDEX idx_session_imports_label ON session_imports (session_label);
CREATE INDEX idx_session_imports_head ON session_imports (head_turn_id);

-- A subagent that knows its parent's session, which may be imported later.
CREATE TABLE source_links (
    child_label TEXT PRIMARY KEY REFERENCES sessions (label) DEFERRABLE INITIALLY IMMEDIATE,
    parent_label TEXT NOT NULL        -- may not be imported yet
);
CREATE INDEX idx_source_links_parent ON source_links (parent_label);

-- Answers to sessions.import by idempotency key: a retry gets the same one.
CREATE TABLE session_import_requests (
    idempotency_key TEXT PRIMARY KEY,
    source TEXT NOT NULL,
    mode TEXT NOT NULL,
    run_id TEXT NOT NULL,             -- of import_runs
    request_hash TEXT NOT NULL,       -- recognises another request under the same key
    response_json TEXT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX idx_session_import_requests_run ON session_import_requests (run_id);

-- Parts of an upload that is not complete yet.
CREATE TABLE session_import_chunk_parts (
    source TEXT NOT NULL,
    upload_id TEXT NOT NULL,
    chunk_index BIGINT NOT NULL,
    chunk_total BIGINT NOT NULL,
    mode TEXT NOT NULL,
    run_id TEXT NOT NULL,
    persona_id TEXT,
    idempotency_key TEXT NOT NULL,
    source_provider TEXT NOT NULL,
    source_session_id TEXT NOT NULL,
    source_session_fingerprint TEXT NOT NULL,
    encoding TEXT NOT NULL,
    payload TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (source, upload_id, chunk_index)
);

-- What each import did.
CREATE TABLE import_runs (
    id TEXT PRIMARY KEY,
    started_at BIGINT NOT NULL,
    finished_at BIGINT,
    imported BIGINT NOT NULL DEFAULT 0,
    upserted BIGINT NOT NULL DEFAULT 0,
    skipped BIGINT NOT NULL DEFAULT 0,
    failed BIGINT NOT NULL DEFAULT 0,
    report_json TEXT                  -- counts by source, faults, exclusions
);

-- What could not be understood, by file and offset. Its bytes are kept all the same.
CREATE TABLE source_faults (
    file_id BIGINT NOT NULL REFERENCES source_files (id) DEFERRABLE INITIALLY IMMEDIATE,
    position BIGINT NOT NULL,         -- offset in the kept bytes
    line BIGINT,                      -- NULL: not a file of lines
    what TEXT NOT NULL,               -- what is wrong
    PRIMARY KEY (file_id, position, what)
);

-- What files call sessions of other files, by a record of them or by their label.
CREATE TABLE source_titles (
    file_id BIGINT NOT NULL REFERENCES source_files (id) DEFERRABLE INITIALLY IMMEDIATE,
    record_id TEXT NOT NULL,          -- a record, a session label or a project hash
    position BIGINT NOT NULL,         -- offset in the kept bytes
    title TEXT NOT NULL,
    shown BIGINT NOT NULL DEFAULT 0,  -- the sessions it names were derived with it
    PRIMARY KEY (file_id, record_id)
);
CREATE INDEX idx_source_titles_record ON source_titles (record_id);
CREATE INDEX idx_source_titles_unshown ON source_titles (file_id) WHERE shown = 0;

-- Who may ask a server what. The secret is stored nowhere.
CREATE TABLE access_tokens (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    secret_hash TEXT NOT NULL UNIQUE, -- SHA-256
    scopes TEXT NOT NULL,             -- words with a space between them
    created_at BIGINT NOT NULL,
    expires_at BIGINT,
    revoked_at BIGINT
);
CREATE INDEX idx_access_tokens_name ON access_tokens (name);

-- Tasks of the Agent Bus: what was saved is the record, their sessions and turns are derived from it.
-- The views tasks, calls and task_messages carry the columns of the specification.
CREATE TABLE bus_tasks (
    id TEXT PRIMARY KEY,
    parent_task_id TEXT REFERENCES bus_tasks (id) DEFERRABLE INITIALLY IMMEDIATE,
    completion_status TEXT,           -- NULL: in progress
    system_prompt_hash TEXT NOT NULL REFERENCES system_prompts (hash) DEFERRABLE INITIALLY IMMEDIATE,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    session_label TEXT NOT NULL UNIQUE REFERENCES sessions (label) DEFERRABLE INITIALLY IMMEDIATE, -- the session of its conversation
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
    turn_id TEXT REFERENCES turns (id) DEFERRABLE INITIALLY IMMEDIATE -- the turn derived from it
);
CREATE INDEX idx_bus_messages_task ON bus_messages (task_id, timestamp, position);
CREATE INDEX idx_bus_messages_turn ON bus_messages (turn_id, timestamp, position);

-- writer_id: the process that executes a call in progress. If it dies, the call failed.
CREATE TABLE bus_calls (
    position <serial_key>,
    id TEXT NOT NULL UNIQUE,
    task_id TEXT NOT NULL REFERENCES bus_tasks (id) DEFERRABLE INITIALLY IMMEDIATE,
    ability_name TEXT NOT NULL,
    parameters TEXT NOT NULL,         -- JSON
    status TEXT NOT NULL CHECK (status IN ('pending', 'in_progress', 'completed', 'failed')),
    details TEXT NOT NULL,            -- JSON
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    start_message_id TEXT NOT NULL REFERENCES bus_messages (id) DEFERRABLE INITIALLY IMMEDIATE, -- the message that made the call
    end_message_id TEXT REFERENCES bus_messages (id) DEFERRABLE INITIALLY IMMEDIATE, -- the message with its result
    writer_id TEXT REFERENCES writers (id) DEFERRABLE INITIALLY IMMEDIATE,
    revision BIGINT NOT NULL DEFAULT 0, -- rises with every change
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

-- Turns in the word index by their number there, which begins with their time: the newest are found
-- first without sorting. turn_id NULL: the words belong to no turn any more.
CREATE TABLE search_docs (
    id <serial_key>,
    turn_id TEXT REFERENCES turns (id) DEFERRABLE INITIALLY IMMEDIATE
);
CREATE UNIQUE INDEX idx_search_docs_turn ON search_docs (turn_id) WHERE turn_id IS NOT NULL;

-- Turns that are not in the index as they are now: new, rewritten, or taken away.
CREATE TABLE search_waiting (
    turn_id TEXT PRIMARY KEY
) <clustered>;

-- The index itself (search.sqlite.sql, search.postgres.sql).
<words_table>;
<words_lookup>;
<words_settings>;

-- What days that are over used, summed up, so that a year of turns is not read again and again. A day
-- counts while it stands in summary_days; a trigger takes it out as soon as one of its turns changes.
CREATE TABLE summary_days (
    day BIGINT PRIMARY KEY            -- since 1970, by UTC
) <clustered>;

-- '' where a turn does not say its model, provider or workspace.
CREATE TABLE usage_sums (
    day BIGINT NOT NULL,
    hour BIGINT NOT NULL,             -- since 1970
    model TEXT NOT NULL,
    provider TEXT NOT NULL,
    workspace_path TEXT NOT NULL,
    turns BIGINT NOT NULL,
    failed BIGINT NOT NULL,
    untold BIGINT NOT NULL,           -- turns without token counts
    tool_calls BIGINT NOT NULL,
    input_tokens BIGINT NOT NULL,
    output_tokens BIGINT NOT NULL,
    cached_input_tokens BIGINT NOT NULL,
    cache_write_tokens BIGINT NOT NULL,
    reasoning_tokens BIGINT NOT NULL,
    total_tokens BIGINT NOT NULL,
    fresh_input_tokens BIGINT NOT NULL, -- input that was not cached
    paid_output_tokens BIGINT NOT NULL, -- output with reasoning, as providers charge it
    long_cache_write_tokens BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (day, hour, model, provider, workspace_path)
) <clustered>;

CREATE TABLE tool_sums (
    day BIGINT NOT NULL,
    tool_name TEXT NOT NULL,
    status TEXT NOT NULL,
    step BIGINT NOT NULL,             -- of durations; 0: they do not say
    calls BIGINT NOT NULL,
    duration_ms BIGINT NOT NULL,
    longest_ms BIGINT NOT NULL,
    last_at BIGINT NOT NULL,
    PRIMARY KEY (day, tool_name, status, step)
) <clustered>;

-- What turns mean: a vector of 32-bit numbers of length 1, by the model that made it.
CREATE TABLE search_vectors (
    doc_id BIGINT NOT NULL REFERENCES search_docs (id) ON DELETE CASCADE, -- of search_docs
    model TEXT NOT NULL,              -- the embedding model
    vector <floats> NOT NULL,
    PRIMARY KEY (doc_id, model)
);

-- What is set for a ledger, whoever opens it.
CREATE TABLE ledger_settings (
    name TEXT PRIMARY KEY,            -- secrets: what is done about them
    value TEXT NOT NULL,              -- of secrets: report, mask or redact
    changed_at BIGINT NOT NULL        -- when it was set
);

-- The log of evidence: what covers a sealed turn, a move of a session, a block of source records. It forms a Merkle
-- tree by position (docs/explanation/evidence.md). On PostgreSQL a leaf has a position below 0 until it is sequenced.
CREATE TABLE evidence (
    position <log_key>,               -- in the log, from 1
    kind TEXT NOT NULL                -- of what it covers
        CHECK (kind IN ('turn', 'move', 'source', 'redaction', 'purge', 'coverage', 'key')),
    subject TEXT NOT NULL,            -- turn id, session label, file id and start of a block
    move_id BIGINT,                   -- the line of session_history that it covers, too
    opening <bytes>,                  -- seed of the salts, or what a redaction left of them
    hash <bytes> NOT NULL,            -- of the leaf, as RFC 6962 has it
    payload TEXT                      -- what is covered, if no other row has it
);
CREATE INDEX idx_evidence_subject ON evidence (subject);
CREATE INDEX idx_evidence_waiting ON evidence (position) WHERE position < 0;

-- Checkpoints that were taken: signed statements of what the log was.
CREATE TABLE evidence_checkpoints (
    size BIGINT PRIMARY KEY,          -- number of leaves
    peaks <bytes> NOT NULL,           -- roots of the perfect trees that make up the log
    note TEXT NOT NULL,               -- as it was signed
    taken_at BIGINT NOT NULL          -- when it was signed
);

-- What was removed, why and by whom; never a value. While finished_at is NULL, within its own transaction,
-- the guards let texts be changed, and rows go if purges is 1.
CREATE TABLE redactions (
    id TEXT PRIMARY KEY,              -- ULID
    reason TEXT NOT NULL,             -- why, in the words of who asked for it
    actor TEXT NOT NULL,              -- who asked for it
    selection_json TEXT NOT NULL,     -- what was selected, without patterns and texts
    started_at BIGINT NOT NULL,
    finished_at BIGINT,               -- NULL: in progress, in the transaction that made the row
    scrubbed_at BIGINT,               -- NULL: free pages and the log may still hold what was removed
    purges BIGINT NOT NULL DEFAULT 0, -- rows are deleted
    places BIGINT NOT NULL DEFAULT 0, -- values that were removed from rows
    spans BIGINT NOT NULL DEFAULT 0,  -- and from archived files
    turns BIGINT NOT NULL DEFAULT 0   -- that had one of them
);
CREATE INDEX idx_redactions_open ON redactions (id) WHERE finished_at IS NULL;
CREATE INDEX idx_redactions_unscrubbed ON redactions (id) WHERE scrubbed_at IS NULL;

-- Tombstones: the columns from which something was removed.
CREATE TABLE redacted_places (
    redaction_id TEXT NOT NULL REFERENCES redactions (id) DEFERRABLE INITIALLY IMMEDIATE, -- that removed it
    table_name TEXT NOT NULL,         -- where it was
    row_key TEXT NOT NULL,            -- JSON list of the row's key
    column_name TEXT NOT NULL,        -- where it was
    turn_id TEXT,                     -- of the row; NULL: it belongs to none
    PRIMARY KEY (redaction_id, table_name, row_key, column_name)
);
CREATE INDEX idx_redacted_places_turn ON redacted_places (turn_id) WHERE turn_id IS NOT NULL;

-- Bytes of archived files that were overwritten: the same file imported again is read without them.
CREATE TABLE redacted_spans (
    file_id BIGINT NOT NULL REFERENCES source_files (id) DEFERRABLE INITIALLY IMMEDIATE,
    start BIGINT NOT NULL,            -- offset in the kept bytes
    length BIGINT NOT NULL,           -- in bytes
    redaction_id TEXT REFERENCES redactions (id) DEFERRABLE INITIALLY IMMEDIATE, -- NULL: on import, by the setting
    PRIMARY KEY (file_id, start)
);

-- Values that stay out of what is imported, by digests with a key that is not in the ledger.
CREATE TABLE redacted_values (
    digest <bytes> NOT NULL,          -- of the value, with the key
    key_id TEXT NOT NULL,             -- of the key
    length BIGINT NOT NULL,           -- in characters
    word <bytes> NOT NULL,            -- digest of its longest word; empty: it is found as a whole text only
    word_start BIGINT NOT NULL,       -- of that word in the value
    word_length BIGINT NOT NULL,      -- in characters
    kind TEXT NOT NULL,               -- of the secret, or how it was selected
    family TEXT NOT NULL DEFAULT '',  -- of the files in which it is removed; empty: all
    redaction_id TEXT NOT NULL REFERENCES redactions (id) DEFERRABLE INITIALLY IMMEDIATE, -- that removed it
    PRIMARY KEY (key_id, digest, family)
);

-- Ids that a source makes of content, where redacted records would give others: the turns keep theirs.
CREATE TABLE redacted_ids (
    derived_id TEXT PRIMARY KEY,      -- of the redacted records
    id TEXT NOT NULL                  -- in this ledger
);

-- What each run of the retention policies did.
CREATE TABLE retention_runs (
    id TEXT PRIMARY KEY,              -- ULID
    started_at BIGINT NOT NULL,
    finished_at BIGINT,
    actor TEXT NOT NULL,              -- who started it
    report_json TEXT NOT NULL         -- the policies, and the sessions each was applied to
);
