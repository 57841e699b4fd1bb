-- The state is complete. It is bound to the number of changes that its beginning returned ($1): a late copy of this statement
-- does not complete another copy.
update {schema}.state set incomplete = false, changes = changes + 1 where changes = $1 and incomplete
returning changes
