// SPDX-License-Identifier: Apache-2.0

// Command slipway-dns is an AWS Lambda function that keeps the DNS records by which the members of a cluster's etcd find
// each other. Lambda runs it in the runtime provided.al2023.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/aws/aws-lambda-go/lambda"

	"github.com/slipway-k8s/slipway/internal/machine/discovery"
)

func main() {
	ctx := context.Background()
	function, err := discovery.New(ctx, os.Getenv, slog.New(slog.NewJSONHandler(os.Stderr, nil)))
	if err != nil {
		fmt.Fprintln(os.Stderr, "slipway-dns:", err)
		os.Exit(1)
	}

	lambda.StartWithOptions(function.Handle, lambda.WithContext(ctx))
}
