-- Less room. Copies are packed against the beginning of their original; words are merged less often;
-- days that are over have no index of their own, and are summed up anew.
ALTER TABLE source_blocks ADD COLUMN base_length BIGINT;
DROP TABLE summary_days;
CREATE TABLE summary_days (
    day BIGINT PRIMARY KEY
) <clustered>;
<words_settings>;
