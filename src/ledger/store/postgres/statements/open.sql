-- Whether these tables exist, and whether the server acknowledges commits before they are on its disk.
select to_regclass('{schema}.migrations') is not null, to_regclass('{schema}.state') is not null,
    current_setting('fsync') = 'off', current_setting('synchronous_commit') = 'off'
