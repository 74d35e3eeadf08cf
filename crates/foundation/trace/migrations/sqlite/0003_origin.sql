-- Runs that came from a file: who made it chose what they were set up with. A row stays when its run is archived.
CREATE TABLE imported (run BLOB PRIMARY KEY) STRICT, WITHOUT ROWID;

-- What this store is, wherever it is kept.
CREATE TABLE identity (id BLOB NOT NULL) STRICT;
INSERT INTO identity VALUES (randomblob(16));
