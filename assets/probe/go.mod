module github.com/slipway-k8s/slipway/assets/probe

go 1.26.0
