SET LOCAL search_path = formwork;

-- How the bytes of a blob are kept: 0 as they are, 1 compressed by zstd. The hash is of the plain bytes, and
-- so is the size; blobs of the first version have none and are plain.
ALTER TABLE blobs ADD COLUMN form BIGINT NOT NULL DEFAULT 0;
ALTER TABLE blobs ADD COLUMN size BIGINT;
-- What is compressed already is not compressed again.
ALTER TABLE blobs ALTER COLUMN bytes SET STORAGE EXTERNAL;

-- Runs that were taken out into an archive: what proves that each went whole, and where it stood at each
-- checkpoint within it. The positions of its events are never given away again.
CREATE TABLE archived (
    run            UUID   NOT NULL,
    first_position BIGINT NOT NULL,
    last_position  BIGINT NOT NULL,
    events         BIGINT NOT NULL,
    hash           BYTEA  NOT NULL,
    at             BIGINT NOT NULL,
    file           TEXT   NOT NULL,
    digest         BYTEA  NOT NULL,
    marks          TEXT   NOT NULL,
    PRIMARY KEY (run, first_position)
);

-- What the whole log was at a position, signed where there was a key.
CREATE TABLE checkpoints (
    position  BIGINT NOT NULL,
    signer    BYTEA  NOT NULL,
    at        BIGINT NOT NULL,
    runs      BIGINT NOT NULL,
    root      BYTEA  NOT NULL,
    signature BYTEA  NOT NULL,
    PRIMARY KEY (position, signer)
);

CREATE TRIGGER checkpoints_are_not_changed BEFORE UPDATE OR DELETE ON checkpoints
FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER checkpoints_are_not_emptied BEFORE TRUNCATE ON checkpoints
FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- What may be deleted: empty outside of the transaction that archives or prunes.
CREATE TABLE leaving_runs (run UUID PRIMARY KEY);
CREATE TABLE leaving_blobs (hash BYTEA PRIMARY KEY);

CREATE FUNCTION refuse_change_of_event() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN
    IF TG_OP = 'DELETE' AND EXISTS (SELECT 1 FROM formwork.leaving_runs WHERE run = OLD.run) THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'the log is append-only';
END $$;
DROP TRIGGER events_are_not_changed ON events;
CREATE TRIGGER events_are_not_changed BEFORE UPDATE OR DELETE ON events
FOR EACH ROW EXECUTE FUNCTION refuse_change_of_event();

CREATE FUNCTION refuse_change_of_blob() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN
    IF TG_OP = 'DELETE' AND EXISTS (SELECT 1 FROM formwork.leaving_blobs WHERE hash = OLD.hash) THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'blobs are append-only';
END $$;
DROP TRIGGER blobs_are_not_changed ON blobs;
CREATE TRIGGER blobs_are_not_changed BEFORE UPDATE OR DELETE ON blobs
FOR EACH ROW EXECUTE FUNCTION refuse_change_of_blob();
