// SPDX-License-Identifier: Apache-2.0

// Package tokenkeys rotates the key with which a cluster signs the tokens of its service accounts,
// without a time in which tokens are refused.
//
// A rotation has three steps. Each changes the keys in the state store and signs them. Before the
// next one, all machines of the control plane must have the keys: apply publishes them, also for
// STS, and a rolling update replaces the machines.
package tokenkeys

import (
	"context"
	"fmt"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/apply"
	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/cluster/operation"
	"github.com/slipway-k8s/slipway/internal/cluster/rollingupdate"
	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// operationKind is a step in the journal.
const operationKind = "rotate-token-key"

// NextStep returns the step that comes next. It reads only.
func NextStep(ctx context.Context, env *cluster.Env, name string) (pki.RotationStep, error) {
	state, sealer, err := env.Stores.State(ctx)
	if err != nil {
		return "", err
	}

	if _, err := verify(ctx, state, name); err != nil {
		return "", err
	}

	r, err := pki.PlanTokenKeyRotation(ctx, state, sealer, name)

	return r.Step, err
}

// CheckReady returns an error if a step cannot follow yet: AWS does not match the manifests, so what the
// last step changed was not applied; or a machine of the control plane is older than its launch
// template, so it may not have the keys of the last step. A new key may be added before all machines
// have been replaced: it signs nothing yet.
func CheckReady(
	ctx context.Context,
	env *cluster.Env,
	req apply.Request,
	step pki.RotationStep,
) error {
	planned, err := apply.Plan(ctx, env, apply.PlanRequest{Request: req})
	if err != nil {
		return err
	}

	if planned.Review.HasChanges() {
		return diag.WithHint(
			fmt.Errorf(
				"cluster %s has changes that were not applied: machines may not have the keys of the last step",
				req.Name,
			),
			"apply them: slipway apply "+req.Name+" --yes",
		)
	}

	if step == pki.RotationAdd {
		return nil
	}

	status, err := rollingupdate.ReadStatus(ctx, env, req.Name, 0)
	if err != nil {
		return err
	}

	return checkStatus(status)
}

// checkStatus returns an error if a machine of the control plane is not up to date.
func checkStatus(status rollingupdate.Status) error {
	controlPlane := 0
	for _, m := range status.Machines {
		if m.Slot == "" {
			continue
		}

		controlPlane++
		if m.Step != rollout.StepUpdated {
			return diag.WithHint(
				fmt.Errorf("machine %s of slot %s does not have the keys of the last step yet", m.Machine, m.Slot),
				"replace the machines of the control plane: slipway rolling-update cluster "+status.Cluster+" --yes",
			)
		}
	}

	if controlPlane == 0 {
		return fmt.Errorf("cluster %s has no machines of the control plane that could be compared", status.Cluster)
	}

	return nil
}

// Run carries a step out under the lock of the cluster. It fails if another one is next meanwhile.
func Run(ctx context.Context, env *cluster.Env, name string, step pki.RotationStep) error {
	state, sealer, err := env.Stores.State(ctx)
	if err != nil {
		return err
	}

	set, err := clusterstate.LoadManifests(ctx, state, name)
	if err != nil {
		return err
	}

	req := cluster.OperationRequest{Store: state, Cluster: name, Kind: operationKind}

	return env.RunOperation(ctx, req, func(ctx context.Context, op *operation.Operation, guarded store.Store) error {
		op.UpdateRecord(func(r *operation.Record) { r.Documents = []string{pki.CertsObjectKey(name)} })

		before, err := verify(ctx, guarded, name)
		if err != nil {
			return err
		}

		r, err := pki.PlanTokenKeyRotation(ctx, guarded, sealer, name)
		if err != nil {
			return err
		}

		if r.Step != step {
			return fmt.Errorf("the next step is %s, not %s any more: somebody else has rotated the key; rerun", r.Step, step)
		}

		change := cluster.SignedChange{
			Cluster:   name,
			Region:    set.Cluster.Spec.CloudProvider.AWS.Region,
			Before:    before,
			Documents: map[string][]byte{r.Certs.Key: r.Body},
		}

		return env.RunSigned(ctx, guarded, change, func() error { return r.Write(ctx, guarded) })
	})
}

// verify returns the documents of a cluster as they are signed. Those without a signature are
// refused: whoever could change them could have a key of their own trusted.
func verify(ctx context.Context, s store.Store, name string) (clusterstate.Signed, error) {
	signed, err := clusterstate.VerifyDocuments(ctx, s, name)
	if err == nil && !signed.Exists() {
		err = diag.WithHint(
			fmt.Errorf("the documents of cluster %s are not signed", name),
			"review and sign them: slipway state sign "+name,
		)
	}

	return signed, err
}
