-- Removes a request, and returns its state.
--
-- A delayed copy finds nothing, because the number of a request is never used again.
delete from {schema}.requests where id = $1
returning taken is not null, status, answer
