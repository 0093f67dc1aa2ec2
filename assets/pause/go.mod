module github.com/slipway-k8s/slipway/assets/pause

go 1.26.0
