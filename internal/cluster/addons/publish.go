// SPDX-License-Identifier: Apache-2.0

package addons

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/addon/published"
)

// Publication plans and makes one change of the channels that the control plane of a cluster keeps applied. It needs no
// running cluster.
type Publication struct {
	// Changes for each add-on.
	Changes []PublishedChange
	// Source is the address of what the control plane follows; empty: nothing.
	Source string

	store  store.Store
	sealer store.Sealer
	now    time.Time
	former published.Channels
	object store.Object // that former was read from
	next   published.Channels
	// isChange is set if next differs from former.
	isChange bool
}

// PublishedChange is what a publication changes for one add-on.
type PublishedChange struct {
	Name string `json:"name"`
	// Current is the version that is published; empty: none.
	Current string `json:"current,omitempty"`
	// Update is the version that will be published; empty if its objects are those of the current one, or if the add-on
	// leaves the channel.
	Update string `json:"update,omitempty"`
	// Wave is the number of the wave; zero if the add-on leaves the channel.
	Wave int `json:"wave,omitempty"`
}

// PublishOptions are how the control plane keeps a channel applied.
type PublishOptions struct {
	Mode published.Mode
	// Prune deletes add-ons that the channel no longer has.
	Prune bool
}

// NewPublication reads the published channels of the session's cluster.
func (s *Session) NewPublication(ctx context.Context, env *cluster.Env) (*Publication, error) {
	region := env.Region
	if region == "" {
		region = s.Cluster.Spec.CloudProvider.AWS.Region
	}

	machines, sealer, err := env.OpenMachineStore(ctx, s.Cluster, region)
	if err != nil {
		return nil, err
	}

	return newPublication(ctx, machines, sealer, s.Cluster.Metadata.Name, env.Now())
}

func newPublication(
	ctx context.Context,
	s store.Store,
	sealer store.Sealer,
	name string,
	now time.Time,
) (*Publication, error) {
	former, object, err := published.Read(ctx, s, sealer, name)
	if err != nil {
		return nil, err
	}

	return &Publication{store: s, sealer: sealer, now: now, former: former, object: object}, nil
}

// Publish plans to publish a channel.
func (p *Publication) Publish(c Channel, o PublishOptions) error {
	added := published.NewChannel(c.Name, c.Releases)
	added.Mode = o.Mode
	added.Prune = o.Prune
	added.Unfit = c.Unfit
	added.Source = c.Source
	if c.Source != nil {
		p.Source = c.Source.String()
	}

	current, _ := p.former.Find(c.Name)

	for _, r := range added.Releases {
		change := PublishedChange{Name: r.Addon.Name, Wave: r.Wave}
		was := slices.IndexFunc(current.Releases, func(one published.Release) bool { return one.Addon.Name == r.Addon.Name })
		isSame := false
		if was >= 0 {
			change.Current = current.Releases[was].Addon.Version
			same, err := encodesEqually(current.Releases[was], r)
			if err != nil {
				return fmt.Errorf("add-on %s: %w", r.Addon.Name, err)
			}

			isSame = same
		}

		if !isSame {
			change.Update = r.Addon.Version
		}

		p.Changes = append(p.Changes, change)
	}

	if c.Source == nil {
		p.addLeaving(current, added)
	}

	return p.compare(current, added)
}

// addLeaving adds the add-ons that leave the channel to the changes.
func (p *Publication) addLeaving(current, added published.Channel) {
	for _, was := range current.Releases {
		named := func(one published.Release) bool { return one.Addon.Name == was.Addon.Name }
		if !slices.ContainsFunc(added.Releases, named) {
			p.Changes = append(p.Changes, PublishedChange{Name: was.Addon.Name, Current: was.Addon.Version})
		}
	}
}

// compare sets what is written, and whether it is a change.
func (p *Publication) compare(current, added published.Channel) error {
	same := added
	same.Serial = current.Serial
	same.PublishedAt = current.PublishedAt
	equal, err := encodesEqually(current, same)
	if err != nil {
		return fmt.Errorf("channel %s: %w", added.Name, err)
	}

	p.next = p.former.With(added, p.now)
	p.isChange = !equal

	return nil
}

// Withdraw plans that the control plane no longer keeps a channel applied. The cluster keeps its add-ons.
func (p *Publication) Withdraw(name string) error {
	current, found := p.former.Find(name)
	if !found {
		err := fmt.Errorf("cluster %s has no published channel %s", p.former.Cluster, name)

		return diag.WithHint(err, "list the published channels: slipway addons channels "+p.former.Cluster)
	}

	p.addLeaving(current, published.Channel{})
	p.next = p.former.Without(name, p.now)
	p.isChange = true

	return nil
}

// IsChange reports whether Write would change anything.
func (p *Publication) IsChange() bool { return p.isChange }

// Serial returns the number of the change, which the control plane reports when it has applied it.
func (p *Publication) Serial() int64 { return p.next.Serial }

// Write makes the change. It fails if another process has changed the channels since they were read.
func (p *Publication) Write(ctx context.Context) error {
	body, err := p.next.Seal(ctx, p.sealer)
	if err != nil {
		return err
	}

	object := store.Object{Key: p.object.Key, Body: body}
	_, err = clusterstate.ReplaceObject(ctx, p.store, object, p.object)
	if errors.Is(err, store.ErrConflict) {
		return diag.WithHint(
			fmt.Errorf("publish %s: %w", p.object.Key, err),
			"rerun the command: another process published at the same time",
		)
	}

	return err
}

// encodesEqually reports whether two values are stored as the same bytes.
func encodesEqually(a, b any) (bool, error) {
	left, err := json.Marshal(a)
	if err != nil {
		return false, err
	}

	right, err := json.Marshal(b)

	return bytes.Equal(left, right), err
}
