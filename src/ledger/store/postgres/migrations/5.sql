-- JSON with digests of the settings that decide what is verified and delivered, and a digest of this JSON. Other instances read
-- the JSON only if they do not know the digest. Null if the instance is an older version.
alter table {schema}.instances add settings bytea;
alter table {schema}.instances add settings_digest bytea;
