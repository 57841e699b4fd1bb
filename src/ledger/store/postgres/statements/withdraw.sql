-- Ends a request, and returns how it stood. A late copy finds nothing: numbers are not used again.
delete from {schema}.requests where id = $1
returning taken is not null, status, answer
