SET LOCAL search_path = formwork;

-- Runs that came from a file: who made it chose what they were set up with. A row stays when its run is archived.
CREATE TABLE imported (run UUID PRIMARY KEY);

-- What this store is, wherever it is kept.
CREATE TABLE identity (id UUID NOT NULL);
INSERT INTO identity VALUES (gen_random_uuid());
