-- Answers a request.
--
-- A delayed copy changes nothing: the request is already answered, or was withdrawn.
update {schema}.requests set answered = clock_timestamp(), status = $2, answer = $3
where id = $1 and answered is null
