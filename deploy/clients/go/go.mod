module channeld.local/feed

go 1.23
