module channeld.local/driver

go 1.23

require channeld.local/feed v0.0.0

replace channeld.local/feed => ../../../../deploy/clients/go
