-- What operators ask an instance through another one, and its answers, for as long as they are waited for.
create table {schema}.requests (
    id bigint generated always as identity primary key,
    -- The instance that is asked.
    instance uuid not null,
    method text not null,
    -- With the query.
    path text not null,
    body bytea not null,
    asked timestamptz not null default clock_timestamp(),
    -- Since when it is being carried out.
    taken timestamptz,
    answered timestamptz,
    status int,
    answer bytea
);
create index on {schema}.requests (instance, id) where taken is null;
