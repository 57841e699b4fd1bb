-- Marks the state as complete.
--
-- The statement requires the number of changes that its sender has read ($1). A delayed copy therefore does not complete a
-- later `channeld state copy`.
update {schema}.state set incomplete = false, changes = changes + 1 where changes = $1 and incomplete
returning changes
