// SPDX-License-Identifier: Apache-2.0

// Package drift compares what AWS has with what was applied last (Detect), and what a changed manifest
// would change with both (Diff). It changes nothing and takes no lock.
package drift

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// Report is how AWS differs from what was applied. It is also the output of 'slipway drift'.
type Report struct {
	// Cluster is the name of the cluster.
	Cluster string `json:"cluster"`
	// Applied is when, and by whom, the state that AWS is compared with was applied. Empty: no apply is
	// recorded, and AWS is compared with the manifests.
	Applied string `json:"applied,omitempty"`
	// Edited are the keys of the documents that were edited since.
	Edited []string `json:"edited"`
	// Drift are the differences.
	Drift []plan.Deviation `json:"drift"`
}

// compareWithApplied compares what exists with what was applied. It needs neither the agent nor images.
func compareWithApplied(
	ctx context.Context,
	env *cluster.Env,
	d *cluster.Desired,
	applied plan.LastApplied,
	report *Report,
) error {
	session, err := d.OpenSession(ctx, env)
	if err != nil {
		return err
	}

	g, err := applied.ToGraph(awskind.AllKinds())
	if err != nil {
		return diag.WithHint(
			err,
			"another version of slipway wrote it; rewrite it with: slipway apply "+session.Name+"",
		)
	}

	have, err := session.ReadResources(ctx, d.View, d.Manifests)
	if err != nil {
		return err
	}

	// Findings say what an apply could not repair; that does not matter here.
	p, _ := plan.Compute(g, have, plan.Options{DestroyData: true})

	report.Drift = append(report.Drift, p.Deviations(applied.Attempts, true)...)
	now, err := clusterstate.HashDocuments(ctx, d.View, session.Name)
	if err != nil {
		return err
	}

	all := maps.Clone(applied.Documents)
	maps.Copy(all, now)

	for _, key := range slices.Sorted(maps.Keys(all)) {
		if applied.Documents[key] != now[key] {
			report.Edited = append(report.Edited, key)
		}
	}

	gone, err := findMissingObjects(ctx, session, applied)
	report.Drift = append(report.Drift, gone...)
	if err != nil {
		return err
	}

	documents, err := session.CompareIssuerDocuments(ctx, d)
	for _, document := range documents {
		found := missingObject(session.Name, document.URL, plan.ExternalChange)
		if document.Exists {
			found.Type = plan.DeviationChanged
		}

		report.Drift = append(report.Drift, found)
	}

	return err
}

// findMissingObjects returns the published objects that new machines need and that are missing.
func findMissingObjects(
	ctx context.Context,
	session *cluster.Session,
	applied plan.LastApplied,
) ([]plan.Deviation, error) {
	machine, _, err := session.Env.Stores.Open(ctx, applied.MachineStore, session.Config.Region)
	if err != nil {
		return nil, err
	}

	keys, err := machine.List(ctx, session.Name+"/machine/")
	if err != nil {
		return nil, err
	}

	var out []plan.Deviation

	for _, key := range applied.Objects {
		if _, there := slices.BinarySearch(keys, key); !there {
			out = append(out, missingObject(session.Name, key, plan.ExternalChange))
		}
	}

	return out, nil
}

func missingObject(name, key string, by plan.DriftCause) plan.Deviation {
	return plan.Deviation{
		Type:      plan.DeviationMissing,
		Addr:      graph.Addr("object/" + strings.TrimPrefix(key, name+"/machine/")),
		Kind:      "object",
		ID:        key,
		ChangedBy: by,
	}
}

// compareWithManifests compares what exists with what the manifests want.
func compareWithManifests(
	ctx context.Context,
	env *cluster.Env,
	d *cluster.Desired,
	applied plan.LastApplied,
	report *Report,
) error {
	session, err := d.OpenSession(ctx, env)
	if err != nil {
		return err
	}

	if _, err := session.ComputePlan(ctx, d, cluster.PlanOptions{}); err != nil { // findings prevent an apply, not a comparison
		return err
	}

	report.Drift = append(report.Drift, d.Plan.Deviations(applied.Attempts, false)...)
	for _, key := range d.Unpublished {
		report.Drift = append(report.Drift, missingObject(report.Cluster, key, plan.NoApplyRecorded))
	}

	return nil
}

// Detect compares what exists with what was applied last or, if no apply is recorded, with the manifests.
func Detect(ctx context.Context, env *cluster.Env, name string) (Report, error) {
	report := Report{Cluster: name, Edited: []string{}, Drift: []plan.Deviation{}}
	d, err := cluster.Load(ctx, env, name)
	if err != nil {
		return report, err
	}

	applied, _, err := clusterstate.ReadLastApplied(ctx, d.View, name)
	if err != nil {
		return report, err
	}

	if len(applied.Resources) == 0 {
		env.Notifyf("no apply of cluster %s is recorded: AWS is compared with the manifests", name)
		err = compareWithManifests(ctx, env, d, applied, &report)

		return report, err
	}

	report.Applied = fmt.Sprintf("%s by %s", cluster.FormatTime(applied.AppliedAt), applied.AppliedBy)
	err = compareWithApplied(ctx, env, d, applied, &report)

	return report, err
}
