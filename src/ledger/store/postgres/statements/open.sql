-- Whether these tables exist.
select to_regclass('{schema}.migrations') is not null, to_regclass('{schema}.state') is not null
