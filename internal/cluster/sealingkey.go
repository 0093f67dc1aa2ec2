// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws/arn"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/iampolicy"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// CheckTrust returns an error if what d was computed from was written by somebody who can write to the state store and
// nothing else. Call it after BuildGraph, with the resources in AWS if they were read.
func (session *Session) CheckTrust(ctx context.Context, d *Desired, actual []plan.ActualResource) error {
	if err := session.CheckSealingKey(ctx, d, actual); err != nil {
		return err
	}

	if err := checkBoundary(ctx, d.MachineStore); err != nil {
		return err
	}

	return session.checkSignature(ctx, d, actual)
}

// CheckSealingKey returns an error if the settings of the machine store name another key than that of its bucket. The
// settings go into node documents and into the policies of roles, so whoever can write to the bucket must not choose
// the key. It costs a call of KMS, unless a role of a machine in AWS has the key already, which nobody can change
// through the bucket, or keys are about to be sealed, which compares as well. Call it after BuildGraph.
func (session *Session) CheckSealingKey(ctx context.Context, d *Desired, actual []plan.ActualResource) error {
	settings, err := readStoreSettings(ctx, d.MachineStore)
	if err != nil || settings.KMSKeyARN == "" {
		return err
	}

	if d.sealsKeys || rolesUseKey(actual, settings.KMSKeyARN) {
		return nil
	}

	return store.CheckSealingKey(ctx, d.MachineSealer)
}

// rolesUseKey reports whether the policy of a machine's role names the key.
func rolesUseKey(actual []plan.ActualResource, key string) bool {
	for _, r := range actual {
		policy, ok := r.Resource.(awskind.IAMRolePolicy)
		if ok && policy.Name == "machine" && strings.Contains(string(policy.Document), `"`+key+`"`) {
			return true
		}
	}

	return false
}

// checkBoundary returns an error if the settings of the machine store name another permissions boundary of machines than
// that of its bucket: roles would get it with the next apply of an administrator.
func checkBoundary(ctx context.Context, machine store.Store) error {
	settings, err := readStoreSettings(ctx, machine)
	if err != nil || settings.MachineBoundaryARN == "" {
		return err
	}

	place, err := store.ParseURL(machine.URL())
	if err != nil {
		return err
	}

	if found, err := arn.Parse(settings.MachineBoundaryARN); err == nil &&
		settings.MachineBoundaryARN == iampolicy.BoundaryARN(found.Partition, found.AccountID, place.Bucket) {
		return nil
	}

	return diag.WithHint(
		fmt.Errorf(
			"%s in %s names the permissions boundary %s, which is not that of bucket %s",
			store.SettingsKey,
			machine.URL(),
			settings.MachineBoundaryARN,
			place.Bucket,
		),
		"find out who changed the state store, and restore the earlier version of "+store.SettingsKey,
	)
}
