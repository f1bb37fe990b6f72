-- Vectors as the engine can compute with them. They are made anew.
DROP TABLE search_vectors;
CREATE TABLE search_vectors (
    doc_id BIGINT NOT NULL REFERENCES search_docs (id) ON DELETE CASCADE,
    model TEXT NOT NULL,
    vector <floats> NOT NULL,
    PRIMARY KEY (doc_id, model)
);
