// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"context"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// bucketStore is a store in S3 whose key is in a region.
type bucketStore struct {
	store.Store
	url, keyRegion string
}

func (s bucketStore) URL() string { return s.url }

func (s bucketStore) Settings() (store.Settings, bool) {
	return store.Settings{KMSKeyARN: "arn:aws:kms:" + s.keyRegion + ":123456789012:key/1"}, true
}

// regionalStores has one store in each of two regions.
type regionalStores struct{ cluster.Stores }

func (regionalStores) State(context.Context) (store.Store, store.Sealer, error) {
	return bucketStore{url: "s3://state", keyRegion: "us-east-1"}, nil, nil
}

func (regionalStores) Open(_ context.Context, url, _ string) (store.Store, store.Sealer, error) {
	return bucketStore{url: url, keyRegion: strings.TrimPrefix(url, "s3://")}, nil, nil
}

// TestMachineStoreIsInTheClustersRegion: machines ask S3 in their own region, so a store elsewhere is refused before
// anything is created.
func TestMachineStoreIsInTheClustersRegion(t *testing.T) {
	for _, c := range []struct{ base, region, want string }{
		{"", "us-east-1", ""},
		{"", "eu-west-1", "machines cannot read s3://state: it is in us-east-1"},
		{"s3://eu-west-1", "eu-west-1", ""},
		{"s3://us-east-1", "eu-west-1", "machines cannot read s3://us-east-1: it is in us-east-1"},
	} {
		var spec v1alpha1.Cluster
		spec.Spec.ConfigStore.Base = c.base
		spec.Spec.CloudProvider.AWS.Region = c.region
		env := &cluster.Env{Stores: regionalStores{}}
		_, _, err := env.OpenMachineStore(t.Context(), spec, c.region)
		if c.want == "" {
			if err != nil {
				t.Errorf("%+v: %v", c, err)
			}

			continue
		}

		if err == nil || !strings.HasPrefix(err.Error(), c.want) ||
			!strings.HasSuffix(err.Error(), "spec.cloudProvider.aws.region is eu-west-1") {
			t.Errorf("%+v: %v", c, err)
		}

		hints := strings.Join(diag.Hints(err), " ")
		if !strings.Contains(hints, "spec.configStore.base") || !strings.Contains(hints, "--region eu-west-1") {
			t.Errorf("%+v: hints %q", c, hints)
		}
	}
}
