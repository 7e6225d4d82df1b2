module mailboat.dev/tests/pause

go 1.26.0
