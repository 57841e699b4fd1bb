-- Marks the state as incomplete, and removes the leftovers of an interrupted copy. Does nothing, and returns no row, if the
-- state is complete and has channels.
--
-- The statement requires the number of changes that its sender has read ($1). A delayed copy therefore does not empty a
-- state that was completed in the meantime.
with begun as (
    update {schema}.state set incomplete = true, changes = changes + 1
    where changes = $1 and (incomplete or not exists (select from {schema}.channels where epoch > 0))
    returning changes
), no_entries as (
    delete from {schema}.entries where exists (select from begun)
), no_channels as (
    delete from {schema}.channels where exists (select from begun)
), no_proofs as (
    delete from {schema}.proofs where exists (select from begun)
)
select changes from begun
