// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/machine/addon"
	"github.com/slipway-k8s/slipway/internal/machine/addon/applier"
	"github.com/slipway-k8s/slipway/internal/machine/follow"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

const (
	addonInterval = 20 * time.Second
	// addonLease is how long a machine that applied the add-ons last may be silent until another one does it. It is
	// two runs and the time that one takes.
	addonLease     = 45 * time.Second
	addonLeaseName = "slipway-addons"
)

// addonTask applies the add-ons of every cluster, if this machine of the control plane is elected for it.
type addonTask struct {
	agent    *Agent
	api      kube.Client
	election *election
}

func newAddonTask(a *Agent, api kube.Client) *addonTask {
	return &addonTask{agent: a, api: api, election: &election{
		api:      api,
		name:     addonLeaseName,
		holder:   a.instance.ID,
		duration: addonLease,
		now:      a.Now,
	}}
}

// run applies the add-ons of this machine's version, unless an older machine of the control plane does it, or another
// machine is elected.
func (t *addonTask) run(ctx context.Context) error {
	a := t.agent
	values := addonValues(a.doc)
	values.AWSEndpoint = a.AWSEndpoint
	releases, err := addon.Releases(values, a.doc.KubernetesVersion)
	if err != nil {
		return err
	}

	if err := a.awaitReadyz(ctx, t.api); err != nil {
		return err
	}

	if older, err := findOlderServer(ctx, t.api, a.doc.KubernetesVersion); err != nil || older {
		return err
	}

	if err := a.claimAddons(ctx); err != nil {
		return err
	}

	if elected, err := t.election.lead(ctx); err != nil || !elected {
		return err
	}

	return t.apply(ctx, releases)
}

// apply makes the cluster have the add-ons, and deletes what an earlier version of Slipway had and this one has not.
func (t *addonTask) apply(ctx context.Context, releases []applier.Release) error {
	a := t.agent
	engine := &applier.Applier{
		Client:         objectClient{api: t.api},
		Mapper:         addon.NewMapper(),
		FieldManager:   kube.FieldManager,
		Force:          true,
		IsControlPlane: true,
		DoNotWait:      true,
		Now:            a.Now,
		Wait:           a.Wait,
		Notify:         func(message string) { a.Log.Info("add-on", slog.String("change", message)) },
	}

	plan, planErr := engine.Plan(ctx, addon.Channel, releases)
	_, err := engine.Apply(ctx, plan) // an add-on that is refused does not stop the others
	if planErr != nil || err != nil {
		return errors.Join(planErr, err)
	}

	return deleteLeft(ctx, engine, plan.Left)
}

// deleteLeft deletes the add-ons that clusters no longer have.
func deleteLeft(ctx context.Context, engine *applier.Applier, left []applier.Inventory) error {
	var errs []error
	for _, i := range left {
		deletions, err := engine.PlanDeletion(left, []string{i.Name})
		if err != nil {
			errs = append(errs, err)
			continue
		}

		for _, d := range deletions {
			errs = append(errs, engine.Delete(ctx, d))
		}
	}

	return errors.Join(errs...)
}

// addonValues returns the parameters of the add-ons that a document has.
func addonValues(d node.Document) addon.Values {
	return addon.Values{
		PodCIDR:     d.Network.PodCIDR,
		ServiceCIDR: d.Network.ServiceCIDR,
		DNSIP:       d.Network.DNSIP,
		DNSDomain:   d.Network.DNSDomain,
		Images:      d.Images,
		AdminGroup:  pki.AdminGroup,
		WireGuard:   d.Network.FlannelBackend == v1alpha1.FlannelWireGuard,
		VPCPods:     d.HasVPCPods(),
		Cluster:     d.Cluster,
		Region:      d.Region,
		VPCCNIRole:  d.Network.VPCCNIRole,

		NetworkOfChannel: d.HasNetworkOfChannel(),
	}
}

// claimAddons returns a notReadyError if a machine with a newer revision applies the add-ons, so that machines of two
// revisions do not undo each other's changes.
func (a *Agent) claimAddons(ctx context.Context) error {
	status := a.documentStatus.Load()
	if status == nil {
		return nil
	}

	if status.otherAddons {
		return newNotReadyError("the add-ons of the current revision need a new machine")
	}

	lock := newUpdateLock(a)
	record, _, err := lock.read(ctx)
	switch {
	case err != nil:
		return err
	case record.AddOns > status.Serial:
		return newNotReadyError("machines with revision %d apply the add-ons", record.AddOns)
	case record.AddOns == status.Serial:
		return nil
	}

	return lock.change(ctx, func(l follow.Lock) follow.Lock {
		l.AddOns = max(l.AddOns, status.Serial)
		return l
	})
}

// awaitReadyz waits at most addonPatience until the API server is ready, so that add-ons are applied at once
// then: until administrators have their rules, no other machine may connect. It returns a notReadyError.
func (a *Agent) awaitReadyz(ctx context.Context, api kube.Client) error {
	deadline := a.Now().Add(addonPatience)
	for {
		_, err := api.Do(ctx, http.MethodGet, "/readyz", "", nil)
		if err == nil {
			return nil
		}

		if !a.Now().Before(deadline) {
			return newNotReadyError("%v", err)
		}

		if err := a.Wait(ctx, gateInterval); err != nil {
			return err
		}
	}
}

// addonPatience is below the time limit of a task.
const addonPatience = 20 * time.Second
