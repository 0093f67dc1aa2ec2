// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"

	"github.com/slipway-k8s/slipway/internal/cluster/operation"
	"github.com/slipway-k8s/slipway/internal/cluster/planfile"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// isPlanFile says whether an argument of apply is a file: no cluster has a dot or a slash in its name.
func isPlanFile(arg string) bool { return strings.ContainsAny(arg, "./\\") }

// planIdentity is what t is the place of.
func (t *clusterSession) planIdentity(ctx context.Context, s store.Store) (planfile.ClusterIdentity, error) {
	who, err := t.callerIdentity(ctx)
	return planfile.ClusterIdentity{
		Cluster:   t.name,
		Account:   who.Account,
		Partition: who.Partition,
		Region:    t.cfg.Region,
		Endpoint:  sdk.ToString(t.cfg.BaseEndpoint),
		State:     s.URL(),
	}, err
}

// buildPlanFile is d's plan as it is saved, with fingerprints of all that it was made from.
func (t *clusterSession) buildPlanFile(
	ctx context.Context,
	s store.Store,
	d *desiredState,
) (planfile.File, error) {
	id, err := t.planIdentity(ctx, s)
	if err != nil {
		return planfile.File{}, err
	}

	doc, err := json.Marshal(d.planDocument(t.name))
	if err != nil {
		return planfile.File{}, fmt.Errorf("encode the plan: %w", err)
	}

	from := s
	if d.stateView != nil {
		from = d.stateView // it has read them already, and the plan was made from those
	}

	docs, err := documentDigests(ctx, from, t.name)

	return planfile.File{
		Tool:        toolVersion(),
		CreatedAt:   t.app.Now().UTC(),
		CreatedBy:   t.app.describeOperator("").Owner,
		Identity:    id,
		Destroy:     d.destroy,
		DestroyData: t.options.destroyData,
		Plan:        doc,
		Documents:   docs,
		Actual:      d.plan.FingerprintActual(),
		Desired:     d.plan.FingerprintDesired(),
	}, err
}

// toolVersion tells builds apart, also those that have no version of their own.
func toolVersion() string {
	v := buildVersion()
	return strings.TrimSpace(v.Version + " " + v.Commit)
}

// documentDigests are the hashes of the cluster's documents that are public and that a plan is made from.
func documentDigests(ctx context.Context, s store.Store, name string) (map[string]string, error) {
	keys, err := s.List(ctx, manifest.GroupKey(name, ""))
	if err != nil {
		return nil, err
	}

	out := map[string]string{}

	for _, key := range append(keys, manifest.ClusterKey(name), manifest.AssetsKey(name), pki.CertsObjectKey(name)) {
		o, err := s.Get(ctx, key)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}

		if err != nil {
			return nil, err
		}

		sum := sha256.Sum256(o.Body)
		out[key] = hex.EncodeToString(sum[:])
	}

	return out, nil
}

// savePlanFile writes d's plan into a file that only its owner can read.
func (t *clusterSession) savePlanFile(
	ctx context.Context,
	s store.Store,
	d *desiredState,
	path string,
) error {
	f, err := t.buildPlanFile(ctx, s, d)
	if err != nil {
		return err
	}

	body, err := f.Encode()
	if err != nil {
		return err
	}

	if err := writePrivateFile(path, body); err != nil {
		return fmt.Errorf("save the plan: %w", err)
	}

	arg := path
	if !isPlanFile(path) {
		arg = "./" + path
	}

	t.app.printMessage("saved the plan in %s; to do exactly this: slipway apply %s --yes", path, arg)

	return nil
}

func readPlanFile(path string) (planfile.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return planfile.File{}, withHint(
			fmt.Errorf("read the plan: %w", err),
			"an argument with a dot or a slash is a saved plan; make one with: slipway plan NAME --out FILE",
		)
	}

	defer f.Close() //nolint:errcheck // only read
	body, err := io.ReadAll(io.LimitReader(f, planfile.MaxSize))
	if err != nil {
		return planfile.File{}, fmt.Errorf("read the plan: %w", err)
	}

	saved, err := planfile.Parse(body)
	if err != nil {
		return saved, fmt.Errorf("the file %s %w", path, err)
	}

	return saved, nil
}

