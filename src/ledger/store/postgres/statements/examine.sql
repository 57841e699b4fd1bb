-- Properties of the server and the database, and the privileges of this role, as a JSON object. Changes nothing.
select json_build_object(
    'number', current_setting('server_version_num')::int,
    'version', current_setting('server_version'),
    'is_read_only', current_setting('transaction_read_only') = 'on',
    'forgets', current_setting('synchronous_commit') = 'off',
    'process', pg_backend_pid(),
    'role', quote_ident(current_user),
    'database', quote_ident(current_database()),
    'may_make_schema', has_database_privilege(current_database(), 'create'),
    'has_schema', n.oid is not null,
    'may_use', coalesce(has_schema_privilege(n.oid, 'usage'), false),
    'may_make_tables', coalesce(has_schema_privilege(n.oid, 'create'), false),
    'has_migrations', exists (select from pg_class t where t.relnamespace = n.oid and t.relname = 'migrations'),
    'may_change_tables', coalesce((
        select bool_and(case
            when t.relname = 'migrations' then has_table_privilege(t.oid, 'select')
            when t.relname = 'state' then has_table_privilege(t.oid, 'select') and has_table_privilege(t.oid, 'update')
            else has_table_privilege(t.oid, 'select') and has_table_privilege(t.oid, 'insert')
                and has_table_privilege(t.oid, 'update') and has_table_privilege(t.oid, 'delete')
        end)
        from pg_class t
        where t.relnamespace = n.oid and t.relname in (
            'migrations', 'instances', 'channels', 'entries', 'requests', 'proofs', 'state'
        )
    ), true)
)::text
from (values (1)) as one
left join pg_namespace n on n.nspname = $1
