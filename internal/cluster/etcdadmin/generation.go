// SPDX-License-Identifier: Apache-2.0

package etcdadmin

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path"
	"strconv"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// authority opens the Kubernetes CA of a cluster, whose key signs generations.
type authority func(context.Context) (pki.CA, error)

// openAuthority returns the authority of a cluster in the state store. Its key is decrypted once.
func openAuthority(env *cluster.Env, name string) authority {
	var opened *pki.CA

	return func(ctx context.Context) (pki.CA, error) {
		if opened != nil {
			return *opened, nil
		}

		state, sealer, err := env.Stores.State(ctx)
		if err != nil {
			return pki.CA{}, err
		}

		ca, err := pki.OpenCA(ctx, state, sealer, name, pki.KubernetesCA)
		if err != nil {
			return pki.CA{}, err
		}

		opened = &ca

		return ca, nil
	}
}

// authorityRecords signs and verifies the records of backups with the Kubernetes CA, as machines do.
type authorityRecords struct{ ca pki.CA }

// Sign implements [backup.Records].
func (r authorityRecords) Sign(key string, record any) ([]byte, error) {
	return node.SignRecord(key, record, r.ca.Key())
}

// Read implements [backup.Records].
func (r authorityRecords) Read(body []byte, key string, record any) error {
	return node.ReadRecord(body, key, string(r.ca.CertsPEM()), record)
}

// lastGeneration returns the newest generation, nil if there is none, and the slots that have its data. If its signature is not valid,
// which an earlier version does not make, only its number is known: it is not continued.
func (a *Admin) lastGeneration(ctx context.Context) (*etcd.Generation, []string, error) {
	keys, err := a.archive.Store.List(ctx, node.EtcdGenerationPrefix(a.name))
	if err != nil || len(keys) == 0 {
		return nil, nil, err
	}

	key := keys[len(keys)-1]
	o, err := a.archive.Store.Get(ctx, key)
	if err != nil {
		return nil, nil, err
	}

	ca, err := a.authority(ctx)
	if err != nil {
		return nil, nil, err
	}

	var out etcd.Generation
	err = node.ReadRecord(o.Body, key, string(ca.CertsPEM()), &out)
	if node.IsUntrusted(err) {
		out.Number, err = strconv.Atoi(path.Base(key))
	}

	if err != nil {
		return nil, nil, fmt.Errorf("read the newest restoration in %s: %w", a.archive.Store.URL(), err)
	}

	restored, err := a.listRestored(ctx, out.Number)

	return &out, restored.Signed, err
}

// beginGeneration signs and writes the generation of a plan. From then on no member uses older data.
func (a *Admin) beginGeneration(ctx context.Context, plan RestorePlan) error {
	ca, err := a.authority(ctx)
	if err != nil {
		return err
	}

	key := node.EtcdGenerationKey(a.name, plan.Generation)
	body, err := node.SignRecord(key, etcd.Generation{
		Number:    plan.Generation,
		Token:     rand.Text(),
		Backup:    plan.Backup.ID,
		Bytes:     plan.Backup.DBSize,
		Slot:      plan.Slot,
		Volume:    plan.volume,
		CreatedAt: a.env.Now().UTC(),
		By:        a.env.User,
	}, ca.Key())
	if err != nil {
		return err
	}

	_, err = a.archive.Store.Create(ctx, key, body)
	if errors.Is(err, store.ErrConflict) {
		return diag.WithHint(
			fmt.Errorf("another restoration of etcd of cluster %s has begun: %w", a.name, err),
			"see: slipway history "+a.name+"; rerun the command to plan again",
		)
	}

	return err
}
