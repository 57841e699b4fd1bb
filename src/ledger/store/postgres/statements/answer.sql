-- Answers a request. A late copy finds it answered, or withdrawn, and changes nothing.
update {schema}.requests set answered = clock_timestamp(), status = $2, answer = $3
where id = $1 and answered is null
