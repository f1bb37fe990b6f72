-- Segments with imported turns that ours stand on: few, and an import asks whether there are any.
CREATE INDEX idx_segments_frozen ON segments (frozen_depth) WHERE frozen_depth > 0;
