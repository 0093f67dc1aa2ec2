// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kms"

	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// TestInitWaitsUntilAWSSeesItsResources initializes a store and a discovery store where AWS does not see a new bucket, a new key
// and its alias at once. There is one key, and the store can be used as soon as the last step has ended.
func TestInitWaitsUntilAWSSeesItsResources(t *testing.T) {
	for _, calls := range []int{0, 1, 5} { // 0: not seen for a time
		synctest.Test(t, func(t *testing.T) {
			r := regiontest.StartWith(t, regiontest.Options{InProcess: true, VisibilityDelay: regiontest.LikeAWS})
			if calls > 0 {
				r.DelayVisibility(calls)
			}

			opts := store.Options{AWS: func(context.Context) (aws.Config, error) { return r.AWSConfig(), nil }}
			url := "s3://" + testBucket() + "/prod"
			mustInit(t, url, store.PlanInit, opts)
			_, sealer, err := store.Open(t.Context(), url, opts)
			if err == nil {
				_, err = sealer.Seal(t.Context(), []byte("key"), map[string]string{"name": "ca"})
			}

			if err != nil {
				t.Errorf("%d stale calls: the next command fails: %v", calls, err)
			}

			mustInit(t, "s3://"+testBucket()+"/issuers", store.PlanDiscoveryInit, opts)

			if steps, err := store.PlanInit(t.Context(), url, opts); err != nil || len(steps) > 0 {
				t.Errorf("%d stale calls: %d steps are left: %v", calls, len(steps), err)
			}

			r.DelayVisibility(0)

			keys, err := kms.NewFromConfig(r.AWSConfig()).ListKeys(t.Context(), &kms.ListKeysInput{})
			if err != nil || len(keys.Keys) != 1 {
				t.Errorf("%d stale calls: %d keys: %v", calls, len(keys.Keys), err)
			}

			time.Sleep(time.Minute)
		})
	}
}

// mustInit creates the store at url.
func mustInit(
	t *testing.T,
	url string,
	plan func(context.Context, string, store.Options) ([]store.InitStep, error),
	opts store.Options,
) {
	t.Helper()
	steps, err := plan(t.Context(), url, opts)
	if err == nil {
		err = store.RunInitSteps(t.Context(), steps, func(store.InitStep) {})
	}

	if err != nil {
		t.Fatalf("%s: %v", url, err)
	}
}

// TestInitCreatesOneKey: KMS does not see a new key for longer than initialization waits. It fails, and has created one key, since each
// costs a dollar a month.
func TestInitCreatesOneKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := regiontest.StartWith(t, regiontest.Options{InProcess: true})
		opts := store.Options{AWS: func(context.Context) (aws.Config, error) { return r.AWSConfig(), nil }}
		steps, err := store.PlanInit(t.Context(), "s3://"+testBucket()+"/prod", opts)
		if err != nil {
			t.Fatal(err)
		}

		// Only what follows the bucket is late.
		isLate := false
		err = store.RunInitSteps(t.Context(), steps, func(store.InitStep) {
			if !isLate {
				isLate = true
				r.DelayVisibility(1000)
			}
		})
		if err == nil {
			t.Error("the store was initialized with a key that KMS does not see")
		}

		r.DelayVisibility(0)
		keys, err := kms.NewFromConfig(r.AWSConfig()).ListKeys(t.Context(), &kms.ListKeysInput{})
		if err != nil || len(keys.Keys) != 1 {
			t.Errorf("%d keys: %v", len(keys.Keys), err)
		}

		time.Sleep(time.Minute)
	})
}
