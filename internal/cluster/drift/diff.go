// SPDX-License-Identifier: Apache-2.0

package drift

import (
	"context"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/cluster/manifests"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// DiffReport is what applying edited manifests would change. It is also the output of 'slipway diff'.
type DiffReport struct {
	// Cluster is the name of the cluster.
	Cluster string `json:"cluster"`
	// Manifests are the changed fields, one line each. Empty: the manifests in the state store are compared.
	Manifests []string `json:"manifests"`
	// Plan of an apply of the manifests.
	Plan plan.Document `json:"plan"`
	// Drift are the addresses and properties of the plan that no edit changes. Nil: no apply is recorded.
	Drift []string `json:"drift"`
	// EditSteps are the part of the plan that follows from edits of the manifests, or from another agent, image
	// or catalogue.
	EditSteps []plan.Step `json:"editSteps"`
	// DriftSteps are the part of the plan that reverts what was changed in AWS since the last apply.
	DriftSteps []plan.Step `json:"driftSteps"`
	// Review is the plan for people.
	Review cluster.Review `json:"-"`
}

// splitDrift splits the steps of d's plan, in the report, into what an edit of the manifests changes and what was changed in
// AWS since the last apply. If no apply is recorded, everything belongs to the edit.
func splitDrift(ctx context.Context, env *cluster.Env, d *cluster.Desired, report *DiffReport) error {
	report.EditSteps = append([]plan.Step{}, d.Plan.Steps...)
	report.DriftSteps = []plan.Step{}
	applied, _, err := clusterstate.ReadLastApplied(ctx, d.View, d.Name())
	if err != nil || len(applied.Resources) == 0 {
		return err
	}

	g, err := applied.ToGraph(awskind.AllKinds())
	if err != nil {
		env.Notifyf("drift is unknown: %s", err)
		return nil
	}

	edit, drifted := d.Plan.SplitDrift(g)
	report.EditSteps = append([]plan.Step{}, edit...)
	report.DriftSteps = append([]plan.Step{}, drifted...)
	report.Drift = driftKeys(drifted)

	return nil
}

// driftKeys returns the addresses of steps, with their properties if they change some.
func driftKeys(steps []plan.Step) []string {
	out := []string{}
	for _, s := range steps {
		if len(s.Changes) == 0 {
			out = append(out, string(s.Addr))
		}

		for _, c := range s.Changes {
			out = append(out, string(s.Addr)+" "+c.Property)
		}
	}

	return out
}

// DiffRequest asks what edited manifests would change.
type DiffRequest struct {
	// Name of the cluster.
	Name string
	// Given are manifests that replace those of the state store. Nil: none.
	Given *manifest.Set
	// Findings of the parser about Given.
	Findings diag.Findings
	// Catalog is the path or URL of another asset catalogue. Empty: the one that the cluster is pinned to.
	Catalog string
	// Options are the risks that the plan takes.
	Options cluster.PlanOptions
}

// Diff computes what applying the manifests would change. If findings prevent the plan from being applied,
// the report is returned together with them as an error of type [diag.Findings].
func Diff(ctx context.Context, env *cluster.Env, req DiffRequest) (*DiffReport, error) {
	d, err := cluster.Load(ctx, env, req.Name)
	if err != nil {
		return nil, err
	}

	report := &DiffReport{Cluster: req.Name, Manifests: []string{}}
	if req.Given != nil {
		if report.Manifests, err = mergeGiven(ctx, d, req); err != nil {
			return nil, err
		}
	}

	session, err := d.OpenSession(ctx, env)
	if err != nil {
		return nil, err
	}

	findings, err := session.ComputePlan(ctx, d, req.Options)
	if err != nil {
		return nil, err
	}

	report.Review = d.Review()
	report.Plan = report.Review.Document()
	if err := splitDrift(ctx, env, d, report); err != nil {
		return nil, err
	}

	return report, findings.Err()
}

// mergeGiven merges the given manifests into those of d and returns the fields that change, one line each.
func mergeGiven(ctx context.Context, d *cluster.Desired, req DiffRequest) ([]string, error) {
	change, err := manifests.LoadChange(ctx, d.View, req.Name, req.Catalog)
	if err != nil {
		return nil, err
	}

	after, findings := change.Check(*req.Given, req.Findings)
	if err := findings.Err(); err != nil {
		return nil, err
	}

	d.Manifests = after

	return append([]string{}, change.Lines(after)...), nil
}
