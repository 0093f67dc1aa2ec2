// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws/arn"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// OpenMachineStore opens the store that the cluster's machines read: spec.configStore.base, else the state store, which
// then must be on S3. region is where the cluster is. A store whose bucket is in another region is an error: machines ask
// S3 in their own region, which does not serve it.
func (env *Env) OpenMachineStore(
	ctx context.Context,
	c v1alpha1.Cluster,
	region string,
) (store.Store, store.Sealer, error) {
	region = cmp.Or(c.Spec.CloudProvider.AWS.Region, region)
	if base := c.Spec.ConfigStore.Base; base != "" {
		s, sealer, err := env.Stores.Open(ctx, base, region)
		if err != nil {
			return nil, nil, err
		}

		return s, sealer, CheckStoreRegion(ctx, s, region)
	}

	s, sealer, err := env.Stores.State(ctx)
	if err != nil {
		return nil, nil, err
	}

	if !strings.HasPrefix(s.URL(), "s3://") {
		return nil, nil, diag.WithHint(
			fmt.Errorf("machines cannot read the state store %s", s.URL()),
			"set spec.configStore.base of the cluster to an s3:// store created by 'slipway state init', "+
				"or keep the state on S3",
		)
	}

	return s, sealer, CheckStoreRegion(ctx, s, region)
}

// CheckStoreRegion returns an error with a hint if machines in region cannot read s, because its bucket is in another
// region. The region of a bucket is that of the key that encrypts its objects: S3 uses no key of another region. It makes
// no call if s has read its settings, and any number of goroutines may call it.
func CheckStoreRegion(ctx context.Context, s store.Store, region string) error {
	settings, err := readStoreSettings(ctx, s)
	if err != nil {
		return err
	}

	if settings.KMSKeyARN == "" || region == "" {
		return nil // a store in a directory has no key in KMS
	}

	key, err := arn.Parse(settings.KMSKeyARN)
	if err != nil {
		return fmt.Errorf("read kmsKeyArn in %s of %s: %w", store.SettingsKey, s.URL(), err)
	}

	if key.Region == region {
		return nil
	}

	return diag.WithHint(
		fmt.Errorf(
			"machines cannot read %s: it is in %s (kmsKeyArn in its %s), and spec.cloudProvider.aws.region is %s",
			s.URL(),
			key.Region,
			store.SettingsKey,
			region,
		),
		fmt.Sprintf(
			"set spec.configStore.base of the cluster to a store in %s, created with: "+
				"slipway state init --region %s --state s3://BUCKET",
			region,
			region,
		),
	)
}