// applySavedPlan does what a saved plan says, if everything is as it was. The plan is made again under the lock and has to
// come out the same, so nothing that the file says is taken on trust.
func (a *app) applySavedPlan(ctx context.Context, path string, o clusterOptions) error {
	saved, err := readPlanFile(path)
	if err != nil {
		return err
	}

	name := saved.Identity.Cluster
	if err := a.checkPlanFlags(saved, path, o); err != nil {
		return err
	}

	s, _, err := a.openStore(ctx)
	if err != nil {
		return err
	}

	o.destroyData = saved.DestroyData
	// Before anything is locked or read: is this the place?
	t, err := a.newClusterSession(ctx, o, name, saved.Identity.Region)
	if err != nil {
		return err
	}

	here, err := t.planIdentity(ctx, s)
	if err != nil {
		return err
	}

	if lines := saved.IdentityMismatches(here); len(lines) > 0 {
		return a.printRefusals(
			lines,
			fmt.Errorf("the plan %s is not for this place; nothing was changed", path),
			"apply it where it was made, or make a new plan",
		)
	}

	once := func(ctx context.Context, op *operation.Operation, s store.Store) error {
		return a.applySavedLocked(ctx, op, s, savedPlan{saved, path, o})
	}
	if !a.canConfirm() {
		return once(ctx, nil, s)
	}

	kind := "apply"
	if saved.Destroy {
		kind = "delete"
	}

	return a.runOperation(ctx, s, name, kind, once)
}

// checkPlanFlags refuses flags that say another place than the plan does.
func (a *app) checkPlanFlags(saved planfile.File, path string, o clusterOptions) error {
	name := saved.Identity.Cluster
	if o.name != "" && o.name != name {
		return withHint(
			fmt.Errorf("the plan %s is for cluster %s, not %s", path, name, o.name),
			"leave --name out",
		)
	}

	if a.region != "" && a.region != saved.Identity.Region {
		return withHint(
			fmt.Errorf("the plan %s is for region %s, not %s", path, saved.Identity.Region, a.region),
			"leave --region out",
		)
	}

	return checkName(name)
}

// savedPlan is a plan file that was read, and how it is to be applied.
type savedPlan struct {
	planfile.File
	path    string
	options clusterOptions
}

func (a *app) applySavedLocked(
	ctx context.Context,
	op *operation.Operation,
	s store.Store,
	saved savedPlan,
) error {
	t, d, err := a.planApplyOrDestroy(ctx, s, saved.Identity.Cluster, saved.options, saved.Destroy)
	if t != nil {
		defer t.printCalls()
	}

	if d == nil {
		return err
	}

	now, fileErr := t.buildPlanFile(ctx, s, d)
	if fileErr != nil {
		return fileErr
	}

	if lines := saved.StaleReasons(now); len(lines) > 0 {
		hint := fmt.Sprintf(
			"look at what changed, then make a new plan: slipway plan %s --out %s",
			t.name,
			saved.path,
		)

		return a.printRefusals(
			lines,
			fmt.Errorf(
				"the plan %s, which %s made at %s, is stale; nothing was changed",
				saved.path,
				saved.CreatedBy,
				formatTime(saved.CreatedAt),
			),
			hint,
		)
	}

	if err != nil {
		return err
	}

	t.operation = op
	t.guardedState = s
	if saved.Destroy {
		return t.destroyLocked(ctx, op, d)
	}

	return t.applyDesired(ctx, d)
}

// printRefusals lists why, one a line, and returns err.
func (a *app) printRefusals(lines []string, err error, hint string) error {
	for _, line := range lines {
		fmt.Fprintf(a.Stderr, "%s %s\n", a.colorText(a.Stderr, red, "refused:"), line)
	}

	return withHint(err, hint)
}
