-- Everything of Formwork's lives in a schema of its own, so that a shared database can hold it.
CREATE SCHEMA formwork;
SET LOCAL search_path = formwork;

-- The schema's version, for programs that come later.
CREATE TABLE store (version BIGINT NOT NULL);
INSERT INTO store VALUES (0);

-- The log: written once, read whole. A reader's cursor is the position, an event's name is (run, seq).
CREATE TABLE events (
    position        BIGINT  PRIMARY KEY,
    run             UUID    NOT NULL,
    seq             BIGINT NOT NULL,
    task            UUID,
    principal       TEXT    NOT NULL,
    at              BIGINT NOT NULL,
    kind            TEXT    NOT NULL,
    data            TEXT    NOT NULL,
    idempotency_key TEXT,
    hash            BYTEA    NOT NULL,
    UNIQUE (run, seq)
);

CREATE INDEX events_by_task ON events (task, position) WHERE task IS NOT NULL;
CREATE UNIQUE INDEX events_by_key ON events (run, idempotency_key) WHERE idempotency_key IS NOT NULL;

-- Bytes that events refer to, stored once under their hash.
CREATE TABLE blobs (
    hash  BYTEA PRIMARY KEY,
    bytes BYTEA NOT NULL
);

CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'the log is append-only'; END $$;
CREATE TRIGGER events_are_not_changed BEFORE UPDATE OR DELETE ON events
FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER events_are_not_emptied BEFORE TRUNCATE ON events
FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER blobs_are_not_changed BEFORE UPDATE OR DELETE ON blobs
FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER blobs_are_not_emptied BEFORE TRUNCATE ON blobs
FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- Where each run stands and who owns it. No view: a log that was cut is found by it.
CREATE TABLE heads (
    run        UUID    PRIMARY KEY,
    seq        BIGINT NOT NULL DEFAULT 0,
    hash       BYTEA    NOT NULL,
    owner      TEXT,
    token      BIGINT NOT NULL DEFAULT 0,
    held_until BIGINT NOT NULL DEFAULT 0
);

-- What follows are views: each can be made again from the log.
CREATE TABLE runs (
    run         UUID PRIMARY KEY,
    name        TEXT,
    workspace   TEXT,
    state       TEXT,
    created     BIGINT,
    updated     BIGINT NOT NULL,
    code        TEXT,
    reason      TEXT,
    rounds      BIGINT NOT NULL,
    input       BIGINT NOT NULL,
    cache_read  BIGINT NOT NULL,
    cache_write BIGINT NOT NULL,
    output      BIGINT NOT NULL,
    reasoning   BIGINT NOT NULL,
    cost        BIGINT NOT NULL,
    events      BIGINT NOT NULL
);

CREATE TABLE tasks (
    task        UUID PRIMARY KEY,
    run         UUID NOT NULL,
    position    BIGINT,
    parent      UUID,
    name        TEXT,
    body        TEXT,
    state       TEXT,
    ending      TEXT,
    attempts    BIGINT NOT NULL,
    input       BIGINT NOT NULL,
    cache_read  BIGINT NOT NULL,
    cache_write BIGINT NOT NULL,
    output      BIGINT NOT NULL,
    reasoning   BIGINT NOT NULL,
    cost        BIGINT NOT NULL,
    started     BIGINT,
    ended       BIGINT
);

CREATE INDEX tasks_by_run ON tasks (run, position);

CREATE TABLE attempts (
    attempt UUID PRIMARY KEY,
    task    UUID NOT NULL,
    number  BIGINT,
    started BIGINT,
    ended   BIGINT,
    reason  TEXT
);

CREATE INDEX attempts_by_task ON attempts (task, number);

CREATE TABLE checks (
    position BIGINT PRIMARY KEY,
    run      UUID NOT NULL,
    task     UUID NOT NULL,
    phase    TEXT NOT NULL,
    idx      BIGINT NOT NULL,
    at       BIGINT NOT NULL,
    verdict  TEXT NOT NULL
);

CREATE INDEX checks_by_run ON checks (run, position);

CREATE TABLE calls (
    position    BIGINT PRIMARY KEY,
    run         UUID NOT NULL,
    call        UUID NOT NULL,
    task        UUID NOT NULL,
    session     UUID NOT NULL,
    model       TEXT NOT NULL,
    endpoint    TEXT NOT NULL,
    input       BIGINT NOT NULL,
    cache_read  BIGINT NOT NULL,
    cache_write BIGINT NOT NULL,
    output      BIGINT NOT NULL,
    reasoning   BIGINT NOT NULL,
    estimated   BIGINT NOT NULL,
    cost        BIGINT NOT NULL,
    tries       BIGINT NOT NULL,
    elapsed     BIGINT NOT NULL,
    at          BIGINT NOT NULL
);

CREATE INDEX calls_by_run ON calls (run, position);

CREATE TABLE files (
    run        UUID NOT NULL,
    path       TEXT NOT NULL,
    first_hash BYTEA,
    last_hash  BYTEA,
    added      BIGINT NOT NULL,
    removed    BIGINT NOT NULL,
    PRIMARY KEY (run, path)
);
