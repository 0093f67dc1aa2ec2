module github.com/slipway-k8s/slipway/assets/cp

go 1.26.0
