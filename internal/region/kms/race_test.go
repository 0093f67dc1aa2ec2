// SPDX-License-Identifier: Apache-2.0

package kms_test

import (
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go/service/kms"

	regionkms "github.com/slipway-k8s/slipway/internal/region/kms"
	"github.com/slipway-k8s/slipway/internal/region/state"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// TestAnswersAreCopies: an answer is encoded without the service's lock, so it must not point into the state: a later
// ScheduleKeyDeletion would change it, or race with the encoder.
func TestAnswersAreCopies(t *testing.T) {
	t.Parallel()
	svc, err := regionkms.New(regionkms.Config{
		Region:  "us-east-1",
		Account: "000000000000",
		State:   state.Dir(t.TempDir()),
		Now:     time.Now,
	})
	if err != nil {
		t.Fatal(err)
	}

	call := func(op string, fill func(any)) any {
		t.Helper()
		out, err := wire.Call(t.Context(), svc.Wire(), op, func(in any) error { fill(in); return nil })
		if err != nil {
			t.Fatal(err)
		}

		return out
	}
	created, _ := call("CreateKey", func(any) {}).(*sdk.CreateKeyOutput)
	id := created.KeyMetadata.KeyId
	described, _ := call("DescribeKey", func(in any) { in.(*sdk.DescribeKeyInput).KeyId = id }).(*sdk.DescribeKeyOutput)
	call("ScheduleKeyDeletion", func(in any) { in.(*sdk.ScheduleKeyDeletionInput).KeyId = id })

	for op, m := range map[string]*sdk.KeyMetadata{
		"CreateKey":   created.KeyMetadata,
		"DescribeKey": described.KeyMetadata,
	} {
		if *m.KeyState != sdk.KeyStateEnabled {
			t.Errorf("the answer of %s changed to %s after it was returned", op, *m.KeyState)
		}
	}
}
