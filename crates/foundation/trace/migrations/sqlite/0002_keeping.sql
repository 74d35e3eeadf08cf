-- How the bytes of a blob are kept: 0 as they are, 1 compressed by zstd. The hash is of the plain bytes, and
-- so is the size; blobs of the first version have none and are plain.
ALTER TABLE blobs ADD COLUMN form INTEGER NOT NULL DEFAULT 0;
ALTER TABLE blobs ADD COLUMN size INTEGER;

-- Runs that were taken out into an archive: what proves that each went whole, and where it stood at each
-- checkpoint within it. The positions of its events are never given away again.
CREATE TABLE archived (
    run            BLOB    NOT NULL,
    first_position INTEGER NOT NULL,
    last_position  INTEGER NOT NULL,
    events         INTEGER NOT NULL,
    hash           BLOB    NOT NULL,
    at             INTEGER NOT NULL,
    file           TEXT    NOT NULL,
    digest         BLOB    NOT NULL,
    marks          TEXT    NOT NULL,
    PRIMARY KEY (run, first_position)
) STRICT, WITHOUT ROWID;

-- What the whole log was at a position, signed where there was a key.
CREATE TABLE checkpoints (
    position  INTEGER NOT NULL,
    signer    BLOB    NOT NULL,
    at        INTEGER NOT NULL,
    runs      INTEGER NOT NULL,
    root      BLOB    NOT NULL,
    signature BLOB    NOT NULL,
    PRIMARY KEY (position, signer)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER checkpoints_are_not_changed BEFORE UPDATE ON checkpoints
BEGIN SELECT RAISE(ABORT, 'checkpoints are append-only'); END;
CREATE TRIGGER checkpoints_are_not_deleted BEFORE DELETE ON checkpoints
BEGIN SELECT RAISE(ABORT, 'checkpoints are append-only'); END;

-- What may be deleted: empty outside of the transaction that archives or prunes.
CREATE TABLE leaving_runs (run BLOB PRIMARY KEY) STRICT, WITHOUT ROWID;
CREATE TABLE leaving_blobs (hash BLOB PRIMARY KEY) STRICT, WITHOUT ROWID;

DROP TRIGGER events_are_not_deleted;
CREATE TRIGGER events_are_not_deleted BEFORE DELETE ON events
WHEN NOT EXISTS (SELECT 1 FROM leaving_runs WHERE leaving_runs.run = OLD.run)
BEGIN SELECT RAISE(ABORT, 'the log is append-only'); END;

DROP TRIGGER blobs_are_not_deleted;
CREATE TRIGGER blobs_are_not_deleted BEFORE DELETE ON blobs
WHEN NOT EXISTS (SELECT 1 FROM leaving_blobs WHERE leaving_blobs.hash = OLD.hash)
BEGIN SELECT RAISE(ABORT, 'blobs are append-only'); END;
