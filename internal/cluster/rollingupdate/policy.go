// SPDX-License-Identifier: Apache-2.0

package rollingupdate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// defaultDrainTimeout is 15 minutes, as in kops.
const defaultDrainTimeout = 15 * time.Minute

// settings are the settings of one group: those of the request, else of the group, else of the cluster.
type settings struct {
	maxUnavailable manifest.MachineLimit
	maxSurge       manifest.MachineLimit
	canary         manifest.MachineLimit
	surgeIsSet     bool          // maxSurge is not the default
	drainTimeout   time.Duration // 0: no limit
	pauseBetween   time.Duration
	maxFailures    int
	rollsBack      bool
	gates          []v1alpha1.Gate // of the group alone
}

// policy returns the limits of a group of this size.
func (s settings) policy(size int) rollout.Policy {
	return rollout.Policy{
		MaxUnavailable: s.maxUnavailable.RoundDown(size),
		MaxSurge:       s.maxSurge.RoundUp(size),
		Canary:         s.canary.RoundUp(size),
		PauseBetween:   s.pauseBetween,
		MaxFailures:    s.maxFailures,
	}
}

// leastSlots is the number of slots from which one may be handed over. A machine that is detached from its group gets no
// connections from load balancers, so another one must serve the API.
const leastSlots = 3

// handOverSurge returns the MaxSurge of a slot: by default, control-plane machines hand over their slots.
func (s settings) handOverSurge(slots int) int {
	if slots < leastSlots || s.surgeIsSet && s.maxSurge.RoundUp(1) == 0 {
		return 0
	}

	return 1
}

// allSettings are the settings of all groups, by name.
type allSettings struct {
	groups map[string]settings
	// gates of the cluster hold for all groups.
	gates []v1alpha1.Gate
}

// of returns the settings of a group. A group that the manifests do not have any more gets the defaults.
func (a allSettings) of(group string) settings {
	s, found := a.groups[group]
	if !found {
		s.drainTimeout = defaultDrainTimeout
	}

	return s
}

// names returns the names of the groups, sorted.
func (a allSettings) names() []string { return slices.Sorted(maps.Keys(a.groups)) }

// rollsBack reports whether one of the updated groups asks for an automatic rollback.
func (a allSettings) rollsBack(only []string) bool {
	for name, s := range a.groups {
		if s.rollsBack && (len(only) == 0 || slices.Contains(only, name)) {
			return true
		}
	}

	return false
}

// resolveSettings returns the settings of all groups of a cluster.
func resolveSettings(set manifest.Set, req Request) (allSettings, error) {
	out := allSettings{groups: map[string]settings{}, gates: set.Cluster.Spec.RollingUpdate.Gates}
	if err := checkLimits(req); err != nil {
		return out, err
	}

	for _, g := range set.Groups {
		s, err := groupSettings(set.Cluster.Spec.RollingUpdate, g, req)
		if err != nil {
			return out, fmt.Errorf("read spec.rollingUpdate of group %s: %w", g.Metadata.Name, err)
		}

		out.groups[g.Metadata.Name] = s
	}

	return out, nil
}

// checkLimits reports flags that are not valid.
func checkLimits(req Request) error {
	for _, flag := range []struct {
		name  string
		value string
	}{
		{"--max-unavailable", req.MaxUnavailable},
		{"--max-surge", req.MaxSurge},
		{"--canary", req.Canary},
	} {
		if flag.value == "" {
			continue
		}

		_, err := manifest.ParseMachineLimit(v1alpha1.NumberOrPercent(flag.value))
		if err != nil {
			return diag.WithHint(
				fmt.Errorf("invalid %s %q", flag.name, flag.value),
				"use a number, or a percentage from 1% to 100%",
			)
		}
	}

	if req.MaxUnavailable == "0" && (req.MaxSurge == "" || req.MaxSurge == "0") {
		return diag.WithHint(
			fmt.Errorf("invalid --max-unavailable %q", req.MaxUnavailable),
			"use 1 or more, or set --max-surge as well",
		)
	}

	return nil
}

// groupSettings returns the settings of one group.
func groupSettings(
	forAll v1alpha1.RollingUpdate,
	g v1alpha1.InstanceGroup,
	req Request,
) (settings, error) {
	own := g.Spec.RollingUpdate
	out := settings{
		maxFailures: cmp.Or(req.MaxFailures, own.MaxFailures, forAll.MaxFailures),
		rollsBack:   req.AutomaticRollback || own.AutomaticRollback || forAll.AutomaticRollback,
		gates:       own.Gates,
	}

	var err error
	for _, limit := range []struct {
		into *manifest.MachineLimit
		text v1alpha1.NumberOrPercent
	}{
		{
			&out.maxUnavailable,
			cmp.Or(v1alpha1.NumberOrPercent(req.MaxUnavailable), own.MaxUnavailable, forAll.MaxUnavailable),
		},
		{&out.maxSurge, cmp.Or(v1alpha1.NumberOrPercent(req.MaxSurge), own.MaxSurge, forAll.MaxSurge)},
		{&out.canary, cmp.Or(v1alpha1.NumberOrPercent(req.Canary), own.Canary, forAll.Canary)},
	} {
		if limit.text == "" {
			continue
		}

		out.surgeIsSet = out.surgeIsSet || limit.into == &out.maxSurge
		if *limit.into, err = manifest.ParseMachineLimit(limit.text); err != nil {
			return out, fmt.Errorf("%s %w", limit.text, err)
		}
	}

	out.drainTimeout, err = parseWait(cmp.Or(own.DrainTimeout, forAll.DrainTimeout), defaultDrainTimeout)
	if err != nil {
		return out, err
	}

	if out.pauseBetween, err = parseWait(cmp.Or(own.PauseBetween, forAll.PauseBetween), 0); err != nil {
		return out, err
	}

	out.pauseBetween = cmp.Or(req.PauseBetween, out.pauseBetween)
	if req.DrainTimeout != 0 {
		out.drainTimeout = max(0, req.DrainTimeout)
	}

	return out, nil
}

// parseWait parses a duration of a manifest.
func parseWait(text string, unset time.Duration) (time.Duration, error) {
	if text == "" {
		return unset, nil
	}

	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%q is not a valid duration: %w", text, err)
	}

	return d, nil
}
