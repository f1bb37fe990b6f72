-- What turns mean, by model.
CREATE TABLE search_vectors (
    doc_id BIGINT NOT NULL REFERENCES search_docs (id) ON DELETE CASCADE,
    model TEXT NOT NULL,
    vector <bytes> NOT NULL,
    PRIMARY KEY (doc_id, model)
);
