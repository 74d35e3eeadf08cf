-- The log: written once, read whole. A reader's cursor is the position, an event's name is (run, seq).
CREATE TABLE events (
    position        INTEGER PRIMARY KEY,
    run             BLOB    NOT NULL,
    seq             INTEGER NOT NULL,
    task            BLOB,
    principal       TEXT    NOT NULL,
    at              INTEGER NOT NULL,
    kind            TEXT    NOT NULL,
    data            TEXT    NOT NULL,
    idempotency_key TEXT,
    hash            BLOB    NOT NULL,
    UNIQUE (run, seq)
) STRICT;

CREATE INDEX events_by_task ON events (task) WHERE task IS NOT NULL;
CREATE UNIQUE INDEX events_by_key ON events (run, idempotency_key) WHERE idempotency_key IS NOT NULL;

CREATE TRIGGER events_are_not_changed BEFORE UPDATE ON events
BEGIN SELECT RAISE(ABORT, 'the log is append-only'); END;
CREATE TRIGGER events_are_not_deleted BEFORE DELETE ON events
BEGIN SELECT RAISE(ABORT, 'the log is append-only'); END;

-- Bytes that events refer to, stored once under their hash.
CREATE TABLE blobs (
    hash  BLOB PRIMARY KEY,
    bytes BLOB NOT NULL
) STRICT;

CREATE TRIGGER blobs_are_not_changed BEFORE UPDATE ON blobs
BEGIN SELECT RAISE(ABORT, 'blobs are append-only'); END;
CREATE TRIGGER blobs_are_not_deleted BEFORE DELETE ON blobs
BEGIN SELECT RAISE(ABORT, 'blobs are append-only'); END;

-- Where each run stands and who owns it. No view: a log that was cut is found by it.
CREATE TABLE heads (
    run        BLOB    PRIMARY KEY,
    seq        INTEGER NOT NULL DEFAULT 0,
    hash       BLOB    NOT NULL,
    owner      TEXT,
    token      INTEGER NOT NULL DEFAULT 0,
    held_until INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

-- What follows are views: each can be made again from the log.
CREATE TABLE runs (
    run         BLOB PRIMARY KEY,
    name        TEXT,
    workspace   TEXT,
    state       TEXT,
    created     INTEGER,
    updated     INTEGER NOT NULL,
    code        TEXT,
    reason      TEXT,
    rounds      INTEGER NOT NULL,
    input       INTEGER NOT NULL,
    cache_read  INTEGER NOT NULL,
    cache_write INTEGER NOT NULL,
    output      INTEGER NOT NULL,
    reasoning   INTEGER NOT NULL,
    cost        INTEGER NOT NULL,
    events      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE tasks (
    task        BLOB PRIMARY KEY,
    run         BLOB NOT NULL,
    position    INTEGER,
    parent      BLOB,
    name        TEXT,
    body        TEXT,
    state       TEXT,
    ending      TEXT,
    attempts    INTEGER NOT NULL,
    input       INTEGER NOT NULL,
    cache_read  INTEGER NOT NULL,
    cache_write INTEGER NOT NULL,
    output      INTEGER NOT NULL,
    reasoning   INTEGER NOT NULL,
    cost        INTEGER NOT NULL,
    started     INTEGER,
    ended       INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX tasks_by_run ON tasks (run, position);

CREATE TABLE attempts (
    attempt BLOB PRIMARY KEY,
    task    BLOB NOT NULL,
    number  INTEGER,
    started INTEGER,
    ended   INTEGER,
    reason  TEXT
) STRICT, WITHOUT ROWID;

CREATE INDEX attempts_by_task ON attempts (task, number);

CREATE TABLE checks (
    position INTEGER PRIMARY KEY,
    run      BLOB NOT NULL,
    task     BLOB NOT NULL,
    phase    TEXT NOT NULL,
    idx      INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    verdict  TEXT NOT NULL
) STRICT;

CREATE INDEX checks_by_run ON checks (run, position);

CREATE TABLE calls (
    position    INTEGER PRIMARY KEY,
    run         BLOB NOT NULL,
    call        BLOB NOT NULL,
    task        BLOB NOT NULL,
    session     BLOB NOT NULL,
    model       TEXT NOT NULL,
    endpoint    TEXT NOT NULL,
    input       INTEGER NOT NULL,
    cache_read  INTEGER NOT NULL,
    cache_write INTEGER NOT NULL,
    output      INTEGER NOT NULL,
    reasoning   INTEGER NOT NULL,
    estimated   INTEGER NOT NULL,
    cost        INTEGER NOT NULL,
    tries       INTEGER NOT NULL,
    elapsed     INTEGER NOT NULL,
    at          INTEGER NOT NULL
) STRICT;

CREATE INDEX calls_by_run ON calls (run, position);

CREATE TABLE files (
    run        BLOB NOT NULL,
    path       TEXT NOT NULL,
    first_hash BLOB,
    last_hash  BLOB,
    added      INTEGER NOT NULL,
    removed    INTEGER NOT NULL,
    PRIMARY KEY (run, path)
) STRICT, WITHOUT ROWID;
