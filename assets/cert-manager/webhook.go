// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/cert-manager/cert-manager/internal/webhook"
	_ "github.com/cert-manager/cert-manager/internal/webhook/feature" // its feature gates
	"github.com/cert-manager/cert-manager/pkg/logs"
	"github.com/cert-manager/cert-manager/pkg/webhook/configfile"
)

// newWebhook returns the server of the admission webhooks.
func newWebhook() program {
	file := configfile.New()

	return program{
		file: file,
		common: func() (*logsapi.LoggingConfiguration, map[string]bool) {
			return &file.Config.Logging, file.Config.FeatureGates
		},
		run: func(ctx context.Context) error {
			server, err := webhook.NewCertManagerWebhookServer(logs.FromContext(ctx, "webhook"), *file.Config)
			if err != nil {
				return fmt.Errorf("make the server: %w", err)
			}

			return server.Run(ctx)
		},
	}
}
