-- The requests of an import run are found by its id.
CREATE INDEX idx_session_import_requests_run ON session_import_requests (run_id);
