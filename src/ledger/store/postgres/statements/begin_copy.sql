-- Marks the state as incomplete, and removes what an interrupted copy has left. Nothing is done to a state that is complete and
-- has channels. It is bound to the number of changes that was seen before ($1): a late copy of this statement does not empty a
-- state that was completed meanwhile.
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
