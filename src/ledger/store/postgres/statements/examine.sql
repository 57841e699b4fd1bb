-- What the database says of itself, and what this role may do there. Changes nothing.
select current_setting('server_version_num')::int, current_setting('server_version'),
    current_setting('transaction_read_only') = 'on', current_setting('synchronous_commit') = 'off',
    pg_backend_pid(), quote_ident(current_user), quote_ident(current_database()),
    has_database_privilege(current_database(), 'create'), n.oid is not null,
    coalesce(has_schema_privilege(n.oid, 'usage'), false), coalesce(has_schema_privilege(n.oid, 'create'), false),
    exists (select from pg_class t where t.relnamespace = n.oid and t.relname = 'migrations'),
    coalesce((
        select bool_and(has_table_privilege(t.oid, 'select') and has_table_privilege(t.oid, 'insert')
            and has_table_privilege(t.oid, 'update') and has_table_privilege(t.oid, 'delete'))
        from pg_class t
        where t.relnamespace = n.oid and t.relname in (
            'migrations', 'instances', 'channels', 'entries', 'requests', 'proofs', 'state'
        )
    ), true)
from (values (1)) as one
left join pg_namespace n on n.nspname = $1
