-- Requests of operators that one instance forwards to another, and the answers. Each row stays until its sender has read
-- the answer or stops waiting.
create table {schema}.requests (
    id bigint generated always as identity primary key,
    -- The instance that must answer.
    instance uuid not null,
    method text not null,
    -- The path with the query.
    path text not null,
    body bytea not null,
    asked timestamptz not null default clock_timestamp(),
    -- When the instance received the request.
    taken timestamptz,
    answered timestamptz,
    status int,
    answer bytea
);
create index on {schema}.requests (instance, id) where taken is null;
