-- The state of the database and of the tables. $1 is the schema. $2 and $3 are the qualified, quoted names of the table and of
-- the table with the positions. $4 is the expression for an event's id in the unique index. $5 is the qualified, quoted name of the
-- table of operations, or null. $6 is the same for the table of the feed's consumers. $7 is the name of the index over the ends.
with named as (
    select to_regnamespace(quote_ident($1)) as schema
), permitted as (
    select schema, coalesce(has_schema_privilege(schema::oid, 'usage'), true) as may_use from named
), found as (
    -- Without the right to use the schema, these functions would fail.
    select schema, may_use, case when may_use then to_regclass($2) end as events,
        case when may_use then to_regclass($3) end as progress,
        case when may_use then to_regclass($5) end as operations,
        case when may_use then to_regclass($6) end as consumers
    from permitted
), seen as (
select current_setting('server_version') as version,
    pg_is_in_recovery() or current_setting('transaction_read_only')::bool as is_read_only,
    current_setting('server_encoding') as encoding,
    current_setting('synchronous_commit') = 'off' as commits_asynchronously,
    current_setting('fsync') = 'off' as is_never_synced,
    quote_ident(current_user) as role,
    exists (select from pg_settings where name = 'default_toast_compression' and 'lz4' = any(enumvals)) as has_lz4,
    schema is not null as has_schema,
    may_use,
    coalesce(has_schema_privilege(schema::oid, 'create'), has_database_privilege(current_database(), 'create')) as may_create,
    -- Only the owner of a table can change it.
    coalesce((
        select bool_and(pg_has_role(relowner, 'usage')) from pg_class where oid in (events, progress)
    ), true) as may_alter,
    -- Relations with the names of the tables that are not tables.
    array(
        select format('%I.%I is %s', n.nspname, c.relname, case c.relkind
            when 'v' then 'a view' when 'm' then 'a materialized view' when 'f' then 'a foreign table'
            else 'another object'
        end)
        from pg_class c join pg_namespace n on n.oid = c.relnamespace
        where c.oid in (events, progress, operations, consumers) and c.relkind not in ('r', 'p')
    ) as not_tables,
    array(
        select format('%I.%I', n.nspname, c.relname) from pg_class c join pg_namespace n on n.oid = c.relnamespace
        where c.oid in (events, progress, operations, consumers) and c.relpersistence = 'u'
    ) as unlogged,
    coalesce((
        select array_agg(attname::text) from pg_attribute
        where attrelid = events and attnum > 0 and not attisdropped
    ), '{}') as columns,
    exists (
        select from pg_index i where i.indrelid = events and i.indisunique and i.indisvalid and i.indpred is null and (
            select array_agg(lower(pg_get_indexdef(i.indexrelid, number, true)) order by number)
            from generate_series(1, i.indnatts) as number
        ) = array['channel_id', 'event_offset', $4]
    ) as has_key,
    -- The keys of older versions, as the SQL that drops them.
    array(
        select case
            when c.oid is null then format('drop index if exists %s;', i.indexrelid::regclass)
            else format('alter table %s drop constraint if exists %I;', $2, c.conname)
        end
        from pg_index i left join pg_constraint c on c.conindid = i.indexrelid and c.contype in ('p', 'u')
        where i.indrelid = events and i.indisunique and i.indpred is null and (
            select array_agg(lower(pg_get_indexdef(i.indexrelid, number, true)) order by pg_get_indexdef(i.indexrelid, number, true))
            from generate_series(1, i.indnatts) as number
        ) = '{channel_id,event_offset}'
    ) as old_keys,
    -- The index over the positions. In a partitioned table it may be unable to be unique.
    exists (
        select from pg_index i where i.indrelid = events and i.indisvalid and i.indpred is null and (
            select array_agg(lower(pg_get_indexdef(i.indexrelid, number, true)) order by number)
            from generate_series(1, i.indnatts) as number
        ) = array['channel_id', quote_ident('position')]
    ) as has_position_index,
    -- The index over the ends of addresses, hashes and ids. Its expression is not compared.
    exists (
        select from pg_index i join pg_class c on c.oid = i.indexrelid
        where i.indrelid = events and i.indisvalid and c.relname = $7
    ) as has_ends,
    exists (select from pg_class c where c.oid = events and c.relkind = 'p') as is_partitioned,
    coalesce((
        select array_agg(attname::text) from pg_attribute
        where attrelid = progress and attnum > 0 and not attisdropped
    ), '{}') as progress_columns,
    consumers is not null as has_consumers,
    coalesce((
        select array_agg(attname::text) from pg_attribute
        where attrelid = operations and attnum > 0 and not attisdropped
    ), '{}') as operation_columns,
    coalesce(has_table_privilege(events::oid, 'select') and has_table_privilege(events::oid, 'insert'), true)
        and coalesce(has_table_privilege(progress::oid, 'select') and has_table_privilege(progress::oid, 'insert')
            and has_table_privilege(progress::oid, 'update'), true)
        and coalesce(has_table_privilege(operations::oid, 'select') and has_table_privilege(operations::oid, 'insert')
            and has_table_privilege(operations::oid, 'update'), true)
        and coalesce(has_table_privilege(consumers::oid, 'select') and has_table_privilege(consumers::oid, 'insert')
            and has_table_privilege(consumers::oid, 'update'), true) as may_write,
    -- The schema of the extension, which may be outside the search path.
    (
        select quote_ident(n.nspname) from pg_extension e join pg_namespace n on n.oid = e.extnamespace
        where e.extname = 'pg_trgm'
    ) as trigrams
from found
)
select row_to_json(seen)::text from seen
