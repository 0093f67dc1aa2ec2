// SPDX-License-Identifier: Apache-2.0

package clusterstate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// Provisioner creates the resources of a cluster in AWS. Empty: not chosen yet.
type Provisioner string

// The provisioners. A cluster has one for its whole life: two would undo each other's changes.
const (
	Direct         Provisioner = "direct"
	CloudFormation Provisioner = "cloudformation"
)

// provisionerRecord is the stored form.
type provisionerRecord struct {
	Via Provisioner `json:"via"`
	// NoDNS is true if the cluster never had a hosted zone or DNS records, so that nobody needs to look for them.
	NoDNS bool `json:"noDns,omitempty"`
}

// provisionerKey is the key of the record in the state store.
func provisionerKey(name string) string { return name + "/provisioner.json" }

// legacyProvisionerKey is the key under which earlier versions stored the record. It is read, never written.
func legacyProvisionerKey(name string) string { return name + "/way.json" }

// ReadProvisioner returns the recorded provisioner of a cluster. It is empty if nothing was created yet, or
// if a slipway created it that did not record provisioners.
func ReadProvisioner(ctx context.Context, s store.Store, name string) (Provisioner, error) {
	record, _, err := readProvisionerRecord(ctx, s, name)

	return record.Via, err
}

// HadNoDNS reports whether it is recorded that the cluster never had a hosted zone or DNS records.
func HadNoDNS(ctx context.Context, s store.Store, name string) (bool, error) {
	record, _, err := readProvisionerRecord(ctx, s, name)

	return record.NoDNS, err
}

// RecordDNS records that the cluster may have a hosted zone or DNS records from now on. Call it before the first
// of them is created. It returns the object written; the zero object if there was nothing to change.
func RecordDNS(ctx context.Context, read, write store.Store, name string) (store.Object, error) {
	record, was, err := readProvisionerRecord(ctx, read, name)
	if err != nil || !record.NoDNS {
		return store.Object{}, err
	}

	record.NoDNS = false
	o := store.Object{Key: was.Key}
	if o.Body, err = json.Marshal(record); err != nil {
		return o, fmt.Errorf("print %s: %w", o.Key, err)
	}

	o.ETag, err = write.Update(ctx, o.Key, o.Body, was.ETag)

	return o, err
}

func readProvisionerRecord(
	ctx context.Context,
	s store.Store,
	name string,
) (provisionerRecord, store.Object, error) {
	for _, key := range []string{provisionerKey(name), legacyProvisionerKey(name)} {
		o, err := s.Get(ctx, key)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}

		if err != nil {
			return provisionerRecord{}, o, err
		}

		var record provisionerRecord
		if err := json.Unmarshal(o.Body, &record); err != nil {
			return record, o, fmt.Errorf("read %s of %s: %w", key, s.URL(), err)
		}

		return record, o, nil
	}

	return provisionerRecord{}, store.Object{}, nil
}

// EnsureProvisioner records the provisioner of a cluster unless the record has it. A record of another
// provisioner is an error that wraps [store.ErrConflict]. Call it before anything is created.
func EnsureProvisioner(ctx context.Context, s store.Store, name string, via Provisioner) error {
	have, err := ReadProvisioner(ctx, s, name)
	if err != nil || have == via {
		return err
	}

	if have != "" { // a record under the legacy key does not conflict with the one to create
		return newProvisionerConflict(name, store.ErrConflict)
	}

	_, err = CreateProvisionerRecord(ctx, s, name, via, false)

	return err
}

// CreateProvisionerRecord writes the record of a cluster that had none when the caller last looked. It
// returns the object written; the zero object if an earlier, equal write of ours had succeeded. noDNS is true if
// the cluster has no hosted zone and no DNS records, and this apply creates none.
func CreateProvisionerRecord(
	ctx context.Context,
	s store.Store,
	name string,
	via Provisioner,
	noDNS bool,
) (store.Object, error) {
	o := store.Object{Key: provisionerKey(name)}
	var err error
	if o.Body, err = json.Marshal(provisionerRecord{Via: via, NoDNS: noDNS}); err != nil {
		return o, fmt.Errorf("print %s: %w", o.Key, err)
	}

	if o.ETag, err = s.Create(ctx, o.Key, o.Body); !errors.Is(err, store.ErrConflict) {
		return o, err
	}

	if have, readErr := ReadProvisioner(ctx, s, name); readErr == nil &&
		have == via { // our own write succeeded, and its answer was lost
		return store.Object{}, nil
	}

	return o, newProvisionerConflict(name, err)
}

func newProvisionerConflict(name string, err error) error {
	return fmt.Errorf("another process is creating cluster %s: %w", name, err)
}

// ChooseProvisioner returns the provisioner of a cluster: the recorded one, else via, else [Direct]. It
// refuses an unknown via, and one that differs from the record.
func ChooseProvisioner(
	ctx context.Context,
	s store.Store,
	name string,
	via Provisioner,
) (Provisioner, error) {
	if via != "" && via != Direct && via != CloudFormation {
		return "", diag.WithHint(
			fmt.Errorf("invalid --via %q: want direct or cloudformation", via),
			"use --via direct or --via cloudformation",
		)
	}

	have, err := ReadProvisioner(ctx, s, name)
	if err != nil {
		return "", err
	}

	if have != "" && via != "" && have != via {
		return "", diag.WithHint(
			fmt.Errorf(
				"cluster %s was created by the provisioner %s, not %s: they would undo each other's changes",
				name,
				have,
				via,
			),
			"omit --via; to change the provisioner, delete the cluster and create it again",
		)
	}

	return cmp.Or(have, via, Direct), nil
}
