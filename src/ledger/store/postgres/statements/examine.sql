-- Properties of the server and the database, and the privileges of this role, as a JSON object. $1 is the schema, and $2 are
-- the names of the tables of the state. Changes nothing.
select json_build_object(
    'number', current_setting('server_version_num')::int,
    'version', current_setting('server_version'),
    'is_read_only', current_setting('transaction_read_only') = 'on',
    'commits_asynchronously', current_setting('synchronous_commit') = 'off',
    'is_never_synced', current_setting('fsync') = 'off',
    -- The maximum number of connections of the role and of the database. Superusers have no maximum.
    'connections', (
        select min(each) from (
            select rolconnlimit from pg_roles where rolname = session_user
            union all select datconnlimit from pg_database where datname = current_database()
        ) as limits (each)
        where each >= 0 and not (select rolsuper from pg_roles where rolname = session_user)
    ),
    'process', pg_backend_pid(),
    'role', quote_ident(current_user),
    'database', quote_ident(current_database()),
    'may_make_schema', has_database_privilege(current_database(), 'create'),
    'has_schema', n.oid is not null,
    'may_use', coalesce(has_schema_privilege(n.oid, 'usage'), false),
    'may_make_tables', coalesce(has_schema_privilege(n.oid, 'create'), false),
    'has_migrations', exists (select from pg_class t where t.relnamespace = n.oid and t.relname = 'migrations'),
    'may_read_tables', coalesce((
        select bool_and(has_table_privilege(t.oid, 'select'))
        from pg_class t
        where t.relnamespace = n.oid and t.relname = any($2)
    ), true),
    'unlogged', coalesce((
        select json_agg(t.relname) from pg_class t
        where t.relnamespace = n.oid and t.relname = any($2) and t.relpersistence = 'u'
    ), '[]')
)::text
from (values (1)) as one
left join pg_namespace n on n.nspname = $1
