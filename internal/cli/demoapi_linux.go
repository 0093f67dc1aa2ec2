// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"k8s.io/client-go/kubernetes"

	"github.com/slipway-k8s/slipway/internal/cluster/access"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// pollReadyz polls /readyz of the API until it succeeds.
func (d *demoRunner) pollReadyz(ctx context.Context, cfg aws.Config) error {
	s, sealer, err := store.Open(
		ctx,
		demoState,
		store.Options{AWS: func(context.Context) (aws.Config, error) { return cfg, nil }},
	)
	if err != nil {
		return err
	}

	client, err := access.NewKubeClient(ctx, cfg, access.Request{
		Store:   s,
		Sealer:  sealer,
		Cluster: demoCluster,
		User:    d.app.Getenv("USER"),
		Now:     d.app.Now,
	})
	if err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(ctx, demoTimeout)
	defer cancel()
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()

	for {
		err := getReadyz(ctx, client)
		if err == nil {
			d.recordTime("first API answer")
			return nil
		}

		select {
		case <-ctx.Done():
			return withHint(fmt.Errorf("the API did not answer within %s: %w", demoTimeout, err),
				"see the machines' reports: slipway validate cluster "+demoCluster)
		case <-tick.C:
		}
	}
}

func getReadyz(ctx context.Context, client kubernetes.Interface) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
}
